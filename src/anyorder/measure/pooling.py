"""Bringing the values of samples together: means that skip what is missing, one mean per task.

Missing is NaN here and null in JSON. Intervals over the task means are intervals.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def task_means(tasks: Sequence[str], table: FloatArray) -> FloatArray:
    """The mean of each task's rows, tasks in the order of their names."""
    if not len(table):
        return table
    names, which = np.unique(np.array(tasks), return_inverse=True)
    sums = np.zeros((len(names), *table.shape[1:]))
    np.add.at(sums, which, table)
    counts = np.bincount(which).reshape(-1, *[1] * (table.ndim - 1))
    return np.asarray(sums / counts)


def known_mean(values: Iterable[float]) -> float:
    """The mean of the values that are not missing; NaN if there are none."""
    known = [float(value) for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def plain(value: float) -> float | None:
    """A number for JSON, which has no NaN."""
    return None if math.isnan(value) else float(value)
