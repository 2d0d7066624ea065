"""`anyorder reproduce`: the same card gives the same samples, and what differs is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from anyorder.bench.grade import Grading, Verdict, VerdictTable, gradings_of
from anyorder.cli import main

SMALL = (
    *("--steps", "6", "--warmup", "1", "--batch", "4", "--validate-every", "0"),
    *("--net.width", "16", "--net.layers", "1", "--net.heads", "2", "--net.mlp-width", "32"),
)
DECODING = {
    "ar": ("--temperature", "0.8", "--top-p", "0.9"),
    "mdm": ("--steps", "5", "--policy", "entropy", "--temperature", "0.7"),
    "flexmdm": ("--steps", "8", "--temperature", "0.5", "--insertion-temperature", "0.6"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A barely trained model of each family, and a run of each."""
    folder = tmp_path_factory.mktemp("runs")
    for family, decoding in DECODING.items():
        model, out = str(folder / f"model-{family}"), str(folder / family)
        assert main(["train", f"tiny/{family}", *SMALL, "--out", model]) == 0
        task = ("--task", "stories", "--limit", "3", "--samples", "2", "--max-new-tokens", "12")
        assert main(["sample", model, *task, *decoding, "--out", out]) == 0
    return folder


@pytest.mark.parametrize("family", DECODING)
def test_a_card_gives_its_samples_again(
    runs: Path, family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["reproduce", str(runs / family / "run.json"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["reproduced"] and result["identical"] == result["samples"] == 6
    assert result["differences"] == result["notes"] == [] and result["again"] is None


def test_another_batch_size_changes_nothing_but_the_card(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "again"
    words = ["reproduce", str(runs / "mdm"), "--batch", "2", "--out", str(out)]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "config.batch (32 stored, 2 now)" in told and "6 of 6 samples are identical" in told
    assert (out / "traces.parquet").is_file()


def test_verdicts_are_compared_too(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs / "mdm", run)
    assert main(["grade", str(run), "--workers", "1"]) == 0
    capsys.readouterr()
    assert main(["reproduce", str(run), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["verdicts"] == result["same_verdicts"] == 6
    (settings,) = gradings_of(run).values()
    table = VerdictTable(run, Grading(**settings))
    table.append([Verdict(("stories/1", 1), "passed", level=3, attempts=1)])  # as if it had
    table.finish({})
    assert main(["reproduce", str(run)]) == 1
    error = capsys.readouterr().err
    assert "0 of 6 samples and 1 of 6 verdicts differ" in error
    assert "stories/1 sample 1: passed before" in error


def test_other_weights_are_noticed(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = str(tmp_path / "other")
    assert main(["train", "tiny/mdm", *SMALL, "--seed", "9", "--out", other]) == 0
    capsys.readouterr()
    assert main(["reproduce", str(runs / "mdm"), "--model", other]) == 1
    output = capsys.readouterr()
    assert "model_digest" in output.out
    assert "6 of 6 samples" in output.err and "token_ids" in output.err


def test_what_cannot_be_reproduced_says_why(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = '{"task_id": "a", "sample": 0, "prompt": "", "text": "x"}\n'
    (tmp_path / "theirs.jsonl").write_text(line)
    assert main(["import", str(tmp_path / "theirs.jsonl"), "--out", str(tmp_path / "run")]) == 0
    assert main(["reproduce", str(tmp_path / "run")]) == 1
    assert "only runs of `anyorder sample`" in capsys.readouterr().err
    assert main(["reproduce", str(runs / "mdm"), "--out", str(runs / "mdm")]) == 1
    assert "is the run itself" in capsys.readouterr().err
    moved = tmp_path / "moved"
    shutil.copytree(runs / "mdm", moved)
    (moved / "traces.parquet").unlink()
    assert main(["reproduce", str(moved)]) == 1
    assert "traces.parquet is missing" in capsys.readouterr().err
    assert main(["reproduce", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err
