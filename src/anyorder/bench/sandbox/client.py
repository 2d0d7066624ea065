"""The grader's side: a sandbox that has proved its level, and starts programs in it.

A `Sandbox` owns one fork-server, and a second one for heavy modules. Several children may live at a
time. When a server dies, the next `start` makes another one, which has to prove the same level.
This process never runs a sample. Not thread-safe, and not to be used on both sides of a fork.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from types import TracebackType
from typing import Any

from anyorder.bench.sandbox.canaries import CanaryResult, bait, level_of, prove
from anyorder.bench.sandbox.handle import Child
from anyorder.bench.sandbox.limits import CONSOLE, MECHANISMS, NAMESPACES, Broken, Failed, Limits
from anyorder.bench.sandbox.link import Link, Refused, wrapper
from anyorder.bench.sandbox.wire import encode

PRELOAD = (
    *("abc", "array", "bisect", "cmath", "collections", "collections.abc", "contextlib", "copy"),
    *("dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq"),
    *("inspect", "io", "itertools", "json", "math", "numbers", "operator", "queue", "random", "re"),
    *("statistics", "string", "textwrap", "threading", "time", "traceback", "types", "typing"),
    *("unicodedata", "ctypes", "numpy", "numpy.linalg", "numpy.random"),
)
"""What programs commonly import; what is not installed is left out."""
HEAVY = frozenset({"numpy", "numpy.linalg", "numpy.random"})
"""Modules that make every fork slower: a second server has them, for programs that name them."""


def _remedy(level: int) -> str:
    found = (
        "run in a Linux virtual machine or a container that allows Landlock and seccomp "
        "(kernel 5.13 or newer; WSL2 on Windows)"
    )
    return f"{found}, or accept less with minimum_level={level}" if level else found


@dataclass(frozen=True)
class Probe:
    """What this machine offers, for `anyorder doctor`."""

    level: int
    """3, 2, 1, or 0 where programs cannot be run at all."""
    checks: tuple[CanaryResult, ...] = ()
    """What was tried, by name."""
    applied: tuple[tuple[str, str], ...] = ()
    """The mechanisms that are in force, with a word on each."""
    notes: tuple[str, ...] = ()
    """What is missing, and why."""


class Sandbox:
    """Confined processes, one per program."""

    level: int
    """What the canaries proved: 3, 2 or 1."""
    checks: tuple[CanaryResult, ...]
    """What they tried."""
    applied: dict[str, str]
    """The mechanisms in force, with a word on each."""
    notes: tuple[str, ...]
    """What is missing, and why."""

    def __init__(
        self,
        *,
        minimum_level: int = 2,
        preload: Sequence[str] = PRELOAD,
        use: Sequence[str] = MECHANISMS,
    ) -> None:
        """Raises ValueError if the level proved is below `minimum_level`.

        `use` leaves mechanisms out, to try what a machine without them would do.
        """
        unknown = sorted(set(use) - set(MECHANISMS))
        if unknown:
            raise ValueError(f"no mechanism {unknown[0]!r}: choose from {', '.join(MECHANISMS)}")
        if sys.platform == "win32":
            raise ValueError(f"programs cannot be confined on Windows: {_remedy(1)}")
        self.minimum_level = minimum_level
        self._use = tuple(use)
        self._preload = tuple(preload)
        self._heavy = sorted(HEAVY.intersection(preload))
        self._count = 0
        self.level = 0
        self._links: dict[bool, Link] = {}  # with the heavy modules, or without
        self._open(heavy=False)

    def start(
        self,
        program: str,
        limits: Limits,
        *,
        stdin: str | None = None,
        builtins: Sequence[str] | None = None,
    ) -> Child:
        """A new confined process that begins to run `program`.

        With `stdin` it is a console program: its `__name__` is "__main__", and what it prints is
        kept. `builtins` leaves a program only these builtin names.
        """
        heavy = any(name in program for name in self._heavy)
        link = self._links.get(heavy)
        if link is not None:
            try:
                return self._start(link, program, limits, stdin, builtins)
            except Broken:
                pass  # the server died before this program began: start another
        return self._start(self._open(heavy=heavy), program, limits, stdin, builtins)

    def close(self) -> None:
        """End the servers and their children."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self, *, heavy: bool) -> Link:
        """A new server that has proved its level."""
        if heavy in self._links:
            self._links.pop(heavy).close()
        with bait() as grader:
            notes: list[str] = []
            link = self._connect(
                [n for n in self._preload if heavy or n not in HEAVY], grader, notes
            )
            applied: dict[str, str] = link.report["applied"]
            try:
                start = partial(self._start, link)
                checks = tuple(prove(start, applied, grader, link.report["seen"]))
            except (Failed, Broken) as error:
                link.close()
                raise Broken(f"the sandbox does not run programs: {error}") from None
        absent = [f"{name} is not installed" for name in link.report["missing"]]
        before, level = self.level, level_of(applied, checks)
        if level < before:  # verdicts store the level that the first server proved
            link.close()
            raise Broken(f"a new fork-server has level {level} only, the first one had {before}")
        self.applied, self.checks = applied, checks
        self.notes = (*notes, *link.report["notes"], *absent)
        self.level = before or level
        if self.level < self.minimum_level:
            link.close()
            raise ValueError(self._refusal())
        self._links[heavy] = link
        return link

    def _connect(self, preload: list[str], grader: dict[str, Any], notes: list[str]) -> Link:
        """A server with all mechanisms of `use`, or without namespaces if they are refused."""
        try:
            return Link(self._use, preload, grader, wrap=False)
        except Refused as refused:
            notes.append(f"no namespaces: {refused}")
        if wrapper() and os.geteuid() != 0:  # if root is refused, so is bubblewrap under root
            try:
                return Link(self._use, preload, grader, wrap=True)
            except (Refused, Broken) as error:
                notes.append(f"no namespaces through bubblewrap: {error}")
        use = [name for name in self._use if name != NAMESPACES]
        return Link(use, preload, grader, wrap=False)

    def _refusal(self) -> str:
        broken = [f"{check.name} ({check.detail})" for check in self.checks if not check.held]
        why = "; ".join([*self.notes, *(f"not prevented: {what}" for what in broken)])
        return (
            f"programs can be confined at level {self.level} only, and {self.minimum_level} is "
            f"asked for ({why or 'mechanisms were left out'}): {_remedy(self.level)}"
        )

    def _start(
        self,
        link: Link,
        program: str,
        limits: Limits,
        stdin: str | None = None,
        builtins: Sequence[str] | None = None,
    ) -> Child:
        self._count += 1
        allowed = None if builtins is None else list(builtins)
        data = encode(("run", program, stdin is not None, allowed, limits.message_bytes))
        printed = None
        with ExitStack() as theirs:  # our copies close, or the channel would outlive the child
            ours, channel = socket.socketpair()
            descriptors = [theirs.enter_context(channel).fileno()]
            if stdin is not None:
                descriptors.append(theirs.enter_context(_file_of(stdin)).fileno())
                printed, writing = os.pipe()
                theirs.callback(os.close, writing)
                descriptors.append(writing)
                os.set_blocking(printed, False)
            ours.setblocking(False)
            which = 0 if stdin is None else CONSOLE
            link.start(self._count, which, descriptors, limits)
        child = Child(link, self._count, ours, limits, printed)
        child.send(data)  # over the child's own socket: the server never sees a program
        return child


def _file_of(text: str) -> Any:
    """An open file without a name that holds `text`, to be read from its start."""
    data = text.encode("utf-8", "surrogatepass")
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("stdin")
    else:
        with tempfile.TemporaryFile() as named:
            number = os.dup(named.fileno())
    file = os.fdopen(number, "r+b", buffering=0)
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
    file.seek(0)
    return file


@cache
def probe() -> Probe:
    """The level that this machine offers; tried once per process."""
    try:
        with Sandbox(minimum_level=0) as sandbox:
            applied = tuple(sandbox.applied.items())
            return Probe(sandbox.level, sandbox.checks, applied, sandbox.notes)
    except (ValueError, Broken) as error:
        return Probe(0, notes=(str(error),))
