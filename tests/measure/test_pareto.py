"""The Pareto front against its definition."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.measure.intervals import Point, on_front

POINTS = st.lists(
    st.tuples(st.integers(0, 6).map(float), st.integers(0, 6).map(float)), max_size=24
)


def beats(left: Point, right: Point) -> bool:
    """Whether left costs no more than right, is worth no less, and differs."""
    return left != right and left[0] <= right[0] and left[1] >= right[1]


@given(POINTS)
def test_a_point_is_on_the_front_iff_nothing_beats_it(points: list[Point]) -> None:
    by_definition = [not any(beats(other, point) for other in points) for point in points]
    assert on_front(points) == by_definition


@given(POINTS.filter(bool))
def test_the_front_holds_the_cheapest_and_the_best_and_rises(points: list[Point]) -> None:
    front = sorted({point for point, kept in zip(points, on_front(points), strict=True) if kept})
    assert front[0][0] == min(cost for cost, _ in points)
    assert front[-1][1] == max(value for _, value in points)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(front))


@given(POINTS, st.tuples(st.integers(0, 6).map(float), st.integers(0, 6).map(float)))
def test_another_point_only_takes_points_off_the_front(points: list[Point], new: Point) -> None:
    before = on_front(points)
    after = on_front([*points, new])[: len(points)]
    assert all(was or not now for was, now in zip(before, after, strict=True))


def test_equals_are_on_the_front_together() -> None:
    assert on_front([(1.0, 0.5), (2.0, 0.5), (1.0, 0.5), (0.5, 0.4)]) == [True, False, True, True]
    assert on_front([]) == []


def test_a_point_without_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="leave it out"):
        on_front([(math.nan, 1.0)])
