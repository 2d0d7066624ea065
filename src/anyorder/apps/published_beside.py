"""Which rows of the paper a run may be laid beside: those of its preset and task.

A run that was sampled by a published protocol (`--preset`) on the task of a published table is
comparable with that table's rows as far as its model is; no other run is.
"""

from __future__ import annotations

from typing import Any

from anyorder.measure.published import published
from anyorder.trace import RunCard

SIMILARITY_PRESETS = ("similarity", "similarity-llada", "dultra")
ORDER_MODELS = {"flexmdm-passk": "FlexMDM", "dream-coder-order": "Dream-Coder"}
RATE_MODELS = {"flexmdm-passk": "FlexMDM", "dream-coder-passk": "Dream-Coder-7B-Base"}

# The paper's Top-K scores what the sampler drew; its text speaks of the largest probability.
POLICIES = {"sampled": "confidence"}


def published_similarity(card: RunCard) -> list[dict[str, Any]]:
    """The rows of the run's task and policy, one for each model of the paper."""
    if card.config.get("preset") not in SIMILARITY_PRESETS:
        return []
    task, policy = card.config["task"], card.config["options"]["policy"]
    rows = published("similarity", policy=POLICIES.get(policy, policy))
    return [row for row in rows if row["task"] in (task, _benchmark(task).removesuffix("+"))]


def published_order(card: RunCard) -> list[dict[str, Any]]:
    """The rows of the preset's model on the run's task, one for each scope."""
    model = ORDER_MODELS.get(card.config.get("preset") or "")
    if model is None:
        return []
    return published("order", model=model, task=_benchmark(card.config["task"]).removesuffix("+"))


def published_rates(card: RunCard, task: str) -> list[dict[str, Any]]:
    """The pass@k rows of the preset's model on the task that graded it."""
    model = RATE_MODELS.get(card.config.get("preset") or "")
    if model is None:
        return []
    rows = published("pass_at_k", model=model, task=_benchmark(task))
    temperature = card.config["options"].get("insertion_temperature")
    return [row for row in rows if row["insertion_temperature"] in (None, temperature)]


def _benchmark(task: str) -> str:
    return task.partition(":")[0]
