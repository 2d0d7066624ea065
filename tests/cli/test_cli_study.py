"""`anyorder study` from the command line: help, one JSON document, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anyorder.cli import main
from anyorder.cli.study_verb import PROTOCOL_ONLY

SMALL = [
    *("--problems", "14", "--compared", "14", "--attempted", "14", "--counted", "14"),
    *("--drawn", "1", "--attempts", "1", "--reference", "2", "--draws", "8", "--race", "2"),
]


def places(folder: Path) -> list[str]:
    return [
        *("--folder", str(folder / "tiny"), "--page", str(folder / "docs" / "results.md")),
        *("--traces", str(folder / "traces")),
    ]


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["study", "--help"])
    assert not stop.value.code
    said = capsys.readouterr().out
    assert "anyorder study --only page" in said and "--folder" in said
    assert "first trains models that the new folder lacks" in said


def test_the_page_alone_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny" / "runs").mkdir(parents=True)  # a study of which nothing is done yet
    assert main(["study", "--only", "page", *places(tmp_path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["runs"] == [] and "mdm-dial-layout0" in record["untrained"]
    assert {claim["holds"] for claim in record["claims"]["s1"]} == {"not measured yet"}
    assert Path(record["page"]).read_text().startswith("# Results")


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["s7"], 2, "no question 's7': choose from s1"),
        (["--only", "pictures"], 2, "choose from models, runs, page"),
        (["--problems", "x"], 2, "anyorder study --help"),
        (["--problems", "2"], 2, "--problems must be at least 14"),
        (["--device=cuda"], 2, "--device needs --model"),
        (["--batch", "2"], 2, "--batch needs --model"),
        (["--workers", "2"], 2, "--workers needs --model"),
        (["--allow-weak-isolation"], 2, "--allow-weak-isolation needs --model"),
        (["--allow_weak_isolation"], 2, "--allow-weak-isolation needs --model"),
        (["--out", "x"], 2, "--out needs --model"),
    ],
)
def test_mistakes_are_told_in_a_line(
    words: list[str], code: int, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", *words, *places(tmp_path)]) == code
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "tiny").exists()


def test_flags_that_both_jobs_know_need_no_model() -> None:
    assert {"--preset", "--sweep"} <= set(PROTOCOL_ONLY)
    assert not {"--model", "--json", "--folder", "--problems"} & set(PROTOCOL_ONLY)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_question_from_samples_to_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sized = ["study", *SMALL, *places(tmp_path)]
    sampled = [*sized, "flexlatent", "ties", "--processes", "1", "--only", "runs"]
    assert main(sampled) == 0
    said = capsys.readouterr()
    assert "runs done" in said.out and "mdm-dial-layout0" in said.err
    assert main([*sampled, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == []
    page = tmp_path / "docs" / "results.md"
    assert main(["study", "--only", "page", *places(tmp_path)]) == 1
    assert "give the sizes that the study was made with" in capsys.readouterr().err
    assert not page.exists()
    assert main([*sized, "--only", "page"]) == 0
    first = page.read_bytes()
    page.unlink()
    assert main([*sized, "--only", "page"]) == 0
    assert page.read_bytes() == first
