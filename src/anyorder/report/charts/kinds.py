"""Bars with intervals and controls: similarity of programs, order metrics, rates.

Bars lie, so that their names can be words, and begin at zero. A control (what a strict
left-to-right order, or a random one, would score on the same program) is a mark below its bar,
without its interval, which belongs in a table. Panels have a value axis each; where their groups
have the same names, a wide page has them side by side. How it is drawn: bars_drawn.py.

Lines with bands: series over steps, pass@k, sweeps; or points with names (`connect=False`).

Lines are told apart by colour and by the shape of their marks. On wide pages a line's name stands
at its end where there is one panel, else in a legend. How it is drawn: lines_drawn.py.

Clouds of points in panels with shared axes: mass and localisation (paper, section 3).

Classes (the tokens with most mass, the tokens committed) have a colour and a shape each; their
means are marked. Of a large class evenly spaced members are drawn, so that files stay small; means
are of all. How it is drawn: points_drawn.py.

Value against cost with a Pareto front: accuracy against time, say.

Points of one series are joined in the order of their cost, points on the front have a ring, and a
dashed staircase says what can be had for how much. Numbers may carry intervals both ways. A
warning, if there is one, stands above everything. How it is drawn: front_drawn.py.

The generation trace (paper, appendix E): what each step proposed, and what it committed.

A panel for each step: the candidate of every open slot on a ground that is the stronger the better
its score, the committed one marked, lines revealed earlier in grey. How it is drawn:
segment_trace_drawn.py.

The schedule figure (paper, appendix D): how much is inserted, masked and clean, and when.

The numbers come from apps/schedule_figure.py, or from wherever: plain lists.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Literal

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
    reach,
)
from anyorder.trace import Candidate, Trace

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
        from anyorder.report.charts.draw_bars import draw_bars

        return draw_bars(chart, narrow)

    return Drawing(chart.name, chart.alt, draw)


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
        from anyorder.report.charts.draw_lines import draw_lines

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


MOST_DRAWN, MOST_NARROW = 600, 300
"""Points of one class in one panel, wide and narrow."""


@dataclass(frozen=True)
class PointSet:
    """The points of one class in one panel; arrays are fine."""

    x: Sequence[float]
    y: Sequence[float]
    mean: tuple[Number, Number] | None = None
    """What to mark, with intervals if known; unset: the plain mean of both coordinates."""


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
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None


def points(chart: PointChart) -> Drawing:
    """The chart, checked; drawn when asked for."""
    check_name(chart.name)
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

    def draw(narrow: bool) -> Sheet:
        from anyorder.report.charts.draw_points import draw_points

        return draw_points(chart, narrow)

    return Drawing(chart.name, chart.alt, draw)


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
    """A name in `chart_colors()`."""
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
        from anyorder.report.charts.draw_points import draw_front

        return draw_front(chart, narrow)

    return Drawing(chart.name, chart.alt, draw)


SOME_STEPS = 6
FOLDED = 3
"""So many neighbours with nothing in them are one row."""


@dataclass(frozen=True)
class SegmentRow:
    """One segment of the canvas in one step."""

    segment: int
    text: str
    """The line in full, or the candidate; ignored for an open slot without a candidate."""
    state: Literal["revealed", "committed", "candidate", "open"]
    score: float | None = None
    last: int | None = None
    """The row stands for all segments from `segment` to this one."""


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
    """What candidates were ranked by, in words."""


def segment_trace_chart(
    trace: Trace,
    name: str = "generation-trace",
    steps: Sequence[int] | None = None,
    score_label: str = "score",
) -> SegmentTraceChart:
    """The chart of a trace that has candidates (`anyorder sample --candidates`).

    `steps` chooses some; unset: every step that commits a line with text, and others that proposed
    something, up to six in all.
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
    """All telling steps, and some of the others, spread evenly, where there is room for them."""
    others = [step for step in steps if step not in telling]
    room = min(len(others), max(0, SOME_STEPS - len(telling)))
    places = [round(i * (len(others) - 1) / max(1, room - 1)) for i in range(room)]
    return sorted({*telling, *(others[place] for place in places)})


def _rows(trace: Trace, step: int) -> list[SegmentRow]:
    """The canvas on which a step worked, with what it proposed."""
    assert trace.segment is not None and trace.candidates is not None
    proposed: dict[int, Candidate] = {
        each.segment: each for each in trace.candidates if each.step == step
    }
    before = trace.replay(step - 1)
    found: dict[int, str | None] = {}
    for slot, piece, revealed in zip(before.slots, before.pieces, before.revealed, strict=True):
        segment = int(trace.segment[slot])
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
    """Long runs of rows that show nothing are one row."""
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
    """The chart, checked; drawn when asked for."""
    check_name(chart.name)
    if not any(step.rows for step in chart.steps):
        raise ValueError(f"chart {chart.name!r} has no rows: leave it out")
    scores = [row.score for step in chart.steps for row in step.rows if row.score is not None]
    check_finite(f"chart {chart.name!r}", scores)

    def draw(narrow: bool) -> Sheet:
        from anyorder.report.charts.draw_segment_trace import draw_segment_trace

        return draw_segment_trace(chart, narrow)

    return Drawing(chart.name, chart.alt, draw)


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
    """The chart of what `anyorder.apps.schedule_figure.schedule_figure` returns."""
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
    """The chart, checked; drawn when asked for."""
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
