"""The answer to a question: tables, figures and claims, in the order of the page.

A section is plain text and drawings; page.py writes it to a file. Every cell has its interval. A
cell without a run says "not run yet".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from anyorder.measure.intervals import Interval
from anyorder.report.charts import Drawing
from studies.cells import Claim, pass_values
from studies.plan import Plan
from studies.view import Group, Reading, Study

NOTHING = "\N{EN DASH}"
NOT_RUN = "not run yet"
CLEARLY = 0.5
"""A tau beyond this, on either side, counts as an order; its sign alone is not enough."""
OWN = "our own question"
"""The source of a claim that the paper does not make."""


@dataclass(frozen=True)
class Table:
    """A table with its heading."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """The answer to one question."""

    title: str
    asks: str
    """The question in a sentence or two."""
    how: str
    """What was run, and what is compared with what."""
    tables: tuple[Table, ...] = ()
    figures: tuple[Drawing, ...] = ()
    claims: tuple[Claim, ...] = ()
    checks: tuple[str, ...] = ()
    """The reasons that we suspect if a claim does not hold, and a check of each."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """A question of the study."""

    name: str
    runs: Callable[[Plan], list[str]]
    """The runs that it reads."""
    section: Callable[[Study], Section]


def number(found: Interval | None, digits: int = 2) -> str:
    """An estimate and its interval; a dash where there is none."""
    if found is None or math.isnan(found.estimate):
        return NOTHING
    value = _signed_zero(f"{found.estimate:.{digits}f}")
    if math.isnan(found.low):
        return value
    low, high = (_signed_zero(f"{bound:.{digits}f}") for bound in (found.low, found.high))
    return f"{value} [{low}, {high}]"


def percent(found: Interval | None, digits: int = 1) -> str:
    """The same in per cent."""
    return number(None if found is None else found.times(100), digits)


def _signed_zero(text: str) -> str:
    """A zero has no sign."""
    return text.removeprefix("-") if not text.strip("-0.") else text


def one_digit(found: Interval | None) -> str:
    """A number with one digit after the point."""
    return number(found, 1)


def passes(k: int) -> Reading:
    """pass@k by problem."""
    return lambda run: pass_values(run.values("passed"), k)


def attempts(groups: Iterable[Group]) -> list[int]:
    """1, 2, 4, ... as far as every run has samples."""
    counts = [
        min(map(len, run.values("passed").values())) for group in groups for run in group.stored
    ]
    return [1 << power for power in range(min(counts, default=1).bit_length())]


Column = tuple[Reading, Callable[[Interval | None], str], bool]
"""How a value is read, how it is printed, and whether it is a rate from 0 to 1."""


Pair = tuple[Group, Group, Reading, Callable[[Interval | None], str], bool]
"""Left, right, how a value is read from both, how it is printed, and whether it is a rate."""


def rows_of(group: Group, columns: Sequence[Column]) -> list[tuple[str, ...]]:
    """A row over all seeds; if there are several seeds, also a row for each."""
    return rows_across(group.label, [(group, *each) for each in columns])


def rows_across(
    label: str, columns: Sequence[tuple[Group, Reading, Callable[[Interval | None], str], bool]]
) -> list[tuple[str, ...]]:
    """The same, if every column has its own group; the groups have the same seeds."""

    def cells(seed: int | None) -> list[str]:
        return [
            show(part.mean(read, rate=rate)) if (part := part_of(group, seed)).stored else NOT_RUN
            for group, read, show, rate in columns
        ]

    return by_seed(label, [group for group, *_ in columns], cells)


def difference_rows(label: str, pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """Paired differences over all seeds; if there are several seeds, also for each."""

    def cells(seed: int | None) -> list[str]:
        return [
            show(part_of(left, seed).minus(part_of(right, seed), read, rate=rate))
            for left, right, read, show, rate in pairs
        ]

    return by_seed(label, [group for left, right, *_ in pairs for group in (left, right)], cells)


def part_of(group: Group, seed: int | None) -> Group:
    """One seed of a group; None: all of it."""
    return group if seed is None else group.only(seed)


def by_seed(
    label: str, groups: Sequence[Group], cells: Callable[[int | None], list[str]]
) -> list[tuple[str, ...]]:
    """Rows of all seeds (None) and of each; the label says which are missing."""
    shared = set.intersection(*({seed for seed, _ in group.seeds} for group in groups))
    seeds = sorted(shared)
    there = [seed for seed in seeds if any(group.only(seed).stored for group in groups)]
    lacking = "".join(
        f", seed {seed} missing" for seed in seeds if any(seed in each.missing for each in groups)
    )
    if len(there) < 2:
        name = f"{label}, seed {there[0]}{lacking}" if there and len(seeds) > 1 else label
        return [(name, *cells(None))]
    rows = [(f"{label}, all seeds{lacking}", *cells(None))]
    return rows + [(f"{label}, seed {seed}", *cells(seed)) for seed in there]
