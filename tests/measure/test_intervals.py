"""Intervals: edge cases, determinism, coverage by simulation, and what pairing is worth."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from anyorder.measure import intervals
from anyorder.measure.intervals import (
    Interval,
    bootstrap,
    difference_interval,
    mean_interval,
    rate_interval,
    ratio_interval,
    wilson_interval,
)

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
per_task = st.integers(2, 40).flatmap(lambda n: arrays(np.float64, n, elements=numbers))


@given(per_task)
def test_the_interval_holds_its_estimate_and_stays_inside_the_values(values: Any) -> None:
    found = mean_interval(values, resamples=400)
    slack = 1e-9 * max(1.0, float(np.abs(values).max()))
    assert found.estimate == pytest.approx(values.mean(), abs=slack)
    assert found.low <= found.high
    assert values.min() - slack <= found.low and found.high <= values.max() + slack
    assert (found.n, found.level) == (len(values), 0.95)


@given(per_task, st.floats(-10, 10), st.floats(0.5, 10))
def test_moving_and_stretching_the_values_moves_and_stretches_the_interval(
    values: Any, shift: float, scale: float
) -> None:
    """The draws depend on the seed and the number of tasks only, so this holds exactly."""
    plain = mean_interval(values, resamples=100)
    moved = mean_interval(shift + scale * values, resamples=100)
    size = 1e-9 * (1 + scale * float(np.abs(values).max()))
    for name in ("estimate", "low", "high"):
        assert getattr(moved, name) == pytest.approx(shift + scale * getattr(plain, name), abs=size)


def test_the_quantiles_are_those_of_the_whole_bootstrap_distribution() -> None:
    """Three tasks have 27 equally likely draws: enumerate them."""
    values = np.array([0.0, 1.0, 5.0])
    grid = np.array(np.meshgrid(*[range(3)] * 3)).reshape(3, -1)
    means = values[grid].mean(axis=0)
    found = mean_interval(values, level=0.8, resamples=60_000)
    assert found.low == pytest.approx(np.quantile(means, 0.1, method="inverted_cdf"))
    assert found.high == pytest.approx(np.quantile(means, 0.9, method="inverted_cdf"))


def test_the_seed_decides_and_memory_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).random(37)
    whole = mean_interval(values, resamples=1000, seed=5)
    assert mean_interval(values, resamples=1000, seed=5) == whole
    assert mean_interval(values, resamples=1000, seed=6) != whole
    sizes: list[int] = []

    def watched(drawn: Any) -> Any:
        sizes.append(drawn.size)
        return drawn.mean(axis=-1)

    for at_once in (1, 37 * 7, 37 * 333 + 5):
        monkeypatch.setattr(intervals, "DRAWN_AT_ONCE", at_once)
        sizes.clear()
        assert bootstrap(watched, [values], resamples=1000, seed=5) == whole
        assert max(sizes) <= max(37, at_once)


def test_no_value_one_value_equal_values() -> None:
    empty = mean_interval([])
    assert math.isnan(empty.estimate) and math.isnan(empty.low) and math.isnan(empty.high)
    assert (empty.n, empty.method) == (0, "empty")
    single = mean_interval([0.25])
    assert single.estimate == 0.25 and math.isnan(single.low) and math.isnan(single.high)
    assert (single.n, single.method) == (1, "single")
    assert mean_interval([0.5] * 9) == Interval(0.5, 0.5, 0.5, 9, 0.95, "constant")
    assert mean_interval([True, False]).estimate == 0.5
    assert difference_interval([], []).method == "empty"
    assert difference_interval([1, 0, 1], [1, 0, 1]).method == "constant"


@pytest.mark.parametrize(
    "values",
    [[0.1, None, 0.3], [0.1, math.nan, 0.3], np.array([0.1, np.inf]), ["a", "b"], [[1.0, 2.0]]],
)
def test_missing_values_are_refused_everywhere(values: Any) -> None:
    calls: list[Callable[[Any], Interval]] = [
        mean_interval,
        rate_interval,
        lambda v: difference_interval(v, np.zeros(len(v))),
        lambda v: ratio_interval(np.ones(len(v)), v),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"one number per task|missing or not finite"):
            call(values)


def test_which_value_is_missing() -> None:
    with pytest.raises(ValueError, match=r"2 of 4 values .* first is number 1\): leave those"):
        mean_interval([1, None, 2, None])


def test_other_refusals() -> None:
    with pytest.raises(ValueError, match="3 and 2 tasks"):
        difference_interval([1, 2, 3], [1, 2])
    for level in (0.0, 1.0, 95):
        with pytest.raises(ValueError, match="between 0 and 1"):
            mean_interval([1, 2], level=level)
        with pytest.raises(ValueError, match="between 0 and 1"):
            wilson_interval(1, 2, level=level)
    with pytest.raises(ValueError, match="resamples"):
        mean_interval([1, 2], resamples=0)
    with pytest.raises(ValueError, match="from 0 to 1"):
        rate_interval([0.5, 1.5])
    with pytest.raises(ValueError, match="denominator is 0"):
        ratio_interval([1, 1, 1], [0, 1, 1], resamples=2000)


def coverage(draw: Callable[[np.random.Generator], Any], truth: float, trials: int = 500) -> float:
    """How often the interval holds the truth."""
    generator = np.random.default_rng(20)
    hits = 0
    for trial in range(trials):
        found = mean_interval(draw(generator), resamples=600, seed=trial)
        hits += found.low <= truth <= found.high
    return hits / trials


def test_coverage_of_a_mean_of_164_rates() -> None:
    """The shape of a benchmark: many tasks hard, many easy. 95% within simulation noise (1%)."""
    rate = coverage(lambda rng: rng.binomial(16, rng.beta(0.4, 0.5, 164)) / 16, 0.4 / 0.9)
    assert 0.92 <= rate <= 0.98


def test_coverage_of_a_skewed_mean_of_few_tasks_falls_short_but_not_far() -> None:
    """What the docstring warns of: 20 waiting times."""
    assert 0.84 <= coverage(lambda rng: rng.exponential(size=20), 1.0) <= 0.95


def test_coverage_of_a_paired_difference() -> None:
    def draw(rng: np.random.Generator) -> Any:
        ability = rng.beta(0.4, 0.5, 120)
        left = rng.binomial(16, np.minimum(1, ability + 0.05 * (ability < 0.9))) / 16
        return left - rng.binomial(16, ability) / 16

    truth = 0.05 * stats.beta(0.4, 0.5).cdf(0.9)
    assert 0.92 <= coverage(draw, truth) <= 0.98


def test_a_paired_difference_is_narrower_where_tasks_agree() -> None:
    rng = np.random.default_rng(0)
    ability = rng.beta(0.4, 0.5, 164)
    left, right = rng.binomial(16, ability) / 16, rng.binomial(16, ability) / 16
    paired = difference_interval(left, right)
    apart = difference_interval(left, rng.permutation(right))
    assert paired.estimate == pytest.approx(apart.estimate)
    assert paired.high - paired.low < 0.4 * (apart.high - apart.low)
    better = difference_interval(left + 0.5, right)
    assert 0 < better.low < better.estimate == pytest.approx(0.5 + (left - right).mean())
    turned = difference_interval(right, left)
    assert turned.low == pytest.approx(-paired.high, abs=2e-3)


def test_a_ratio_is_of_sums_and_pairs_its_sides() -> None:
    rng = np.random.default_rng(1)
    samples = rng.integers(1, 9, 60)
    exact = ratio_interval(3.0 * samples, samples)
    assert exact.low == pytest.approx(3.0) and exact.high == pytest.approx(3.0)
    seconds = samples * rng.gamma(4, 0.25, 60)
    found = ratio_interval(seconds, samples)
    assert found.estimate == pytest.approx(seconds.sum() / samples.sum())
    assert found.low < found.estimate < found.high


def test_any_statistic_of_the_last_axis() -> None:
    values = np.random.default_rng(2).exponential(size=101)
    found = bootstrap(lambda drawn: np.median(drawn, axis=-1), [values])
    assert found.estimate == np.median(values)
    assert found.low in values and found.high in values  # a median of an odd draw is a value
    with pytest.raises(AssertionError, match="last axis"):
        bootstrap(lambda drawn: drawn.mean(), [values])


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_solves_the_score_equation(counts: tuple[int, int]) -> None:
    successes, n = counts
    found = wilson_interval(successes, n, level=0.9)
    reference = stats.binomtest(successes, n).proportion_ci(0.9, method="wilson")
    assert found.low == pytest.approx(reference.low, abs=1e-12)
    assert found.high == pytest.approx(reference.high, abs=1e-12)
    assert 0 <= found.low <= found.estimate == successes / n <= found.high <= 1


def test_wilson_covers_small_rates() -> None:
    """Average coverage over binomial outcomes, exact: at least 94% of nominal 95% at rate 1%."""
    n, rate = 164, 0.01
    outcomes = np.arange(n + 1)
    bounds = [wilson_interval(int(k), n) for k in outcomes]
    held = np.array([each.low <= rate <= each.high for each in bounds])
    assert stats.binom(n, rate).pmf(outcomes) @ held >= 0.94


def test_rates_at_the_border_get_honest_bounds() -> None:
    none, every = rate_interval([0.0] * 164), rate_interval([1.0] * 164)
    assert (none.low, every.high) == (0.0, 1.0)
    assert none.method == every.method == "wilson"
    assert 0.01 < none.high == pytest.approx(1 - every.low) and none.high < 0.03
    assert rate_interval([0.0]).high > 0.5
    assert rate_interval([0.5] * 4).method == "constant"
    mixed = np.array([0.0, 1.0, 0.5, 0.25])
    assert rate_interval(mixed) == mean_interval(mixed)
    assert rate_interval([]).method == "empty"
    with pytest.raises(ValueError, match="0 <= successes"):
        wilson_interval(3, 2)


def test_records_are_json() -> None:
    record = mean_interval([1.0]).to_record()
    assert record == {
        "estimate": 1.0,
        "low": None,
        "high": None,
        "n": 1,
        "level": 0.95,
        "method": "single",
    }
    assert Interval(0.5, 0.25, 1.0, 9, 0.9, "wilson").times(4) == Interval(
        2.0, 1.0, 4.0, 9, 0.9, "wilson"
    )
    assert str(Interval(0.5, 0.4, 0.6, 9, 0.95)) == "0.5 [0.4, 0.6]"
