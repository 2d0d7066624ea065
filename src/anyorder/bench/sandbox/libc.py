"""The C library's calls that Python does not offer, each raising OSError when the kernel refuses.

Linux only. Loaded in the fork-server and nowhere else, so that a grader never waits for ctypes.
"""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Any

from anyorder.bench.sandbox.syscalls import MACHINES, Calls

# From linux/prctl.h.
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_KEEPCAPS = 8
PR_SET_NAME = 15
PR_GET_NAME = 16
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
PR_SET_VMA = 0x53564D41

library: Any = ctypes.CDLL(None, use_errno=True)
library.syscall.restype = ctypes.c_long

# Python's own fork also runs what modules asked for after a fork, on memory that is then copied
# page by page: half a millisecond. The fork-server has one thread, so nothing needs repair.
bare_fork: Any = ctypes.PyDLL(None).fork
bare_fork.restype = ctypes.c_int
bare_fork.argtypes = []


def calls() -> Calls:
    """The table of this machine."""
    return MACHINES[platform.machine()]


def syscall(name: str, *arguments: Any) -> int:
    """A system call by its name."""
    return checked(name, library.syscall(calls().numbers[name], *map(_argument, arguments)))


def prctl(option: int, *arguments: int) -> None:
    """Change something about this process."""
    four = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    checked("prctl", library.prctl(option, *four))


def checked(name: str, result: int) -> int:
    """`result`, unless it says that the call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _argument(value: Any) -> Any:
    """Integers as machine words; the rest as ctypes takes it."""
    return ctypes.c_long(value) if isinstance(value, int) else value
