"""What charts are made of: numbers that may carry an interval, and series with a colour.

Not here: how they look (palette.py, canvas.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from anyorder.measure.intervals import Interval
from anyorder.report.charts.palette import PALETTE

Number: TypeAlias = float | Interval
"""A value, or an estimate with its interval; bounds that are NaN are not drawn."""


@dataclass(frozen=True)
class Series:
    """What has one colour throughout a chart, and a line in its legend."""

    label: str
    """Unique in its chart; other records name the series by it."""
    color: str
    """A name in PALETTE: a family, a policy, or what else has a colour of its own."""
    pale: bool = False
    """A lighter filling with a full outline: a second thing of the same colour."""


def estimate(value: Number) -> float:
    return value.estimate if isinstance(value, Interval) else float(value)


def bounds(value: Number) -> tuple[float, float] | None:
    """Where the value may lie, if that is known."""
    if not isinstance(value, Interval) or math.isnan(value.low) or math.isnan(value.high):
        return None
    return value.low, value.high


def reach(value: Number) -> tuple[float, float]:
    """The lowest and highest place that a drawing of the value touches."""
    low, high = bounds(value) or (estimate(value), estimate(value))
    return min(low, estimate(value)), max(high, estimate(value))


def check_name(name: str) -> None:
    """Names become file names and ids."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise ValueError(f"chart name {name!r}: give small letters, digits and hyphens")


def check_color(name: str) -> None:
    if name not in PALETTE:
        raise ValueError(f"no colour {name!r}: choose one of {', '.join(sorted(PALETTE))}")


def check_series(series: Sequence[Series], used: Iterable[str]) -> None:
    labels = [each.label for each in series]
    if len(set(labels)) < len(labels):
        raise ValueError(f"series share a label: {', '.join(labels)}")
    for each in series:
        check_color(each.color)
    for label in used:
        if label not in labels:
            raise ValueError(f"no series {label!r}: add it to the chart's series ({labels})")


def check_finite(what: str, values: Iterable[Number]) -> None:
    for value in values:
        if not math.isfinite(estimate(value)):
            raise ValueError(f"{what} has a value {estimate(value)}: leave missing values out")
