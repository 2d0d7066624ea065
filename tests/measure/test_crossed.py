"""The crossed bootstrap: against the plain one, against simulation, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.measure.intervals import crossed_interval, ratio_interval


def test_the_estimate_is_the_mean_over_all_samples() -> None:
    found = crossed_interval([[3.0, 0.0], [1.0, 2.0]], [[4, 0], [1, 2]])
    assert found.estimate == pytest.approx(6 / 7)
    assert found.n == 2


def test_one_seed_is_the_bootstrap_over_tasks() -> None:
    generator = np.random.default_rng(0)
    sums, counts = generator.normal(2, 1, size=60), np.full(60, 2.0)
    ours = crossed_interval(sums[None], counts[None], resamples=20_000)
    plain = ratio_interval(sums, counts)
    assert ours.estimate == pytest.approx(plain.estimate)
    assert (ours.low, ours.high) == pytest.approx((plain.low, plain.high), abs=0.01)


def test_seeds_that_differ_widen_the_interval() -> None:
    generator = np.random.default_rng(1)
    tasks = generator.normal(0, 0.1, size=50)
    alike = np.stack([tasks, tasks, tasks])
    apart = alike + np.array([[-1.0], [0.0], [1.0]])
    ones = np.ones((3, 50))
    narrow, wide = (crossed_interval(table, ones) for table in (alike, apart))
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)
    assert wide.low < 0 < wide.high


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(2)
    hits = 0
    for number in range(200):
        seeds, tasks = generator.normal(0, 0.3, size=(8, 1)), generator.normal(0, 1, size=(1, 40))
        table = seeds + tasks + generator.normal(0, 0.5, size=(8, 40))
        found = crossed_interval(table, np.ones_like(table), resamples=400, seed=number)
        hits += found.low <= 0 <= found.high
    assert 0.88 <= hits / 200 <= 1.0


@given(
    st.integers(1, 4),
    st.integers(2, 8),
    st.randoms(use_true_random=False),
)
def test_bounds_hold_the_range_of_the_values(seeds: int, tasks: int, chance: object) -> None:
    draw = chance.random  # type: ignore[attr-defined]
    counts = np.array([[1 + int(3 * draw()) for _ in range(tasks)] for _ in range(seeds)])
    values = np.array([[draw() for _ in range(tasks)] for _ in range(seeds)])
    found = crossed_interval(values * counts, counts, resamples=200)
    assert values.min() - 1e-9 <= found.low <= found.high <= values.max() + 1e-9


def test_a_few_draws_without_samples_are_left_out() -> None:
    """A seed with one task of many: the draws that miss both are few."""
    counts = np.zeros((3, 12))
    counts[0], counts[1, 0] = 1, 1
    counts[2, :6] = 1
    sums = counts * np.arange(12)
    found = crossed_interval(sums, counts)
    assert found.method == "crossed bootstrap"
    assert 0 <= found.low <= found.estimate <= found.high <= 11


def test_few_and_equal_values_say_so() -> None:
    empty = crossed_interval(np.zeros((2, 3)), np.zeros((2, 3)))
    assert math.isnan(empty.estimate) and empty.method == "empty"
    single = crossed_interval([[2.0], [4.0]], [[1], [1]])
    assert single.estimate == 3 and math.isnan(single.low)
    equal = crossed_interval([[2.0, 1.0]], [[2, 1]])
    assert (equal.low, equal.high, equal.method) == (1, 1, "constant")
    rare = crossed_interval([[1.0, 0.0], [0.0, 2.0]], [[1, 0], [0, 1]])
    assert math.isnan(rare.low) and rare.method == "too few tasks"


@pytest.mark.parametrize(
    ("sums", "counts", "complaint"),
    [
        ([1.0, 2.0], [1, 1], "seeds x tasks"),
        ([[1.0, 2.0]], [[1]], "seeds x tasks"),
        ([[math.nan, 2.0]], [[1, 1]], "finite"),
        ([[1.0, 2.0]], [[1, -1]], "finite"),
    ],
)
def test_what_is_refused(sums: list[float], counts: list[float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        crossed_interval(sums, counts)
