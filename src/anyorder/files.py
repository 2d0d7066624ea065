"""Write files whole or not at all, and lock folders so that they have one writer at a time.

A file is written under a temporary name in its own folder, synced to disk, and then renamed. A
killed process can leave two things behind: temporary files, which `sweep` removes, and the lock
file of `alone_in`, which the next writer takes over. Processes that share one piece of work use
`together_in`, and each writes files of its own. All other modules write their files through this
one, and it imports none of them.

The locks are `fcntl.flock` and not the package filelock, because filelock's `FileLock` cannot be
shared and leaves its lock file behind, and its `ReadWriteLock` leaves an SQLite database behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

TEMPORARY_SUFFIX = ".anyorder-tmp"
LOCK_FILE = ".lock"

COPY_IT = "work on a copy of the folder"
"""What errors advise when a command would write into an existing run."""

LOCK_ATTEMPTS = 100
"""How often a process tries again after it lost a race for the lock file or for its folder.

A process that loses so often in a row does not race: a folder cannot be made at that path.
"""

WAIT_SECONDS, WAIT_PAUSE = 60.0, 0.1
"""How long `together_in` waits for a process that is `alone_in` the folder, and how often it looks.
"""


class Busy(ValueError):
    """Another process has locked the folder."""


class NoLocks(ValueError):
    """The disk or the operating system has no locks."""


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces `path` if the block succeeds."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")
    try:
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        yield temporary
        # Some libraries write a new file that only its owner can read: restore the usual mode.
        os.chmod(temporary, mode)
        sync(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Like `replacing_path`, but yield an open file."""
    with replacing_path(path) as temporary, temporary.open("wb") as file:
        yield file
        file.flush()


@contextmanager
def creating(path: Path) -> Iterator[BinaryIO]:
    """Like `replacing`, for a file that must not exist yet: of several processes one succeeds.

    The others get FileExistsError, and can read what the first one wrote.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)  # unlike a rename, a link never replaces a file
        except FileExistsError:
            raise
        except OSError as error:
            raise ValueError(
                f"{path.parent} is on a disk without hard links ({error.strerror}): several "
                "processes cannot begin there together; choose another disk, or use one process"
            ) from None
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def write_json(path: Path, record: Any, *, indent: int = 1) -> None:
    """Write a JSON file; like `replacing`, the file is complete or unchanged."""
    with replacing(path) as file:
        file.write(json.dumps(record, indent=indent, allow_nan=False).encode() + b"\n")


def sweep(folder: Path) -> None:
    """Remove the temporary files of killed writers. Call it only while `alone_in(folder)`."""
    for leftover in folder.glob(f".*{TEMPORARY_SUFFIX}"):
        leftover.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Force a file's content, or the entries of a folder, onto the disk."""
    if path.is_dir() and os.name != "posix":
        return  # Windows cannot open folders
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 digest of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def alone_in(folder: Path, otherwise: str = "choose another --out") -> Iterator[None]:
    """Lock `folder` for this process alone, and make the folder if it is missing.

    The system releases the lock when the process ends, even if it is killed. At the end of the
    block the lock file is removed, and so are the folders that this call made if they are still
    empty. Where the system has no such locks (Windows), two writers do not notice each other.
    Errors end with the advice `otherwise`.
    """
    if fcntl is None:
        folder.mkdir(parents=True, exist_ok=True)
        yield
        return
    with _removing_empty_folders() as made:
        handle = _acquire(folder, made, otherwise)
        try:
            yield
        finally:
            _release(folder, handle)


@contextmanager
def together_in(folder: Path, otherwise: str = "choose another --out") -> Iterator[None]:
    """Share `folder` with others that are `together_in` it, while no process is `alone_in` it.

    This is for processes that write files of different names. It waits up to a minute for a
    process that is alone in the folder. On a disk without locks the processes do not notice each
    other: their work must be correct without the lock. The last process to leave removes the lock
    file.
    """
    with _removing_empty_folders() as made:
        handle = _acquire_shared(folder, made, otherwise)
        try:
            yield
        finally:
            if handle is not None:
                _release(folder, handle)


@contextmanager
def alone_if_free(folder: Path, *, without_locks: bool = True) -> Iterator[bool]:
    """Lock `folder` like `alone_in` if no other process is in it, and yield whether that is so.

    If several processes leave `together_in` and then call this, the last one gets True. On a disk
    without locks nothing is known about other processes, and `without_locks` is the answer.
    """
    with _removing_empty_folders() as made:
        handle: int | None = None
        alone = without_locks
        if fcntl is not None:
            try:
                handle = _acquire(folder, made, "")
                alone = True
            except Busy:
                alone = False
            except NoLocks:
                pass
        try:
            yield alone
        finally:
            if handle is not None:
                _release(folder, handle)


@contextmanager
def _removing_empty_folders() -> Iterator[list[Path]]:
    """Yield a list for the folders that the block makes; afterwards remove those still empty."""
    made: list[Path] = []
    try:
        yield made
    finally:
        for path in reversed(made):  # a folder is empty only after its subfolders are removed
            # Another process may use the folder by now. Its lock file keeps the folder from being
            # empty, so this cannot remove a folder that is locked.
            with suppress(OSError):
                path.rmdir()


def _acquire_shared(folder: Path, made: list[Path], otherwise: str) -> int | None:
    """Wait for a shared lock and return its handle, or None where there are no locks."""
    if fcntl is None:
        folder.mkdir(parents=True, exist_ok=True)
        return None
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return _acquire(folder, made, otherwise, shared=True)
        except NoLocks:
            return None
        except Busy:
            if time.monotonic() > deadline:
                raise
            time.sleep(WAIT_PAUSE)


def _acquire(folder: Path, made: list[Path], otherwise: str, *, shared: bool = False) -> int:
    """Lock the lock file of `folder` and return its handle; add the folders made to `made`.

    Processes that finish remove the lock file, and the folders they made, at any moment. So each
    step here can find that the result of the step before it is gone; then all steps are repeated.
    """
    for attempt in range(LOCK_ATTEMPTS):
        try:
            _make_folders(folder, made)
            handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            # FileNotFoundError: another process removed a folder after we made it, or after we
            # saw that it exists. Other errors do not go away by trying again.
            if isinstance(error, FileNotFoundError) and attempt < LOCK_ATTEMPTS - 1:
                continue
            raise ValueError(
                f"{folder} cannot be written to ({error.strerror}): {otherwise}"
            ) from None
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if isinstance(error, BlockingIOError):
                # The lock file belongs to the process that holds it: leave it there.
                raise Busy(
                    f"another process is working in {folder}: wait for it, or {otherwise}"
                ) from None
            (folder / LOCK_FILE).unlink(missing_ok=True)
            raise NoLocks(
                f"{folder} is on a disk without locks ({error.strerror}): {otherwise}"
            ) from None
        # The holder before us may have removed the file after we opened it and before we locked
        # it. Then the next process makes a new lock file, and our lock on the old one keeps no
        # process out. If the file is still there, it stays until we release it: a process needs
        # the exclusive lock to remove it. The folder stays too, because it is not empty.
        if _is_same_file(handle, folder / LOCK_FILE):
            return handle
        os.close(handle)
    raise Busy(f"other processes come and go in {folder}: {otherwise}")


def _make_folders(folder: Path, made: list[Path]) -> None:
    """Make `folder` and its missing parents, and add those that this call made to `made`."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        # If the path exists by now, another process made it. Do not look what it is: that process
        # may remove it again before we look, and a missing folder would seem to be a file. If it
        # is no folder, or gone, the next step inside it fails and tells which.
        with suppress(FileExistsError):
            path.mkdir()
            made.append(path)


def _release(folder: Path, handle: int) -> None:
    """Remove the lock file if no other process shares the lock, and release the lock."""
    try:
        # Only a process that holds the lock alone may remove the file. After `alone_in` this
        # process does already. After `together_in` it does only if no other process is left.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)  # others share the lock, and the last of them removes the file
        return
    try:
        # The system may drop a shared lock for a moment before it grants the exclusive one. If
        # another process came in between, it removed this file, and a new one may have its name.
        if _is_same_file(handle, folder / LOCK_FILE):
            # Remove the file before the lock is released: a process that has opened this file and
            # locks it next sees that it is gone, and repeats its steps.
            (folder / LOCK_FILE).unlink(missing_ok=True)
    finally:
        os.close(handle)


def _is_same_file(handle: int, path: Path) -> bool:
    """Whether `path` still names the open file: it may have been removed, and made again."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False
