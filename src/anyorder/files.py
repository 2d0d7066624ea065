"""Files that are there whole or not at all, whenever the process is killed.

A file is written under a temporary name in its own folder, synced to disk, then renamed. What a
killed process leaves behind are temporary names only; `sweep` removes them. Every room writes its
files through here; this module imports nothing of ours.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

TEMPORARY_SUFFIX = ".anyorder-tmp"


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
