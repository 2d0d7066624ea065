"""`anyorder race` from the command line: help, one JSON document, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from anyorder.bench.grade import Grading, Verdict, VerdictTable, gradings_of
from anyorder.cli import main

SHORT = ["--limit", "2", "--samples", "1", "--texts", "0", "--infill", "0", "--workers", "1"]


def test_help_has_examples_and_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["race", "--help"])
    assert not stop.value.code
    said = capsys.readouterr().out
    assert "anyorder race trails/ar trails/mdm" in said and "--grid NAME:OPTION=V,V" in said


def test_a_race_prints_one_document_or_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "race")]
    assert main(["race", "ar", *SHORT, *out, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["fairness"]["equal"] is True
    assert record["conditions"]["threads"] == 1 and record["conditions"]["problems"] == 2
    assert [lane["lane"] for lane in record["lanes"]] == ["ar/plain"]
    assert record["front"] == {"one": ["ar/plain"], "several": []}
    assert main(["race", "ar", *SHORT, *out]) == 0
    said = capsys.readouterr().out
    assert "One attempt" in said and "424,320" in said and "race.svg" in said


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["--limit", "x"], 2, "anyorder race --help"),
        (["ar", "--grid", "mdm:steps=8"], 1, "no 'mdm' races: choose from ar"),
        (["ar", "--task", "nothing"], 1, "no task 'nothing'"),
        (["--task", "humaneval"], 1, "name the models to race"),
    ],
)
def test_mistakes_are_told_in_a_line(
    words: list[str], code: int, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["race", *words, "--out", str(tmp_path / "race")]) == code
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "race").exists()


# `anyorder report`: what it prints, writes and refuses.


TOKENS = ["def f(a):", "\n", "    b = a", "\n", "    return b", "\n"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lines = [
        json.dumps(
            {
                "task_id": f"t{task}",
                "sample": 0,
                "prompt": "",
                "tokens": TOKENS,
                "insert_step": [0] * 6,
                "reveal_step": [1, 4, 2, 5, 3, 6],
                "policy": "confidence",
            }
        )
        for task in range(3)
    ]
    (tmp_path / "theirs.jsonl").write_text("\n".join(lines))
    assert main(["import", str(tmp_path / "theirs.jsonl"), "--out", str(tmp_path / "run")]) == 0
    return tmp_path / "run"


def test_a_report_of_an_imported_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    out = run.parent / "pages" / "mine.html"
    assert main(["report", str(run), "--out", str(out), "--title", "Theirs", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["report"] == str(out) and found["samples"] == 3
    assert "<h1>Theirs</h1>" in out.read_text(encoding="utf-8")
    files = {Path(name) for name in found["figures"]}
    assert files == set((out.parent / "mine_figures").iterdir())
    assert {path.suffix for path in files} == {".png", ".pdf"}
    assert any("--language python" in c for each in found["absent"] for c in each["commands"])


def test_figures_can_be_left_out(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run.parent / "plain.html"
    assert main(["report", str(run), "--out", str(out), "--no-figures"]) == 0
    assert not (run.parent / "plain_figures").exists()
    told = capsys.readouterr().out
    assert str(out) in told and "not in it: How the parts" in told


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["nothing"], 1, "not a folder"),
        (["RUN", "RUN"], 1, "named twice"),
        (["RUN", "--out", "page.txt"], 2, ".html"),
        ([], 2, ""),
    ],
)
def test_mistakes(
    run: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    filled = [str(run) if word == "RUN" else word for word in words]
    assert main(["report", *filled]) in (code, 1)
    assert says in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    told = capsys.readouterr().out
    assert "anyorder report runs/" in told and "--no-figures" in told


# `anyorder reproduce`: the same card gives the same samples, and what differs is told.


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
