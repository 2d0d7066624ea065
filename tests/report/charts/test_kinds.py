"""The chart with a front: what it refuses, and what can be seen in it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from anyorder.measure.intervals import Interval
from anyorder.report import charts
from anyorder.report.charts.kinds import FrontChart, FrontPanel, FrontPoint, FrontSeries, front
from anyorder.trace import Candidate, Trace

SVG = "{http://www.w3.org/2000/svg}"
TEXT = f".//{SVG}text"


def near(value: float) -> Interval:
    return Interval(value, 0.9 * value, 1.1 * value, 20, 0.95)


def chart(*points: FrontPoint, **changes: object) -> FrontChart:
    series = (
        FrontSeries("mdm", "mdm", points),
        FrontSeries("ar", "ar", (FrontPoint(near(0.1), near(0.8), "plain"),)),
    )
    panels = tuple(FrontPanel(name, f"seconds {name}", series) for name in ("one", "four"))
    made = FrontChart("race", "alt text", "problems solved", panels)
    return replace(made, **changes)  # type: ignore[arg-type]


POINT = FrontPoint(near(0.02), near(0.5), "steps 8", front=True)


def words(svg: str) -> list[str]:
    return ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iterfind(TEXT)]


@pytest.mark.parametrize("narrow", [False, True])
def test_everything_is_in_it(narrow: bool) -> None:
    said = words(front(chart(POINT, warning="NOT EQUAL: parameters")).svg(narrow))
    for each in ("mdm", "ar", "Pareto front", "95% interval", "one", "four", "seconds one"):
        assert each in said
    assert any("NOT EQUAL" in each for each in said)
    assert ("steps 8" in said) != narrow  # names of points need room


def test_a_front_is_a_staircase_and_rings() -> None:
    plain, ringed = (front(chart(replace(POINT, front=kept))).svg() for kept in (False, True))
    dashes = re.compile(r"stroke-dasharray")
    assert len(dashes.findall(ringed)) == len(dashes.findall(plain)) + 2  # one for each panel


def test_it_can_be_saved(tmp_path: Path) -> None:
    paths = front(chart(POINT)).save(tmp_path)
    assert [path.name for path in paths] == ["race.png", "race.pdf"]


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (chart(replace(POINT, cost=0.0)), "cost of 0 or less"),
        (chart(replace(POINT, value=math.nan)), "leave missing values out"),
        (chart(POINT, name="No name"), "small letters"),
        (chart(POINT, panels=()), "has no points"),
    ],
)
def test_what_cannot_be_drawn_is_refused(made: FrontChart, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        front(made)


# What charts refuse, in a line that says what to do; and traces as charts.


SERIES = charts.Series("s", "mdm")


def bar_chart(**changes: Any) -> charts.BarChart:
    panel = charts.BarPanel("share", (charts.BarGroup("g", (charts.Bar("s", 0.5),)),))
    return replace(charts.BarChart("b", "b", (SERIES,), (panel,)), **changes)


def with_bar(bar: charts.Bar) -> tuple[charts.BarPanel, ...]:
    return (charts.BarPanel("share", (charts.BarGroup("g", (bar,)),)),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Two words"}, "small letters"),
        ({"panels": ()}, "has no bars"),
        ({"series": (SERIES, SERIES)}, "share a label"),
        ({"series": (charts.Series("s", "mauve"),)}, "no colour 'mauve': choose one of ar"),
        ({"panels": with_bar(charts.Bar("t", 1.0))}, "no series 't'"),
        ({"panels": with_bar(charts.Bar("s", math.nan))}, "leave missing values out"),
        ({"panels": with_bar(charts.Bar("s", 1.0, {"c": 1.0}))}, "no control 'c'"),
        ({"controls": ("a", "b", "c", "d")}, "marks for three"),
    ],
)
def test_bars_are_checked(changes: dict[str, Any], message: str) -> None:
    charts.bars(bar_chart())
    with pytest.raises(ValueError, match=message):
        charts.bars(bar_chart(**changes))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (charts.PointSet([1.0], [1.0, 2.0]), "1 x values and 2 y values"),
        (charts.PointSet([0.0], [1.0]), "log axis"),
        (charts.PointSet([math.inf], [1.0]), "not finite"),
        (charts.PointSet([], []), "has no points"),
    ],
)
def test_points_are_checked(found: charts.PointSet, message: str) -> None:
    panel = charts.PointPanel("p", {"s": found})
    with pytest.raises(ValueError, match=message):
        charts.points(charts.PointChart("p", "p", "x", "y", (SERIES,), (panel,), log_x=True))


@pytest.mark.parametrize(
    ("series", "message"),
    [
        (charts.LineSeries("s", "mdm", (1, 2), (1.0,)), "2 x values and 1 y values"),
        (charts.LineSeries("s", "mdm", (0,), (1.0,)), "log axis"),
        (charts.LineSeries("s", "mdm", (1,), (1.0,), point_labels=("a",)), "connect=False"),
        (charts.LineSeries("s", "grue", (1,), (1.0,)), "no colour"),
        (charts.LineSeries("s", "mdm", (), ()), "has no points"),
    ],
)
def test_lines_are_checked(series: charts.LineSeries, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        charts.lines(
            charts.LineChart("l", "l", "x", "y", (charts.LinePanel((series,)),), log_x=True)
        )


def test_a_schedule_has_known_curves() -> None:
    panel = charts.SchedulePanel("p", "time", [0, 1], {"deleted": [0, 1]})
    with pytest.raises(ValueError, match="no curve 'deleted'"):
        charts.schedule(charts.ScheduleChart("s", "s", (panel,)))


def segment_trace(steps: int = 3) -> Trace:
    """Five lines, three of them empty; the second is committed first."""
    pieces = ["a\n", "b\n", "", "", ""]
    reveal = [2, 1, 3, 3, 3]
    candidates = [
        Candidate(step, line, None, pieces[line] or "", -float(line), reveal[line] == step)
        for step in range(1, steps + 1)
        for line in range(5)
        if reveal[line] >= step
    ]
    return Trace(
        task_id="t/0",
        sample=0,
        prompt="",
        text="".join(pieces),
        char_end=list(accumulate(map(len, pieces))),
        insert_step=[0] * 5,
        reveal_step=reveal,
        steps=3,
        segment=list(range(5)),
        candidates=candidates,
    )


def test_a_trace_with_candidates_is_a_chart() -> None:
    chart = charts.segment_trace_chart(segment_trace(), score_label="mean log-probability")
    assert [step.step for step in chart.steps] == [1, 2, 3]
    first, second, third = (
        [(row.segment, row.text, row.state, row.last) for row in step.rows] for step in chart.steps
    )
    assert first == [
        (0, "a\n", "candidate", None),
        (1, "b\n", "committed", None),
        (2, "", "candidate", 4),
    ]
    assert second[:2] == [(0, "a\n", "committed", None), (1, "b\n", "revealed", None)]
    assert [row[2] for row in third] == ["revealed", "revealed", *["committed"] * 3]
    assert chart.steps[0].rows[2].score == -2.0  # the best of those it stands for
    charts.segment_trace(chart).svg()


def test_every_step_that_commits_a_line_with_text_is_shown() -> None:
    """Fifteen lines, of which the odd ones are empty; each step commits one."""
    pieces = [f"line {i}\n" if i % 2 == 0 else "" for i in range(15)]
    candidates = [
        Candidate(step, line, None, pieces[line], 0.0, line + 1 == step)
        for step in range(1, 16)
        for line in range(step - 1, 15)
    ]
    trace = Trace(
        task_id="t/0",
        sample=0,
        prompt="",
        text="".join(pieces),
        char_end=list(accumulate(map(len, pieces))),
        insert_step=[0] * 15,
        reveal_step=list(range(1, 16)),
        steps=15,
        segment=list(range(15)),
        candidates=candidates,
    )
    chosen = [step.step for step in charts.segment_trace_chart(trace).steps]
    assert chosen == list(range(1, 16, 2))


def test_steps_can_be_chosen_and_missing_ones_are_refused() -> None:
    trace = segment_trace()
    assert [s.step for s in charts.segment_trace_chart(trace, steps=[2]).steps] == [2]
    with pytest.raises(ValueError, match=r"steps \[9\] proposed nothing"):
        charts.segment_trace_chart(trace, steps=[9])
    with pytest.raises(ValueError, match="no candidates"):
        charts.segment_trace_chart(Trace(task_id="t", sample=0, prompt="", text="x"))
