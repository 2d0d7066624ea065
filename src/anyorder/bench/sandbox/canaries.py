"""Levels are proved, not read off: a confined program tries what a hostile one would, and fails.

    3   namespaces + Landlock + seccomp + rlimits
    2   Landlock + seccomp + rlimits
    1   rlimits

A mechanism counts if it was applied and all its canaries held.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyorder.bench.sandbox.limits import (
    LANDLOCK,
    MECHANISMS,
    NAMESPACES,
    RLIMITS,
    SECCOMP,
    Failed,
    Limits,
)
from anyorder.bench.sandbox.seccomp import MACHINES

if TYPE_CHECKING:
    from anyorder.bench.sandbox.handle import Child

LEVELS = {
    3: {RLIMITS, SECCOMP, LANDLOCK, NAMESPACES},
    2: {RLIMITS, SECCOMP, LANDLOCK},
    1: {RLIMITS},
}

# Refused whatever the arguments. With -1 for all of them, a call that gets through does nothing.
REFUSED_CALLS = (
    *("execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev", "unshare", "setns"),
    *("mount", "pivot_root", "chroot", "io_uring_setup", "bpf", "perf_event_open", "userfaultfd"),
    *("keyctl", "memfd_create", "socket", "connect", "bind", "pidfd_open", "fchmodat", "fchownat"),
    *("utimensat", "shmget", "seccomp", "open_by_handle_at", "sched_setaffinity"),
)
OUTSIDE = "/outside"
"""A folder in a server's own root that only Landlock keeps programs from reading and writing."""
SECRET = f"{OUTSIDE}/secret"
# Files that every user may read, and a device that every user may write to, on any Linux.
_PUBLIC_FILES = ("/etc/passwd", "/etc/group", "/proc/version", "/")
_PUBLIC_DEVICE = "/dev/full"
_MEMORY = 512 << 20
_LIMITS = Limits(cpu_seconds=5.0, wall_seconds=20.0, memory_bytes=_MEMORY)
_SPIN = Limits(cpu_seconds=0.02, wall_seconds=5.0)


@dataclass(frozen=True)
class CanaryResult:
    """One attempt."""

    name: str
    mechanism: str
    held: bool
    """Whether it was prevented."""
    detail: str
    """The system's message."""


@contextmanager
def bait() -> Iterator[dict[str, Any]]:
    """Things of the grader and its host that must not be reachable.

    None is a file made here, so a grader that is killed leaves none behind.
    """
    name = f"anyorder-canary-{secrets.token_hex(8)}"
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as local:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        if sys.platform == "linux":
            local.bind(f"\0{name}")
            local.listen(8)
        yield {
            "pid": os.getpid(),
            "port": listener.getsockname()[1],
            "name": name,
            "file": next(path for path in _PUBLIC_FILES if os.path.exists(path)),
            "new": os.path.join(tempfile.gettempdir(), name),
        }


def from_the_server(grader: Mapping[str, Any]) -> list[tuple[str, bool, str]]:
    """Whether the fork-server can reach the grader from its namespaces: (name, held, detail)."""

    def attempt(family: int, address: Any) -> tuple[bool, str]:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sender:
                sender.settimeout(1.0)
                sender.connect(address)
        except OSError as error:
            return True, error.strerror or str(error)
        return False, "connected"

    try:
        os.kill(grader["pid"], 0)
        signal = os.getppid() == 0 and grader["pid"] == os.getpid(), "it was possible"
    except OSError as error:
        signal = True, error.strerror or ""
    return [
        ("network namespace", *attempt(socket.AF_INET, ("127.0.0.1", grader["port"]))),
        ("abstract sockets", *attempt(socket.AF_UNIX, f"\0{grader['name']}")),
        ("process namespace", os.getppid() == 0, f"parent {os.getppid()}"),
        ("signal to the grader", *signal),
        ("mount namespace", not os.path.exists(grader["file"]), f"{grader['file']} of the host"),
    ]


def prove(
    start: Callable[..., Child],
    applied: Mapping[str, str],
    grader: Mapping[str, Any],
    seen: Iterable[tuple[str, bool, str]],
) -> Iterator[CanaryResult]:
    """The result of every canary of the mechanisms in force; `start` is a sandbox's."""
    if NAMESPACES in applied:
        yield from (CanaryResult(name, NAMESPACES, held, detail) for name, held, detail in seen)
    program = Path(__file__).with_name("canary_program.py").read_text(encoding="utf-8")
    with start(program, _LIMITS, stdin="x") as child:
        child.load()
        for name, mechanism, function, arguments in _attempts(applied, grader):
            try:
                held, detail = child.call(function, arguments)
            except Failed as failure:
                held, detail = False, failure.detail
            # `is True`: the answer comes from the confined side, and any other value is a failure.
            yield CanaryResult(name, mechanism, held is True, str(detail))
    with start("while True: pass", _SPIN) as child:
        with suppress(Failed):
            child.load()
        how = child.end().how
        yield CanaryResult("processor time", RLIMITS, how == "cpu limit", how)


def _attempts(
    applied: Mapping[str, str], grader: Mapping[str, Any]
) -> Iterator[tuple[str, str, str, tuple[Any, ...]]]:
    """Name, mechanism, function of the canary program, its arguments."""
    yield "memory", RLIMITS, "memory", (2 * _MEMORY,)
    yield "file size", RLIMITS, "grow", ()
    yield "descriptors", RLIMITS, "descriptors", ()
    if SECCOMP in applied:
        yield "tcp socket", SECCOMP, "tcp", (grader["port"],)
        yield "udp socket", SECCOMP, "udp", (grader["port"],)
        yield "unix socket", SECCOMP, "unix", (grader["name"],)
        yield "fork", SECCOMP, "fork", ()
        yield "signal to the parent", SECCOMP, "kill", ()
        numbers = MACHINES[os.uname().machine].numbers
        for name in REFUSED_CALLS:
            yield name, SECCOMP, "call", (numbers[name],)
    if LANDLOCK in applied:
        # In its own root a program cannot see the host's files, so that root has files to try.
        inside = NAMESPACES in applied
        file = SECRET if inside else grader["file"]
        yield "read a file outside", LANDLOCK, "read", (file,)
        yield "list a folder outside", LANDLOCK, "listing", (os.path.dirname(file),)
        yield "write a file", LANDLOCK, "write", (f"{OUTSIDE}/new" if inside else grader["new"],)
        yield "overwrite a file", LANDLOCK, "overwrite", (SECRET if inside else _PUBLIC_DEVICE,)


def level_of(applied: Mapping[str, str], checks: Iterable[CanaryResult]) -> int:
    """The highest level whose mechanisms were all applied and all held."""
    broken = {check.mechanism for check in checks if not check.held}
    proved = {name for name in MECHANISMS if name in applied and name not in broken}
    return max((level for level, needed in LEVELS.items() if needed <= proved), default=0)
