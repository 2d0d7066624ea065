"""Training: one loop for all families, its optimiser, EMA, checkpoints and log.

Names are imported on first use, so that reading a configuration does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anyorder.training.config import TrainConfig
    from anyorder.training.loop import Diverged, FitOptions, FitResult, fit

_HOME = {
    "TrainConfig": "config",
    "Diverged": "loop",
    "FitOptions": "loop",
    "FitResult": "loop",
    "fit": "loop",
}

__all__ = ["Diverged", "FitOptions", "FitResult", "TrainConfig", "fit"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
