"""pass@k: against exact fractions, against every subset, by simulation, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.measure.intervals import difference_interval, mean_interval, wilson_interval
from anyorder.measure.passk import (
    any_of_k,
    ks_up_to,
    pass_at_k,
    pass_differences,
    pass_table,
    task_rates,
)

counts = st.integers(1, 300).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))
)


@given(counts)
def test_it_is_the_ratio_of_binomials(case: tuple[int, int, int]) -> None:
    n, c, k = case
    exact = 1 - Fraction(comb(n - c, k), comb(n, k))
    assert pass_at_k(n, c, k) == float(exact)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_it_is_the_mean_over_all_subsets_and_over_all_orders(passed: list[bool], data: Any) -> None:
    k = data.draw(st.integers(1, len(passed)))
    subsets = list(combinations(passed, k))
    share = sum(any(subset) for subset in subsets) / len(subsets)
    assert pass_at_k(len(passed), sum(passed), k) == pytest.approx(share)


@pytest.mark.parametrize(("n", "c", "k"), [(10**6, 1, 1), (10**6, 3, 10**5), (10**7, 10**6, 4)])
def test_large_numbers_keep_their_digits(n: int, c: int, k: int) -> None:
    """Against the product of min(c, k) factors."""
    few, many = sorted((c, k))
    missed = Fraction(1)
    for j in range(few):
        missed *= Fraction(n - many - j, n - j)
    assert pass_at_k(n, c, k) == float(1 - missed)


def test_very_large_numbers() -> None:
    assert pass_at_k(10**5, 10**4, 10**4) == 1.0
    assert pass_at_k(10**5, 0, 10**4) == 0.0


def test_it_is_unbiased_and_so_is_any_of_k() -> None:
    """Samples right with probability p: both have the mean 1 - (1 - p)^k."""
    rng = np.random.default_rng(4)
    p, n, k = 0.15, 16, 4
    drawn = rng.random((20_000, n)) < p
    truth = 1 - (1 - p) ** k
    unbiased = [pass_at_k(n, int(row.sum()), k) for row in drawn]
    empirical = [any_of_k(row.tolist(), k) for row in drawn]
    assert np.mean(unbiased) == pytest.approx(truth, abs=0.005)
    assert np.mean(empirical) == pytest.approx(truth, abs=0.015)
    assert np.std(unbiased) < 0.7 * np.std(empirical)  # why the first is preferred
    assert np.mean([1 - (1 - row.mean()) ** k for row in drawn]) < truth - 0.02  # the naive one


def test_by_hand() -> None:
    """Two tasks with four samples: one right, and three right (docs/passk.md)."""
    correct = {"a": [False, True, False, False], "b": [True, True, False, True]}
    assert task_rates(correct, 1) == {"a": 0.25, "b": 0.75}
    assert task_rates(correct, 2) == pytest.approx({"a": 1 - 3 / 6, "b": 1.0})
    assert task_rates(correct, 1, estimator="any_of_k") == {"a": 0.0, "b": 1.0}
    assert task_rates(correct, 2, estimator="any_of_k") == {"a": 1.0, "b": 1.0}
    assert task_rates(correct, 1, estimator="fixed_n", n=8) == pytest.approx(
        {"a": 1 / 8, "b": 3 / 8}
    )
    rows = pass_table(correct, [1, 2])
    assert [row.interval.estimate for row in rows] == pytest.approx([0.5, 0.75])
    assert [(row.k, row.samples) for row in rows] == [(1, (4, 4)), (2, (4, 4))]


@given(
    st.dictionaries(
        st.text(max_size=3), st.lists(st.booleans(), min_size=3, max_size=9), min_size=1
    )
)
def test_pass_at_k_grows_with_k(correct: dict[str, list[bool]]) -> None:
    for estimator, n in (("unbiased", None), ("any_of_k", None), ("fixed_n", 9)):
        rows = pass_table(correct, [1, 2, 3], estimator=estimator, n=n, resamples=20)
        means = [row.interval.estimate for row in rows]
        assert means == sorted(means)
        assert means[0] >= 0 and means[-1] <= 1


def test_tasks_with_different_numbers_of_samples() -> None:
    correct = {"a": [True] + [False] * 9, "b": [False, True], "c": np.array([True, False, True])}
    (row,) = pass_table(correct, [2])
    each = [pass_at_k(10, 1, 2), pass_at_k(2, 1, 2), pass_at_k(3, 2, 2)]
    assert row.interval == mean_interval(each)
    assert row.samples == (2, 10)
    with pytest.raises(ValueError, match=r"task 'b': pass@3 needs at least 3 .* not 2: leave out"):
        pass_table(correct, [1, 3])
    with pytest.raises(ValueError, match=r"task 'b': pass@3 .* choose fixed_n"):
        pass_table(correct, [3], estimator="any_of_k")


def test_missing_samples_count_as_wrong_under_fixed_n_only() -> None:
    correct: dict[str, list[bool]] = {"a": [True, True], "b": [True] * 4, "c": []}
    (row,) = pass_table(correct, [1], estimator="fixed_n", n=4)
    assert row.interval.estimate == pytest.approx((0.5 + 1 + 0) / 3)
    assert row.to_record()["n"] == 4 and row.to_record()["samples"] == [0, 4]
    for estimator in ("unbiased", "any_of_k"):
        with pytest.raises(ValueError, match="task 'c': pass@1 needs at least 1"):
            pass_table(correct, [1], estimator=estimator)
    with pytest.raises(ValueError, match="more than n=3"):
        pass_table(correct, [1], estimator="fixed_n", n=3)
    with pytest.raises(ValueError, match="fixed_n needs n"):
        pass_table(correct, [1], estimator="fixed_n")
    with pytest.raises(ValueError, match="pass@8 needs at least 8"):
        pass_table(correct, [8], estimator="fixed_n", n=4)


@pytest.mark.parametrize(
    ("correct", "ks", "message"),
    [
        ({}, [1], "no task"),
        ({"a": [True, None]}, [1], "task 'a': each sample is True or False"),
        ({"a": [1, 0]}, [1], "True or False"),
        ({"a": [True]}, [0], "k must be at least 1"),
        ({"a": [True]}, [-1], "k must be at least 1"),
    ],
)
def test_refusals(correct: Any, ks: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pass_table(correct, ks)
    if correct:
        with pytest.raises(ValueError, match=message):
            pass_table(correct, ks, estimator="any_of_k")


def test_other_refusals() -> None:
    with pytest.raises(ValueError, match="unbiased or any_of_k or fixed_n"):
        pass_table({"a": [True]}, [1], estimator="mean")
    with pytest.raises(ValueError, match="n has no effect"):
        pass_table({"a": [True]}, [1], n=4)
    with pytest.raises(ValueError, match="5 right of 4"):
        pass_at_k(4, 5, 1)
    with pytest.raises(ValueError, match="not 0"):
        pass_at_k(0, 0, 1)
    with pytest.raises(ValueError, match="share no task"):
        pass_differences({"a": [True]}, {"b": [True]}, [1])


def test_differences_are_paired_over_shared_tasks() -> None:
    rng = np.random.default_rng(7)
    ability = rng.beta(0.4, 0.5, 100)
    runs = [
        {f"t{i}": (rng.random(8) < p).tolist() for i, p in enumerate(ability)} for _ in range(2)
    ]
    runs[0]["only here"] = [True] * 8
    runs[1] |= {"only there": [False] * 8, "and there": [False] * 8}
    rows = pass_differences(*runs, [1, 4])
    shared = [f"t{i}" for i in range(100)]
    for row, k in zip(rows, (1, 4), strict=True):
        sides = [[task_rates(run, k)[task] for task in shared] for run in runs]
        assert row.interval == difference_interval(*sides)
        assert (row.interval.n, row.unpaired, row.samples) == (100, 3, (8, 8))
        assert row.interval.low < 0 < row.interval.high
    width = rows[0].interval.high - rows[0].interval.low
    (alone,) = pass_table({task: runs[0][task] for task in shared}, [1])
    assert width < alone.interval.high - alone.interval.low
    assert rows[0].to_record()["unpaired"] == 3
    ahead = pass_differences({"a": [True], "b": [True]}, {"a": [False], "b": [True]}, [1])[0]
    assert ahead.interval.estimate == 0.5  # left minus right
    same = pass_differences(runs[0], runs[0], [1])[0]
    assert (same.interval.estimate, same.unpaired) == (0.0, 0)
    assert "unpaired" not in same.to_record()


def test_no_task_solved_and_every_task_solved() -> None:
    none, every = ({f"t{i}": [value] * 4 for i in range(50)} for value in (False, True))
    assert pass_table(none, [4])[0].interval.method == "wilson"
    assert 0 < pass_table(none, [4])[0].interval.high < 0.1
    assert 0.9 < pass_table(every, [1])[0].interval.low < 1


def test_ks() -> None:
    assert ks_up_to(1) == [1]
    assert ks_up_to(16) == [1, 2, 4, 8, 16]
    assert ks_up_to(20) == [1, 2, 4, 8, 16, 20]
    with pytest.raises(ValueError, match="at least one"):
        ks_up_to(0)


def test_a_record_is_json() -> None:
    record = pass_table({"a": [True, False], "b": [False, False]}, [1])[0].to_record()
    assert record["k"] == 1 and record["tasks"] == 2 and record["estimator"] == "unbiased"
    assert record["estimate"] == 0.25 and record["method"] == "bootstrap"
    assert "n" not in record and record["samples"] == [2, 2]


def test_intervals_over_groups_by_enumeration() -> None:
    """The mean is over tasks; a drawn group brings all of its tasks, so large ones weigh more."""
    correct = {"a": [True], "b": [True], "c": [False], "d": [True]}
    groups = {"a": "x", "b": "x", "c": "y", "d": "z"}
    parts = {"x": (2, 2), "y": (0, 1), "z": (1, 1)}  # right, tasks
    draws = sorted(
        sum(parts[name][0] for name in drawn) / sum(parts[name][1] for name in drawn)
        for drawn in product(parts, repeat=3)
    )
    [rate] = pass_table(correct, [1], groups=groups, level=0.6)
    assert rate.interval.estimate == 0.75 and rate.interval.n == 3
    bounds = np.quantile(draws, [0.2, 0.8], method="inverted_cdf")  # both far from a jump
    assert [rate.interval.low, rate.interval.high] == bounds.tolist() == [0.5, 1.0]
    alone = pass_table(correct, [1], groups=dict(zip(correct, correct, strict=True)))
    assert alone[0].interval.n == 4
    every = pass_table({task: [True] for task in correct}, [1], groups=groups)
    assert every[0].interval == wilson_interval(3, 3)
