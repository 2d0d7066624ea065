"""The kinds of charts: their records, and the checks before they are drawn.

    BarChart           similarity, order metrics, rates. Bars are horizontal, so that their names
                       can be words, and begin at zero. A control (the score of a strict
                       left-to-right or a random order on the same program) is a mark below its bar.
    LineChart          series over steps, pass@k, sweeps; with `connect=False` named points.
    PointChart         clouds of mass and localisation (paper, section 3). Of a large class only
                       evenly spaced members are drawn, so that files stay small; means are of all.
    FrontChart         value against cost with a Pareto front.
    SegmentTraceChart  a panel per step: proposed and committed lines (paper, appendix E).
    ScheduleChart      shares inserted, masked and clean over time (paper, appendix D).

Series differ in colour and in the shape of their marks. How charts look: draw_*.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import groupby
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from anyorder.checks import refuse_unknown
from anyorder.report.charts.svg import (
    Drawing,
    Number,
    Series,
    check_color,
    check_finite,
    check_name,
    check_series,
    drawn_range,
)
from anyorder.trace import Candidate, Trace

if TYPE_CHECKING:
    from anyorder.report.charts.pixel_figure import PixelFigure


class _Chart(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def alt(self) -> str: ...


def _drawn_late(chart: _Chart, module: str, function: str) -> Drawing:
    """A chart whose drawer is imported on demand: matplotlib is optional and slow to import."""
    check_name(chart.name)

    def draw(narrow: bool) -> PixelFigure:
        drawer = getattr(import_module(f"anyorder.report.charts.{module}"), function)
        drawn: PixelFigure = drawer(chart, narrow)
        return drawn

    return Drawing(chart.name, chart.alt, draw)


@dataclass(frozen=True)
class Bar:
    """One bar."""

    series: str
    """The label of one of the chart's series."""
    value: Number | None
    """None: not measured; a note takes the bar's place."""
    controls: Mapping[str, Number] = field(default_factory=dict)
    """By the names in `BarChart.controls`."""


@dataclass(frozen=True)
class BarGroup:
    """Bars of one model or task."""

    label: str
    """In words; may be empty if there is one group only."""
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class BarPanel:
    """Groups that share a value axis."""

    value_label: str
    """The name of the axis, in plain words."""
    groups: tuple[BarGroup, ...]
    title: str = ""
    limits: tuple[float, float] | None = None
    """Of the value axis; unset: from zero, or the least value below it, to the largest."""
    percent: bool = False
    """Values are shares from 0 to 1, shown as percentages."""


@dataclass(frozen=True)
class BarChart:
    """Panels with a value axis each, side by side on a wide page if their groups are the same."""

    name: str
    """Small letters, digits, hyphens: the name of its files, unique in a page."""
    alt: str
    """A description for screen readers."""
    series: tuple[Series, ...]
    panels: tuple[BarPanel, ...]
    controls: tuple[str, ...] = ()
    """Names of the controls in words, at most three: `("left-to-right order", "random order")`.
    A bar need not have them all."""


def bars(chart: BarChart) -> Drawing:
    """Check the chart; it is drawn on demand."""
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
    return _drawn_late(chart, "draw_bars", "draw_bars")


@dataclass(frozen=True)
class LineSeries:
    """One line, or one class of named points."""

    label: str
    color: str
    """A name in `chart_colors()`."""
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
    """The numbers on the axis, for instance (1, 4, 8, 16); unset: round numbers."""
    y_limits: tuple[float, float] | None = None
    percent: bool = False
    """y values are shares from 0 to 1, shown as percentages."""


def lines(chart: LineChart) -> Drawing:
    """Check the chart; it is drawn on demand."""
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
    return _drawn_late(chart, "draw_plots", "draw_lines")


def _check_points(series: LineSeries, chart: LineChart) -> None:
    what = f"series {series.label!r}"
    if len(series.x) != len(series.y):
        raise ValueError(f"{what}: {len(series.x)} x values and {len(series.y)} y values")
    check_finite(what, [*map(float, series.x), *series.y])
    if series.point_labels and (chart.connect or len(series.point_labels) != len(series.x)):
        raise ValueError(f"{what}: point_labels are for connect=False, one for each point")
    lows = [drawn_range(y)[0] for y in series.y]  # whiskers must fit on a log axis, too
    for log, values in ((chart.log_x, list(series.x)), (chart.log_y, lows)):
        if log and any(value <= 0 for value in values):
            raise ValueError(f"{what} has values of 0 or less, which a log axis cannot show")


MOST_DRAWN, MOST_NARROW = 600, 300
"""Most points of one class in one panel, wide and narrow."""


@dataclass(frozen=True)
class PointSet:
    """The points of one class in one panel; arrays are fine."""

    x: Sequence[float]
    y: Sequence[float]
    mean: tuple[Number, Number] | None = None
    """The large mark, with intervals if known; unset: the mean of both coordinates."""


@dataclass(frozen=True)
class PointPanel:
    title: str
    points: Mapping[str, PointSet]
    """By the label of a class."""


@dataclass(frozen=True)
class PointChart:
    """Panels side by side (below each other on narrow pages), all with the same axes."""

    name: str
    alt: str
    x_label: str
    y_label: str
    classes: tuple[Series, ...]
    panels: tuple[PointPanel, ...]
    log_x: bool = False
    y_limits: tuple[float, float] | None = None


def points(chart: PointChart) -> Drawing:
    """Check the chart; it is drawn on demand."""
    found = [(panel, label, each) for panel in chart.panels for label, each in panel.points.items()]
    check_series(chart.classes, [label for _, label, _ in found])
    if not any(len(each.x) for _, _, each in found):
        raise ValueError(f"chart {chart.name!r} has no points: leave it out")
    for panel, label, each in found:
        what = f"{label!r} in the panel {panel.title!r}"
        if len(each.x) != len(each.y):
            raise ValueError(f"{what}: {len(each.x)} x values and {len(each.y)} y values")
        x, y = np.asarray(each.x, dtype=float), np.asarray(each.y, dtype=float)
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise ValueError(f"{what} has values that are not finite: leave such points out")
        if chart.log_x and (x <= 0).any():
            raise ValueError(f"{what} has x values of 0 or less, which a log axis cannot show")
        check_finite(what, each.mean or ())
    return _drawn_late(chart, "draw_plots", "draw_points")


@dataclass(frozen=True)
class FrontPoint:
    """A value at its cost."""

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
    """A name in `chart_colors()`."""
    points: tuple[FrontPoint, ...]


@dataclass(frozen=True)
class FrontPanel:
    """A plot; all panels share the value axis."""

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
    """In bold above the chart."""


def front(chart: FrontChart) -> Drawing:
    """Check the chart; it is drawn on demand."""
    every = [series for panel in chart.panels for series in panel.series]
    if not any(series.points for series in every):
        raise ValueError(f"chart {chart.name!r} has no points: leave it out")
    for series in every:
        check_color(series.color)
        for point in series.points:
            check_finite(f"series {series.label!r}", [point.cost, point.value])
            if drawn_range(point.cost)[0] <= 0:
                raise ValueError(f"series {series.label!r} has a cost of 0 or less: leave it out")
    return _drawn_late(chart, "draw_plots", "draw_front")


SOME_STEPS = 6
FOLDED = 3
"""At least this many empty neighbours become one row."""


@dataclass(frozen=True)
class SegmentRow:
    """One segment of the canvas in one step."""

    segment: int
    text: str
    """The whole line, or the candidate; ignored for an open slot without a candidate."""
    state: Literal["revealed", "committed", "candidate", "open"]
    score: float | None = None
    last: int | None = None
    """The row is for all segments from `segment` to this one."""


@dataclass(frozen=True)
class SegmentStep:
    step: int
    rows: tuple[SegmentRow, ...]
    """From the first segment to the last."""


@dataclass(frozen=True)
class SegmentTraceChart:
    name: str
    alt: str
    steps: tuple[SegmentStep, ...]
    score_label: str = "score"
    """The score that ranks candidates, in words."""


def segment_trace_chart(
    trace: Trace,
    name: str = "generation-trace",
    steps: Sequence[int] | None = None,
    score_label: str = "score",
) -> SegmentTraceChart:
    """The chart of a trace that has candidates (`anyorder sample --candidates`).

    `steps` selects steps. Unset: all that commit a line with text, and others with candidates while
    there are fewer than six.
    """
    if trace.segment is None or not trace.candidates:
        raise ValueError("the trace has no candidates: sample with candidates=True")
    there = sorted({each.step for each in trace.candidates})
    telling = {each.step for each in trace.candidates if each.taken and each.piece.strip()}
    chosen = _some(there, telling) if steps is None else list(steps)
    if missing := [step for step in chosen if step not in there]:
        raise ValueError(f"steps {missing} proposed nothing: choose among {there}")
    alt = (
        f"Generation trace of {trace.task_id}, sample {trace.sample}: the candidates for every "
        f"open line in {len(chosen)} of {len(there)} steps, and which of them were committed."
    )
    made = tuple(SegmentStep(step, tuple(_folded(_rows(trace, step)))) for step in chosen)
    return SegmentTraceChart(name, alt, made, score_label)


def _some(steps: Sequence[int], telling: Collection[int]) -> list[int]:
    """All telling steps and, if there is room, some of the others, evenly spaced."""
    others = [step for step in steps if step not in telling]
    room = min(len(others), max(0, SOME_STEPS - len(telling)))
    places = [round(i * (len(others) - 1) / max(1, room - 1)) for i in range(room)]
    return sorted({*telling, *(others[place] for place in places)})


def _rows(trace: Trace, step: int) -> list[SegmentRow]:
    """The canvas before a step, with the candidates of that step."""
    assert trace.segment is not None and trace.candidates is not None
    proposed: dict[int, Candidate] = {
        each.segment: each for each in trace.candidates if each.step == step
    }
    before = trace.replay(step - 1)
    found: dict[int, str | None] = {}
    for slot, piece, revealed in zip(before.slots, before.pieces, before.revealed, strict=True):
        # A deleted slot has no column, thus no segment.
        segment = int(trace.segment[slot]) if slot < len(trace.segment) else -1
        if segment >= 0:
            found[segment] = (found.get(segment) or "") + piece if revealed else None
    rows = []
    for segment in sorted(found.keys() | proposed.keys()):
        each, text = proposed.get(segment), found.get(segment)
        if each is not None:
            state: Literal["committed", "candidate"] = "committed" if each.taken else "candidate"
            rows.append(SegmentRow(segment, each.piece, state, each.score))
        elif text is None:
            rows.append(SegmentRow(segment, "", "open"))
        else:
            rows.append(SegmentRow(segment, text, "revealed"))
    return rows


def _folded(rows: Sequence[SegmentRow]) -> list[SegmentRow]:
    """Rows with long runs of empty rows joined into one; a committed row is never joined."""
    result: list[SegmentRow] = []
    for kind, group in groupby(rows, key=lambda row: None if row.text.strip() else row.state):
        members = list(group)
        if kind in (None, "committed") or len(members) < FOLDED:
            result += members
        else:
            scores = [row.score for row in members if row.score is not None]
            best = max(scores, default=None)
            first = members[0]
            result.append(
                SegmentRow(first.segment, "", first.state, best, last=members[-1].segment)
            )
    return result


def segment_trace(chart: SegmentTraceChart) -> Drawing:
    """Check the chart; it is drawn on demand."""
    if not any(step.rows for step in chart.steps):
        raise ValueError(f"chart {chart.name!r} has no rows: leave it out")
    scores = [row.score for step in chart.steps for row in step.rows if row.score is not None]
    check_finite(f"chart {chart.name!r}", scores)
    return _drawn_late(chart, "draw_segment_trace", "draw_segment_trace")


@dataclass(frozen=True)
class SchedulePanel:
    title: str
    x_label: str
    x: Sequence[float]
    curves: Mapping[str, Sequence[float]]
    """Shares from 0 to 1 by name: insertion, unmasking, inserted, masked or clean."""


@dataclass(frozen=True)
class ScheduleChart:
    name: str
    alt: str
    panels: tuple[SchedulePanel, ...]


_CURVES: dict[str, tuple[str, str, bool]] = {
    "insertion": ("insertion schedule", "inserted", True),
    "unmasking": ("unmasking schedule", "clean", True),
    "inserted": ("inserted", "inserted", False),
    "masked": ("still masked", "masked", False),
    "clean": ("revealed", "clean", False),
}
"""Name -> label, colour, dashed."""
_TITLES = {
    "schedules": "Schedules of training",
    "training": "In training",
    "inference": "While sampling: planned",
    "sampled": "While sampling: counted",
}
_ACROSS = {"time": "time, from start (0) to end (1)", "step": "step"}


def schedule_chart(
    figure: Mapping[str, Mapping[str, Sequence[float]]], name: str = "schedule"
) -> ScheduleChart:
    """The chart of the numbers of `schedule_figure` (apps/report.py)."""
    panels = []
    for kind, curves in figure.items():
        across = "step" if "step" in curves else "time"
        rest = {curve: values for curve, values in curves.items() if curve != across}
        panels.append(SchedulePanel(_TITLES[kind], _ACROSS[across], curves[across], rest))
    alt = (
        "How much of the final text is inserted, still masked and revealed over time: "
        + ", ".join(panel.title for panel in panels)
        + "."
    )
    return ScheduleChart(name, alt, tuple(panels))


def schedule(chart: ScheduleChart) -> Drawing:
    """Check the chart, which is a line chart; it is drawn on demand."""
    panels = []
    for panel in chart.panels:
        series = []
        for name, values in panel.curves.items():
            refuse_unknown("curve", name, _CURVES)
            label, color, dashed = _CURVES[name]
            series.append(LineSeries(label, color, panel.x, list(values), dashed))
        panels.append(LinePanel(tuple(series), panel.title, panel.x_label))
    return lines(
        LineChart(
            chart.name,
            chart.alt,
            x_label="",
            y_label="share of the final length",
            panels=tuple(panels),
            y_limits=(0.0, 1.0),
            percent=True,
        )
    )
