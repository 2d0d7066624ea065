"""Lines with bands: series over steps, pass@k, sweeps; or points with names (`connect=False`).

Lines are told apart by colour and by the shape of their marks. On wide pages a line's name stands
at its end where there is one panel, else in a legend. How it is drawn: lines_drawn.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyorder.report.charts.drawing import Drawing
from anyorder.report.charts.values import Number, check_color, check_finite, check_name, reach

if TYPE_CHECKING:
    from anyorder.report.charts.sheet import Sheet


@dataclass(frozen=True)
class LineSeries:
    """One line, or one class of named points."""

    label: str
    color: str
    """A name in PALETTE."""
    x: Sequence[float]
    y: Sequence[Number]
    dashed: bool = False
    """A second line of the same colour."""
    point_labels: Sequence[str] = ()
    """With `connect=False`: a name beside each point."""


@dataclass(frozen=True)
class LinePanel:
    series: tuple[LineSeries, ...]
    title: str = ""
    x_label: str = ""
    """Unset: the chart's."""


@dataclass(frozen=True)
class LineChart:
    """Panels with shared y axes; the same label has the same colour in all of them."""

    name: str
    alt: str
    x_label: str
    y_label: str
    panels: tuple[LinePanel, ...]
    log_x: bool = False
    log_y: bool = False
    connect: bool = True
    """False: points only, for instance accuracy against time."""
    x_ticks: tuple[float, ...] = ()
    """Where to put numbers, for instance (1, 4, 8, 16); unset: round numbers."""
    y_limits: tuple[float, float] | None = None
    percent: bool = False
    """y values are shares from 0 to 1, shown as percentages."""


def lines(chart: LineChart) -> Drawing:
    """The chart, checked; drawn when asked for."""
    check_name(chart.name)
    every = [each for panel in chart.panels for each in panel.series]
    if not any(len(each.x) for each in every):
        raise ValueError(f"chart {chart.name!r} has no points: leave it out")
    for panel in chart.panels:
        labels = [each.label for each in panel.series]
        if len(set(labels)) < len(labels):
            raise ValueError(f"series of the panel {panel.title!r} share a label: {labels}")
    for each in every:
        check_color(each.color)
        _check_points(each, chart)

    def draw(narrow: bool) -> Sheet:
        from anyorder.report.charts.lines_drawn import draw_lines

        return draw_lines(chart, narrow)

    return Drawing(chart.name, chart.alt, draw)


def _check_points(series: LineSeries, chart: LineChart) -> None:
    what = f"series {series.label!r}"
    if len(series.x) != len(series.y):
        raise ValueError(f"{what}: {len(series.x)} x values and {len(series.y)} y values")
    check_finite(what, [*map(float, series.x), *series.y])
    if series.point_labels and (chart.connect or len(series.point_labels) != len(series.x)):
        raise ValueError(f"{what}: point_labels are for connect=False, one for each point")
    lows = [reach(y)[0] for y in series.y]
    for log, values in ((chart.log_x, list(series.x)), (chart.log_y, lows)):
        if log and any(value <= 0 for value in values):
            raise ValueError(f"{what} has values of 0 or less, which a log axis cannot show")
