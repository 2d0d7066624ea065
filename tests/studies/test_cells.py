"""Cells: means, paired differences, and the rule that says whether a claim holds."""

from __future__ import annotations

import math

import pytest

from anyorder.measure.intervals import Interval
from studies.cells import (
    NO,
    UNDECIDED,
    UNKNOWN,
    YES,
    above_zero,
    all_of,
    below_zero,
    beyond,
    contrast_cell,
    difference_cell,
    mean_cell,
    mirrored,
    pass_values,
    proportion,
    within,
)


def interval(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 10, 0.95)


def test_a_mean_is_over_samples_and_seeds() -> None:
    found = mean_cell([{"a": [1.0, 0.0, 0.0], "b": [1.0]}, {"a": [1.0]}])
    assert found.estimate == pytest.approx(3 / 5) and found.n == 2


def test_rates_without_variation_have_wilsons_bounds() -> None:
    sure = mean_cell([{"a": [1.0], "b": [1.0]}, {"a": [1.0], "b": [1.0]}], rate=True)
    assert sure.method == "wilson" and sure.n == 2 and sure.low < 0.5
    assert mean_cell([{"a": [1.0], "b": [1.0]}]).method == "constant"


def test_rates_of_one_sample_have_wilsons_bounds() -> None:
    most = mean_cell([{str(task): [float(task > 0)] for task in range(200)}], rate=True)
    all_ = mean_cell([{str(task): [1.0] for task in range(200)}], rate=True)
    assert most.method == "wilson" and most.estimate == pytest.approx(0.995)
    assert most.low < all_.low < all_.high == 1.0  # one failure more is not a surer rate
    stored = Interval(3 / 30, 0.0, 0.2, 30, 0.95, "bootstrap")  # three are solved, so 0 is no bound
    found = proportion(stored)
    assert (found.estimate, found.n, found.method) == (stored.estimate, 30, "wilson")
    assert found.low > 0.03 and found.high > 0.25


def test_rates_that_never_differ_may_still_differ() -> None:
    same = [{str(task): [1.0] for task in range(200)}]
    found = difference_cell(same, same, rate=True)
    assert found.estimate == 0 and found.high == pytest.approx(-found.low)
    assert found.high == pytest.approx(1 - mean_cell(same, rate=True).low)
    assert above_zero(found) == UNDECIDED
    assert above_zero(difference_cell(same, same)) == NO


def test_a_seed_without_values_is_as_if_it_were_not_there() -> None:
    values = {str(task): [float(task % 3)] for task in range(30)}
    assert mean_cell([values, {}]) == mean_cell([values])


def test_differences_are_paired_by_problem_and_seed() -> None:
    left = [{"a": [1.0, 3.0], "b": [5.0], "only": [100.0]}, {"a": [1.0]}]
    right = [{"a": [1.0], "b": [3.0]}, {"a": [2.0], "b": [7.0]}]
    found = difference_cell(left, right)
    assert found.estimate == pytest.approx((1 + 2 - 1) / 3)
    swapped = difference_cell(right, left)
    assert swapped.estimate == pytest.approx(-found.estimate)


def test_a_contrast_is_a_difference_of_differences() -> None:
    one, none = [{"a": [3.0], "b": [5.0]}], [{"a": [1.0], "b": [1.0]}]
    other = [{"a": [2.0], "b": [2.0]}]
    found = contrast_cell((one, none), (other, none))
    assert found.estimate == pytest.approx((2 - 1 + 4 - 1) / 2)


def test_nothing_is_no_number() -> None:
    for found in (mean_cell([]), mean_cell([{}]), difference_cell([], [])):
        assert math.isnan(found.estimate) and above_zero(found) == UNKNOWN


def test_pass_at_k_of_every_problem() -> None:
    assert pass_values({"a": [1.0, 0.0], "b": [0.0, 0.0]}, 1) == {"a": [0.5], "b": [0.0]}
    assert pass_values({"a": [1.0, 0.0]}, 2) == {"a": [1.0]}


def test_the_rule() -> None:
    assert [above_zero(interval(*each)) for each in ((0.1, 1), (-1, -0.1), (-1, 1))] == [
        YES, NO, UNDECIDED,
    ]  # fmt: skip
    assert above_zero(None) == UNKNOWN
    assert above_zero(Interval(1.0, math.nan, math.nan, 1, 0.95)) == UNDECIDED
    near = [within(interval(*each), 0.5) for each in ((-0.4, 0.5), (0.6, 1), (-1, -0.6), (0, 1))]
    assert near == [YES, NO, NO, UNDECIDED]
    assert all_of(YES, YES) == YES and all_of(YES, UNDECIDED) == UNDECIDED
    assert all_of(YES, UNKNOWN, NO) == NO and all_of() == UNKNOWN
    assert [below_zero(interval(*each)) for each in ((0.1, 1), (-1, -0.1), (-1, 1))] == [
        NO, YES, UNDECIDED,
    ]  # fmt: skip
    far = [beyond(interval(*each), 0.5) for each in ((0.6, 1), (-1, 0.4), (0.1, 1))]
    assert far == [YES, NO, UNDECIDED] and beyond(None, 0.5) == UNKNOWN
    assert beyond(mirrored(interval(-1, -0.6)), 0.5) == YES
    none = mean_cell([{"a": [0.0], "b": [0.0]}])
    assert above_zero(none) == below_zero(none) == NO and below_zero(None) == UNKNOWN
