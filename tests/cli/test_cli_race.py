"""`anyorder race` from the command line: help, one JSON document, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anyorder.cli import main

SHORT = ["--limit", "2", "--samples", "1", "--texts", "0", "--infill", "0", "--workers", "1"]


def test_help_has_examples_and_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["race", "--help"])
    assert not stop.value.code
    said = capsys.readouterr().out
    assert "anyorder race ar mdm flexmdm" in said and "--grid NAME:OPTION=V,V" in said


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
        ([], 2, "name at least one model"),
    ],
)
def test_mistakes_are_told_in_a_line(
    words: list[str], code: int, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["race", *words, "--out", str(tmp_path / "race")]) == code
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "race").exists()
