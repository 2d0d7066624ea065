"""The arithmetic of a story: values for its quantities and the answer they give.

The answer comes from the rules of the operations, never from running a program, so that it can
judge programs. Values are drawn until the story is sensible: shares come out even, nobody takes
what is not there.

What this file does not do: execute anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from anyorder.data.keyed import Draws
from anyorder.data.stories.structures import Structure

POOL = 12
"""Sensible sets of values among which `cases` looks for every way through the branches."""

PATIENCE = 10_000


@dataclass(frozen=True)
class Case:
    """Arguments in the order of the parameters, and what the function must return."""

    arguments: tuple[int, ...]
    expected: int
    path: tuple[bool, ...] = ()
    """For each operation that may leave the number as it was, whether it changed it."""


def _draw(structure: Structure, draws: Draws) -> Case | None:
    """One set of values and its answer, or None where the values make no sensible story."""
    number = 0
    values: list[int] = []
    path = []
    for step in structure.steps:
        ranges = [bounds or (1 + number // 2, 1 + 3 * number // 2) for bounds in step.ranges]
        own = [draws.between(low, high) for low, high in ranges]
        after = step.rule(number, own)
        if after is None:
            return None
        if step.branches:
            path.append(after != number)
        number = after
        values += own
    return Case(tuple(values), number, tuple(path))


def _sensible(structure: Structure, draws: Draws) -> Iterator[Case]:
    for _ in range(PATIENCE):
        case = _draw(structure, draws)
        if case is not None:
            yield case
    raise AssertionError(f"no sensible values for {structure.name}: widen its ranges")


def cases(structure: Structure, draws: Draws, count: int) -> tuple[Case, ...]:
    """`count` cases; the first is the plain draw, the next ones take other branches if they can."""
    stream = _sensible(structure, draws)
    if count == 1 or not any(step.branches for step in structure.steps):
        return tuple(islice(stream, count))
    pool = list(islice(stream, max(POOL, count)))
    first_of_path = {case.path: case for case in reversed(pool)}
    pool.sort(key=lambda case: first_of_path[case.path] is not case)  # stable
    return tuple(pool[:count])
