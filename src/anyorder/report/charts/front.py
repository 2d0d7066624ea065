"""Value against cost with a Pareto front: accuracy against time, say.

Points of one series are joined in the order of their cost, points on the front have a ring, and a
dashed staircase says what can be had for how much. Numbers may carry intervals both ways. A
warning, if there is one, stands above everything. How it is drawn: front_drawn.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyorder.report.charts.drawing import Drawing
from anyorder.report.charts.values import Number, check_color, check_finite, check_name, reach

if TYPE_CHECKING:
    from anyorder.report.charts.sheet import Sheet


@dataclass(frozen=True)
class FrontPoint:
    """One point."""

    cost: Number
    value: Number
    label: str = ""
    """Beside it, on wide pages."""
    front: bool = False


@dataclass(frozen=True)
class FrontSeries:
    """Points of one kind."""

    label: str
    color: str
    """A name in PALETTE."""
    points: tuple[FrontPoint, ...]


@dataclass(frozen=True)
class FrontPanel:
    """A plot; all share the axis of values."""

    title: str
    cost_label: str
    series: tuple[FrontSeries, ...]


@dataclass(frozen=True)
class FrontChart:
    """Panels side by side."""

    name: str
    alt: str
    value_label: str
    panels: tuple[FrontPanel, ...]
    warning: str = ""
    """What a reader must know before anything else."""


def front(chart: FrontChart) -> Drawing:
    """The chart, checked; drawn when asked for."""
    check_name(chart.name)
    every = [series for panel in chart.panels for series in panel.series]
    if not any(series.points for series in every):
        raise ValueError(f"chart {chart.name!r} has no points: leave it out")
    for series in every:
        check_color(series.color)
        for point in series.points:
            check_finite(f"series {series.label!r}", [point.cost, point.value])
            if reach(point.cost)[0] <= 0:
                raise ValueError(f"series {series.label!r} has a cost of 0 or less: leave it out")

    def draw(narrow: bool) -> Sheet:
        from anyorder.report.charts.front_drawn import draw_front

        return draw_front(chart, narrow)

    return Drawing(chart.name, chart.alt, draw)
