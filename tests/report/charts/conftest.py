"""One chart of each kind, with everything that can be in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anyorder.measure.intervals import Interval
from anyorder.report import charts
from anyorder.report.charts import Drawing


def near(estimate: float, half: float = 0.04) -> Interval:
    return Interval(estimate, estimate - half, estimate + half, 50, 0.95)


def bars() -> Drawing:
    series = (
        charts.Series("by <confidence> & $x$", "confidence"),
        charts.Series("random", "random", True),
    )

    def group(label: str, first: Any, second: Any) -> charts.BarGroup:
        controls = {"left to right": 0.1, "any order": near(0.8)}
        return charts.BarGroup(
            label, (charts.Bar(series[0].label, first, controls), charts.Bar("random", second))
        )

    groups = (
        group("Masked diffusion with a long name that is folded", near(0.93), 0.7),
        group("Segments", near(0.5), None),
    )
    panels = tuple(
        charts.BarPanel(
            f"similarity {number} in words", groups, f"Panel {number}", percent=number == 2
        )
        for number in range(3)
    )
    return charts.bars(
        charts.BarChart("bars", 'Bars "of" <all>', series, panels, ("left to right", "any order"))
    )


def points(count: int = 900) -> Drawing:
    noise = np.random.default_rng(0)
    found = charts.PointSet(
        noise.lognormal(0, 1, count), noise.random(count), (near(2.0), near(0.5))
    )
    few = charts.PointSet([1.0, 2.0], [0.5, 0.75])
    classes = (charts.Series("most mass", "top"), charts.Series("committed", "committed"))
    panels = tuple(
        charts.PointPanel(name, {"most mass": found, "committed": few})
        for name in ("MDM", "LatentMDM")
    )
    return charts.points(
        charts.PointChart("points", "Points", "mass", "share", classes, panels, log_x=True)
    )


def lines() -> Drawing:
    series = tuple(
        charts.LineSeries(f"{color} line", color, (1, 4, 16), [near(y), near(y + 0.1), y + 0.2])
        for color, y in (("mdm", 0.5), ("flexmdm", 0.51), ("ar", 0.52))
    )
    panel = charts.LinePanel(series)
    return charts.lines(
        charts.LineChart(
            "lines", "Lines", "k", "solved", (panel,), log_x=True, x_ticks=(1, 4, 16), percent=True
        )
    )


def named() -> Drawing:
    series = charts.LineSeries(
        "MDM",
        "mdm",
        (1.0, 1.01, 5.0),
        [near(0.5), 0.5, 0.7],
        point_labels=("one", "two", "far right"),
    )
    panel = charts.LinePanel((series,))
    return charts.lines(
        charts.LineChart("named", "Points with names", "seconds", "solved", (panel,), connect=False)
    )


def schedule() -> Drawing:
    time = np.linspace(0, 1, 51)
    return charts.schedule(
        charts.schedule_chart(
            {
                "schedules": {"time": time, "insertion": time, "unmasking": time**2},
                "sampled": {
                    "step": [0, 1, 2],
                    "inserted": [0, 0.5, 1],
                    "masked": [0, 0.5, 0],
                    "clean": [0, 0, 1],
                },
            }
        )
    )


def segments() -> Drawing:
    rows = (
        charts.SegmentRow(0, "def f(x):\n", "revealed"),
        charts.SegmentRow(1, "    return $x$ < 1 & y" + " + 10" * 20, "committed", -0.1),
        charts.SegmentRow(2, "    x = 1", "candidate", -2.5),
        charts.SegmentRow(3, "", "open", last=7),
    )
    steps = tuple(charts.SegmentStep(number, rows) for number in (1, 2, 3))
    return charts.segment_trace(
        charts.SegmentTraceChart("segments", "Segments", steps, "mean log-probability")
    )


EVERY: dict[str, Callable[[], Drawing]] = {
    "bars": bars,
    "points": points,
    "lines": lines,
    "named": named,
    "schedule": schedule,
    "segments": segments,
}


@pytest.fixture(scope="session")
def drawings() -> dict[str, Drawing]:
    return {name: make() for name, make in EVERY.items()}


@pytest.fixture(scope="session")
def svgs(drawings: dict[str, Drawing]) -> dict[tuple[str, bool], str]:
    """By name and whether narrow."""
    return {
        (name, narrow): drawing.svg(narrow)
        for name, drawing in drawings.items()
        for narrow in (False, True)
    }
