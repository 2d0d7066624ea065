"""Programs in, verdicts out: each distinct program once, time-outs twice, nothing lost.

    verdicts = grade(items, workers=2)       a stream: items are taken as workers become free

Programs that are equal, with equal checks, are run once. A program that ran out of time, or whose
worker died, is run once more, alone: while it runs nothing else does, so that a busy machine fails
nobody. A verdict comes as soon as it is certain, hence not in the order of the items; `key` says
whose it is.

What this file does not do: extract programs from texts, or store verdicts (apps/grading.py).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict, deque
from collections.abc import Generator, Hashable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from anyorder.bench.checks import ERROR, NO_CODE, TIMEOUT, Check, to_record
from anyorder.bench.pool import Outcome, Pool, PoolJob
from anyorder.bench.sandbox import Limits

RUNS = 2
"""How often a program is run at most."""

MOST_WAITING = 64
"""Programs that wait for their second run before it is made; more would be lost with a kill."""

REMEMBERED = 4096
"""Finished programs that a later equal one is compared with; equal ones come close together."""


@dataclass(frozen=True)
class Item:
    """A program to judge."""

    key: Hashable
    """The caller's name for it; comes back with the verdict."""
    program: str | None
    """The candidate; None where the text held no program."""
    checks: tuple[Check, ...]
    """All must pass."""
    prologue: str = ""
    """Trusted text before the program: published imports."""


@dataclass(frozen=True)
class Verdict:
    """What became of a program."""

    key: Any
    """The item's."""
    verdict: str
    """A name of verdicts.py."""
    detail: str = ""
    """Why, in a line."""
    program_digest: str | None = None
    """SHA-256 of what was run, prologue included; None where there was no program."""
    level: int | None = None
    """The isolation in which it ran, proved by canaries; None where nothing ran."""
    cpu_seconds: float = 0.0
    """Processor time of the program, without that of the tests."""
    wall_seconds: float = 0.0
    attempts: int = 0
    """How often it was run: 2 after a time-out or a worker's death."""


def grade(
    items: Iterable[Item],
    *,
    workers: int | None = None,
    limits: Limits | None = None,
    minimum_level: int = 2,
) -> Generator[Verdict, None, None]:
    """The verdict of every item; `workers` processes at most (unset: one for each processor)."""
    if os.name != "posix":
        raise ValueError("programs cannot be confined on this system: grade on Linux (or in WSL2)")
    with Pool(workers or _processors(), minimum_level) as pool:
        yield from _Grading(pool, limits or Limits()).run(iter(items))


@dataclass
class _Program:
    """A distinct program under way, and everybody who waits for its verdict."""

    job: PoolJob
    digest: str
    identity: tuple[str, str]
    keys: list[Hashable]
    attempts: int = 1


@dataclass
class _Grading:
    """The state of one stream."""

    pool: Pool
    limits: Limits
    open: dict[int, _Program] = field(default_factory=dict)
    """By the number of the job."""
    by_identity: dict[tuple[str, str], _Program] = field(default_factory=dict)
    finished: OrderedDict[tuple[str, str], Verdict] = field(default_factory=OrderedDict)
    alone: deque[_Program] = field(default_factory=deque)
    """Those that wait for their second run."""
    draining: bool = False
    """Whether nothing new is begun until all second runs are made."""
    held: PoolJob | None = None
    """Taken from the items, and no worker had room for it."""
    ended: bool = False
    numbers: int = 0
    limits_record: dict[str, Any] = field(init=False)
    checks: tuple[tuple[Check, ...], str, str] = ((), "", "")
    """The last checks, in JSON, and their digest: the items of a problem share them."""

    def __post_init__(self) -> None:
        self.limits_record = asdict(self.limits)

    def run(self, source: Iterator[Item]) -> Iterator[Verdict]:
        while True:
            if not self.draining:
                yield from self._fill(source)
            if self.pool.busy:
                for outcome in self.pool.wait():
                    yield from self._hear(outcome)
            elif self.alone:
                self.draining = True
                self.pool.hand(self.alone.popleft().job)
            elif self.ended and self.held is None:
                return
            if not self.alone and not self.pool.busy:
                self.draining = False

    def _fill(self, source: Iterator[Item]) -> Iterator[Verdict]:
        """Take items while workers have room; some have their verdict at once."""
        while len(self.alone) < MOST_WAITING:
            if self.held is None:
                item = next(source, None)
                if item is None:
                    self.ended = True
                    return
                verdict = self._begin(item)
                if verdict is not None:
                    yield verdict
            if self.held is not None:
                if not self.pool.room(self.held):
                    return
                self.pool.hand(self.held)
                self.held = None
        self.draining = True

    def _begin(self, item: Item) -> Verdict | None:
        """Hold the item's program for a worker, unless its verdict is known or under way."""
        if item.program is None:
            return Verdict(item.key, NO_CODE, "no program in the text")
        between = "" if item.prologue.endswith("\n") or not item.prologue else "\n"
        text = f"{item.prologue}{between}{item.program}"
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        checks, checks_key = self._checks(item.checks)
        identity = (digest, checks_key)
        if identity in self.finished:
            return _for_key(self.finished[identity], item.key)
        if identity in self.by_identity:
            self.by_identity[identity].keys.append(item.key)
            return None
        self.numbers += 1
        self.held = PoolJob(self.numbers, text, checks_key, checks, self.limits_record)
        program = _Program(self.held, digest, identity, [item.key])
        self.open[self.numbers] = self.by_identity[identity] = program
        return None

    def _checks(self, checks: tuple[Check, ...]) -> tuple[str, str]:
        if checks is not self.checks[0] or not checks:
            if not checks:
                raise ValueError("a problem without checks cannot be graded: choose another task")
            text = json.dumps([to_record(check) for check in checks])
            self.checks = (checks, text, hashlib.sha256(text.encode()).hexdigest())
        return self.checks[1:]

    def _hear(self, outcome: Outcome) -> Iterator[Verdict]:
        program, reply = self.open[outcome.job.number], outcome.reply
        if "unfit" in reply:
            raise ValueError(f"{program.keys[0]} cannot be graded: {reply['unfit']}")
        if "lost" in reply:
            reply = {"verdict": TIMEOUT if outcome.stuck else ERROR, "detail": reply["lost"]}
        if (reply["verdict"] == TIMEOUT or "lost" in outcome.reply) and program.attempts < RUNS:
            program.attempts += 1
            self.alone.append(program)
            return
        del self.open[outcome.job.number], self.by_identity[program.identity]
        verdict = Verdict(
            program.keys[0],
            program_digest=program.digest,
            level=outcome.level,
            attempts=program.attempts,
            **reply,
        )
        self.finished[program.identity] = verdict
        if len(self.finished) > REMEMBERED:
            self.finished.popitem(last=False)
        for key in program.keys:
            yield _for_key(verdict, key)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _for_key(verdict: Verdict, key: Hashable) -> Verdict:
    return replace(verdict, key=key)
