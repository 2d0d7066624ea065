"""What a question is answered with: tables, figures and claims, in the order of a page.

A section is plain text and drawings; page.py writes it down. Cells carry their intervals; what is
not there yet says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from anyorder.apps.study.cells import Claim
from anyorder.apps.study.plan import Plan
from anyorder.apps.study.view import Group, Reading, Study
from anyorder.measure.intervals import Interval
from anyorder.report.charts import Drawing

NOTHING = "\N{EN DASH}"
NOT_RUN = "not run yet"


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
    """Why, where a claim does not hold, and what a look at that reason gave."""
    notes: tuple[str, ...] = field(default=())


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


Column = tuple[Reading, Callable[[Interval | None], str], bool]
"""What is read, how it is written, and whether it is a rate from 0 to 1."""


def rows_of(group: Group, columns: Sequence[Column]) -> list[tuple[str, ...]]:
    """A row over all seeds, and where there are several one for each."""
    if not group.stored:
        return [(group.label, *[NOT_RUN] * len(columns))]
    lacking = "".join(f", seed {seed} missing" for seed in group.missing)
    if len(group.stored) == 1:
        own = next(seed for seed, run in group.seeds if run is not None)
        name = f"{group.label}, seed {own}{lacking}" if len(group.seeds) > 1 else group.label
        return [(name, *(show(group.mean(read, rate=rate)) for read, show, rate in columns))]
    name = f"{group.label}, all seeds{lacking}"
    rows = [(name, *(show(group.mean(read, rate=rate)) for read, show, rate in columns))]
    for seed, run in group.seeds:
        if run is not None:
            values = (show(group.mean_of(seed, read, rate=rate)) for read, show, rate in columns)
            rows.append((f"{group.label}, seed {seed}", *values))
    return rows
