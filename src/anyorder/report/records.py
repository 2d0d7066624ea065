"""Numbers out of measures.json, and how the page writes them. A missing number is null there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from anyorder.measure.intervals import Interval

NOTHING = "\N{EN DASH}"


def interval_of(record: Mapping[str, Any]) -> Interval:
    """What `Interval.to_record` wrote."""
    numbers = {name: number_of(record[name]) for name in ("estimate", "low", "high")}
    return Interval(**numbers, n=record["n"], level=record["level"], method=record["method"])


def number_of(value: float | None) -> float:
    """A stored number; null is NaN."""
    return math.nan if value is None else float(value)


def shown(value: float, digits: int = 2) -> str:
    """A number in a table."""
    if math.isnan(value):
        return NOTHING
    text = f"{value:.{digits}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def percent(value: float, digits: int = 0) -> str:
    """A share from 0 to 1 in per cent, with a space that does not break."""
    return NOTHING if math.isnan(value) else f"{shown(100 * value, digits)}\N{NO-BREAK SPACE}%"


def bounds(interval: Interval, digits: int = 2) -> str:
    """Where an estimate may lie; a dash where that is not known."""
    if math.isnan(interval.low):
        return NOTHING
    return f"{shown(interval.low, digits)} to {shown(interval.high, digits)}"


def percent_bounds(interval: Interval, digits: int = 0) -> str:
    """The same in per cent."""
    if math.isnan(interval.low):
        return NOTHING
    low, high = shown(100 * interval.low, digits), shown(100 * interval.high, digits)
    return f"{low} to {high}\N{NO-BREAK SPACE}%"


def is_different(interval: Interval) -> bool:
    """Whether an interval of a difference leaves out zero."""
    return not math.isnan(interval.low) and (interval.low > 0 or interval.high < 0)
