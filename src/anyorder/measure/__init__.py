"""Traces and programs to numbers, each with its controls and intervals; never torch.

`order`, `arness`, `similarity`, `diversity` and `placement` are measures of runs, and each is also
the file that holds it: `anyorder.measure.order(run)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["arness", "diversity", "order", "placement", "similarity"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
