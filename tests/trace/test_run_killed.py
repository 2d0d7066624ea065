"""A run killed at any moment goes on to the same result as one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anyorder.trace import Run

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
