"""Checks of a trace's values, one function for each kind of column.

Each takes the column's name and a value from outside and gives the value in its stored type, or
raises a ValueError that begins with the name. Columns are checked one by one here; what must hold
between them (lengths, order of steps) is in trace.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int32]
FloatArray = NDArray[np.float32]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

# A log-probability computed in float32 may exceed 0 by rounding, a probability exceeds it clearly.
LOG_PROB_SLACK = 1e-3


def integers(name: str, values: Any, *, lowest: int = 0) -> IntArray:
    """A read-only int32 copy of a flat list of whole numbers."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name}: a flat list of whole numbers is needed, got shape {array.shape}")
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name}: whole numbers are needed, got {array.dtype} values")
    outside = np.flatnonzero((array < lowest) | (array > INT32_MAX))
    if outside.size:
        first = int(outside[0])
        raise ValueError(f"{name}[{first}] = {array[first]} is outside {lowest}..{INT32_MAX}")
    return _frozen(array.astype(np.int32))


def log_probs(name: str, values: Any) -> FloatArray:
    """A read-only float32 copy; NaN stands for "none known" (a token that was given, not drawn)."""
    array = _floats(name, values)
    wrong = np.flatnonzero(np.isinf(array) | (array > LOG_PROB_SLACK))
    if wrong.size:
        first = int(wrong[0])
        raise ValueError(
            f"{name}[{first}] = {array[first]:g} is no log-probability: give finite numbers of at "
            "most 0, NaN (null in JSON) where there is none"
        )
    return _frozen(array)


def scores(name: str, values: Any) -> FloatArray:
    """A read-only float32 copy; NaN stands for "none known" (nothing was ranked)."""
    array = _floats(name, values)
    wrong = np.flatnonzero(np.isinf(array))
    if wrong.size:
        first = int(wrong[0])
        raise ValueError(
            f"{name}[{first}] = {np.asarray(values)[first]} is no score: give finite numbers, NaN "
            "(null in JSON) where there is none"
        )
    return _frozen(array)


def count(name: str, value: Any, *, lowest: int = 0, highest: int = INT32_MAX) -> int:
    """One whole number; booleans, floats and strings are refused."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name}: a whole number is needed, got {value!r}")
    if not lowest <= value <= highest:
        raise ValueError(f"{name} = {value} is outside {lowest}..{highest}")
    return int(value)


def seconds(name: str, value: Any) -> float:
    """A duration: finite and not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"{name}: a number of seconds is needed, got {value!r}")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} = {value} is no duration: it must be finite and not negative")
    return float(value)


def text(name: str, value: Any) -> str:
    """A string that UTF-8 can hold. JSON can smuggle in half a surrogate pair, Parquet cannot."""
    if not isinstance(value, str):
        raise ValueError(f"{name}: a string is needed, got {value!r}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name}: character {error.start} is half a surrogate pair; join the pieces of a split "
            "character, or write U+FFFD for it"
        ) from None
    return str(value)


def _floats(name: str, values: Any) -> FloatArray:
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name}: a flat list of numbers is needed, got shape {array.shape}")
    if array.size and array.dtype.kind not in "fiu":
        raise ValueError(f"{name}: numbers are needed, got {array.dtype} values")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused
        return array.astype(np.float32)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
