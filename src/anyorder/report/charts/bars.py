"""Bars with intervals and controls: similarity of programs, order metrics, rates.

Bars lie, so that their names can be words, and begin at zero. A control (what a strict
left-to-right order, or a random one, would score on the same program) is a mark below its bar,
without its interval, which belongs in a table. Panels have a value axis each; where their groups
have the same names, a wide page has them side by side. How it is drawn: bars_drawn.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anyorder.report.charts.drawing import Drawing
from anyorder.report.charts.values import (
    Number,
    Series,
    check_finite,
    check_name,
    check_series,
)

if TYPE_CHECKING:
    from anyorder.report.charts.sheet import Sheet


@dataclass(frozen=True)
class Bar:
    """One bar."""

    series: str
    """The label of one of the chart's series."""
    value: Number | None
    """None: nothing was measured, which is said in the bar's place."""
    controls: Mapping[str, Number] = field(default_factory=dict)
    """By the names in `BarChart.controls`."""


@dataclass(frozen=True)
class BarGroup:
    """Bars that stand together: a model, a task."""

    label: str
    """In words; may be empty where there is one group only."""
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class BarPanel:
    """Groups that share a value axis."""

    value_label: str
    """What the axis shows, in plain words."""
    groups: tuple[BarGroup, ...]
    title: str = ""
    limits: tuple[float, float] | None = None
    """Of the value axis; unset: from zero (or the least value below) to what is drawn."""
    percent: bool = False
    """Values are shares from 0 to 1, shown as percentages."""


@dataclass(frozen=True)
class BarChart:
    """Panels of bars."""

    name: str
    """Small letters, digits, hyphens: the name of its files, and unique in a page."""
    alt: str
    """What the chart shows, for those who cannot see it."""
    series: tuple[Series, ...]
    panels: tuple[BarPanel, ...]
    controls: tuple[str, ...] = ()
    """Names of the controls in words, at most three: `("left-to-right order", "random order")`.
    A bar need not have them all."""


def bars(chart: BarChart) -> Drawing:
    """The chart, checked; drawn when asked for."""
    check_name(chart.name)
    every = [bar for panel in chart.panels for group in panel.groups for bar in group.bars]
    if not every:
        raise ValueError(f"chart {chart.name!r} has no bars: leave it out")
    check_series(chart.series, [bar.series for bar in every])
    if len(chart.controls) > 3:
        raise ValueError(f"{len(chart.controls)} controls: there are marks for three")
    for bar in every:
        values = [bar.value] if bar.value is not None else []
        check_finite(f"chart {chart.name!r}", [*values, *bar.controls.values()])
        for name in bar.controls:
            if name not in chart.controls:
                raise ValueError(f"no control {name!r}: add it to the chart's controls")

    def draw(narrow: bool) -> Sheet:
        from anyorder.report.charts.bars_drawn import draw_bars

        return draw_bars(chart, narrow)

    return Drawing(chart.name, chart.alt, draw)
