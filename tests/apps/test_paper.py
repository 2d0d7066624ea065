"""Published protocols: the runs that each preset means, and one from checkpoint to tables."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import made_checkpoints as made
import pytest

from anyorder.apps.jobs import PaperJob
from anyorder.apps.paper import COMPARED, settings_of
from anyorder.cli import main
from anyorder.recipes.presets import PRESETS


def test_every_preset_is_some_runs() -> None:
    for name in PRESETS:
        assert settings_of(PaperJob("m", name))
    assert tuple(settings_of(PaperJob("m", "similarity"))) == COMPARED
    assert "planner" in settings_of(PaperJob("m", "dultra"))
    assert settings_of(PaperJob("m", "flexmdm-passk")) == {"own": {}}


def test_a_sweep_is_every_point_that_the_source_tried() -> None:
    swept = settings_of(PaperJob("m", "latentmdm", sweep=True))
    assert len(swept) == 15 and swept["policy_random-k_4"] == {"policy": "random", "k": 4}
    heat = settings_of(PaperJob("m", "flexmdm-passk", sweep=True))
    assert [each["insertion_temperature"] for each in heat.values()] == [0.5, 0.6, 0.7, 0.75, 1.0]


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["--preset", "similarity", "--sweep"], 1, "has no sweep"),
        (["--preset", "nothing"], 1, "no preset 'nothing'"),
        (["--preset", "similarity", "--limit", "0"], 2, "--limit must be at least 1"),
        (["--only", "page"], 2, "anyorder paper --help"),
    ],
)
def test_mistakes_are_told_in_a_line(
    words: list[str], code: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paper", "--model", "m", *words]) == code
    assert complaint in capsys.readouterr().err


def test_it_needs_a_model_and_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    for words, missing in ((["--preset", "similarity"], "model"), (["--model", "m"], "preset")):
        assert main(["paper", *words]) == 2
        assert missing in capsys.readouterr().err


def test_the_old_verb_says_where_to_go(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--help"], ["s4"], ["--model", "m", "--preset", "similarity"]):
        assert main(["study", *words]) == 2
        said = capsys.readouterr()
        assert "make study" in said.err and "anyorder paper --model" in said.err
        assert not said.out


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_from_a_published_checkpoint_to_the_papers_table(
    tmp_path: Path, data_file: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A small checkpoint in Dream's format, real prompts, the protocol to the letter."""
    made.dream(tmp_path / "dream", max_position_embeddings=1024)
    words = [
        *("paper", "--model", str(tmp_path / "dream"), "--preset", "similarity"),
        *("--task", "humaneval", "--data", str(data_file("benchmarks/HumanEval.jsonl.gz"))),
        *("--limit", "1", "--workers", "1", "--out", str(tmp_path / "out")),
    ]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert set(record["graded"]) == set(COMPARED)
    assert len(record["graded"]["random"]["samples"]) == 32
    assert set(record["measured"]["runs"]) == set(COMPARED) - {"left_to_right"}
    for line in record["commands"]:
        assert shlex.split(line)[0] == "anyorder"
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "paper, DiffuCoder-base" in said and "Similarity to left_to_right" in said


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_insertion_protocol_from_a_published_checkpoint(
    tmp_path: Path, data_file: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A small checkpoint in the format of FlexMDM's release: pass@k beside the paper's."""
    made.flexmdm(tmp_path / "flexmdm")
    words = [
        *("paper", "--model", str(tmp_path / "flexmdm"), "--preset", "flexmdm-passk"),
        *("--task", "humaneval", "--data", str(data_file("benchmarks/HumanEval.jsonl.gz"))),
        *("--limit", "1", "--workers", "1", "--out", str(tmp_path / "out")),
    ]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "pass@16" in said and "paper, FlexMDM" in said
