"""Sandboxes to test with: one per level, made once per process, and what must be left of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from anyorder.bench.sandbox import Failed, Limits, Sandbox, probe

MECHANISMS = {
    3: ("rlimits", "seccomp", "landlock", "namespaces"),
    2: ("rlimits", "seccomp", "landlock"),
    1: ("rlimits",),
}


def open_at(level: int) -> Sandbox:
    """A sandbox of this level, by what it may use; the test is skipped where there is none."""
    if sys.platform != "linux" or probe().level < level:
        pytest.skip(f"this machine has no sandbox of level {level}")
    return Sandbox(minimum_level=level, use=MECHANISMS[level])


@pytest.fixture(scope="session")
def sandboxes() -> Iterator[Callable[[int], Sandbox]]:
    """`sandboxes(level)`, the same one each time."""
    made: dict[int, Sandbox] = {}

    def get(level: int) -> Sandbox:
        if level not in made:
            made[level] = open_at(level)
            made[level].start("import numpy", Limits()).end()  # the server for heavy modules, too
        return made[level]

    yield get
    for sandbox in made.values():
        sandbox.close()


@pytest.fixture
def sandbox(sandboxes: Callable[[int], Sandbox]) -> Sandbox:
    """The best that is required by default."""
    return sandboxes(min(3, max(2, probe().level)))


@pytest.fixture(params=[3, 2], ids=["level3", "level2"])
def each_sandbox(request: pytest.FixtureRequest, sandboxes: Callable[[int], Sandbox]) -> Sandbox:
    """Both levels that protect."""
    return sandboxes(request.param)


@pytest.fixture(params=[3, pytest.param(2, marks=pytest.mark.long)], ids=["level3", "level2"])
def intact(
    request: pytest.FixtureRequest, sandboxes: Callable[[int], Sandbox], verdict: Callable[..., str]
) -> Iterator[Sandbox]:
    """A sandbox that must be the same after an attack; the level below takes its time."""
    sandbox = sandboxes(request.param)
    with unharmed(sandbox, verdict):
        yield sandbox


@pytest.fixture
def each_intact(each_sandbox: Sandbox, verdict: Callable[..., str]) -> Iterator[Sandbox]:
    """The same, always at both levels."""
    with unharmed(each_sandbox, verdict):
        yield each_sandbox


@contextmanager
def unharmed(sandbox: Sandbox, verdict: Callable[..., str]) -> Iterator[None]:
    """The same processes before and after, no zombie among them, and it goes on working."""
    honest = "def f(x):\n    return x + 1\n"
    before = set(below(servers(sandbox)))
    yield
    after = below(servers(sandbox))
    assert set(after) == before, "a process too many, or a server that died"
    assert "Z" not in after.values()
    assert verdict(sandbox, honest, (1,), 2) == "passed"


@pytest.fixture(scope="session")
def verdict() -> Callable[..., str]:
    """`verdict(sandbox, program, args, expected)`: a grader, with a comparison of its own."""

    def judge(
        sandbox: Sandbox,
        program: str,
        args: tuple[Any, ...] = (),
        expected: Any = None,
        limits: Limits | None = None,
    ) -> str:
        with sandbox.start(program, limits or Limits(cpu_seconds=2.0, wall_seconds=30.0)) as child:
            try:
                child.load()
                result = child.call("f", args)
            except Failed as failure:
                return failure.kind
            try:
                return "passed" if bool(result == expected) else "wrong"
            except (TypeError, ValueError, RecursionError):
                return "error"

    return judge


def servers(sandbox: Sandbox) -> list[int]:
    return [link._process.pid for link in sandbox._links.values()]


def below(roots: Iterable[int]) -> dict[int, str]:
    """These processes and all that came of them, with their states.

    Never all that came of this process: a browser of another test may begin and end some meanwhile.
    """
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = entry.joinpath("stat").read_text().rsplit(")", 1)[1].split()[:2]
            except OSError:
                continue
            parents[int(entry.name)] = (int(parent), state)
    found: dict[int, str] = {}
    grown = set(roots) & set(parents)
    while grown:
        found.update({pid: parents[pid][1] for pid in grown})
        grown = {pid for pid, (parent, _) in parents.items() if parent in grown}
    return found


@pytest.fixture(scope="session")
def family() -> Callable[[Sandbox | int], set[int]]:
    """`family(sandbox)`: its servers and all that came of them; `family(pid)`: of that process."""

    def find(of: Sandbox | int) -> set[int]:
        return set(below([of] if isinstance(of, int) else servers(of)))

    return find
