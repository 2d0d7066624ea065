"""The chart with a front: what it refuses, and what can be seen in it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from anyorder.measure.intervals import Interval
from anyorder.report.charts.kinds import FrontChart, FrontPanel, FrontPoint, FrontSeries, front

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
