"""Measures: traces and programs to numbers, with controls and intervals. Never torch.

`order`, `arness`, `similarity`, `diversity` and `placement` measure runs:
`anyorder.measure.order(run)`. Each is imported on first use. No module here may have one of these
names: Python would bind the module over the function.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anyorder.apps.placement import placement
    from anyorder.measure.arness_scores import arness
    from anyorder.measure.order_scores import order
    from anyorder.measure.similarity_scores import diversity, similarity

_HOME = {
    "arness": "anyorder.measure.arness_scores",
    "diversity": "anyorder.measure.similarity_scores",
    "order": "anyorder.measure.order_scores",
    "placement": "anyorder.apps.placement",
    "similarity": "anyorder.measure.similarity_scores",
}
"""Measure -> the module that defines it. Placement asks a network, so it is an app."""

__all__ = ["arness", "diversity", "order", "placement", "similarity"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    from anyorder import plugins  # here, since most commands take none of an installed package

    if not name.startswith("_") and name in plugins.installed("measures"):
        return plugins.load("measures", name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
