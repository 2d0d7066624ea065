"""A cached run says how it agrees with the exact decoder: measured right, recorded, shown."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anyorder.apps.sample import Agreement, agreement, cache_agreement
from anyorder.bench.tasks import find_task
from anyorder.cli import main
from anyorder.model import load, wrap
from anyorder.trace import Run, Trace

EOS = 9
SAMPLE = ["sample", "mdm", "--task", "stories", "--limit", "4", "--batch", "3", "--steps", "8"]
SAMPLE += ["--block", "16"]


def trace_of(ids: list[int], reveal: list[int], text: str, columns: int = 100) -> Trace:
    return Trace(
        task_id="t",
        sample=0,
        prompt="",
        text=text,
        prompt_ids=np.array([1]),
        token_ids=np.array(ids),
        char_end=np.full(len(ids), len(text)),
        insert_step=np.zeros(len(ids), dtype=np.int64),
        reveal_step=np.array(reveal),
        steps=9,
        columns=columns,
    )


def test_slots_count_up_to_the_later_end() -> None:
    exact = trace_of([5, 6, EOS, EOS, EOS, EOS], [1, 2, 3, 4, 5, 6], "ab")
    longer = trace_of([5, 6, 7, EOS, EOS, EOS], [1, 2, 4, 3, 9, 9], "abc", columns=25)
    assert agreement([exact], [longer], (EOS,)) == Agreement(1, 4, 0.75, 0.5, 0.0, 0.25)
    assert agreement([longer], [exact], (EOS,)).tokens == 0.75
    both = agreement([exact, exact], [exact, longer], (EOS,))
    assert both == Agreement(2, 7, 6 / 7, 5 / 7, 0.5, 125 / 200)
    assert agreement([exact], [longer], (EOS, 6)).slots == 2  # another end comes first


def test_frozen_slots_do_not_count() -> None:
    exact, other = (trace_of([5, 6, 7], [2, 0, 1], "x") for _ in range(2))
    assert agreement([exact], [other], (EOS,)).slots == 2
    differs = replace(other, token_ids=np.array([4, 6, 7]), reveal_step=np.array([1, 0, 2]))
    assert agreement([exact], [differs], (EOS,)) == Agreement(1, 2, 0.5, 0.0, 1.0, 1.0)


def sampled(out: Path, *words: str) -> Run:
    assert main([*SAMPLE, *words, "--out", str(out)]) == 0
    return Run.open(out)


def test_a_run_records_and_shows_its_agreement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sampled(tmp_path / "cached", "--cache", "block", "--cache-check", "2")
    told = capsys.readouterr().out
    assert run.card.agreement is not None
    found = Agreement(**run.card.agreement)
    assert f"cache block, {found}" in told and "of 2 samples" in told
    # By hand: samples 0 and 2 beside those of an exact run.
    exact = list(sampled(tmp_path / "exact").traces())
    cached = list(run.traces())
    ends = load("mdm").vocab.end_ids
    assert found == agreement(exact[::2], cached[::2], ends)
    assert found.columns < 0.7
    assert [t.columns for t in exact] == [8 * (len(t.prompt_ids) + len(t.token_ids)) for t in exact]
    assert Run.open(tmp_path / "exact").card.agreement is None
    assert "agreement" not in json.loads((tmp_path / "exact" / "run.json").read_text())


def test_a_check_that_was_interrupted_is_made_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--cache", "prefix", "--cache-refresh", "2")
    run = sampled(tmp_path / "run", *words, "--cache-check", "0")
    assert run.card.agreement is None
    first = sampled(tmp_path / "run", *words).card  # 4 by default
    assert first.agreement is not None and first.agreement["samples"] == 4
    assert asdict(sampled(tmp_path / "run", *words).card) == asdict(first)
    capsys.readouterr()
    sampled(tmp_path / "run", *words, "--json")
    assert json.loads(capsys.readouterr().out)["agreement"] == first.agreement


def test_the_last_shard_checks(tmp_path: Path) -> None:
    words = ("--cache", "block", "--cache-check", "2", "--json")
    whole = sampled(tmp_path / "whole", *words).card.agreement
    for shard in ("1/2", "0/2"):
        assert Run.open(tmp_path / "parts").card.agreement is None if shard == "0/2" else True
        sampled(tmp_path / "parts", *words, "--shard", shard)
    assert whole is not None and Run.open(tmp_path / "parts").card.agreement == whole


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["--cache-check", "2"], "--cache-check compares with a cache"),
        (["--cache", "none", "--cache-check", "2"], "--cache-check compares with a cache"),
        (["--cache", "prefix", "--cache-check", "-1"], "--cache-check must be at least 0"),
        (["--cache", "left"], "does not fit: give 'none' or 'prefix' or 'block'"),
    ):
        assert main([*SAMPLE, *words, "--out", str(tmp_path / "run")]) != 0
        assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_from_python() -> None:
    model = load("mdm")
    given: dict[str, Any] = {"block": 16, "steps": 8}
    (problem,) = find_task("stories", model.trained_on).problems(1)
    prompt = problem.prompt
    found = cache_agreement(model, prompt, cache="block", cache_refresh=1, **given)
    assert found == replace(found, tokens=1.0, steps=1.0, texts=1.0, columns=1.0)
    with pytest.raises(ValueError, match="nothing to compare"):
        cache_agreement(model, prompt, **given)


def test_a_wrapped_network_is_refused_with_the_reason() -> None:
    inner = load("mdm")
    model = wrap(lambda ids, attention_mask: inner.net(ids), inner.vocab)
    with pytest.raises(ValueError, match=r"a cache needs the keys and values .* anyorder\.load"):
        model.sample("total", cache="prefix")
    ours = wrap(inner.net, inner.vocab)  # a net of our own passes through
    assert ours.sample("total", cache="prefix", steps=4, max_new_tokens=8)[0].columns is not None
