"""`make study` from the command line: help, one JSON document, and what it refuses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from studies.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
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
        main(["--help"])
    assert not stop.value.code
    said = capsys.readouterr().out
    assert 'make study ARGS="--only page"' in said and "--folder" in said
    assert "first trains models that the new folder lacks" in said


def test_the_page_alone_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny" / "runs").mkdir(parents=True)  # a study of which nothing is done yet
    assert main(["--only", "page", *places(tmp_path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["runs"] == [] and "mdm-dial-layout0" in record["untrained"]
    assert {claim["holds"] for claim in record["claims"]["s1"]} == {"not measured yet"}
    assert Path(record["page"]).read_text().startswith("# Results")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["s7"], "no question 's7': choose from s1"),
        (["--only", "pictures"], "choose from models, runs, page"),
        (["--problems", "2"], "--problems must be at least 14"),
        (["--model", "m", "--preset", "similarity"], "anyorder paper --model"),
        (["--preset=similarity"], "anyorder paper --model"),
    ],
)
def test_mistakes_are_told_in_a_line(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, *places(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert complaint in said and said.count("\n") == 1
    assert not (tmp_path / "tiny").exists()


@pytest.mark.parametrize("words", [["--problems", "x"], ["--device", "cuda"]])
def test_the_parser_says_what_it_cannot_read(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*words, *places(tmp_path)])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert words[0] in said and "python -m studies --help" in said
    assert not (tmp_path / "tiny").exists()


def test_make_passes_its_words_on() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "study", "ARGS=s4 --problems 20"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.rstrip().endswith("python -m studies s4 --problems 20"), shown.stderr


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_question_from_samples_to_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sized = [*SMALL, *places(tmp_path)]
    sampled = [*sized, "flexlatent", "ties", "--processes", "1", "--only", "runs"]
    assert main(sampled) == 0
    said = capsys.readouterr()
    assert "runs done" in said.out and "mdm-dial-layout0" in said.err
    assert main([*sampled, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == []
    page = tmp_path / "docs" / "results.md"
    assert main(["--only", "page", *places(tmp_path)]) == 1
    assert "give the sizes that the study was made with" in capsys.readouterr().err
    assert not page.exists()
    assert main([*sized, "--only", "page"]) == 0
    first = page.read_bytes()
    page.unlink()
    assert main([*sized, "--only", "page"]) == 0
    assert page.read_bytes() == first
