"""What `anyorder demo` runs: each shipped model, how it decodes, and which runs are compared.

Plain data. A run is named by its shipped model, and after a hyphen by how it is decoded. How runs
become jobs and a story is in apps/demo.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MODELS = ("ar", "mdm", "planner", "flexmdm", "latentmdm", "flexlatent", "duo", "sflm")
"""The shipped models, in the order of the story."""
TRAINED = "tiny/mdm"
"""The recipe that `--train` follows."""
EXAMPLE = "mdm-confidence"
"""The run whose first sample is shown step by step."""

GROWN = {f"flexmdm-insertion-{value:g}": value for value in (1.0, 0.6)}
"""Runs by insertion temperature."""
AT_ONCE, FEW_STEPS = ("duo", "sflm"), 32
"""The models that change all slots in every step, and their steps."""
TOKEN_POLICIES = ("confidence", "random", "left_to_right")
SEGMENT_POLICIES = ("average", "minimum", "first", "left_to_right", "random")
KS = (1, 2, 4)


@dataclass(frozen=True)
class DemoRun:
    """One run: a shipped model with decoding options."""

    name: str
    options: Mapping[str, Any]
    weight: float = 1.0
    """The rough duration, for the progress bar."""
    several: bool = False
    """Whether each problem gets several samples, for pass@k."""


@dataclass(frozen=True)
class DemoComparison:
    """Runs of one model that are compared with its run from left to right."""

    runs: tuple[str, ...]
    reference: str
    stride: int | None = None
    """How many steps lie between two canvases that the network is asked about."""


def _segment_run(policy: str, k: int) -> DemoRun:
    # The report draws the candidates of one policy; the others need not store theirs.
    drafts = {"candidates": True} if policy == "average" else {}
    return DemoRun(f"latentmdm-{policy}-k{k}", {"policy": policy, "k": k} | drafts)


RUNS = (
    *(
        DemoRun(name, {"clock": "events", "insertion_temperature": t}, weight=12, several=True)
        for name, t in GROWN.items()
    ),
    DemoRun("flexmdm-steps", {"clock": "steps"}, weight=20, several=True),
    DemoRun("mdm-drawn", {"temperature": 1.0}, weight=4, several=True),
    DemoRun("ar-drawn", {"temperature": 1.0}, weight=4, several=True),
    DemoRun("flexlatent", {"clock": "events", "candidates": True}, weight=3),
    DemoRun("ar", {}),
    *(DemoRun(f"mdm-{policy}", {"policy": policy}) for policy in TOKEN_POLICIES),
    DemoRun("planner", {"policy": "planner"}),
    *(DemoRun(name, {"steps": FEW_STEPS, "temperature": 0.0}) for name in AT_ONCE),
    *(_segment_run(policy, k) for k in KS for policy in SEGMENT_POLICIES),
)
"""Longest first, so that short runs fill the gaps at the end."""

COMPARISONS = (
    DemoComparison(("mdm-confidence", "mdm-random"), "mdm-left_to_right", stride=8),
    DemoComparison(("planner",), "mdm-left_to_right", stride=8),
    DemoComparison(
        tuple(f"latentmdm-{policy}-k1" for policy in ("average", "minimum", "first", "random")),
        "latentmdm-left_to_right-k1",
    ),
)

ORDERS = (
    (*GROWN, "flexmdm-steps", "flexlatent"),
    ("ar", "ar-drawn", "mdm-left_to_right", "mdm-drawn"),
    ("latentmdm-left_to_right-k1",),
    AT_ONCE,
)
"""Runs whose order is measured alone: there is nothing to compare them with."""
