"""Sampling presets: the settings of published protocols, by name, each with its source.

A preset is data: its families and tasks, and its settings. A flag overrides any setting, and the
run card records the result. A preset is refused for models of other families. What a source leaves
open is in `remarks`, and is left unset if possible. recipes/presets_page.py in the repository makes
docs/presets.md from this file.

Prompt templates belong to the tasks (bench/tasks); a preset names one only if the published prompt
differs from the task's own. Checkpoints are not named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anyorder.checks import refuse_unknown

JOB_FIELDS = ("template", "chat", "samples", "batch", "max_new_tokens", "max_length")
"""Fields of the sampling job; every other setting is a decoding option of the family."""

HUMANEVAL = ("humaneval", "humaneval+")
MBPP = ("mbpp", "mbpp+")
SWEEP = (8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Preset:
    """One published protocol."""

    name: str
    about: str
    source: str
    """Where the protocol is published."""
    families: tuple[str, ...]
    tasks: tuple[str, ...]
    always: Mapping[str, Any]
    """Settings of the job and of decoding; `policy` among them is the default policy."""
    per_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Task -> settings; if not empty, the preset needs a task."""
    per_policy: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Policy -> settings that differ under it."""
    sweep: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Setting -> the other values that the source tried."""
    remarks: str = ""
    """What the source leaves open, and the choice made here."""

    def settings(
        self, family: str, task: str | None = None, policy: str | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """(job fields, decoding options) for a model of this family; `policy` replaces ours."""
        if family not in self.families:
            raise ValueError(
                f"preset {self.name!r} is for models of family {_either(self.families)}, not "
                f"{family!r}: choose another preset, or another model"
            )
        if task is None and self.per_task:
            raise ValueError(
                f"the settings of preset {self.name!r} depend on the task: give --task "
                f"{_either(self.tasks)}"
            )
        benchmark = (task or "").partition(":")[0]  # mbpp:sanitized is mbpp
        if task is not None and benchmark not in self.tasks:
            raise ValueError(
                f"preset {self.name!r} is published for {_either(self.tasks)}, not for {task!r}: "
                "leave --preset out and give the settings as flags"
            )
        chosen = {**self.always, **self.per_task.get(benchmark, {})}
        chosen |= {} if policy is None else {"policy": policy}
        chosen |= self.per_policy.get(chosen.get("policy", ""), {})
        job = {name: chosen.pop(name) for name in JOB_FIELDS if name in chosen}
        return job, chosen


def _each(names: tuple[str, ...], **settings: Any) -> dict[str, Mapping[str, Any]]:
    return dict.fromkeys(names, settings)


_SIMILARITY = {
    "samples": 1,
    "max_new_tokens": 256,
    "steps": 256,
    "temperature": 0.2,
    "top_p": 0.95,
    "policy": "sampled",
}
_THIRTY_TWO = _each(("left_to_right", "random"), samples=32)
_DREAM_CODER = {
    "chat": "off",
    "mode": "compat",
    "policy": "entropy",
    "max_new_tokens": 512,
    "steps": 512,
    "top_p": 0.9,
}

_DREAM_INSTRUCT = {"samples": 1, "chat": "on", "mode": "compat", "policy": "entropy"}

_ALL = (
    Preset(
        name="similarity",
        about="programs of confidence policies against left-to-right ones (Dream, DiffuCoder)",
        source="paper, section 3.1 and appendix B, 'Sampling protocol'",
        families=("mdm",),
        tasks=(*HUMANEVAL, *MBPP, "livecodebench"),
        always={**_SIMILARITY, "mode": "compat"},
        per_policy=_THIRTY_TWO,
        remarks="The paper's Top-K is `sampled`, as in the sampler of the Dream family that it "
        "uses; its text defines it as `confidence`. It does not say whether its random order "
        "reveals a fixed number a step or each slot independently; here it is a fixed number.",
    ),
    Preset(
        name="similarity-llada",
        about="the same for LLaDA, whose sampler scores before temperature and shares steps evenly",
        source="paper, appendices B and C",
        families=("mdm",),
        tasks=(*HUMANEVAL, *MBPP),
        always={**_SIMILARITY, "max_new_tokens": 512, "steps": 512},
        per_policy=_THIRTY_TWO,
        remarks="Top-p follows appendix B, 'all decoding policies'; LLaDA's own sampler has none. "
        "The paper does not say how it treats the end token; here it is an ordinary token.",
    ),
    Preset(
        name="dultra",
        about="a learnt planner against fixed policies on the same LLaDA backbone",
        source="paper, appendix B.2; dUltra-coding-b128",
        families=("mdm",),
        tasks=(*HUMANEVAL, *MBPP),
        always={
            "samples": 64,
            "max_new_tokens": 256,
            "template": "dultra",
            "chat": "on",
            "block": 128,
            "temperature": 0.2,
            "policy": "planner",
        },
        per_policy={"planner": {"temperature": 0.0}},
        remarks="Under the planner tokens are greedy, and only the slots to reveal are random. The "
        "paper does not give the steps of the planner-free policies; here it is one for each slot.",
    ),
    Preset(
        name="flexmdm-passk",
        about="pass@k and order of FlexMDM 7B; its any-order metrics use the same samples",
        source="paper, appendix D.4 and table of pass@k; its release for the batch",
        families=("flexmdm",),
        tasks=(*HUMANEVAL, *MBPP),
        always={
            "samples": 16,
            "batch": 8,
            "mode": "compat",
            "policy": "sampled",
            "steps": 512,
            "insertion_schedule": 2.9,
            "temperature": 0.1,
        },
        per_task={
            **_each(HUMANEVAL, template="raw", max_length=768, insertion_temperature=1.0),
            **_each(MBPP, max_length=1100, insertion_temperature=0.6),
        },
        sweep={"insertion_temperature": (0.5, 0.6, 0.7, 0.75, 1.0)},
        remarks="Appendix D.5 has the sweep: 1, 0.75, 0.6, 0.5 on MBPP and 1, 0.7 on HumanEval. "
        "In mode compat the noise belongs to a batch, hence the published batch of 8. Its MBPP is "
        "the 378 problems of MBPP+, here `mbpp:378`.",
    ),
    Preset(
        name="dream-coder-passk",
        about="pass@k of Dream-Coder 7B, the baseline of flexmdm-passk",
        source="paper, appendix D.4; its release for top-p",
        families=("mdm",),
        tasks=(*HUMANEVAL, *MBPP),
        always={**_DREAM_CODER, "samples": 16, "temperature": 1.0},
        per_task=_each(HUMANEVAL, template="instruct"),
        remarks="The release wraps HumanEval's function heads in an instruction for this model, "
        "and gives them bare to FlexMDM. Its MBPP is `mbpp:378`.",
    ),
    Preset(
        name="dream-coder-order",
        about="any-order metrics of Dream-Coder 7B, in its default settings",
        source="paper, appendix D.3, 'Complete any-order metrics results'",
        families=("mdm",),
        tasks=(*HUMANEVAL, *MBPP),
        always={**_DREAM_CODER, "samples": 1},
        per_task={
            **_each(HUMANEVAL, template="instruct", temperature=0.2),
            **_each(MBPP, temperature=0.1),
        },
        remarks="The paper does not give the number of samples; here it is 1, since samples hardly "
        "differ at these temperatures.",
    ),
    Preset(
        name="dream-instruct",
        about="Dream-Instruct 7B as its authors evaluate it, in a chat with a prefilled answer",
        source="the evaluation of Dream's release, eval_instruct",
        families=("mdm",),
        tasks=(*HUMANEVAL, *MBPP),
        always={**_DREAM_INSTRUCT, "template": "dream", "temperature": 0.1, "top_p": 0.9},
        per_task={
            **_each(HUMANEVAL, max_new_tokens=768, steps=768),
            **_each(MBPP, max_new_tokens=1024, steps=1024),
        },
        remarks="The release cuts texts at stop strings and cleans them by a script; here the "
        "extraction does both.",
    ),
    Preset(
        name="dream-coder-instruct",
        about="Dream-Coder-Instruct 7B in evalplus's chat",
        source="the evaluation of Dream-Coder's release, by evalplus",
        families=("mdm",),
        tasks=(*HUMANEVAL, *MBPP),
        always={
            **_DREAM_INSTRUCT,
            "template": "evalplus",
            "max_new_tokens": 512,
            "steps": 512,
            "temperature": 0.1,
        },
        remarks="Top-p is not given; here it is unset.",
    ),
    Preset(
        name="dream-coder-livecodebench",
        about="Dream-Coder-Instruct 7B on LiveCodeBench, in its chat",
        source="Dream-Coder's release: its copy of LiveCodeBench, and its default settings",
        families=("mdm",),
        tasks=("livecodebench",),
        always={
            **_DREAM_INSTRUCT,
            "policy": "sampled",
            "max_new_tokens": 512,
            "steps": 512,
            "temperature": 0.1,
            "top_p": 0.95,
            "eos": "fill",
        },
        remarks="For this task its sampler reveals one token a step, and fills with EOS behind the "
        "first one. The settings are those of the instruct model where it is asked for no others; "
        "the length that its authors took for this task is not known here.",
    ),
    Preset(
        name="diffucoder-instruct",
        about="DiffuCoder-Instruct 7B in evalplus's chat",
        source="DiffuCoder's release: the settings of its demo",
        families=("mdm",),
        tasks=(*HUMANEVAL, *MBPP),
        always={
            **_DREAM_INSTRUCT,
            "template": "evalplus",
            "max_new_tokens": 256,
            "steps": 256,
            "temperature": 0.3,
            "top_p": 0.95,
        },
        sweep={"temperature": (0.3, 0.4)},
        remarks="Its authors evaluate with the kit of Qwen2.5-Coder, whose settings for it are not "
        "published; cpGRPO's demo has temperature 0.4.",
    ),
    Preset(
        name="llada-instruct",
        about="LLaDA-8B-Instruct in a chat, without end tokens",
        source="LLaDA's configuration of OpenCompass",
        families=("mdm",),
        tasks=HUMANEVAL,
        always={
            "samples": 1,
            "chat": "on",
            "template": "llada",
            "max_new_tokens": 512,
            "steps": 512,
            "block": 512,
            "temperature": 0.0,
            "policy": "confidence",
            "eos": "forbid",
        },
        remarks="LLaDA-1.5: block 32, and end tokens are revealed last (`--eos last`). The release "
        "grades the first fenced block of a text behind the function's head.",
    ),
    Preset(
        name="latentmdm",
        about="LatentMDM 125M on GSM8K by program",
        source="paper, appendix E.4 and table of segment scores",
        families=("latentmdm",),
        tasks=("gsm8k",),
        always={
            "samples": 1,
            "batch": 1,
            "policy": "average",
            "slots": 8,
            "k": 1,
            "temperature": 0.0,
        },
        sweep={
            "policy": ("average", "minimum", "first", "left_to_right", "random"),
            "k": (1, 2, 4),
        },
        remarks="The paper's wall-clock times are at batch 1. It does not give the number of "
        "samples and the temperature of its pass@K figure; here it is greedy, as in the table.",
    ),
    Preset(
        name="duo",
        about="DUO 125M on GSM8K by program, the few-step baseline",
        source="paper, section 4.2, answer A2",
        families=("duo",),
        tasks=("gsm8k",),
        always={"samples": 1, "batch": 1, "max_length": 512, "steps": 8, "temperature": 1.0},
        sweep={"steps": SWEEP},
        remarks="Ancestral sampling at temperature 1 on a canvas of 512, as in the code that the "
        "paper follows; the paper does not give these settings.",
    ),
    Preset(
        name="sflm",
        about="S-FLM 125M on GSM8K by program",
        source="paper, section 4.2, answer A2",
        families=("sflm",),
        tasks=("gsm8k",),
        always={"samples": 1, "batch": 1, "max_length": 512, "steps": 16, "temperature": 1.0},
        sweep={"steps": SWEEP, "velocity": ("exact", "top1")},
        remarks="The paper does not give the velocity. S-FLM's authors name top1, towards the "
        "likeliest token, as their main setting, and their scripts default to exact; here it is "
        "unset, which is top1. Temperature and canvas are as in the code that the paper follows.",
    ),
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in _ALL}


def find_preset(name: str) -> Preset:
    """The preset of that name."""
    refuse_unknown("preset", name, PRESETS)
    return PRESETS[name]


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
