"""Files that are there whole or not at all, in folders that have one writer at a time.

A file is written under a temporary name in its own folder, synced to disk, then renamed. What a
killed process leaves behind are temporary names, which `sweep` removes, and the lock file of
`alone_in`, which the next writer takes over. Processes that share one piece of work are
`together_in` a folder, each with files of its own. Every room writes its files through here; this
module imports nothing of ours.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

TEMPORARY_SUFFIX = ".anyorder-tmp"
LOCK_FILE = ".lock"

COPY_IT = "work on a copy of the folder"
"""What to do instead of writing into a run that is there already."""

# Another process may remove the lock file, or the folder made for it, between two of our calls. To
# lose that race so often in a row means that the folder cannot be made at all.
LOCK_ATTEMPTS = 100

WAIT_SECONDS, WAIT_PAUSE = 60.0, 0.1
"""How long those who come together wait for one who is alone there, and how often they look."""


class Busy(ValueError):
    """Another process holds the folder."""


class NoLocks(ValueError):
    """The disk, or the system, has no locks."""


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """A name to write to; what stands there takes the place of `path` when the block succeeds."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")
    try:
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        yield temporary
        os.chmod(temporary, mode)  # some writers make files that only their owner can read
        sync(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """The same, as an open file."""
    with replacing_path(path) as temporary, temporary.open("wb") as file:
        yield file
        file.flush()


@contextmanager
def creating(path: Path) -> Iterator[BinaryIO]:
    """The same for a file that must not be there yet: of several processes one succeeds.

    The others get FileExistsError, and can read what the first has written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)  # unlike a rename, this never replaces
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


def sweep(folder: Path) -> None:
    """Remove what killed writers left in `folder`. Only for the folder's one writer."""
    for leftover in folder.glob(f".*{TEMPORARY_SUFFIX}"):
        leftover.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Put a file's content, or a folder's entries, on the disk."""
    if path.is_dir() and os.name != "posix":
        return  # Windows cannot open folders
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_of(path: Path) -> str:
    """The digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def alone_in(folder: Path, otherwise: str = "choose another --out") -> Iterator[None]:
    """Hold `folder`, making it if need be; the system lets go when the process ends, however.

    Afterwards the lock file is gone, and so is what was made for it and is still empty. Where the
    system has no such locks (Windows), two writers in one folder are not noticed. `otherwise` is
    what errors advise.
    """
    if not _has_locks():
        folder.mkdir(parents=True, exist_ok=True)
        yield
        return
    made: list[Path] = []
    try:
        handle = _locked(folder, made, otherwise)
        try:
            yield
        finally:
            _unlock(folder, handle)
    finally:
        _remove_empty(made)


@contextmanager
def together_in(folder: Path, otherwise: str = "choose another --out") -> Iterator[None]:
    """Be in `folder` with others who are there together, and with nobody who is `alone_in` it.

    For processes that write files of different names. Whoever is alone there is waited for, for a
    minute. On a disk without locks nobody is noticed: what is done together must be right without
    them. Afterwards whoever was the last removes the lock file.
    """
    made: list[Path] = []
    try:
        handle = _locked_together(folder, made, otherwise)
        try:
            yield
        finally:
            if handle is not None:
                _unlock(folder, handle, last=_is_last(handle))
    finally:
        _remove_empty(made)


@contextmanager
def alone_if_free(folder: Path, *, without_locks: bool = True) -> Iterator[bool]:
    """Hold `folder` like `alone_in` if nobody else is there: True if so.

    Of processes that leave `together_in` and then try this, the last one succeeds. On a disk
    without locks nobody knows; then `without_locks` is the answer.
    """
    made: list[Path] = []
    handle: int | None = None
    alone = without_locks
    try:
        if _has_locks():
            try:
                handle = _locked(folder, made, "")
                alone = True
            except Busy:
                alone = False
            except NoLocks:
                pass
        try:
            yield alone
        finally:
            if handle is not None:
                _unlock(folder, handle)
    finally:
        _remove_empty(made)


def _has_locks() -> bool:
    try:
        import fcntl  # noqa: F401
    except ImportError:
        return False
    return True


def _locked_together(folder: Path, made: list[Path], otherwise: str) -> int | None:
    """A handle on the lock file, shared with others; None where there are no locks."""
    if not _has_locks():
        folder.mkdir(parents=True, exist_ok=True)
        return None
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return _locked(folder, made, otherwise, shared=True)
        except NoLocks:
            return None
        except Busy:
            if time.monotonic() > until:
                raise
            time.sleep(WAIT_PAUSE)


def _unlock(folder: Path, handle: int, *, last: bool = True) -> None:
    # Removed while it is held: whoever waits on this very file sees that it is not the
    # folder's lock file any more, and begins again.
    if last and _is_file_of(handle, folder / LOCK_FILE):
        (folder / LOCK_FILE).unlink(missing_ok=True)
    os.close(handle)


def _is_last(handle: int) -> bool:
    """Whether nobody else shares the lock: then it is held alone from now on."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_empty(made: list[Path]) -> None:
    for path in reversed(made):
        with suppress(OSError):  # in use by now
            path.rmdir()


def _locked(folder: Path, made: list[Path], otherwise: str, *, shared: bool = False) -> int:
    """A handle on the lock file of `folder`, locked; the folders made on the way go to `made`."""
    import fcntl

    for attempt in range(LOCK_ATTEMPTS):
        try:
            _make(folder, made)
            handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
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
                raise Busy(
                    f"another process is working in {folder}: wait for it, or {otherwise}"
                ) from None
            (folder / LOCK_FILE).unlink(missing_ok=True)
            raise NoLocks(
                f"{folder} is on a disk without locks ({error.strerror}): {otherwise}"
            ) from None
        if _is_file_of(handle, folder / LOCK_FILE):
            return handle
        os.close(handle)
    raise Busy(f"other processes come and go in {folder}: {otherwise}")


def _make(folder: Path, made: list[Path]) -> None:
    """Make `folder` and its parents; those that were not there before are added to `made`."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        try:
            path.mkdir()
            made.append(path)
        except FileExistsError:
            if not path.is_dir():
                raise


def _is_file_of(handle: int, path: Path) -> bool:
    """Whether `path` still names the open file: it may have been removed and made anew."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False
