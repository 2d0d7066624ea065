"""What a section of the report consists of. Plain data: page.py turns it into HTML.

Texts use three marks: [[term]] or [[term|as it reads]] for a word that the glossary explains,
`backticks` for code and **stars** for what stands out. Everything else is literal.
"""

from __future__ import annotations

from dataclasses import dataclass

from anyorder.measure.intervals import Interval
from anyorder.report.charts import Drawing
from anyorder.report.records import (
    NOTHING,
    bounds,
    digits_of,
    percent,
    percent_bounds,
    shown,
)


@dataclass(frozen=True)
class Cell:
    """One entry of a table: a text, and in small print what it may be off by."""

    text: str
    small: str = ""
    number: bool = False


@dataclass(frozen=True)
class Table:
    """Exact numbers below a figure."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    folded: bool = False
    """Shown only when it is asked for."""


@dataclass(frozen=True)
class Figure:
    """A drawing, or only a table, with what it shows and what made it."""

    title: str
    """What it shows, in one line."""
    commands: tuple[str, ...]
    """What made it, in order."""
    drawing: Drawing | None = None
    caption: str = ""
    """How to read it."""
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Section:
    """A question and its answer."""

    slug: str
    title: str
    short: str
    """The title in the contents list."""
    text: tuple[str, ...]
    """Two or three plain sentences a paragraph."""
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Absent:
    """A section for which these runs hold no data."""

    title: str
    why: str
    commands: tuple[str, ...]
    """What would give it."""


MOST_ROWS = 12
"""Longer tables are shown when they are asked for."""


def foldable(heads: tuple[str, ...], rows: tuple[tuple[Cell, ...], ...], caption: str) -> Table:
    """A table, folded where it is long."""
    return Table(heads, rows, caption, folded=len(rows) > MOST_ROWS)


def label(text: str, small: str = "") -> Cell:
    """The name of a row."""
    return Cell(text, small)


def rate(interval: Interval) -> Cell:
    """A share in per cent with its interval."""
    return Cell(percent(interval.estimate, 1), percent_bounds(interval, 1), number=True)


def score(interval: Interval, digits: int = 3) -> Cell:
    """A score with its interval."""
    return Cell(shown(interval.estimate, digits), bounds(interval, digits), number=True)


def apart(interval: Interval, digits: int = 3) -> Cell:
    """A difference, in as many digits as its interval needs."""
    return score(interval, digits_of(interval, digits))


def points_apart(interval: Interval) -> Cell:
    """A difference of two shares, in percentage points."""
    return apart(interval.times(100), 1)


def plain(value: float, digits: int = 3) -> Cell:
    """A number without an interval, such as a control."""
    return Cell(shown(value, digits), number=True)


def missing() -> Cell:
    """A number that is not there."""
    return Cell(NOTHING, number=True)


def count(value: int) -> Cell:
    """A whole number."""
    return Cell(f"{value:,}".replace(",", "\N{NO-BREAK SPACE}"), number=True)
