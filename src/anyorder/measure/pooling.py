"""Bringing the values of samples together: means that skip what is missing, intervals over tasks.

Missing is NaN here and null in JSON. A mean is over samples, as published; its interval draws
tasks, each with all of its samples, so both are of the same number. Drawing is intervals.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from anyorder.measure.intervals import Interval, ratio_interval

FloatArray = NDArray[np.float64]


def task_sums(tasks: Sequence[str], table: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The sum and the number of each task's rows, tasks in the order of their names."""
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
    """A number for JSON, which has no NaN."""
    return None if math.isnan(value) else float(value)
