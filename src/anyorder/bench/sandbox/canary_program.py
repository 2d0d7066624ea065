"""The first things that a hostile program would try: `canaries` runs this text, confined.

Each function tries one thing and returns `(whether it was prevented, the system's message)`. The
text runs like any sample, through the same path, so what holds here holds for samples. Never
imported.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Callable
from typing import Any

Outcome = tuple[bool, str]


def _prevented(attempt: Callable[[], Any]) -> Outcome:
    try:
        attempt()
    except OSError as error:
        return True, error.strerror or str(error)
    return False, "it was possible"


def tcp(port: int) -> Outcome:
    """Reach a listener of the grader on the loopback."""

    def attempt() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sender:
            sender.settimeout(1.0)
            sender.connect(("127.0.0.1", port))

    return _prevented(attempt)


def udp(port: int) -> Outcome:
    """Send a datagram to the loopback."""

    def attempt() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x", ("127.0.0.1", port))

    return _prevented(attempt)


def unix(name: str) -> Outcome:
    """Reach a listener of the grader through a local socket."""

    def attempt() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sender:
            sender.connect("\0" + name)

    return _prevented(attempt)


def fork() -> Outcome:
    """Start another process."""

    def attempt() -> None:
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)

    return _prevented(attempt)


def kill() -> Outcome:
    """Signal number 0 to the parent: only asks whether a signal could be sent."""
    return _prevented(lambda: os.kill(os.getppid(), 0))


def call(number: int) -> Outcome:
    """A call with senseless arguments: EPERM shows that the filter refused it unseen.

    Any other error comes from the call itself, so the filter let it through.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(number, *6 * [ctypes.c_long(-1)]) >= 0:
        return False, "it was possible"
    reason = ctypes.get_errno()
    return reason == errno.EPERM, os.strerror(reason)


def read(path: str) -> Outcome:
    """Read a file outside."""
    return _prevented(lambda: os.close(os.open(path, os.O_RDONLY)))


def listing(folder: str) -> Outcome:
    """See what is in a folder outside."""
    return _prevented(lambda: os.listdir(folder))


def write(path: str) -> Outcome:
    """Make a file in a folder that every user may write to."""

    def attempt() -> None:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.unlink(path)

    return _prevented(attempt)


def overwrite(path: str) -> Outcome:
    """Open a file for writing that every user may write to."""
    return _prevented(lambda: os.close(os.open(path, os.O_WRONLY)))


def memory(size: int) -> Outcome:
    """Take more memory than the limit."""
    try:
        bytearray(size)
    except MemoryError:
        return True, "MemoryError"
    return False, "it was possible"


def grow() -> Outcome:
    """Write to an open file: the standard input is one."""
    return _prevented(lambda: os.write(0, b"x"))


def descriptors() -> Outcome:
    """Find an open descriptor beyond the standard ones and the channel."""
    found = []
    for number in range(4, 256):
        try:
            os.fstat(number)
        except OSError:
            continue
        found.append(number)
    return not found, f"open: {found}" if found else "none is open"
