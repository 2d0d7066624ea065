"""Presets: each resolves through its family, says what the paper says, and refuses the rest."""

from __future__ import annotations

import runpy
from collections.abc import Collection
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

from anyorder.apps.jobs import SampleJob
from anyorder.bench.tasks.humaneval import TEMPLATES as FOR_HUMANEVAL
from anyorder.bench.tasks.mbpp import TEMPLATES as FOR_MBPP
from anyorder.decode.policy import SCORES, SEGMENT_SCORES
from anyorder.families.family import FAMILIES, find_family
from anyorder.recipes.presets import (
    HUMANEVAL,
    JOB_FIELDS,
    MBPP,
    PRESETS,
    Preset,
    find_preset,
)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "presets.md"
PLANNED = {"duo", "sflm"}


def resolved(preset: Preset, task: str | None, policy: str | None) -> tuple[dict[str, Any], Any]:
    (family,) = preset.families
    job, options = preset.settings(family, task, policy)
    return job, find_family(family).choose(options)


def cases() -> list[tuple[str, str, str | None]]:
    """Every preset of a family that is here, on its tasks, under every policy it may meet."""
    found: list[tuple[str, str, str | None]] = []
    for preset in PRESETS.values():
        if set(preset.families) <= set(FAMILIES):
            policies: list[str | None] = [None, *SCORES]
            if "planner" not in preset.per_policy:  # which decides its own steps
                policies.remove("planner")
            if preset.families == ("flexmdm",):  # the published sampler knows these only
                policies = [None, "sampled", "entropy", "random"]
            known: Collection[str] = SCORES
            if preset.families == ("latentmdm",):  # segments have scores of their own
                known = SEGMENT_SCORES
                policies = [None, *SEGMENT_SCORES]
            if "policy" not in preset.always:  # nothing is ranked
                policies, known = [None], ("",)
            found += [
                (preset.name, task, policy)
                for task in preset.tasks
                for policy in policies
                if (policy or preset.always.get("policy", "")) in known
            ]
    return found


@pytest.mark.parametrize(("name", "task", "policy"), cases())
def test_every_preset_resolves_through_its_family(name: str, task: str, policy: str | None) -> None:
    preset = find_preset(name)
    job, chosen = resolved(preset, task, policy)
    assert set(job) <= set(JOB_FIELDS) <= {field.name for field in fields(SampleJob)}
    SampleJob(model="m", task=task, **job)
    if "policy" in preset.always:
        assert chosen.policy == (policy or preset.always["policy"])


def test_families_are_ours_or_announced() -> None:
    for preset in PRESETS.values():
        assert preset.source and preset.about and preset.tasks
        for family in preset.families:
            assert family in FAMILIES or family in PLANNED
    assert {name for p in PRESETS.values() for name in p.families} >= PLANNED | {
        "mdm",
        "flexmdm",
        "latentmdm",
    }


def test_similarity() -> None:
    """Section 3.1, appendices B and C."""
    for name, size, quota in (("similarity", 256, "dream"), ("similarity-llada", 512, "even")):
        preset = find_preset(name)
        for policy, samples in [
            *((each, 1) for each in (None, "confidence", "sampled", "margin", "entropy")),
            *((each, 32) for each in ("left_to_right", "random")),
        ]:
            job, chosen = resolved(preset, "humaneval", policy)
            assert job == {"samples": samples, "max_new_tokens": size}
            assert (chosen.steps, chosen.temperature, chosen.top_p) == (size, 0.2, 0.95)
            assert chosen.quota == quota
            if policy == "entropy":
                assert chosen.posterior == ("filtered" if size == 256 else "untempered")


def test_flexmdm_passk() -> None:
    """Appendix D.4 and D.5."""
    preset = find_preset("flexmdm-passk")
    for task, length, placing in (
        ("humaneval", 768, 1.0),
        ("humaneval+", 768, 1.0),
        ("mbpp", 1100, 0.6),
        ("mbpp+", 1100, 0.6),
    ):
        job, chosen = resolved(preset, task, None)
        raw = {"template": "raw"} if task.startswith("humaneval") else {}
        assert job == {"samples": 16, "batch": 8, "max_length": length} | raw
        assert chosen.insertion_temperature == placing
        assert (chosen.mode, chosen.steps, chosen.temperature) == ("compat", 512, 0.1)
        assert (chosen.insertion_schedule, chosen.unmasking_schedule) == (2.9, "kept")
        assert (chosen.counts, chosen.hazard, chosen.policy) == ("poisson", "left", "sampled")


def test_dream_coder() -> None:
    passk, order = find_preset("dream-coder-passk"), find_preset("dream-coder-order")
    for preset, task, samples, temperature in (
        (passk, "humaneval", 16, 1.0),
        (passk, "mbpp+", 16, 1.0),
        (order, "humaneval+", 1, 0.2),
        (order, "mbpp", 1, 0.1),
    ):
        job, chosen = resolved(preset, task, None)
        wrapped = {"template": "instruct"} if task.startswith("humaneval") else {}
        assert job == {"samples": samples, "max_new_tokens": 512, "chat": "off"} | wrapped
        assert (chosen.policy, chosen.steps, chosen.top_p) == ("entropy", 512, 0.9)
        assert (chosen.mode, chosen.temperature) == ("compat", temperature)


def test_dultra_is_greedy_under_its_planner_only() -> None:
    preset = find_preset("dultra")
    job, options = preset.settings("mdm", "mbpp")
    assert job == {"template": "dultra", "chat": "on", "samples": 64, "max_new_tokens": 256}
    assert options == {"block": 128, "policy": "planner", "temperature": 0.0}
    _, chosen = resolved(preset, "mbpp", "margin")
    assert (chosen.temperature, chosen.block, chosen.steps) == (0.2, 128, None)
    chosen = find_family("mdm").choose(options)
    assert (chosen.policy, chosen.quota, chosen.block) == ("planner", "bernoulli", 128)


def test_a_variant_of_a_task_is_that_task() -> None:
    preset = find_preset("flexmdm-passk")
    assert preset.settings("flexmdm", "mbpp:sanitized") == preset.settings("flexmdm", "mbpp")


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_templates_are_those_of_the_tasks(preset: Preset) -> None:
    known = {**dict.fromkeys(HUMANEVAL, FOR_HUMANEVAL), **dict.fromkeys(MBPP, FOR_MBPP)}
    for task in preset.tasks:
        job, _ = preset.settings(preset.families[0], task)
        assert "template" not in job or job["template"] in known[task]


def test_few_steps_and_segments() -> None:
    for name, steps in (("duo", 8), ("sflm", 16)):
        preset = find_preset(name)
        job, options = preset.settings(name, "gsm8k")
        assert options["steps"] == steps and job["batch"] == 1
        assert preset.sweep["steps"] == (8, 16, 32, 64, 128, 256, 512)
    job, options = find_preset("latentmdm").settings("latentmdm", "gsm8k")
    assert (options["slots"], options["k"], options["policy"]) == (8, 1, "average")


@pytest.mark.parametrize(
    ("name", "family", "task", "message"),
    [
        ("duo", "mdm", "gsm8k", "preset 'duo' is for models of family duo, not 'mdm': choose"),
        ("flexmdm-passk", "mdm", "mbpp", "family flexmdm, not 'mdm'"),
        ("similarity", "flexmdm", "mbpp", "family mdm, not 'flexmdm'"),
        ("similarity", "mdm", "stories", "published for .* mbpp[+] or livecodebench, not for 's"),
        ("flexmdm-passk", "flexmdm", None, "depend on the task: give --task humaneval, "),
        ("latentmdm", "latentmdm", "mbpp", "published for gsm8k, not for 'mbpp': leave --preset"),
    ],
)
def test_the_wrong_family_or_task(name: str, family: str, task: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_preset(name).settings(family, task)


def test_a_prompt_of_ones_own_needs_no_task_where_settings_do_not_depend_on_one() -> None:
    job, _ = find_preset("similarity").settings("mdm", None, "random")
    assert job["samples"] == 32


def test_settings_are_fresh_and_presets_fixed() -> None:
    preset = find_preset("dream-coder-order")
    preset.settings("mdm", "mbpp")[1]["temperature"] = 9.0
    preset.settings("mdm", "mbpp")[0].clear()
    assert preset.settings("mdm", "mbpp")[1]["temperature"] == 0.1
    with pytest.raises(FrozenInstanceError):
        preset.name = "another"  # type: ignore[misc]


def test_unknown_preset() -> None:
    with pytest.raises(ValueError, match="no preset 'x': choose one of similarity, "):
        find_preset("x")


def test_the_page_is_made_from_the_code() -> None:
    script = runpy.run_path(str(ROOT / "recipes" / "presets_page.py"))
    assert PAGE.read_text(encoding="utf-8") == script["as_markdown"](), "run the script again"
