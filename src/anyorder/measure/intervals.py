"""Intervals over tasks: how far a mean, a difference or a ratio would move with other tasks.

The percentile bootstrap: draw tasks with replacement, compute the statistic on each draw, and take
the (1 - level) / 2 quantiles on both sides. Give one value per task, so combine a task's samples
first (their mean, their pass@k). Paired data are drawn together. The draws depend only on the seed
and the number of tasks.

Limits: tasks count as a random draw from a population of tasks. Coverage falls short for few tasks
(below about 20) and rare events. The bootstrap cannot see what no task showed: constant values give
an interval of width 0. `rate_interval` repairs this last case for rates.

`crossed_interval`: the same tasks under several trainings. A cell (s, t) holds the sum a_st of the
samples of seed s on task t, and their number n_st. The estimate is the mean over all samples,

    sum_st a_st / sum_st n_st

and each draw takes seeds and, independently, tasks with replacement (the pigeonhole bootstrap of
Owen, Annals of Applied Statistics 2007). With one seed this is the bootstrap over tasks. It is a
little wide for the tasks; for two or three seeds their part is itself uncertain, so show each seed.

Means skip missing values: NaN here, null in JSON. `sample_interval` is a mean over samples, as
published; it draws tasks, each with all of its samples, so mean and interval are of one number.

`on_front` finds the Pareto front. A point beats another if it costs no more, is worth no less, and
differs. Equal points do not beat one another. The front compares estimates, not their intervals.

Letters: R draws, S seeds, T tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anyorder.checks import at_least

FloatArray = NDArray[np.float64]

LEVEL, RESAMPLES = 0.95, 10_000

LEAST_ROOM = 0.05
"""A score is placed between two controls only if these differ by at least this much. All scores
with controls lie in 0..1 or -1..1; with less room the place is the noise of the score, enlarged
twentyfold and more."""

DRAWN_AT_ONCE = 1 << 20
"""Indices held in memory at a time (8 MiB); it does not change the result."""


@dataclass(frozen=True)
class Interval:
    """An estimate and its bounds, which are NaN where the data cannot give any."""

    estimate: float
    low: float
    high: float
    n: int
    """Tasks, or other units that were drawn."""
    level: float
    method: str = "bootstrap"
    """bootstrap; wilson; constant: all values were equal; single, empty: too few for bounds."""

    def to_record(self) -> dict[str, Any]:
        return as_record(self)

    def times(self, factor: float) -> Interval:
        """The interval in another unit, such as per k samples instead of one."""
        low, high = factor * self.low, factor * self.high
        return replace(self, estimate=factor * self.estimate, low=low, high=high)

    def __str__(self) -> str:
        if math.isnan(self.low):  # one task, or none, has no spread
            return f"{self.estimate:.4g}"
        return f"{self.estimate:.4g} [{self.low:.4g}, {self.high:.4g}]"


class Resampling(TypedDict, total=False):
    """How an interval is drawn; the defaults are those of `bootstrap`."""

    level: float
    resamples: int
    seed: int


def mean_interval(values: ArrayLike, **drawing: Unpack[Resampling]) -> Interval:
    """The mean of one value per task.

    No value: everything is NaN. One value: the bounds are NaN. Equal values: the bounds are that
    value, which says that no task showed variation, not that there is none.
    """
    return bootstrap(lambda rows: rows.mean(axis=-1), [values], **drawing)


def difference_interval(
    left: ArrayLike, right: ArrayLike, **drawing: Unpack[Resampling]
) -> Interval:
    """The mean of left - right, paired: entry i of both sides belongs to the same task.

    An interval without 0 says that the two differ at that level on tasks of this kind.
    """
    first, second = _aligned([left, right])
    return mean_interval(first - second, **drawing)


def ratio_interval(above: ArrayLike, below: ArrayLike, **drawing: Unpack[Resampling]) -> Interval:
    """sum(above) / sum(below), both per task: seconds per sample, for instance."""
    return bootstrap(lambda a, b: a.sum(axis=-1) / b.sum(axis=-1), [above, below], **drawing)


def rate_interval(values: ArrayLike, **drawing: Unpack[Resampling]) -> Interval:
    """The mean of one rate per task, each from 0 to 1, with bounds also where all are 0 or all 1.

    A bootstrap of constant values has no width. A mean of values from 0 to 1 is at most the share
    of tasks above 0, and Wilson's interval for that share (0 of n) bounds it; likewise at 1.
    """
    rates = _checked(values)
    if rates.size and not (rates.min() >= 0 and rates.max() <= 1):
        raise ValueError("a rate lies from 0 to 1: use mean_interval for other values")
    if rates.size and rates.min() == rates.max() and rates[0] in (0.0, 1.0):
        return wilson_interval(int(rates.sum()), rates.size, level=drawing.get("level", LEVEL))
    return mean_interval(rates, **drawing)


def wilson_interval(successes: int, n: int, *, level: float = LEVEL) -> Interval:
    """Wilson's score interval of one proportion: independent trials with two outcomes each."""
    _check_level(level)
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} trials: give 0 <= successes <= trials")
    if n == 0:
        return _undefined(level)
    z = NormalDist().inv_cdf(0.5 + level / 2)
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # The exact bound is 0 or 1 here; rounding may miss it.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Interval(rate, low, high, n, level, "wilson")


def bootstrap(
    statistic: Callable[..., FloatArray],
    arrays: Sequence[ArrayLike],
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The interval of any statistic of per-task arrays, which are drawn together.

    `statistic` gets each array with tasks along its last axis, (draws, tasks) or (1, tasks), and
    reduces that axis: `lambda a: np.median(a, axis=-1)`.
    """
    _check_level(level)
    at_least("resamples", resamples)
    rows = np.stack(_aligned(arrays))
    n = rows.shape[1]
    if n == 0:
        return _undefined(level)
    estimate = float(_applied(statistic, rows[:, None, :])[0])
    if n == 1:
        return Interval(estimate, math.nan, math.nan, 1, level, "single")
    if bool((rows == rows[:, :1]).all()):
        return Interval(estimate, estimate, estimate, n, level, "constant")
    generator = np.random.default_rng(seed)
    drawn = np.empty(resamples)
    at_once = max(1, DRAWN_AT_ONCE // n)
    for start in range(0, resamples, at_once):
        stop = min(resamples, start + at_once)
        chosen = generator.integers(0, n, size=(stop - start, n))
        drawn[start:stop] = _applied(statistic, rows[:, chosen])
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), n, level)


def _applied(statistic: Callable[..., FloatArray], rows: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        result = np.asarray(statistic(*rows), dtype=np.float64)
    assert result.shape == rows.shape[1:2], "a statistic reduces the last axis, and only that"
    if not np.isfinite(result).all():
        raise ValueError(
            "the statistic is not finite on some draws of the tasks, such as a ratio whose "
            "denominator is 0 for every task drawn: leave such tasks out, or use more of them"
        )
    return result


def _undefined(level: float) -> Interval:
    return Interval(math.nan, math.nan, math.nan, 0, level, "empty")


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level={level}: give a number between 0 and 1, such as 0.95")


def _aligned(arrays: Sequence[ArrayLike]) -> list[FloatArray]:
    checked = [_checked(values) for values in arrays]
    if len({values.size for values in checked}) > 1:
        sizes = " and ".join(str(values.size) for values in checked)
        raise ValueError(f"paired values of {sizes} tasks: give one value per task on every side")
    return checked


def _checked(values: ArrayLike) -> FloatArray:
    """One finite number per task. Leaving missing ones out is a choice for the caller."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"one number per task is needed ({error})") from None
    if array.ndim != 1:
        raise ValueError(f"one number per task is needed, not an array of shape {array.shape}")
    missing = np.flatnonzero(~np.isfinite(array))
    if missing.size:
        raise ValueError(
            f"{missing.size} of {array.size} values are missing or not finite (the first is number "
            f"{missing[0]}): leave those tasks out, or say what they count as"
        )
    return array


CROSSED_RESAMPLES = 2_000
MOST_EMPTY = 0.05
"""Draws without a sample are left out; above this share of them there is no interval."""


def crossed_interval(
    sums: ArrayLike,
    counts: ArrayLike,
    *,
    level: float = LEVEL,
    resamples: int = CROSSED_RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The mean over all samples; `sums` and `counts` are S T, 0 where there is no sample."""
    above, below = (np.asarray(table, dtype=np.float64) for table in (sums, counts))
    if above.ndim != 2 or above.shape != below.shape:
        raise ValueError(
            f"sums of shape {above.shape} and counts of shape {below.shape}: give both as "
            "seeds x tasks"
        )
    if not (np.isfinite(above).all() and np.isfinite(below).all() and (below >= 0).all()):
        raise ValueError("sums and counts must be finite: give 0 and 0 where there is no sample")
    _check_level(level)
    # A task without samples would change how often the others are drawn, and nothing else.
    known = below.sum(axis=0) > 0
    above, below = above[:, known], below[:, known]
    tasks = above.shape[1]
    if not tasks:
        return _undefined(level)
    estimate = float(above.sum() / below.sum())
    if tasks == 1:
        return Interval(estimate, math.nan, math.nan, 1, level, "single")
    if np.array_equal(above, estimate * below):
        return Interval(estimate, estimate, estimate, tasks, level, "constant")
    drawn = _drawn(above, below, resamples, seed)
    if drawn is None:
        return Interval(estimate, math.nan, math.nan, tasks, level, "too few tasks")
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), tasks, level, "crossed bootstrap")


def _drawn(above: FloatArray, below: FloatArray, resamples: int, seed: int) -> FloatArray | None:
    """The mean on every draw that holds a sample; None if too many draws hold none."""
    seeds, tasks = above.shape
    seed_weight, task_weight = _weights(seeds, tasks, resamples, seed)
    # One product for both tables: a cell counts as often as its seed times as often as its task.
    by_seed = task_weight @ np.concatenate([above, below]).T  # R 2S
    total = (by_seed[:, :seeds] * seed_weight).sum(axis=1)
    count = (by_seed[:, seeds:] * seed_weight).sum(axis=1)
    held = count > 0
    if held.mean() < 1 - MOST_EMPTY:
        return None
    return np.asarray(total[held] / count[held])


@lru_cache(maxsize=8)
def _weights(seeds: int, tasks: int, resamples: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """How often each seed (R S) and each task (R T) is drawn; cached, as tables repeat calls."""
    generator = np.random.default_rng(seed)
    return tuple(  # type: ignore[return-value]
        generator.multinomial(count, np.full(count, 1 / count), size=resamples).astype(np.float64)
        for count in (seeds, tasks)
    )


def task_sums(tasks: Sequence[str], table: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The sum and the number of each task's rows, tasks sorted by name."""
    if not len(table):
        return table, np.zeros(0)
    names, which = np.unique(np.array(tasks), return_inverse=True)
    sums = np.zeros((len(names), *table.shape[1:]))
    np.add.at(sums, which, table)
    return sums, np.bincount(which).astype(np.float64)


def sample_interval(tasks: Sequence[str], values: FloatArray) -> Interval:
    """The mean over samples, with an interval from drawing their tasks."""
    return ratio_interval(*task_sums(tasks, values))


def known_mean(values: Iterable[float]) -> float:
    """The mean of the values that are not missing; NaN if there are none."""
    known = [float(value) for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def plain(value: float) -> float | None:
    """A number for JSON, where NaN is null."""
    return None if math.isnan(value) else float(value)


def as_record(value: Any) -> Any:
    """A dataclass as JSON, field by field, with all that it holds; NaN is null."""
    if is_dataclass(value):
        return {each.name: as_record(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: as_record(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_record(entry) for entry in value]
    return plain(value) if isinstance(value, float) else value


Point = tuple[float, float]
"""(cost, value): less of the first is better, more of the second."""


def on_front(points: Sequence[Point]) -> list[bool]:
    """Per point: whether no other point beats it."""
    for point in points:
        if any(math.isnan(number) for number in point):
            raise ValueError("a point without cost or value cannot be compared: leave it out")
    best, found = -math.inf, [False] * len(points)
    # By rising cost, the best value of each cost first, so one pass suffices: a point is beaten iff
    # an earlier one is worth as much, unless the two are equal.
    order = sorted(range(len(points)), key=lambda number: (points[number][0], -points[number][1]))
    last: Point | None = None
    for number in order:
        point = points[number]
        if point[1] > best or point == last:
            found[number], best, last = True, point[1], point
    return found
