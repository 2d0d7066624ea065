"""Cells of the study's tables: means with intervals, from values of samples by seed and problem.

A measure of one run is a mapping from task to the values of its samples (`Values`). A cell takes
one such mapping for each seed. Means are over samples. Differences are paired: for each seed and
problem that both sides have, the mean of left minus the mean of right. Intervals draw problems, and
also seeds if there are several (measure/intervals.py). In three cases drawing problems says
nothing, and the bounds are Wilson's: a rate of one seed with one sample per problem, a rate that is
always 0 or 1, and a difference of rates that is always 0.

A rule decides from the interval of a difference whether a trend holds, never a person.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anyorder.measure.intervals import Interval, crossed_interval, wilson_interval
from anyorder.measure.passk import task_rates

Values = Mapping[str, Sequence[float]]
"""Task -> the values of its samples; samples without a value are left out."""

YES, NO, UNDECIDED, UNKNOWN = "yes", "no", "undecided", "not measured yet"


def mean_cell(seeds: Sequence[Values], *, rate: bool = False) -> Interval:
    """The mean over samples; `rate`: the values are 0 and 1, or rates themselves."""
    seeds = [each for each in seeds if any(each.values())]
    tasks = _tasks(seeds)
    shape = len(seeds), len(tasks)
    sums = np.array([[math.fsum(each.get(task, ())) for task in tasks] for each in seeds])
    counts = np.array([[len(each.get(task, ())) for task in tasks] for each in seeds])
    found = crossed_interval(sums.reshape(shape), counts.reshape(shape))
    if rate and found.method == "constant" and found.estimate in (0.0, 1.0):
        # Problems were drawn independently; samples of one problem by several seeds were not.
        return wilson_interval(round(found.estimate * found.n), found.n)
    if rate and len(seeds) == 1 and all(each in ([0.0], [1.0]) for each in seeds[0].values()):
        return wilson_interval(round(sums.sum()), found.n)
    return found


def proportion(rate: Interval) -> Interval:
    """A rate of one sample per problem, with Wilson's bounds in place of its own."""
    return wilson_interval(round(rate.estimate * rate.n), rate.n, level=rate.level)


def difference_cell(
    left: Sequence[Values], right: Sequence[Values], *, rate: bool = False
) -> Interval:
    """The mean of left minus right over the problems, of each seed, that both have."""
    assert len(left) == len(right), "pairs of seeds"
    found = mean_cell([_differences(one, other) for one, other in zip(left, right, strict=True)])
    if rate and found.method == "constant" and found.estimate == 0:
        # The two differ on none of these problems; they may differ on problems that were not drawn.
        most = wilson_interval(0, found.n).high
        return replace(found, low=-most, high=most, method="wilson")
    return found


def contrast_cell(
    first: tuple[Sequence[Values], Sequence[Values]],
    second: tuple[Sequence[Values], Sequence[Values]],
) -> Interval:
    """A difference of differences, (left - right) - (left - right), paired by problem and seed."""
    pairs = [
        [_differences(one, other) for one, other in zip(*sides, strict=True)]
        for sides in (first, second)
    ]
    return difference_cell(*pairs)


def _differences(left: Values, right: Values) -> dict[str, list[float]]:
    shared = [task for task in left if left[task] and right.get(task)]
    return {task: [_mean(left[task]) - _mean(right[task])] for task in shared}


def pass_values(passed: Values, k: int) -> dict[str, list[float]]:
    """pass@k of every problem, unbiased, from 0 and 1 for its samples."""
    verdicts = {task: [bool(value) for value in values] for task, values in passed.items()}
    return {task: [value] for task, value in task_rates(verdicts, k).items()}


def _tasks(seeds: Sequence[Values]) -> list[str]:
    return sorted({task for each in seeds for task in each})


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, or one that its explanation implies, and whether it holds here."""

    says: str
    """The claim, in words."""
    source: str
    """Its source: the paper's numbers, or the reason that implies the claim."""
    here: str
    """The numbers that decide."""
    holds: str
    """yes, no, undecided or not measured yet."""


def above_zero(found: Interval | None) -> str:
    """Whether a difference is positive: yes or no if its interval excludes zero.

    If the difference is 0 on every problem, the answer is no.
    """
    if found is None or math.isnan(found.estimate):
        return UNKNOWN
    if found.method == "constant" and found.estimate == 0:
        return NO
    if math.isnan(found.low):
        return UNDECIDED
    return YES if found.low > 0 else NO if found.high < 0 else UNDECIDED


def beyond(found: Interval | None, margin: float) -> str:
    """Whether a value is above a margin, by the same rule."""
    if found is None:
        return UNKNOWN
    estimate, low, high = (each - margin for each in (found.estimate, found.low, found.high))
    return above_zero(replace(found, estimate=estimate, low=low, high=high))


def below_zero(found: Interval | None) -> str:
    """Whether a difference is negative, by the same rule."""
    return above_zero(None if found is None else mirrored(found))


def mirrored(found: Interval) -> Interval:
    """The same interval with the opposite sign."""
    return replace(found, estimate=-found.estimate, low=-found.high, high=-found.low)


def within(found: Interval | None, margin: float) -> str:
    """Whether a difference is small: its interval lies inside the margin, or outside of it."""
    if found is None or math.isnan(found.estimate):
        return UNKNOWN
    if math.isnan(found.low):
        return UNDECIDED
    if -margin <= found.low and found.high <= margin:
        return YES
    return NO if found.low > margin or found.high < -margin else UNDECIDED


def all_of(*parts: str) -> str:
    """The verdict on a claim with several parts: no if one does not hold, yes if all do."""
    for verdict in (NO, UNKNOWN, UNDECIDED):
        if verdict in parts:
            return verdict
    return YES if parts else UNKNOWN
