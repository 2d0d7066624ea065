"""Large files are read from any row on, the same rows in every format."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_corpora import write_rows

from anyorder.apps.pipeline.inputs import read_records

ROWS = [{"question": f"q{i}", "code": f"x = {i}", "other": i} for i in range(2500)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_rows_from_any_place(name: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / name, ROWS)
    wanted = [(row["question"], row["code"]) for row in ROWS]
    for start in (0, 1, 255, 256, 999, 1000, 1001, 2499, 2500):
        rows = read_records(path, start, ("question", "code", "absent"))
        assert [(row["question"], row["code"]) for row in rows] == wanted[start:]


def test_of_parquet_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.parquet", ROWS)
    assert next(read_records(path, 0, ("code", "absent"))) == {"code": "x = 0"}


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2}\n   \n{"a": 3}')
    assert [row["a"] for row in read_records(path, 1, ("a",))] == [2, 3]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"a": 1}\n[1]\n', "row 2 is a list"),
        ("a.jsonl", b'{"a": 1}\n{"a": \n', "row 2 is not a JSON object"),
        ("a.jsonl.gz", b"no gzip", "cannot be read"),
        ("a.parquet", b"no parquet", "not a Parquet file"),
        ("a.csv", b"a,b", "give .jsonl"),
        ("a.parquet.gz", b"", "give .jsonl"),
    ],
)
def test_damaged_files_are_named(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(read_records(tmp_path / name, 0, ("a",)))


def test_absent_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such file"):
        read_records(tmp_path / "a.jsonl", 0, ())
