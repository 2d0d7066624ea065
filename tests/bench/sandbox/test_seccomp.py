"""The filters, run by an interpreter of their own: every listed call, on both machines."""

from __future__ import annotations

import errno
import os
import re
import struct
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("system calls of Linux", allow_module_level=True)

from anyorder.bench.sandbox import seccomp
from anyorder.bench.sandbox.canaries import REFUSED_CALLS
from anyorder.bench.sandbox.seccomp import MACHINES, NEWEST, SyscallNumbers

ALLOW, REFUSE, ABSENT, KILL = seccomp.ALLOW, seccomp.REFUSE, seccomp.ABSENT, seccomp.KILL
MY_PID = 4321
FORK_FLAGS = 0x01200011  # what the C library's fork passes: CHILD_SETTID | CHILD_CLEARTID | SIGCHLD
THREAD_FLAGS = 0x003D0F00  # what its pthread_create passes


def run(program: list[seccomp.Instruction], data: bytes) -> int:
    """A classic BPF machine: the answer of a filter; IndexError if it runs off its end."""
    code = seccomp.assemble(program)
    assert len(code) == 8 * len(program)
    accumulator = position = 0
    while True:
        operation, yes, no, k = struct.unpack_from("=HBBI", code, 8 * position)
        position += 1
        if operation == 0x06:  # ret k
            return k
        if operation == 0x20:  # ld [k]
            accumulator = struct.unpack_from("=I", data, k)[0]
        elif operation == 0x54:  # and k
            accumulator &= k
        elif operation in (0x15, 0x25, 0x45):
            outcome = {
                0x15: accumulator == k,
                0x25: accumulator > k,
                0x45: bool(accumulator & k),
            }[operation]
            position += yes if outcome else no
        else:
            raise AssertionError(f"no such operation {operation:#x}")


def ask(
    program: list[seccomp.Instruction], calls: SyscallNumbers, number: int, *arguments: int
) -> int:
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    words = [value & 0xFFFFFFFFFFFFFFFF for value in padded]
    return run(program, struct.pack("=IIQ6Q", number, calls.audit, 0, *words))


class Confined:
    """The two filters of a machine as the kernel runs them: the strictest answer wins."""

    def __init__(self, machine: str) -> None:
        self.calls = MACHINES[machine]
        self.server_program = seccomp.server_filter(self.calls)
        self.child_program = seccomp.child_filter(self.calls, MY_PID)

    def server(self, name: str, *arguments: int) -> int:
        return ask(self.server_program, self.calls, self.calls.numbers[name], *arguments)

    def child(self, name: str, *arguments: int) -> int:
        inner = ask(self.child_program, self.calls, self.calls.numbers[name], *arguments)
        return min(self.server(name, *arguments), inner, key=lambda answer: answer ^ 0x80000000)


@pytest.fixture(params=sorted(MACHINES))
def confined(request: pytest.FixtureRequest) -> Confined:
    return Confined(request.param)


KNOWN = {  # from the kernel's headers, by heart and by hand
    "x86_64": {
        "read": 0,
        "write": 1,
        "open": 2,
        "mmap": 9,
        "ioctl": 16,
        "socket": 41,
        "clone": 56,
        "fork": 57,
        "vfork": 58,
        "execve": 59,
        "kill": 62,
        "ptrace": 101,
        "prctl": 157,
        "tgkill": 234,
        "openat": 257,
        "unshare": 272,
        "prlimit64": 302,
        "seccomp": 317,
        "memfd_create": 319,
        "bpf": 321,
        "execveat": 322,
        "userfaultfd": 323,
        "io_uring_setup": 425,
        "clone3": 435,
        "landlock_create_ruleset": 444,
    },
    "aarch64": {
        "read": 63,
        "write": 64,
        "mmap": 222,
        "ioctl": 29,
        "socket": 198,
        "clone": 220,
        "execve": 221,
        "kill": 129,
        "ptrace": 117,
        "prctl": 167,
        "tgkill": 131,
        "openat": 56,
        "unshare": 97,
        "prlimit64": 261,
        "seccomp": 277,
        "memfd_create": 279,
        "bpf": 280,
        "execveat": 281,
        "userfaultfd": 282,
        "io_uring_setup": 425,
        "clone3": 435,
        "exit_group": 94,
        "futex": 98,
        "getpid": 172,
        "landlock_restrict_self": 446,
    },
}


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_numbers_that_everybody_knows(machine: str) -> None:
    numbers = MACHINES[machine].numbers
    assert {name: numbers[name] for name in KNOWN[machine]} == KNOWN[machine]
    assert len(set(numbers.values())) == len(numbers), "a number twice"
    assert max(numbers.values()) <= NEWEST
    legacy = {"open", "fork", "vfork", "stat", "pipe", "dup2", "epoll_create", "alarm", "mkdir"}
    assert legacy.isdisjoint(MACHINES["aarch64"].numbers) and legacy <= set(
        MACHINES["x86_64"].numbers
    )


HEADERS = {
    "x86_64": ("x86_64-linux-gnu/asm/unistd_64.h", "asm/unistd_64.h"),
    "aarch64": ("asm-generic/unistd.h",),
}


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_numbers_are_those_of_the_headers(machine: str) -> None:
    found = [Path("/usr/include") / name for name in HEADERS[machine]]
    headers = [path for path in found if path.is_file()]
    if not headers:
        pytest.skip("no kernel headers here")
    text = headers[0].read_text()
    defined = {m[1]: int(m[2]) for m in re.finditer(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    defined.setdefault("newfstatat", defined.get("fstatat", -1))
    numbers = MACHINES[machine].numbers
    assert {name: defined.get(name) for name in numbers} == numbers


def test_every_listed_call(confined: Confined) -> None:
    """No arguments at all: the tables say who may."""
    calls = confined.calls
    for name in calls.program:
        assert confined.server(name) == confined.child(name) == ALLOW, name
    for name in calls.server:
        assert (confined.server(name), confined.child(name)) == (ALLOW, REFUSE), name
    for name in calls.refused:
        expected = ABSENT if name == "clone3" else REFUSE
        assert confined.server(name) == confined.child(name) == expected, name


def test_calls_that_are_in_no_table(confined: Confined) -> None:
    known = set(confined.calls.numbers.values())
    for number in range(600):
        if number not in known:
            expected = REFUSE if number <= NEWEST else ABSENT
            assert ask(confined.server_program, confined.calls, number) == expected, number


def test_processes_and_threads(confined: Confined) -> None:
    assert confined.server("clone", FORK_FLAGS) == ALLOW
    assert confined.child("clone", FORK_FLAGS) == REFUSE
    assert confined.child("clone", 0x4111) == REFUSE  # CLONE_VM | CLONE_VFORK | SIGCHLD
    assert confined.child("clone", THREAD_FLAGS) == ALLOW
    for flag in (
        0x00020000,
        0x02000000,
        0x04000000,
        0x08000000,
        0x10000000,
        0x20000000,
        0x40000000,
    ):
        assert confined.server("clone", FORK_FLAGS | flag) == REFUSE
        assert confined.child("clone", THREAD_FLAGS | flag) == REFUSE
    assert confined.child("clone", FORK_FLAGS | 0x8000) == REFUSE  # CLONE_PARENT


def test_signals_only_to_oneself(confined: Confined) -> None:
    for name in ("kill", "tgkill"):
        assert confined.child(name, MY_PID) == ALLOW
        assert confined.server(name, 99) == ALLOW
        for other in (1, 0, -1, -MY_PID, MY_PID + 1, 99):
            assert confined.child(name, other) == REFUSE, (name, other)


def test_other_arguments(confined: Confined) -> None:
    child = confined.child
    assert child("prlimit64", 0) == ALLOW
    assert child("prlimit64", 1) == child("prlimit64", MY_PID) == REFUSE
    assert child("fcntl", 5, 4) == child("fcntl", 5, 1030) == ALLOW
    for command in (8, 10, 15, 5, 6, 7, 1024, 1026, 1031, 1033):  # F_SETOWN, F_SETSIG, locks, seals
        assert child("fcntl", 5, command) == REFUSE
    assert child("ioctl", 1, 0x5401) == ALLOW
    for request in (0x5412, 0x8901, 0x8902, 0x5452, 0x5414):  # TIOCSTI, FIOSETOWN, SIOCSPGRP, ...
        assert child("ioctl", 1, request) == REFUSE
    assert child("socketpair", 1, 1 | 0o2000000) == ALLOW  # AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC
    assert (
        child("socketpair", 1, 2)
        == child("socketpair", 1, 5)
        == child("socketpair", 2, 1)
        == REFUSE
    )
    assert child("prctl", 15) == child("prctl", 16) == ALLOW
    for option in (1, 22, 38, 4, 8, 23, 24, 0x59616D61):  # PDEATHSIG, SECCOMP, ..., PR_SET_PTRACER
        assert child("prctl", option) == REFUSE
    for option in (1, 22, 38):
        assert confined.server("prctl", option) == ALLOW


def test_the_high_half_of_an_argument_hides_nothing(confined: Confined) -> None:
    high = 1 << 40
    assert confined.child("kill", high | 1) == REFUSE
    assert confined.child("prctl", high | 22) == REFUSE
    assert confined.child("clone", high | FORK_FLAGS) == REFUSE


def test_truncation_is_refused_where_landlock_does_not_know_it(confined: Confined) -> None:
    strict = seccomp.server_filter(confined.calls, refuse_truncation=True)
    number = confined.calls.numbers["openat"]
    assert ask(strict, confined.calls, number, 0, 0, os.O_RDONLY | os.O_TRUNC) == REFUSE
    assert ask(strict, confined.calls, number, 0, 0, os.O_RDONLY | os.O_CLOEXEC) == ALLOW
    if "open" in confined.calls.numbers:
        assert ask(strict, confined.calls, confined.calls.numbers["open"], 0, os.O_TRUNC) == REFUSE


def test_calls_of_another_machine_kill(confined: Confined) -> None:
    read = confined.calls.numbers["read"]
    for program in (confined.server_program, confined.child_program):
        for audit in (0x40000003, 0x40000028, 0):  # i386, arm
            assert run(program, struct.pack("=IIQ6Q", read, audit, 0, *[0] * 6)) == KILL
        assert ask(program, confined.calls, 0x40000000 | read) == KILL  # x32


def test_programs_are_well_formed(confined: Confined) -> None:
    """Jumps stay inside, and no path runs off the end: the kernel would not take them."""
    for program in (confined.server_program, confined.child_program):
        assert len(program) < 4096
        assert program[-1][0] == seccomp.RETURN
        for index, (code, yes, no, k) in enumerate(program):
            assert 0 <= yes < 256 and 0 <= no < 256 and 0 <= k < 1 << 32
            if code in (seccomp.EQUAL, seccomp.GREATER, seccomp.ANY_BIT):
                assert index + 1 + max(yes, no) < len(program)
            if code == seccomp.LOAD:
                assert k % 4 == 0 and k < 64


def test_answers_are_what_the_kernel_calls_them() -> None:
    assert 0x00050000 + errno.EPERM == REFUSE and 0x00050000 + errno.ENOSYS == ABSENT
    assert KILL == 0x80000000 and ALLOW == 0x7FFF0000


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_what_canaries_try_is_refused_by_name(machine: str) -> None:
    assert set(REFUSED_CALLS) <= set(MACHINES[machine].refused)


def test_the_child_filter_gets_its_number_late(confined: Confined) -> None:
    prepared = seccomp.Filter.of_child(confined.calls)
    for place in prepared._places:
        struct.pack_into("=I", prepared._code, place, MY_PID)
    assert bytes(prepared._code) == seccomp.assemble(confined.child_program)
