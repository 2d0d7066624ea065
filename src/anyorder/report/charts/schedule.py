"""The schedule figure (paper, appendix D): how much is inserted, masked and clean, and when.

The numbers come from apps/schedule_figure.py, or from wherever: plain lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anyorder.report.charts.drawing import Drawing
from anyorder.report.charts.lines import LineChart, LinePanel, LineSeries, lines


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
            if name not in _CURVES:
                raise ValueError(f"no curve {name!r}: choose one of {', '.join(_CURVES)}")
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
