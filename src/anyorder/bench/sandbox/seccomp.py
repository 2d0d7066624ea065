"""The system-call filters: BPF programs put together here, without a library.

    server_filter   for the fork-server, inherited by every child: what is not allowed is refused
    child_filter    on top, once per child: no processes, no signals to others, no more filters

A filter is a list of instructions `(code, jt, jf, k)` over `struct seccomp_data` (number at 0,
machine at 4, arguments of 8 bytes from 16); the kernel runs all of them for every call and the
strictest answer wins. Arguments that the kernel takes as `int` are looked at as their low 32 bits,
which is what the kernel looks at. Refused calls fail with EPERM, so that an honest program gets an
exception it can read; calls in another machine's convention (32-bit, x32) kill the process. What
paths a call names cannot be seen from here: that is Landlock's part.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from anyorder.bench.sandbox.libc import (
    PR_GET_NAME,
    PR_SET_NAME,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    PR_SET_SECCOMP,
    PR_SET_VMA,
    checked,
)
from anyorder.bench.sandbox.syscalls import NEWEST, Calls

Instruction = tuple[int, int, int, int]

# From linux/bpf_common.h: the few operations that a filter needs.
LOAD = 0x20  # ld [k]
AND = 0x54  # A &= k
EQUAL = 0x15  # A == k ? skip jt : skip jf
GREATER = 0x25  # A > k
ANY_BIT = 0x45  # A & k
RETURN = 0x06

# From linux/seccomp.h.
ALLOW = 0x7FFF0000
ERRNO = 0x00050000
KILL = 0x80000000
REFUSE = ERRNO | errno.EPERM
ABSENT = ERRNO | errno.ENOSYS
SECCOMP_MODE_FILTER = 2

NUMBER, MACHINE, ARGUMENTS = 0, 4, 16
X32_BIT = 0x40000000

CLONE_THREAD = 0x00010000
# Every namespace, and a child that is somebody else's.
CLONE_NEVER = 0x7E020000 | 0x00008000
AF_UNIX = 1
SOCK_STREAM = 1
SOCK_TYPE_MASK = 0xF
# What descriptors are, never who gets signals about them (F_SETOWN, F_SETSIG).
FCNTL_COMMANDS = (0, 1, 2, 3, 4, 1030, 1032)
# TCGETS, TIOCGWINSZ, FIONREAD, FIONCLEX, FIOCLEX, FIONBIO.
IOCTL_REQUESTS = (0x5401, 0x5413, 0x541B, 0x5450, 0x5451, 0x5421)
PROGRAM_PRCTL = (PR_SET_NAME, PR_GET_NAME, PR_SET_VMA)
SERVER_PRCTL = (*PROGRAM_PRCTL, PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS)
O_TRUNC = 0o1000


def server_filter(calls: Calls, *, refuse_truncation: bool = False) -> list[Instruction]:
    """What the fork-server and all its children are held to.

    `refuse_truncation` is for kernels whose Landlock does not know that right yet: opening a file
    to read it can empty it there.
    """
    body = _preamble(calls)
    body += _when(calls, "clone", [*_argument(0), (ANY_BIT, 0, 1, CLONE_NEVER), *_answer(REFUSE)])
    body += _when(calls, "fcntl", _one_of(1, FCNTL_COMMANDS))
    body += _when(calls, "ioctl", _one_of(1, IOCTL_REQUESTS))
    body += _when(calls, "prctl", _one_of(0, SERVER_PRCTL))
    body += _when(calls, "prlimit64", _one_of(0, (0,)))
    body += _when(calls, "socketpair", _stream_pair())
    if refuse_truncation:
        for name, position in (("open", 1), ("openat", 2)):
            check = [*_argument(position), (ANY_BIT, 0, 1, O_TRUNC), *_answer(REFUSE)]
            body += _when(calls, name, check)
    allowed = {*calls.program.values(), *calls.server.values()}
    allowed |= {calls.checked["kill"], calls.checked["tgkill"]}
    for number in sorted(allowed):
        body += [(EQUAL, 0, 1, number), *_answer(ALLOW)]
    body += [(EQUAL, 0, 1, calls.numbers["clone3"]), *_answer(ABSENT)]
    return [*body, (GREATER, 0, 1, NEWEST), *_answer(ABSENT), *_answer(REFUSE)]


def child_filter(calls: Calls, pid: int) -> list[Instruction]:
    """What a program is held to beyond the server's filter; `pid` is its own number."""
    body = _preamble(calls)
    body += _when(calls, "clone", [*_argument(0), (ANY_BIT, 1, 0, CLONE_THREAD), *_answer(REFUSE)])
    body += _when(calls, "kill", _one_of(0, (pid,)))
    body += _when(calls, "tgkill", _one_of(0, (pid,)))
    body += _when(calls, "prctl", _one_of(0, PROGRAM_PRCTL))
    for number in sorted(calls.server.values()):
        body += [(EQUAL, 0, 1, number), *_answer(REFUSE)]
    return [*body, *_answer(ALLOW)]


def assemble(instructions: list[Instruction]) -> bytes:
    """`struct sock_filter` after `struct sock_filter`."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


# Every page that a child writes to is copied, so the one call that each of them makes is prepared.
_prctl = ctypes.PyDLL(None, use_errno=True).prctl
_prctl.argtypes = (ctypes.c_int, *4 * [ctypes.c_ulong])


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class Filter:
    """An assembled filter, kept where the kernel can read it: installing it is one call."""

    def __init__(self, instructions: list[Instruction]) -> None:
        code = assemble(instructions)
        self._code = ctypes.create_string_buffer(code, len(code))
        self._program = _Program(len(instructions), ctypes.addressof(self._code))
        self._address = ctypes.addressof(self._program)
        self._places: list[int] = []

    @classmethod
    def of_child(cls, calls: Calls) -> Filter:
        """The child's filter, with holes for the number that a child has only once it exists."""
        found = cls(child_filter(calls, 0))
        for index, (code, _, _, k) in enumerate(child_filter(calls, _HOLE)):
            if code == EQUAL and k == _HOLE:
                found._places.append(8 * index + 4)
        assert len(found._places) == 2
        return found

    def install(self, pid: int | None = None) -> None:
        """Hold this thread, and whatever comes of it, to the filter from now on."""
        for place in self._places:
            struct.pack_into("=I", self._code, place, pid)
        checked("seccomp", _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, self._address, 0, 0))


_HOLE = 0x3FFFFFF7  # no process has this number: the kernel's highest is 2**22


def _preamble(calls: Calls) -> list[Instruction]:
    """Leaves the call's number loaded; no other machine's calls get further."""
    found = [(LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, calls.audit), *_answer(KILL)]
    return [*found, (LOAD, 0, 0, NUMBER), (ANY_BIT, 0, 1, X32_BIT), *_answer(KILL)]


def _answer(action: int) -> list[Instruction]:
    return [(RETURN, 0, 0, action)]


def _argument(position: int) -> list[Instruction]:
    return [(LOAD, 0, 0, ARGUMENTS + 8 * position)]


def _when(calls: Calls, name: str, check: list[Instruction]) -> list[Instruction]:
    """`check`, for the call `name` alone; a check that falls through allows the call."""
    if name not in calls.numbers:
        return []
    block = [*check, *_answer(ALLOW)]
    assert len(block) < 256, "a jump has one byte"
    return [(EQUAL, 0, len(block), calls.numbers[name]), *block]


def _one_of(position: int, values: tuple[int, ...]) -> list[Instruction]:
    """Refuses, unless the argument is one of `values`."""
    found = _argument(position)
    for index, value in enumerate(values):
        found.append((EQUAL, len(values) - index, 0, value))
    return [*found, *_answer(REFUSE)]


def _stream_pair() -> list[Instruction]:
    """A pair of connected local sockets, as event loops use; datagrams could be sent elsewhere."""
    family = [*_argument(0), (EQUAL, 1, 0, AF_UNIX), *_answer(REFUSE)]
    kind = [*_argument(1), (AND, 0, 0, SOCK_TYPE_MASK), (EQUAL, 1, 0, SOCK_STREAM)]
    return [*family, *kind, *_answer(REFUSE)]
