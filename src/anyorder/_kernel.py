"""Loops over arrays, compiled by numba: the one decorator behind every kernel of the package.

Where the compiled code is kept, and what is said when it cannot be. The kernels themselves are in
measure/tree_kernels.py and data/gram_kernels.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from numba import njit


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled on its first call, and kept on disk where there is a place for it."""
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError as error:
        warnings.warn(
            f"compiled kernels cannot be kept ({error}), so every process compiles them anew: "
            "set NUMBA_CACHE_DIR to a folder that can be written",
            RuntimeWarning,
            stacklevel=3,
        )
        return njit(nogil=True)(function)
