"""Which rows of the paper a run may be laid beside: those of its preset and task.

A run that was sampled by a published protocol (`--preset`, none of its settings overridden) on the
task of a published table is comparable with that table's rows as far as its model is; no other run
is. What the paper varied itself, the policy and the insertion temperature, chooses the row.
"""

from __future__ import annotations

from typing import Any

from anyorder.measure.published import published
from anyorder.recipes.presets import PRESETS
from anyorder.trace import RunCard

VARIED = ("policy", "insertion_temperature")
SIMILARITY_PRESETS = ("similarity", "similarity-llada", "dultra")
ORDER_MODELS = {"flexmdm-passk": "FlexMDM", "dream-coder-order": "Dream-Coder"}
RATE_MODELS = {"flexmdm-passk": "FlexMDM", "dream-coder-passk": "Dream-Coder-7B-Base"}

# The paper's Top-K scores what the sampler drew; its text speaks of the largest probability.
POLICIES = {"sampled": "confidence"}
CONFIDENCE = dict.fromkeys(("sampled", "margin", "entropy"), "confidence")


def published_similarity(card: RunCard) -> list[dict[str, Any]]:
    """The rows of the run's task and policy, one for each model of the paper."""
    if _preset(card) not in SIMILARITY_PRESETS:
        return []
    task, policy = card.config["task"], card.config["options"]["policy"]
    # On LiveCodeBench the three confidence policies wrote the same programs, and share a row.
    alike = CONFIDENCE if _benchmark(task) == "livecodebench" else POLICIES
    rows = published("similarity", policy=alike.get(policy, policy))
    return [row for row in rows if row["task"] in (task, _benchmark(task).removesuffix("+"))]


def published_order(card: RunCard) -> list[dict[str, Any]]:
    """The rows of the preset's model on the run's task, one for each scope."""
    model = ORDER_MODELS.get(_preset(card))
    if model is None:
        return []
    return published("order", model=model, task=_benchmark(card.config["task"]).removesuffix("+"))


def published_rates(card: RunCard, task: str) -> list[dict[str, Any]]:
    """The pass@k rows of the preset's model on the task that graded it."""
    model = RATE_MODELS.get(_preset(card))
    if model is None:
        return []
    rows = published("pass_at_k", model=model, task=_benchmark(task))
    temperature = card.config["options"].get("insertion_temperature")
    return [row for row in rows if row["insertion_temperature"] in (None, temperature)]


def _preset(card: RunCard) -> str:
    """The protocol that the run followed to the letter; empty if it followed none."""
    config = card.config
    name = config.get("preset") or ""
    if name not in PRESETS:
        return ""
    options = config["options"]
    settings = PRESETS[name].settings(config["family"], config["task"], options.get("policy"))
    followed = all(
        made.get(setting) == value
        for wanted, made in zip(settings, (config, options), strict=True)
        for setting, value in wanted.items()
        if setting not in VARIED
    )
    return name if followed else ""


def _benchmark(task: str) -> str:
    return task.partition(":")[0]
