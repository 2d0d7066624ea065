"""pass@k: the chance that at least one of k samples of a task is right, averaged over tasks.

Three estimators of a task's value from its n samples, c of them right:

    unbiased    1 - C(n - c, k) / C(n, k): the share of the k-subsets with a right sample
                (Chen et al. 2021); its expectation is 1 - (1 - p)^k for any n >= k
    any_of_k    1 if any of the first k samples is right, else 0: what "K attempts" reports;
                the same expectation, more noise, and it depends on the order of the samples
    fixed_n     unbiased with a given n; missing samples count as wrong (the convention of
                FlexMDM's release), which biases it downwards

k larger than a task's n is an error: no unbiased estimator exists there. Verdicts come from bench/;
nothing here runs or reads programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Any, Unpack

import numpy as np

from anyorder.measure.intervals import (
    Interval,
    Resampling,
    difference_interval,
    rate_interval,
)

Verdicts = Mapping[str, Sequence[bool]]
"""Task id -> whether each sample passed, in the order of the samples."""


@lru_cache(maxsize=1 << 14)
def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate from c right samples of n, exact to the last bit for any n."""
    if not 0 <= c <= n:
        raise ValueError(f"{c} right of {n} samples: give 0 <= c <= n")
    _check_k(k, n)
    # C(n - c, k) / C(n, k) is symmetric in c and k, so take the cheaper binomials. Integers until
    # one division at the end: products of floats would lose digits.
    fewer, more = min(c, k), max(c, k)
    subsets = comb(n, fewer)
    return (subsets - comb(n - more, fewer)) / subsets


def any_of_k(passed: Sequence[bool], k: int) -> float:
    """1 if any of the first k samples passed, else 0."""
    _check_k(k, len(passed))
    return float(any(passed[:k]))


def _check_k(k: int, n: int) -> None:
    if k < 1:
        raise ValueError(f"pass@{k}: k must be at least 1")
    if k > n:
        raise ValueError(f"pass@{k} needs at least {k} samples of a task, not {n}")


def _fixed_n(passed: Sequence[bool], k: int, n: int | None) -> float:
    if n is None:
        raise ValueError("fixed_n needs n, the number of samples that each task should have")
    if len(passed) > n:
        raise ValueError(f"{len(passed)} samples are more than n={n}: raise n")
    if k > n:
        raise ValueError(
            f"pass@{k} needs at least {k} samples of a task, not n={n}: leave out that k, or "
            "sample more"
        )
    return pass_at_k(n, sum(map(bool, passed)), k)


ESTIMATORS: dict[str, Callable[[Sequence[bool], int, int | None], float]] = {
    "unbiased": lambda passed, k, n: pass_at_k(len(passed), sum(map(bool, passed)), k),
    "any_of_k": lambda passed, k, n: any_of_k(passed, k),
    "fixed_n": _fixed_n,
}


FEW_SAMPLES = (
    ": leave out that k, sample more, or choose fixed_n where samples are missing, which counts "
    "them as wrong"
)


@dataclass(frozen=True)
class Rate:
    """pass@k of one run, or the difference between two."""

    k: int
    estimator: str
    interval: Interval
    """Over tasks."""
    samples: tuple[int, int]
    """Fewest and most samples of a task."""
    n: int | None = None
    """fixed_n: the samples that each task should have."""
    unpaired: int = 0
    """Differences: tasks of only one of the two runs, which are left out."""

    def to_record(self) -> dict[str, Any]:
        record = {"k": self.k, "estimator": self.estimator, **self.interval.to_record()}
        record["tasks"] = record.pop("n")
        record["samples"] = list(self.samples)
        if self.n is not None:
            record["n"] = self.n
        if self.unpaired:
            record["unpaired"] = self.unpaired
        return record


def ks_up_to(n: int) -> list[int]:
    """1, 2, 4, ... and n itself: the ks that n samples per task support."""
    if n < 1:
        raise ValueError(f"{n} samples per task: pass@k needs at least one")
    return sorted({1 << power for power in range(n.bit_length())} | {n})


def task_rates(
    correct: Verdicts, k: int, *, estimator: str = "unbiased", n: int | None = None
) -> dict[str, float]:
    """pass@k of every task; errors name the task."""
    if estimator not in ESTIMATORS:
        raise ValueError(f"no estimator {estimator!r}: choose {' or '.join(ESTIMATORS)}")
    rates = {}
    for task, passed in correct.items():
        plain = passed.tolist() if isinstance(passed, np.ndarray) else list(passed)
        if not all(isinstance(each, bool | np.bool_) for each in plain):
            raise ValueError(
                f"task {task!r}: each sample is True or False: grade those that are not"
            )
        try:
            if n is not None and estimator != "fixed_n":
                raise ValueError(f"n has no effect on {estimator}: leave it out, or choose fixed_n")
            rates[task] = ESTIMATORS[estimator](plain, k, n)
        except ValueError as error:
            too_few = len(plain) < k and estimator != "fixed_n"
            raise ValueError(f"task {task!r}: {error}{FEW_SAMPLES if too_few else ''}") from None
    return rates


def pass_table(
    correct: Verdicts,
    ks: Sequence[int],
    *,
    estimator: str = "unbiased",
    n: int | None = None,
    **drawing: Unpack[Resampling],
) -> list[Rate]:
    """pass@k for each k: the mean over tasks, with an interval over tasks.

    Tasks may have different numbers of samples, each at least k. A task without any sample is an
    empty sequence: wrong under fixed_n, an error otherwise. Where no task or every task is solved,
    the bounds are Wilson's.
    """
    sizes = _sizes(correct)
    rows = []
    for k in ks:
        rates = task_rates(correct, k, estimator=estimator, n=n)
        interval = rate_interval(list(rates.values()), **drawing)
        rows.append(Rate(k, estimator, interval, sizes, n))
    return rows


def pass_differences(
    left: Verdicts,
    right: Verdicts,
    ks: Sequence[int],
    *,
    estimator: str = "unbiased",
    n: int | None = None,
    **drawing: Unpack[Resampling],
) -> list[Rate]:
    """pass@k of left minus right for each k, paired over the tasks that both have."""
    shared = [task for task in left if task in right]
    if not shared:
        raise ValueError("the two runs share no task: compare runs of the same benchmark")
    unpaired = len(left) + len(right) - 2 * len(shared)
    ours, theirs = ({task: side[task] for task in shared} for side in (left, right))
    sizes = tuple(zip(_sizes(ours), _sizes(theirs), strict=True))
    rows = []
    for k in ks:
        first, second = (
            list(task_rates(side, k, estimator=estimator, n=n).values()) for side in (ours, theirs)
        )
        interval = difference_interval(first, second, **drawing)
        rows.append(
            Rate(k, estimator, interval, (min(sizes[0]), max(sizes[1])), n, unpaired=unpaired)
        )
    return rows


def _sizes(correct: Verdicts) -> tuple[int, int]:
    if not correct:
        raise ValueError("no task: pass@k needs at least one")
    lengths = [len(passed) for passed in correct.values()]
    return min(lengths), max(lengths)
