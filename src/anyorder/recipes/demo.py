"""What `anyorder demo` runs: each shipped model, how it decodes, and which runs are compared.

Plain data, one `Demo` for each corpus. A run is named by its shipped model, and after a hyphen by
how it is decoded. How runs become jobs and a story is in apps/demo.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MODELS = ("ar", "mdm", "planner", "flexmdm", "latentmdm", "flexlatent", "duo", "sflm")
"""The shipped models, in the order of the story."""
TRAINED = "tiny/mdm"
"""The recipe that `--train` follows: it shows what it learns within minutes."""


@dataclass(frozen=True)
class DemoRun:
    """One run: a shipped model with decoding options."""

    name: str
    options: Mapping[str, Any]
    weight: float = 1.0
    """The rough duration, for the progress bar."""
    several: bool = False
    """Whether each problem gets several samples, for pass@k."""
    variant: str = ""
    """The condition of the task's problems; empty: its usual one."""


@dataclass(frozen=True)
class DemoComparison:
    """Runs of one model that are compared with its run from left to right."""

    runs: tuple[str, ...]
    reference: str
    stride: int | None = None
    """How many steps lie between two canvases that the network is asked about."""


@dataclass(frozen=True)
class Demo:
    """One story: models of one corpus, and how they are compared."""

    task: str
    models: str
    """What stands before the names of its shipped models."""
    example: str
    """The run whose first sample is shown step by step."""
    runs: tuple[DemoRun, ...]
    """Longest first, so that short runs fill the gaps at the end."""
    comparisons: tuple[DemoComparison, ...]
    orders: tuple[tuple[str, ...], ...]
    """Runs whose order is measured alone: there is nothing to compare them with."""
    conditions: tuple[tuple[str, str], ...] = ()
    """Pairs of runs that differ in the condition of their problems alone."""


AT_ONCE, FEW_STEPS = ("duo", "sflm"), 32
"""The models that change all slots in every step, and their steps."""
GROWN = {f"flexmdm-insertion-{value:g}": value for value in (1.0, 0.6)}
"""Runs by insertion temperature."""
TOKEN_POLICIES = ("confidence", "random", "left_to_right")
SEGMENT_POLICIES = ("average", "minimum", "first", "left_to_right", "random")
KS = (1, 2, 4)


def _by_segments(policy: str, k: int) -> dict[str, Any]:
    # The report draws the candidates of one policy; the others need not store theirs.
    drafts = {"candidates": True} if policy == "average" else {}
    return {"policy": policy, "k": k} | drafts


STORIES = Demo(
    task="stories",
    models="",
    example="mdm-confidence",
    runs=(
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
        *(
            DemoRun(f"latentmdm-{policy}-k{k}", _by_segments(policy, k))
            for k in KS
            for policy in SEGMENT_POLICIES
        ),
    ),
    comparisons=(
        DemoComparison(("mdm-confidence", "mdm-random"), "mdm-left_to_right", stride=8),
        DemoComparison(("planner",), "mdm-left_to_right", stride=8),
        DemoComparison(
            tuple(f"latentmdm-{policy}-k1" for policy in ("average", "minimum", "first", "random")),
            "latentmdm-left_to_right-k1",
        ),
    ),
    orders=(
        (*GROWN, "flexmdm-steps", "flexlatent"),
        ("ar", "ar-drawn", "mdm-left_to_right", "mdm-drawn"),
        ("latentmdm-left_to_right-k1",),
        AT_ONCE,
    ),
)

FIXED = ("left_to_right", "right_to_left", "random")
"""On trails: the orders that are given, beside the one that the model chooses."""

TRAILS = Demo(
    task="trails",
    models="trails/",
    example="latentmdm-average",
    runs=(
        DemoRun("flexmdm-drawn", {"temperature": 1.0}, weight=8, several=True),
        DemoRun("mdm-drawn", {"temperature": 1.0}, weight=4, several=True),
        DemoRun("flexmdm-corrected", {"correct": 4}, weight=4),
        DemoRun("flexmdm", {}, weight=2),
        DemoRun("flexlatent", {"candidates": True}, weight=2),
        DemoRun("ar", {}),
        *(DemoRun(f"mdm-{policy}", {"policy": policy}) for policy in ("confidence", *FIXED)),
        DemoRun("planner", {"policy": "planner"}),
        *(
            DemoRun(f"latentmdm-{policy}", _by_segments(policy, 1))
            for policy in ("average", *FIXED)
        ),
        DemoRun("ar-strict", {}, variant="strict"),
        DemoRun("mdm-confidence-strict", {"policy": "confidence"}, variant="strict"),
        DemoRun("mdm-left_to_right-strict", {"policy": "left_to_right"}, variant="strict"),
        DemoRun("latentmdm-average-strict", _by_segments("average", 1), variant="strict"),
    ),
    comparisons=(
        DemoComparison(
            ("mdm-confidence", "mdm-right_to_left", "mdm-random"), "mdm-left_to_right", stride=8
        ),
        DemoComparison(
            ("latentmdm-average", "latentmdm-right_to_left", "latentmdm-random"),
            "latentmdm-left_to_right",
        ),
    ),
    orders=(
        ("ar", "ar-strict", "planner", "mdm-left_to_right", "mdm-left_to_right-strict"),
        ("flexmdm", "flexmdm-corrected", "flexmdm-drawn", "flexlatent", "mdm-drawn"),
        ("latentmdm-left_to_right", "latentmdm-average-strict", "mdm-confidence-strict"),
    ),
    conditions=tuple(
        (name, f"{name}-strict")
        for name in ("ar", "mdm-confidence", "mdm-left_to_right", "latentmdm-average")
    ),
)

DEMOS = {each.task: each for each in (TRAILS, STORIES)}
"""By corpus, the usual one first."""
