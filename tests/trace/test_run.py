"""The run folder: written part by part, resumed, sealed, and read strictly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anyorder.files import alone_in
from anyorder.trace import Run, RunCard, Trace


def card(**config: Any) -> RunCard:
    return RunCard(command="anyorder sample tiny/mdm", config={"steps": 64, **config}, seeds=(0,))


@pytest.fixture
def traces(make_trace: Any) -> list[Trace]:
    return [make_trace(sample=number) for number in range(6)]


@pytest.fixture
def finished(tmp_path: Path, traces: list[Trace]) -> Run:
    run = Run.create(tmp_path / "deep" / "run", card())
    for part in (2, 0, 1):
        run.append(part, traces[2 * part : 2 * part + 2])
    run.finish()
    return run


def names(folder: Path) -> list[str]:
    return sorted(str(item.relative_to(folder)) for item in folder.rglob("*"))


def test_a_run_comes_back(finished: Run, traces: list[Trace]) -> None:
    assert names(finished.folder) == ["run.json", "traces.parquet"]
    run = Run.open(str(finished.folder))
    assert run.complete
    assert list(run.traces()) == list(run.traces()) == traces
    assert run.card == finished.card
    assert run.done_parts() == [0, 1, 2]
    assert list(run.card.files) == ["traces.parquet"]


def test_a_run_is_a_table(finished: Run) -> None:
    table = finished.table()
    assert (table.num_rows, table.column("sample").to_pylist()) == (6, list(range(6)))
    assert finished.table(["sample", "task_id"]).column_names == ["sample", "task_id"]
    with pytest.raises(ValueError, match="no column 'tie' in a trace: choose from task_id"):
        finished.table(["tie"])


def test_an_unfinished_run_is_read_only_on_request(tmp_path: Path, traces: list[Trace]) -> None:
    run = Run.create(tmp_path / "run", card())
    run.append(1, traces[2:4])
    for read in (run.traces, run.table, Run.open(run.folder).traces):
        with pytest.raises(ValueError, match=r"unfinished \(1 parts are there\): repeat the"):
            read()
    assert list(run.traces(partial=True)) == traces[2:4]
    assert run.table(["sample"], partial=True).column("sample").to_pylist() == [2, 3]


def test_a_run_is_resumed(tmp_path: Path, traces: list[Trace]) -> None:
    first = Run.create(tmp_path / "run", card())
    first.append(0, traces[:3])
    second = Run.create(tmp_path / "run", card())
    assert second.card == first.card
    assert second.done_parts() == [0]
    second.append(1, traces[3:])
    second.finish()
    second.finish()
    third = Run.create(tmp_path / "run", card())
    assert third.complete
    assert third.done_parts() == [0, 1]
    third.finish()
    assert list(third.traces()) == traces
    with pytest.raises(ValueError, match="is complete: choose another --out"):
        third.append(2, traces)


def test_a_part_written_again_replaces_itself(tmp_path: Path, traces: list[Trace]) -> None:
    run = Run.create(tmp_path / "run", card())
    run.append(0, traces[:1])
    run.append(0, traces)
    run.finish()
    assert list(run.traces()) == traces


def test_another_run_is_not_mixed_in(finished: Run) -> None:
    before = (finished.folder / "run.json").read_bytes()
    with pytest.raises(ValueError, match=r"differs in config.steps \(64 stored, 128 now\): choose"):
        Run.create(finished.folder, card(steps=128))
    assert (finished.folder / "run.json").read_bytes() == before


def test_only_some_differences_are_told(finished: Run) -> None:
    other = card(a=1, b=2, c=3, d=4, e=5, steps=1)
    message = r"config\.d \(nothing stored, 4 now\); and 2 more: choose another --out"
    with pytest.raises(ValueError, match=message) as caught:
        Run.create(finished.folder, other)
    assert "config.e" not in str(caught.value)
    with pytest.raises(ValueError, match=r"config\.steps \(64 stored, 1 now\): choose another"):
        Run.create(finished.folder, card(a=1, b=2, c=3, steps=1))


def test_the_lock_of_a_killed_command_is_no_foreign_file(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    assert not Run.create(tmp_path, card()).complete


def test_a_folder_is_held_from_before_create(tmp_path: Path, traces: list[Trace]) -> None:
    folder = tmp_path / "deep" / "run"
    with alone_in(folder):
        run = Run.create(folder, card())
        run.append(0, traces)
        with pytest.raises(ValueError, match="another process is working"), alone_in(folder):
            pass
        run.finish()
    assert names(folder) == ["run.json", "traces.parquet"]


def test_a_run_card_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()
    for use in (Run.open, lambda folder: Run.create(folder, card())):
        with pytest.raises(ValueError, match=r"run\.json cannot be read"):
            use(tmp_path)


def test_a_run_says_briefly_what_it_is(tmp_path: Path, finished: Run) -> None:
    assert repr(finished) == f"Run('{finished.folder}', status='complete', samples=6)"
    (finished.folder / "traces.parquet").unlink()
    assert repr(finished) == f"Run('{finished.folder}', status='complete')"
    run = Run.create(tmp_path / "new", card())
    assert repr(run) == f"Run('{run.folder}', status='running', parts=0)"


def test_a_part_that_vanishes_is_named(tmp_path: Path, traces: list[Trace]) -> None:
    run = Run.create(tmp_path / "run", card())
    run.append(0, traces)
    reading = run.traces(partial=True)
    (run.folder / "parts" / "00000.parquet").unlink()
    with pytest.raises(ValueError, match=r"00000\.parquet is missing: repeat the command"):
        list(reading)


def test_folders_that_are_no_runs_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"not empty \(notes.txt\) and not a run: choose another"):
        Run.create(tmp_path, card())
    with pytest.raises(ValueError, match="is a file: choose another --out"):
        Run.create(tmp_path / "notes.txt", card())
    with pytest.raises(ValueError, match=r"run\.json is missing: name a run folder"):
        Run.open(tmp_path)
    with pytest.raises(ValueError, match="is not a folder: name a run folder"):
        Run.open(tmp_path / "nowhere")
    assert names(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("part", [-1, True, "0", 1.0])
def test_part_numbers_are_whole(tmp_path: Path, part: Any) -> None:
    with pytest.raises(ValueError, match="part"):
        Run.create(tmp_path / "run", card()).append(part, [])


def test_a_gap_in_the_parts_is_named(tmp_path: Path, traces: list[Trace]) -> None:
    run = Run.create(tmp_path / "run", card())
    with pytest.raises(ValueError, match="lacks part 0"):
        run.finish()
    run.append(0, traces[:1])
    run.append(2, traces[1:])
    with pytest.raises(ValueError, match="lacks part 1"):
        run.finish()
    assert run.done_parts() == [0, 2]


def test_a_part_with_a_wrong_trace_is_not_written(tmp_path: Path, traces: list[Trace]) -> None:
    run = Run.create(tmp_path / "run", card())
    with pytest.raises(AttributeError):
        run.append(0, [*traces, None])  # type: ignore[list-item]
    assert names(run.folder) == ["parts", "run.json"]


def test_damage_is_refused_by_name(finished: Run) -> None:
    path = finished.folder / "traces.parquet"
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:100] + b"?" + whole[101:], b""):
        path.write_bytes(content)
        for read in (Run.open(finished.folder).traces, Run.open(finished.folder).table):
            with pytest.raises(ValueError, match=r"traces\.parquet does not have the digest in"):
                read()
    path.unlink()
    with pytest.raises(ValueError, match=r"traces\.parquet is missing: restore"):
        Run.open(finished.folder).traces()


def test_a_damaged_part_is_refused_by_name(tmp_path: Path, traces: list[Trace]) -> None:
    run = Run.create(tmp_path / "run", card())
    run.append(0, traces[:3])
    run.append(1, traces[3:])
    part = run.folder / "parts" / "00001.parquet"
    part.write_bytes(part.read_bytes()[:-20])
    message = r"parts/00001\.parquet is truncated .*: delete it and repeat the command"
    with pytest.raises(ValueError, match=message):
        run.finish()
    with pytest.raises(ValueError, match=message):
        list(run.traces(partial=True))
    assert names(run.folder) == ["parts", "parts/00000.parquet", "parts/00001.parquet", "run.json"]
    part.unlink()
    run.append(1, traces[3:])
    run.finish()
    assert list(run.traces()) == traces


def test_verdicts_are_read_where_there_are_some(finished: Run) -> None:
    with pytest.raises(ValueError, match=r"run has no verdicts\.parquet$"):
        finished.verdicts()
    path = finished.folder / "verdicts.parquet"
    pq.write_table(pa.table({"sample": [0], "verdict": ["pass"]}), path)
    assert finished.verdicts().to_pylist() == [{"sample": 0, "verdict": "pass"}]
    path.write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"verdicts\.parquet is damaged .*: restore the file"):
        finished.verdicts()


# A run killed at any moment goes on to the same result as one that was not.


# Writes a run of three parts, going on with what is there. `kill_before(N)` ends it before the
# N-th operation on a file of the run: audit events come before opening, renaming, removing
# and making, which are all the moments at which what is on disk changes its meaning.
WRITER = """
import os, pathlib, signal, sys
from anyorder.files import alone_in
from anyorder.trace import Run, RunCard, Trace

folder, gated = sys.argv[1], sys.argv[2] == "gated"

def traces(part):
    return [
        Trace(task_id=f"t{part}", sample=number, prompt="p", text="ab" * 50, steps=2,
              char_end=[2, 100], insert_step=[0, 1], reveal_step=[2, 1])
        for number in range(3)
    ]

def write():
    with alone_in(pathlib.Path(folder)):
        write_alone()

def write_alone():
    run = Run.create(folder, RunCard(command="c", config={"steps": 2}, created="now"))
    for part in sorted(set(range(3)) - set(run.done_parts())):
        run.append(part, traces(part))
        if gated:
            print(part, flush=True)
            input()
    run.finish()

def kill_before(number):
    seen = 0
    def hook(event, args):
        nonlocal seen
        if event in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"):
            if folder in str(args[0]):
                seen += 1
                if seen == number:
                    os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
"""

# Forks once per moment, so that the imports (to_table makes pyarrow look for pandas) are paid for
# once. Ends when a writer survives.
# Syncing guards against power failure, not against a kill, and costs most of the time.
EVERY_MOMENT = (
    WRITER
    + """
from anyorder.trace.table import to_table
to_table(traces(0))
os.fsync = lambda handle: None
base = folder
for number in range(1, 500):
    folder = os.path.join(base, f"run-{number:03d}")
    child = os.fork()
    if child == 0:
        kill_before(number)
        write()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        sys.exit(os.WEXITSTATUS(status))
sys.exit("the writer never ended")
"""
)


def command(code: str, folder: Path, mode: str = "free") -> list[str]:
    return [sys.executable, "-c", code, str(folder), mode]


def finish_and_read(folder: Path) -> tuple[list[str], bytes]:
    """Repeat the command in this process; what a reader then sees."""
    scope: dict[str, Any] = {}
    exec(WRITER.replace("sys.argv", repr(["", str(folder), "free"])), scope)
    scope["write"]()
    names = sorted(item.name for item in folder.rglob("*"))
    samples = [f"{trace.task_id}/{trace.sample}" for trace in Run.open(folder).traces()]
    assert names == ["run.json", "traces.parquet"]
    return samples, (folder / "traces.parquet").read_bytes()


def test_killed_before_any_file_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    subprocess.run(command(EVERY_MOMENT, tmp_path / "all"), check=True, timeout=240)
    folders = sorted((tmp_path / "all").iterdir())
    expected = finish_and_read(tmp_path / "whole")
    assert len(expected[0]) == 9
    assert len(folders) > 20
    seen = []
    for folder in folders:
        # Whatever is there is readable before anything is repaired.
        if (folder / "run.json").exists():
            run = Run.open(folder)
            seen.append((run.complete, len(list(run.traces(partial=True)))))
        assert finish_and_read(folder) == expected
    assert sorted(set(seen)) == [(False, 0), (False, 3), (False, 6), (False, 9), (True, 9)]
    assert seen == sorted(seen), "a later kill must not lose what an earlier one had kept"


@pytest.mark.parametrize("parts", [1, 2])
def test_killed_from_outside(tmp_path: Path, parts: int) -> None:
    folder = tmp_path / "run"
    writer = command(WRITER + "\nwrite()\n", folder, "gated")
    pipe = subprocess.PIPE
    with subprocess.Popen(writer, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for part in range(parts):
            assert process.stdout.readline() == f"{part}\n"
            process.stdin.write("\n")
            process.stdin.flush()
        process.kill()  # while it writes the next part
    assert process.returncode == -signal.SIGKILL
    assert set(range(parts)) <= set(Run.open(folder).done_parts())
    assert finish_and_read(folder) == finish_and_read(tmp_path / "whole")
