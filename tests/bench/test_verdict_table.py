"""verdicts.parquet: several gradings in one file, and nothing lost or doubled by a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from anyorder.bench.grade import SCHEMA, Grading, Verdict, VerdictTable, gradings_of

FIRST = Grading("humaneval", "d1", "completion", {"cpu_seconds": 30.0})
ORDER = {("a", 0): 0, ("a", 1): 1, ("b", 0): 2, ("b", 1): 3}


def verdict(task_id: str, sample: int, said: str = "passed") -> Verdict:
    return Verdict((task_id, sample), said, "why", "digest", 3, 0.25, 0.5, 1)


def stored(folder: Path) -> list[tuple[str, str, int, str]]:
    rows = pq.read_table(folder / "verdicts.parquet").to_pylist()
    return [(row["extraction"], row["task_id"], row["sample"], row["verdict"]) for row in rows]


def test_rows_are_stored_in_the_order_of_the_run(tmp_path: Path) -> None:
    table = VerdictTable(tmp_path, FIRST)
    table.append([verdict("b", 0), verdict("a", 1, "wrong")])
    table.append([verdict("a", 0)])
    assert table.done() == {("a", 0), ("a", 1), ("b", 0)}
    table.finish(ORDER)
    assert stored(tmp_path) == [
        ("completion", "a", 0, "passed"),
        ("completion", "a", 1, "wrong"),
        ("completion", "b", 0, "passed"),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["verdicts.parquet"]
    written = pq.read_table(tmp_path / "verdicts.parquet")
    assert written.schema.equals(SCHEMA)
    assert written.to_pylist()[0] == {
        "grading": FIRST.digest,
        "task": "humaneval",
        "data_digest": "d1",
        "extraction": "completion",
        "task_id": "a",
        "sample": 0,
        "verdict": "passed",
        "detail": "why",
        "program_digest": "digest",
        "level": 3,
        "cpu_seconds": 0.25,
        "wall_seconds": 0.5,
        "attempts": 1,
    }


@pytest.mark.parametrize(
    "other",
    [
        Grading("humaneval+", "d1", "completion", {"cpu_seconds": 30.0}),
        Grading("humaneval", "d2", "completion", {"cpu_seconds": 30.0}),
        Grading("humaneval", "d1", "cleaned", {"cpu_seconds": 30.0}),
        Grading("humaneval", "d1", "completion", {"cpu_seconds": 3.0}),
    ],
)
def test_another_grading_adds_rows_and_keeps_the_others(tmp_path: Path, other: Grading) -> None:
    for grading, said in ((FIRST, "passed"), (other, "wrong")):
        table = VerdictTable(tmp_path, grading)
        assert table.done() == set()
        table.append([verdict("a", 0, said)])
        table.finish(ORDER)
    assert [row[3] for row in stored(tmp_path)] == ["passed", "wrong"]
    assert [row["verdict"] for row in VerdictTable(tmp_path, FIRST).rows()] == ["passed"]
    settings = gradings_of(tmp_path)
    assert set(settings) == {FIRST.digest, other.digest}
    assert settings[other.digest]["limits"] == other.limits


def test_the_same_grading_goes_on_and_finds_what_is_there(tmp_path: Path) -> None:
    VerdictTable(tmp_path, FIRST).append([verdict("a", 0)])
    VerdictTable(tmp_path, FIRST).append([verdict("a", 1)])
    again = VerdictTable(tmp_path, FIRST)
    assert again.done() == {("a", 0), ("a", 1)}
    again.finish(ORDER)
    before = (tmp_path / "verdicts.parquet").stat().st_mtime_ns
    VerdictTable(tmp_path, FIRST).finish(ORDER)
    assert (tmp_path / "verdicts.parquet").stat().st_mtime_ns == before


def test_new_rows_replace_old_ones_of_the_same_sample(tmp_path: Path) -> None:
    table = VerdictTable(tmp_path, FIRST)
    table.append([verdict("a", 0, "timeout"), verdict("a", 1)])
    table.finish(ORDER)
    table.append([verdict("a", 0, "passed")])
    assert {row["sample"]: row["verdict"] for row in table.rows()} == {0: "passed", 1: "passed"}
    table.finish(ORDER)
    assert len(stored(tmp_path)) == 2


def test_parts_of_another_grading_wait_for_it(tmp_path: Path) -> None:
    other = Grading("humaneval", "d1", "cleaned", {"cpu_seconds": 30.0})
    VerdictTable(tmp_path, other).append([verdict("a", 0)])
    table = VerdictTable(tmp_path, FIRST)
    table.append([verdict("a", 0)])
    table.finish(ORDER)
    assert len(stored(tmp_path)) == 1
    assert VerdictTable(tmp_path, other).done() == {("a", 0)}


def test_a_foreign_or_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    table = VerdictTable(tmp_path, FIRST)
    table.append([verdict("a", 0)])
    table.finish(ORDER)
    path = tmp_path / "verdicts.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(ValueError, match=r"verdicts\.parquet is damaged"):
        table.done()
    plain = pq.read_table(_written(path, whole)).replace_schema_metadata({})
    pq.write_table(plain, path)
    with pytest.raises(ValueError, match="not a table of verdicts"):
        table.done()
    later = {b"anyorder.verdicts.schema": b"99", b"anyorder.verdicts.gradings": b"{}"}
    pq.write_table(plain.replace_schema_metadata(later), path)
    with pytest.raises(ValueError, match="schema 99"):
        table.done()


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_several_append_together(tmp_path: Path) -> None:
    """Parts do not meet, whoever writes when, and temporary files of others stay."""
    one, two = (VerdictTable(tmp_path, FIRST, together=True) for _ in range(2))
    two._parts.mkdir(parents=True)
    busy = two._parts / ".00000.parquet.0.anyorder-tmp"
    busy.touch()
    for table, key in ((one, ("a", 0)), (two, ("a", 1)), (one, ("b", 0)), (two, ("b", 1))):
        table._part_files = list  # type: ignore[method-assign]
        table.append([verdict(*key)])  # as if both had looked at the same moment
    assert busy.exists()
    last = VerdictTable(tmp_path, FIRST, together=True)
    assert last.done() == set(ORDER)
    last.finish(ORDER)
    assert [row[1:3] for row in stored(tmp_path)] == list(ORDER)
    assert [path.name for path in tmp_path.iterdir()] == ["verdicts.parquet"]


@pytest.mark.parametrize("moment", ["_part_files", "_part_rows", "_stored"])
def test_two_finish_at_once(tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without locks another may merge, and remove the parts, after any look of ours."""
    ours, other = (VerdictTable(tmp_path, FIRST, together=True) for _ in range(2))
    for key in ORDER:
        ours.append([verdict(*key)])
    real = getattr(ours, moment)

    def look() -> Any:
        found = real()
        other.finish(ORDER)
        return found

    monkeypatch.setattr(ours, moment, look)
    ours.finish(ORDER)
    assert [row[1:3] for row in stored(tmp_path)] == list(ORDER)


# Grades four samples in parts of two, going on with what is there, beside a finished grading.
# Killed before the N-th operation on a file of the folder; forks once per moment.
EVERY_MOMENT = """
import os, signal, sys
from pathlib import Path
from anyorder.bench.grade import Verdict
from anyorder.bench.grade import Grading, VerdictTable

base = sys.argv[1]
os.fsync = lambda handle: None
keys = [(task, number) for task in "ab" for number in range(2)]

def write_other(folder):
    other = VerdictTable(Path(folder), Grading("t", "d", "other"))
    other.append([Verdict(("a", 0), "wrong")])
    other.finish({})

def write(folder):
    table = VerdictTable(Path(folder), Grading("t", "d", "mode"))
    left = [key for key in keys if key not in table.done()]
    for start in range(0, len(left), 2):
        table.append([Verdict(key, "passed") for key in left[start : start + 2]])
    table.finish({key: number for number, key in enumerate(keys)})

def kill_before(number, folder):
    seen = 0
    def hook(event, args):
        nonlocal seen
        if event in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"):
            if folder in str(args[0]):
                seen += 1
                if seen == number:
                    os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

if __name__ == "__main__":
    import tempfile
    with tempfile.TemporaryDirectory() as folder:  # what is imported on first use, once for all
        write_other(folder)
        write(folder)
    for number in range(1, 500):
        folder = os.path.join(base, f"run-{number:03d}")
        os.mkdir(folder)
        write_other(folder)
        child = os.fork()
        if child == 0:
            kill_before(number, folder)
            write(folder)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(os.WEXITSTATUS(status))
    sys.exit("the writer never ended")
"""


def test_killed_before_any_file_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    subprocess.run([sys.executable, "-c", EVERY_MOMENT, str(tmp_path)], check=True, timeout=240)
    scope: dict[str, Any] = {"__name__": "again"}
    exec(EVERY_MOMENT.replace("sys.argv[1]", json.dumps(str(tmp_path))), scope)
    folders = sorted(tmp_path.iterdir())
    assert len(folders) > 20
    kept = []
    for folder in folders:
        table = VerdictTable(folder, Grading("t", "d", "mode"))
        kept.append(len(table.done()))  # readable before anything is repaired
        scope["write"](str(folder))
        assert len(stored(folder)) == 5
        assert set(stored(folder)) == {
            ("other", "a", 0, "wrong"),
            *(("mode", task, number, "passed") for task in "ab" for number in range(2)),
        }
        assert [path.name for path in folder.rglob("*")] == ["verdicts.parquet"]
    assert kept == sorted(kept), "a later kill must not lose what an earlier one had kept"
    assert set(kept) == {0, 2, 4}
