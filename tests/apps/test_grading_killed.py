"""`anyorder grade` killed at random moments and started again: no verdict is lost or doubled."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from waiting import kill_after, wait_until

from anyorder.bench.tasks import find_task
from anyorder.cli import main

# One that is to be killed never ends by itself, however late its killer comes; and it stops after
# some parts, so that it leaves work for those that come after it.
CODE = """
import sys, time
from anyorder.apps import grade
grade.PART_ROWS, grade.PART_SECONDS = 8, 0.2
from anyorder.bench.grade import VerdictTable
from anyorder.cli import main
append, written = VerdictTable.append, []
def counted(table, verdicts):
    append(table, verdicts)
    written.append(len(verdicts))
    if len(written) == 12:
        time.sleep(600)
if {doomed}:
    VerdictTable.append = counted
    VerdictTable.finish = lambda *_: time.sleep(600)
sys.exit(main())
"""


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[[int], Path]:
    def make(samples: int) -> Path:
        """Samples of the first stories, all different; every third is wrong."""
        rows = []
        for problem in find_task("stories", {}).problems(20):
            for sample in range(samples):
                text = f"{problem.solution}\n# {sample}\n"
                if sample % 3 == 0:
                    text = text.replace("return", "return 1 +", 1)
                rows.append(
                    {"task_id": problem.task_id, "sample": sample, "prompt": "", "text": text}
                )
        theirs = tmp_path / "theirs.jsonl"
        theirs.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert main(["import", str(theirs), "--out", str(tmp_path / "run")]) == 0
        return tmp_path / "run"

    return make


def start(run: Path, *, doomed: bool) -> subprocess.Popen[bytes]:
    words = ["grade", str(run), "--task", "stories", "--workers", "2"]
    code = CODE.format(doomed=doomed)
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def parts(run: Path) -> int:
    return len(list(run.glob("verdict-parts/*/*.parquet")))


def has_parts(run: Path, count: int) -> bool:
    return parts(run) >= count


def kill_and_finish(run: Path, kills: int, count: int, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(kills):
        before = parts(run)
        process = start(run, doomed=True)
        kill_after(process, partial(has_parts, run, before + 2), chance.uniform(0, 0.1))
    process = start(run, doomed=False)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors.decode()
    assert b"verdicts exist already" in errors
    rows = pq.read_table(run / "verdicts.parquet").to_pylist()
    assert len(rows) == count
    assert max(Counter((row["task_id"], row["sample"]) for row in rows).values()) == 1
    assert all((row["verdict"] == "passed") == (row["sample"] % 3 != 0) for row in rows)
    names = sorted(path.name for path in run.iterdir())
    assert names == ["run.json", "traces.parquet", "verdicts.parquet"]


def test_killed_once(make_run: Callable[[int], Path]) -> None:
    kill_and_finish(make_run(4), kills=1, count=80, seed=0)


def test_interrupted(make_run: Callable[[int], Path]) -> None:
    run = make_run(4)
    process = start(run, doomed=True)
    wait_until(lambda: parts(run) >= 1 or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 130
    assert errors.decode().splitlines()[-1].endswith("interrupted; repeat the command to go on")
    assert not (run / "verdicts.parquet").exists()
    assert parts(run) >= 1


@pytest.mark.long
def test_killed_often(make_run: Callable[[int], Path]) -> None:
    kill_and_finish(make_run(60), kills=8, count=1200, seed=1)
