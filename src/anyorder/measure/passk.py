"""pass@k: the chance that at least one of k samples of a task is right; and what k samples cost.

Three estimators of a task's value from its n samples, c of them right:

    unbiased    1 - C(n - c, k) / C(n, k): the share of the k-subsets with a right sample
                (Chen et al. 2021); its expectation is 1 - (1 - p)^k for any n >= k
    any_of_k    1 if any of the first k samples is right, else 0: what "K attempts" reports;
                the same expectation, more noise, and it depends on the order of the samples
    fixed_n     unbiased with a given n; missing samples count as wrong (the convention of
                FlexMDM's release), which biases it downwards

The value of a run is the mean over its tasks. k larger than a task's n is an error: no unbiased
estimator exists there. Verdicts come from bench/; nothing here runs or reads programs.

`timing` reads a sample's seconds and network calls from the traces. A trace's `seconds` cover
decoding only: from finished canvases to tokens in main memory, without prompts, text, files and
grading. The time of a batch is divided by its rows, hence

    batch of 1     seconds per sample is a latency: k samples take k times as long
    larger batch   it is a share of the batch's time (`shared`): the cost of many samples, not the
                   time that one takes

The first batch also pays for what is prepared once (kernels, memory, caches) and is reported apart,
not averaged in; where it is the only batch, `warm` is False. A resumed run pays again at each
start, and traces do not tell where. Intervals are over tasks, or over batches where samples share a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import comb
from typing import Any, Unpack

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from anyorder.measure.intervals import (
    FloatArray,
    Interval,
    Resampling,
    bootstrap,
    difference_interval,
    rate_interval,
    ratio_interval,
    task_sums,
)
from anyorder.trace import Run

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
    groups: Mapping[str, str] | None = None,
    **drawing: Unpack[Resampling],
) -> list[Rate]:
    """pass@k for each k: the mean over tasks, with an interval over tasks.

    Tasks may have different numbers of samples, each at least k. A task without any sample is an
    empty sequence: wrong under fixed_n, an error otherwise. Where no task or every task is solved,
    the bounds are Wilson's. `groups` names the group of each task, where the tasks of a group are
    not independent: the mean is still over tasks, and the interval draws groups.
    """
    sizes = _sizes(correct)
    rows = []
    for k in ks:
        rates = task_rates(correct, k, estimator=estimator, n=n)
        interval = _over(rates, groups or {}, drawing)
        rows.append(Rate(k, estimator, interval, sizes, n))
    return rows


def _over(rates: Mapping[str, float], groups: Mapping[str, str], drawing: Resampling) -> Interval:
    """The mean over tasks, with an interval over their groups; a task without one is alone."""
    values = np.array(list(rates.values()))
    if not groups or values.min() == values.max():
        names = {groups.get(task, task): rate for task, rate in rates.items()}
        return rate_interval(list(names.values()), **drawing)
    return ratio_interval(*task_sums([groups.get(task, task) for task in rates], values), **drawing)


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


@dataclass(frozen=True)
class Timing:
    """What one sample of a run cost."""

    seconds: Interval
    """Mean per sample."""
    median_seconds: Interval
    """Median over the units of `seconds` (tasks or batches) of their seconds per sample."""
    forwards: Interval | None
    """Mean network calls that a sample needed; None: not recorded."""
    median_forwards: Interval | None
    """Median over tasks."""
    samples: int
    """Samples counted: without the first batch, if `warm`."""
    batch: int | None
    """Samples decoded together; None: not in the run card."""
    unit: str
    """What the intervals of `seconds` are over: task or batch."""
    warm: bool
    """Whether the first batch is left out."""
    first_batch: float | None
    """Seconds per sample of the first batch; None: batches are not known."""
    total_seconds: float
    """Of all samples, the first batch included."""
    device: str | None
    dtype: str | None

    @property
    def shared(self) -> bool | None:
        """Whether a sample's time is a share of a batch's; None: not known."""
        return None if self.batch is None else self.batch > 1

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        record = asdict(self) | {"shared": self.shared}
        for name in ("seconds", "median_seconds", "forwards", "median_forwards"):
            interval = getattr(self, name)
            record[name] = None if interval is None else interval.to_record()
        return record


@dataclass(frozen=True)
class TimingPoint:
    """One point of accuracy against time: k samples of each task."""

    rate: Rate
    seconds: Interval
    """Of k samples, one after another."""
    forwards: Interval | None

    def to_record(self) -> dict[str, Any]:
        return {
            "rate": self.rate.to_record(),
            "seconds": self.seconds.to_record(),
            "forwards": None if self.forwards is None else self.forwards.to_record(),
        }


def timing(run: Run) -> Timing:
    """The time accounting of a finished run."""
    table = run.table(["task_id", "seconds", "forwards"])
    if table.num_rows == 0:
        raise ValueError(f"{run.folder} has no samples, hence no times")
    if table.column("seconds").null_count:
        raise ValueError(
            f"{run.folder} has samples without seconds (imported traces have none): sample with "
            "anyorder to compare times"
        )
    seconds = table.column("seconds").to_numpy()
    codes = pc.dictionary_encode(table.column("task_id")).combine_chunks()
    tasks = np.asarray(codes.indices, dtype=np.int64)
    batch: int | None = run.card.config.get("batch")
    first = np.zeros(len(seconds), dtype=bool)
    units = tasks
    if batch is not None:
        batches = _batches(seconds, batch, str(run.folder))
        first = batches == 0
        units = batches if batch > 1 else tasks
    warm = bool(first.any() and not first.all())  # leaving it out must leave something in
    kept = ~first if warm else np.ones_like(first)
    mean, median = _per_sample(seconds[kept], units[kept])
    forwards = _forwards(table.column("forwards"), kept, tasks)
    return Timing(
        seconds=mean,
        median_seconds=median,
        forwards=forwards[0] if forwards else None,
        median_forwards=forwards[1] if forwards else None,
        samples=int(kept.sum()),
        batch=batch,
        unit="task" if units is tasks else "batch",
        warm=warm,
        first_batch=None if batch is None else float(seconds[0]),
        total_seconds=float(seconds.sum()),
        device=run.card.device,
        dtype=run.card.dtype,
    )


def against_time(rates: Sequence[Rate], cost: Timing) -> list[TimingPoint]:
    """pass@k beside what k samples cost, for every k of a table.

    The interval of the seconds is that of one sample's mean, k times; it is not joint with the
    rate's.
    """
    return [
        TimingPoint(
            rate,
            cost.seconds.times(rate.k),
            None if cost.forwards is None else cost.forwards.times(rate.k),
        )
        for rate in rates
    ]


def _batches(seconds: FloatArray, batch: int, folder: str) -> NDArray[np.int64]:
    """The number of each sample's batch; samples are stored batch by batch."""
    numbers = np.arange(len(seconds)) // batch
    if not np.array_equal(seconds, seconds[numbers * batch]):
        raise ValueError(
            f"{folder}: the samples of a batch of {batch} do not share one time, so its rows are "
            "not as `anyorder sample` wrote them: make the run again"
        )
    return numbers


def _per_sample(values: FloatArray, units: NDArray[np.int64]) -> tuple[Interval, Interval]:
    """(mean per sample, median over units of their mean), resampled by unit."""
    _, unit = np.unique(units, return_inverse=True)
    totals, counts = np.bincount(unit, weights=values), np.bincount(unit)
    median = bootstrap(lambda means: np.median(means, axis=-1), [totals / counts])
    return ratio_interval(totals, counts), median


def _forwards(
    column: Any, kept: NDArray[np.bool_], tasks: NDArray[np.int64]
) -> tuple[Interval, Interval] | None:
    if column.null_count:
        return None
    return _per_sample(column.to_numpy().astype(np.float64)[kept], tasks[kept])
