"""Intervals for the same tasks under several trainings: tasks and seeds are both drawn.

A cell (s, t) holds what seed s made of task t: the sum of its samples' values and their number. The
estimate is the mean over all samples,

    sum_st a_st / sum_st n_st

and each draw of the bootstrap takes seeds with replacement and, independently, tasks with
replacement, so that a cell counts as often as its seed times as often as its task (the pigeonhole
bootstrap of Owen, Annals of Applied Statistics 2007). A task's samples, and a task's cells of all
seeds, stay together. With one seed this is the bootstrap over tasks of intervals.py.

What it says and does not say: it is a little wide for the tasks. For two or three seeds the part
that is due to them is uncertain itself, so a result of three seeds also needs each seed shown.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anyorder.measure.intervals import LEVEL, Interval

FloatArray = NDArray[np.float64]

RESAMPLES = 2_000
MOST_EMPTY = 0.05
"""Draws that hold no sample are left out; if they are a larger share, there is no interval."""


def crossed_interval(
    sums: ArrayLike,
    counts: ArrayLike,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The mean over all samples; `sums` and `counts` are seeds x tasks, 0 where there is none."""
    above, below = (np.asarray(table, dtype=np.float64) for table in (sums, counts))
    if above.ndim != 2 or above.shape != below.shape:
        raise ValueError(
            f"sums of shape {above.shape} and counts of shape {below.shape}: give both as "
            "seeds x tasks"
        )
    if not (np.isfinite(above).all() and np.isfinite(below).all() and (below >= 0).all()):
        raise ValueError("sums and counts must be finite: give 0 and 0 where there is no sample")
    if not 0 < level < 1:
        raise ValueError(f"level={level}: give a number between 0 and 1, such as 0.95")
    known = below.sum(axis=0) > 0
    above, below = above[:, known], below[:, known]
    tasks = above.shape[1]
    if not tasks:
        return Interval(math.nan, math.nan, math.nan, 0, level, "empty")
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
    """The mean on every draw that holds a sample; None where many hold none."""
    seeds, tasks = above.shape
    seed_weight, task_weight = _weights(seeds, tasks, resamples, seed)
    by_seed = task_weight @ np.concatenate([above, below]).T  # R 2S
    total = (by_seed[:, :seeds] * seed_weight).sum(axis=1)
    count = (by_seed[:, seeds:] * seed_weight).sum(axis=1)
    held = count > 0
    if held.mean() < 1 - MOST_EMPTY:
        return None
    return np.asarray(total[held] / count[held])


@lru_cache(maxsize=8)
def _weights(seeds: int, tasks: int, resamples: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """How often each seed (R S) and each task (R T) is drawn; tables ask for the same often."""
    generator = np.random.default_rng(seed)
    return tuple(  # type: ignore[return-value]
        generator.multinomial(count, np.full(count, 1 / count), size=resamples).astype(np.float64)
        for count in (seeds, tasks)
    )
