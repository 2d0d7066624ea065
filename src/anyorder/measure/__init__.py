"""Measures: traces and programs to numbers, with controls and intervals. Never torch.

`order`, `arness`, `similarity`, `diversity` and `placement` measure runs:
`anyorder.measure.order(run)`. Each is imported on first use. No module here may have one of these
names: Python would bind the module over the function.

`published` gives the rows of the paper's tables, to print beside one's own numbers. Kinds:
`similarity` (appendix B), `order` (appendix D, any-order metrics), `pass_at_k` (appendix D,
insertion temperature) and `segments` (appendix E, LatentMDM on GSM8K). Policies carry our names:
the paper's Top-K is `confidence`. `infilling` is not the paper's: each row names its source.
Nothing here claims that two protocols are alike.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from anyorder.checks import refuse_unknown

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

__all__ = ["arness", "diversity", "order", "placement", "published", "similarity"]

KINDS = ("similarity", "order", "pass_at_k", "segments", "infilling")
"""The kinds of published tables."""


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    from anyorder.plugins import (  # here, since most commands take none of an installed package
        entries,
        load_entry,
    )

    if not name.startswith("_") and name in entries("measures"):
        return load_entry("measures", name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _published() -> dict[str, Any]:
    return dict(json.loads(files(__name__).joinpath("published.json").read_text("utf-8")))


def source() -> str:
    """The title of the paper."""
    return str(_published()["source"])


def published(kind: str, **where: Any) -> list[dict[str, Any]]:
    """The rows of one kind whose columns have the given values."""
    refuse_unknown("published table", kind, KINDS)
    rows = _published()[kind]
    for column in where:
        if not any(column in row for row in rows):
            known = sorted({name for row in rows for name in row})
            raise ValueError(f"{kind} has no column {column!r}: it has {', '.join(known)}")
    return [row for row in rows if all(row.get(name) == value for name, value in where.items())]
