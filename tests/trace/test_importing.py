"""Traces of other libraries become a run, with a note where their steps may count from 0."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from anyorder.apps.imports import import_traces
from anyorder.files import alone_in
from anyorder.trace import Run


def lines(*reveals: list[int] | None) -> bytes:
    """A line per list of reveal steps; None for a line of text alone."""
    records: list[dict[str, Any]] = []
    for sample, reveal in enumerate(reveals):
        record: dict[str, Any] = {"task_id": "t", "sample": sample, "prompt": ""}
        if reveal is None:
            record["text"] = "abc"
        else:
            record["tokens"] = ["a"] * len(reveal)
            record |= {"insert_step": [0] * len(reveal), "reveal_step": reveal}
        records.append(record)
    return "\n".join(map(json.dumps, records)).encode()


def test_a_compressed_file_becomes_a_run(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines([1, 2], [2, 1])))
    run, count = import_traces(tmp_path / "a.jsonl.gz", tmp_path / "run", command="c")
    assert count == len(list(Run.open(run.folder).traces())) == 2
    assert sorted(item.name for item in run.folder.iterdir()) == ["run.json", "traces.parquet"]


@pytest.mark.parametrize(
    ("reveals", "note"),
    [
        ([[1, 2], None, []], ""),
        ([[1, 0], [1, 2], None], "1 sample has tokens at step 0, which means given, not generated"),
        ([[0, 1], [1, 0], [2, 1]], "2 samples have tokens at step 0"),
    ],
)
def test_steps_from_0_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reveals: list[list[int] | None], note: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(*reveals))
    _, count = import_traces(tmp_path / "a.jsonl", tmp_path / "run", command="c")
    assert count == 3
    out, told = capsys.readouterr()
    assert out == ""
    assert told.startswith(note)
    assert told.count("\n") == bool(note)
    assert note == "" or told.endswith("add 1 to all steps if yours count from 0\n")


def test_a_wrong_file_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines([1]) + b"\n{")
    for name, message in (("a.jsonl", "not JSON"), ("b.jsonl", r"name a \.jsonl or \.jsonl\.gz")):
        with pytest.raises(ValueError, match=message):
            import_traces(tmp_path / name, tmp_path / "run", command="c")
    assert [item.name for item in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines([1]))
    with (
        alone_in(tmp_path / "run"),
        pytest.raises(ValueError, match=r"another process is working in .*run: wait for it, or"),
    ):
        import_traces(tmp_path / "a.jsonl", tmp_path / "run", command="c")
    assert [item.name for item in tmp_path.iterdir()] == ["a.jsonl"]


def test_the_help_and_the_page_say_how_steps_count() -> None:
    from anyorder.cli.runs import import_verb

    page = Path(__file__).parents[2] / "docs" / "traces.md"
    for text in (str(import_verb.__doc__), page.read_text(encoding="utf-8")):
        plain = " ".join(text.split())
        assert "Steps count from 1" in plain
        assert "0 means given from the start" in plain
