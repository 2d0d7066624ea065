"""What families and policies are called in a report, and a plain label for every run.

A label is the family and the policy in words, and whatever else tells a run from the others that
would be called the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FAMILIES = {
    "ar": "AR",
    "mdm": "MDM",
    "flexmdm": "FlexMDM",
    "latentmdm": "LatentMDM",
    "flexlatent": "FlexLatent",
    "duo": "DUO",
    "sflm": "S-FLM",
}

POLICIES = {
    "left_to_right": "left to right",
    "random": "random order",
    "confidence": "surest token first",
    "sampled": "surest draw first",
    "margin": "clearest winner first",
    "entropy": "least doubt first",
    "planner": "as its planner says",
    "ancestral": "all places at once",
    "flow": "all places settle together",
    "average": "best line first",
    "minimum": "best weakest token first",
    "first": "surest start first",
}

# What may tell two runs of the same family and policy apart, and how it is said.
_SETTINGS: dict[str, str] = {
    "k": "{} at a time",
    "insertion_temperature": "insertion temperature {}",
    "temperature": "temperature {}",
    "top_p": "top-p {}",
    "steps": "{} steps",
    "block": "blocks of {}",
    "remask": "remasking {}",
    "clock": "{}",
    "mode": "mode {}",
    "quota": "quota {}",
    "slots": "{} slots",
    "tail": "tail {}",
    "velocity": "velocity {}",
    "insertion_schedule": "insertion schedule {}",
    "task": "{}",
    "samples": "{} samples",
    "batch": "batch {}",
    "seed": "seed {}",
    "model": "{}",
}

# What goes without saying.
_USUAL = {"temperature": 0.0, "samples": 1, "top_p": 1.0, "quota": "thinned"}

_VALUES = {"events": "one change at a time", "steps": "in fixed steps"}
"""Of the clock, in words."""

POLICIES_MEAN = {
    "left_to_right": "the leftmost open slot comes next",
    "random": "the next slot is drawn at random",
    "confidence": "the slot whose most likely token has the highest probability comes next",
    "sampled": "the slot whose drawn token has the highest probability comes next",
    "margin": "the slot whose most likely token leads the second by most comes next",
    "entropy": "the slot with the least spread-out probabilities comes next",
    "planner": "a small second network, the [[planner]], says which slots are ready to be revealed",
    "ancestral": "nothing is chosen: in every step every place may change",
    "flow": "nothing is chosen: all places move from noise towards tokens together",
    "average": "the line whose tokens have the best [[log-probability]] on average comes next",
    "minimum": "the line whose weakest token has the best [[log-probability]] comes next",
    "first": "the line whose first token has the best [[log-probability]] comes next",
}
"""With the marks of sections/section.py."""

TASKS = {
    "stories": "small word problems, each answered by a short Python function",
    "humaneval": "Python functions to be completed from their description",
    "humaneval+": "Python functions to be completed from their description, with more tests",
    "mbpp": "short Python functions asked for in a sentence",
    "mbpp+": "short Python functions asked for in a sentence, with more tests",
    "livecodebench": "problems of programming contests",
    "gsm8k": "school word problems, answered by a program",
}
"""What is asked, in a few words."""


def family_title(family: str) -> str:
    """The family as people write it."""
    return FAMILIES.get(family, family or "unknown model")


def policy_title(policy: str) -> str:
    """The policy in words; empty where there is none, as for a model with one order."""
    return POLICIES.get(policy, policy.replace("_", " "))


def labels_of(runs: Sequence[tuple[str, str, Mapping[str, Any], str]]) -> list[str]:
    """A label for each (family, policy, config, name), all different."""
    bases = [_base(family, policy) for family, policy, _, _ in runs]
    labels = []
    for (_, _, config, _), base in zip(runs, bases, strict=True):
        rivals = [other for (_, _, other, _), same in zip(runs, bases, strict=True) if same == base]
        words = [
            says.format(_shown(_setting(config, setting)))
            for setting, says in _SETTINGS.items()
            if _setting(config, setting) not in (None, _USUAL.get(setting))
            and any(_setting(other, setting) != _setting(config, setting) for other in rivals)
        ]
        labels.append(", ".join([base, *words]))
    return [
        f"{label} ({name})" if labels.count(label) > 1 else label
        for label, (_, _, _, name) in zip(labels, runs, strict=True)
    ]


def _base(family: str, policy: str) -> str:
    way = "" if family == "ar" else policy_title(policy)
    return ", ".join(word for word in (family_title(family), way) if word)


def _setting(config: Mapping[str, Any], name: str) -> Any:
    options = config.get("options") or {}
    return options[name] if name in options else config.get(name)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else _VALUES.get(str(value), str(value))
