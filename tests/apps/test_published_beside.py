"""Which of the paper's rows stand beside a run: those of its protocol, task and setting."""

from __future__ import annotations

import pytest

from anyorder.apps.measure import published_order, published_rates, published_similarity
from anyorder.recipes.presets import find_preset
from anyorder.trace import RunCard


def card(preset: str, family: str, task: str, policy: str, **changed: object) -> RunCard:
    job, options = find_preset(preset).settings(family, task, policy)
    config = {"task": task, "preset": preset, "family": family, **job}
    return RunCard("anyorder sample", config | {"options": {**options, **changed}})


def test_pass_at_k_of_the_insertion_temperature() -> None:
    run = card("flexmdm-passk", "flexmdm", "mbpp:378", "sampled")
    (row,) = published_rates(run, "mbpp+")
    assert (row["insertion_temperature"], row["pass_at_k"]["1"]) == (0.6, 54.98)
    run = card("flexmdm-passk", "flexmdm", "mbpp:378", "sampled", insertion_temperature=0.75)
    (row,) = published_rates(run, "mbpp:378")
    assert row["pass_at_k"]["16"] == 91.27
    run = card("flexmdm-passk", "flexmdm", "mbpp:378", "sampled", insertion_temperature=0.9)
    assert published_rates(run, "mbpp") == []
    (row,) = published_rates(card("dream-coder-passk", "mdm", "humaneval", "entropy"), "humaneval")
    assert (row["model"], row["pass_at_k"]["1"]) == ("Dream-Coder-7B-Base", 58.65)


@pytest.mark.parametrize("changed", [{"temperature": 0.7}, {"steps": 64}, {"mode": "exact"}])
def test_a_setting_of_ones_own_ends_the_comparison(changed: dict[str, object]) -> None:
    run = card("flexmdm-passk", "flexmdm", "humaneval", "sampled", **changed)
    assert published_rates(run, "humaneval") == published_order(run) == []


def test_the_policy_chooses_the_row() -> None:
    rows = published_similarity(card("similarity", "mdm", "humaneval", "random"))
    assert len(rows) == 8 and {row["policy"] for row in rows} == {"random"}
    rows = published_similarity(card("similarity", "mdm", "livecodebench:v6", "entropy"))
    assert [(row["task"], row["policy"]) for row in rows] == [("livecodebench:v6", "confidence")]


def test_other_runs_stand_alone() -> None:
    for config in ({}, {"preset": None, "task": "humaneval"}, {"preset": "gone", "task": "mbpp"}):
        other = RunCard("anyorder import", config)
        assert published_similarity(other) == published_order(other) == []
        assert published_rates(other, "humaneval") == []
