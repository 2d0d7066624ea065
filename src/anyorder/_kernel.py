"""The one decorator behind every compiled loop of the package (numba).

It chooses where compiled code is cached, and warns where it cannot be. The kernels themselves are
in measure/tree_kernels.py and data/filters.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from numba import njit


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function on its first call, and cache it on disk where a folder is writable."""
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError as error:
        warnings.warn(
            f"compiled kernels cannot be kept ({error}), so every process compiles them again: "
            "set NUMBA_CACHE_DIR to a folder that can be written",
            RuntimeWarning,
            stacklevel=3,
        )
        return njit(nogil=True)(function)
