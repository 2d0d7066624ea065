"""Numbers out of measures.json, and how the page writes them. A missing number is null there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from anyorder.measure.intervals import Interval

NOTHING = "\N{EN DASH}"
MOST_DIGITS = 4
EXACT = 1e-9
"""What is closer than this is equal."""


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
    if not any(figure in text for figure in "123456789"):
        text = text.removeprefix("-")  # a zero has no sign
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


def digits_of(interval: Interval, digits: int = 2) -> int:
    """With how many digits a difference is written so that rounding does not contradict it.

    One digit more, up to `MOST_DIGITS`, as long as an end that is not zero reads as zero, or the
    estimate reads as one of its ends without being it.
    """
    ends = (interval.low, interval.high)
    if any(math.isnan(value) for value in (*ends, interval.estimate)):
        return digits
    while digits < MOST_DIGITS:
        zero, middle = shown(0.0, digits), shown(interval.estimate, digits)
        misread = any(
            (abs(end) > EXACT and shown(end, digits) == zero)
            or (abs(end - interval.estimate) > EXACT and shown(end, digits) == middle)
            for end in ends
        )
        if not misread:
            break
        digits += 1
    return digits


def difference(interval: Interval, digits: int = 2) -> str:
    """A difference and its interval, in as many digits as it needs."""
    enough = digits_of(interval, digits)
    estimate, low, high = (
        "0" if abs(value) <= EXACT else shown(value, enough)
        for value in (interval.estimate, interval.low, interval.high)
    )
    return f"{estimate} ({NOTHING if math.isnan(interval.low) else f'{low} to {high}'})"


def points(interval: Interval, digits: int = 0) -> str:
    """A difference of two shares: percentage points, with their interval."""
    return f"{difference(interval.times(100), digits)} percentage points"
