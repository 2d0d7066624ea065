"""Several processes fill one run folder: whoever comes when, it ends as if one had been alone."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_until

from anyorder import files
from anyorder.apps.jobs import Share, device_here, share_here, workers_here
from anyorder.bench.tasks import find_task
from anyorder.cli import main
from anyorder.trace import Run

SAMPLE = ["sample", "mdm", "--task", "stories", "--limit", "5", "--samples", "2", "--batch", "3"]
SAMPLE += ["--steps", "4", "--temperature", "0.9"]
PARTS = 4
"""10 samples in batches of 3."""


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seconds of a sample are then 0.0, and equal traces are equal bytes."""
    monkeypatch.setattr("anyorder.model.time.perf_counter", lambda: 0.0)


def sample(out: Path, shard: str | None = None, *words: str) -> int:
    given = [] if shard is None else ["--shard", shard]
    return main([*SAMPLE, *words, *given, "--json", "--out", str(out)])


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def card(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "run.json").read_text())
    del record["created"]
    return record


@given(st.integers(1, 7), st.integers(0, 20))
def test_shares_part_the_pieces_among_them(of: int, pieces: int) -> None:
    taken = [Share(index, of).pick(range(pieces)) for index in range(of)]
    assert sorted(itertools.chain(*taken)) == list(range(pieces))
    assert max(map(len, taken)) - min(map(len, taken)) <= 1


ARRAY = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "4"}


@pytest.mark.parametrize(
    ("variables", "share"),
    [
        ({}, "0/1"),
        ({"RANK": "3", "WORLD_SIZE": "8"}, "3/8"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "0/1"),
        ({"WORLD_SIZE": "8"}, "0/1"),
        (ARRAY | {"SLURM_ARRAY_TASK_MIN": "5"}, "2/4"),
        (ARRAY | {"SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_STEP": "2"}, "3/4"),
        (ARRAY | {"SLURM_ARRAY_TASK_MIN": "4", "RANK": "1", "WORLD_SIZE": "2"}, "7/8"),
    ],
)
def test_the_surroundings_say_which_share_this_is(variables: dict[str, str], share: str) -> None:
    found = share_here(None, variables)
    assert str(found) == share and bool(found.origin) == (share != "0/1")
    assert share_here("1/3", variables) == Share(1, 3), "what the command says goes before"


def test_ids_with_holes_are_refused() -> None:
    with pytest.raises(ValueError, match="--shard 0/4"):
        share_here(None, ARRAY | {"SLURM_ARRAY_TASK_MIN": "1"})


def test_ranks_of_a_machine_share_its_processors() -> None:
    assert workers_here({}) is None and workers_here({"LOCAL_WORLD_SIZE": "1"}) is None
    assert workers_here({"LOCAL_WORLD_SIZE": "100000"}) == 1


def test_a_rank_has_its_own_gpu() -> None:
    assert device_here("cuda", {"LOCAL_RANK": "3"}) == "cuda:3"
    assert device_here("cuda:1", {"LOCAL_RANK": "3"}) == "cuda:1"
    assert device_here("cpu", {"LOCAL_RANK": "3"}) == "cpu" and device_here("cuda", {}) == "cuda"


@pytest.mark.usefixtures("still_clock")
def test_any_shares_make_the_bytes_of_the_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sample(tmp_path / "whole") == 0
    told = printed(capsys)
    for place, shards in enumerate((["1/2", "0/2"], ["2/3", "0/3", "0/2", "1/3"], ["0/2", None])):
        out = tmp_path / str(place)
        for shard in shards[:-1]:
            assert sample(out, shard) == 0
            waiting = printed(capsys)
            assert (waiting["complete"], waiting["shard"]) == (False, shard)
            assert waiting["parts"] == len(Run.open(out).done_parts()) < PARTS
        assert sample(out, shards[-1]) == 0
        assert printed(capsys) == told | {"run": str(out)}
        assert names(out) == names(tmp_path / "whole") == ["run.json", "traces.parquet"]
        whole = (tmp_path / "whole" / "traces.parquet").read_bytes()
        assert (out / "traces.parquet").read_bytes() == whole
        assert card(out) | {"command": ""} == card(tmp_path / "whole") | {"command": ""}
        assert "--shard" not in card(out)["command"]


@pytest.mark.usefixtures("still_clock")
def test_samples_that_depend_on_their_batch_too(tmp_path: Path) -> None:
    """As the release samples flexmdm, on one stream for a batch: shards keep batches whole."""
    words = ["sample", "flexmdm", "--task", "stories", "--limit", "5", "--batch", "2"]
    words += ["--mode", "compat", "--steps", "6", "--temperature", "1.0", "--out"]
    for folder, shards in (("whole", ["0/1"]), ("both", ["1/2", "0/2"])):
        for shard in shards:
            assert main([*words, str(tmp_path / folder), "--shard", shard]) == 0
    whole, both = ((tmp_path / name / "traces.parquet").read_bytes() for name in ("whole", "both"))
    assert whole == both


def test_a_share_of_nothing_does_no_harm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "6")
    assert main([*SAMPLE, "--out", str(tmp_path / "run")]) == 0
    assert "shard 5/6 is done; the run has 0 batches" in " ".join(capsys.readouterr().out.split())
    assert main([*SAMPLE, "--shard", "0/1", "--out", str(tmp_path / "run")]) == 0
    assert Run.open(tmp_path / "run").complete
    monkeypatch.setenv("RANK", "0")
    assert main([*SAMPLE, "--out", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().err
    assert "shard 0/6 of the run, by RANK/WORLD_SIZE" in told and "exist already" in told
    assert f"{PARTS} batches for 6 shards: some have nothing to do" in told


def test_another_run_is_not_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sample(tmp_path / "run", "0/2") == 0
    assert sample(tmp_path / "run", "1/2", "--seed", "1") == 1
    assert "differs in config.seed" in capsys.readouterr().err
    assert sample(tmp_path / "run", "1/2") == 0 and Run.open(tmp_path / "run").complete


def test_a_first_batch_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("out of memory")

    with monkeypatch.context() as broken:
        broken.setattr("anyorder.model.Model.decode", fail)
        assert sample(tmp_path / "run", "0/2") == 1
        assert "out of memory" in capsys.readouterr().err and names(tmp_path / "run") == []
    assert sample(tmp_path / "run", "0/2") == 0
    with monkeypatch.context() as broken:
        broken.setattr("anyorder.model.Model.decode", fail)
        assert sample(tmp_path / "run", "1/2") == 1
    assert len(Run.open(tmp_path / "run").done_parts()) == PARTS // 2, "what others did stays"


def test_without_locks_they_still_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network disk may have no locks: then nobody is noticed, and two may finish at once."""
    monkeypatch.setattr(files, "fcntl", None)
    assert sample(tmp_path / "run", "0/2") == 0
    real = Run.finish

    def twice(run: Run) -> None:
        """Another process merges, and removes the parts, just before this one does."""
        real(Run(run.folder, run.card))
        real(run)

    monkeypatch.setattr(Run, "finish", twice)
    assert sample(tmp_path / "run", "1/2") == 0
    run = Run.open(tmp_path / "run")
    assert run.complete and len(list(run.traces())) == 10
    assert names(tmp_path / "run") == ["run.json", "traces.parquet"]


# Imports once and forks for each command; one that is to be killed waits for it after `parts`
# batches. Answers with the number of the process, or with how one ended.
NURSERY = """
import json, os, sys, time
import anyorder.model
from anyorder.cli import main
from anyorder.trace import Run
anyorder.model.time.perf_counter = lambda: 0.0
append = Run.append
for line in sys.stdin:
    order = json.loads(line)
    if "pid" in order:
        _, status = os.waitpid(order["pid"], 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
        continue
    child = os.fork()
    if child:
        print(child, flush=True)
        continue
    written = 0
    def counted(run, part, traces):
        global written
        append(run, part, traces)
        written += 1
        if written == order["parts"]:
            time.sleep(3600)
    Run.append = counted
    os.dup2(os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(1, 2)
    os._exit(main(order["words"]))
"""


class Nursery:
    """Starts commands as processes of their own, quickly."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", NURSERY],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, words: list[str], *, parts: int | None = None) -> int:
        """The new process."""
        output = self.folder / f"{len(list(self.folder.iterdir()))}.txt"
        return self._ask({"words": words, "parts": parts, "output": str(output)})

    def wait(self, pid: int) -> int:
        """Its exit code."""
        return self._ask({"pid": pid})

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        assert self.wait(pid) == -signal.SIGKILL

    def said(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.iterdir()))

    def _ask(self, order: dict[str, Any]) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    found = Nursery(tmp_path_factory.mktemp("said"))
    yield found
    assert found.process.stdin is not None
    found.process.stdin.close()
    found.process.wait(timeout=240)


@pytest.mark.usefixtures("still_clock")
def test_processes_at_once_one_of_them_killed(tmp_path: Path, nursery: Nursery) -> None:
    out = tmp_path / "run"
    words = [*SAMPLE, "--out", str(out)]
    doomed = nursery.start([*words, "--shard", "1/3"], parts=1)
    wait_until(lambda: any(out.glob("parts/*.parquet")))
    others = [nursery.start([*words, "--shard", shard]) for shard in ("0/3", "2/3")]
    assert [nursery.wait(each) for each in others] == [0, 0], nursery.said()
    assert main(words) == 1, "nobody works alone where another is"
    nursery.kill(doomed)
    assert not Run.open(out).complete and len(Run.open(out).done_parts()) == PARTS
    assert main([*words, "--shard", "1/3"]) == 0
    assert main([*SAMPLE, "--out", str(tmp_path / "whole")]) == 0
    whole = (tmp_path / "whole" / "traces.parquet").read_bytes()
    assert Run.open(out).complete and (out / "traces.parquet").read_bytes() == whole
    assert names(out) == ["run.json", "traces.parquet"]


def gradable(folder: Path, samples: int) -> Path:
    """Samples of the first stories; every third is wrong."""
    rows = []
    for problem in find_task("stories", {}).problems(5):
        for number in range(samples):
            text = f"{problem.solution}\n# {number}\n"
            text = text if number % 3 else text.replace("return", "return 1 +", 1)
            rows.append({"task_id": problem.task_id, "sample": number, "prompt": "", "text": text})
    theirs = folder / "theirs.jsonl"
    theirs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["import", str(theirs), "--out", str(folder / "run")]) == 0
    return folder / "run"


def grade(run: Path, *words: str) -> int:
    return main(["grade", str(run), "--task", "stories", "--workers", "1", "--json", *words])


def test_shares_of_a_grading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = gradable(tmp_path, samples=3)
    capsys.readouterr()
    assert grade(run, "--shard", "1/2") == 0
    assert printed(capsys) == {
        "run": str(run),
        "complete": False,
        "shard": "1/2",
        "verdicts_there": 6,
        "verdicts_in_all": 15,
    }
    assert not (run / "verdicts.parquet").exists()
    assert grade(run, "--again", "--shard", "1/2") == 1
    assert "leave --shard out" in capsys.readouterr().err
    assert grade(run, "--shard", "0/2") == 0
    found = printed(capsys)
    assert found["verdicts"]["passed"] == 10 and len(found["samples"]) == 15
    rows = pq.read_table(run / "verdicts.parquet").to_pylist()
    assert [(row["task_id"], row["sample"]) for row in rows] == [
        (trace.task_id, trace.sample) for trace in Run.open(run).traces()
    ], "in the order of the run, each once"
    assert names(run) == ["run.json", "traces.parquet", "verdicts.parquet"]
    assert grade(run, "--shard", "4/9") == 0 and printed(capsys)["samples"] == found["samples"]


@pytest.mark.long
def test_gradings_at_once(tmp_path: Path) -> None:
    run = gradable(tmp_path, samples=4)
    words = ["grade", str(run), "--task", "stories", "--workers", "1", "--json", "--shard"]
    code = "import sys; from anyorder.cli import main; sys.exit(main())"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [
        subprocess.Popen([sys.executable, "-c", code, *words, f"{index}/2"], **pipes)
        for index in range(2)
    ]
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    reports = [json.loads(output) for output, _ in outputs]
    whole = [report for report in reports if report.get("complete", True)]
    assert whole and all(len(report["samples"]) == 20 for report in whole)
    assert names(run) == ["run.json", "traces.parquet", "verdicts.parquet"]
    assert pq.read_table(run / "verdicts.parquet").num_rows == 20


@pytest.mark.long
@pytest.mark.usefixtures("still_clock")
def test_killed_at_random_moments(tmp_path: Path, nursery: Nursery) -> None:
    """Three shards at once, all killed again and again while they write, end as one command."""
    chance = random.Random(0)
    words = [*SAMPLE, "--samples", "12", "--out", str(tmp_path / "run"), "--shard"]

    def parts() -> int:
        return len(list(tmp_path.glob("run/parts/*.parquet")))

    def has_parts(count: int) -> bool:
        return parts() >= count

    for _ in range(3):  # 20 batches, of which each round makes 2 to 6
        before = parts()
        pids = [nursery.start([*words, f"{index}/3"], parts=2) for index in range(3)]
        try:
            wait_until(partial(has_parts, before + 2), pause=0.002)
        finally:
            for pid in pids:
                time.sleep(chance.uniform(0, 0.05))
                nursery.kill(pid)
    assert not Run.open(tmp_path / "run").complete
    pids = [nursery.start([*words, f"{index}/3"]) for index in range(3)]
    assert [nursery.wait(pid) for pid in pids] == [0, 0, 0], nursery.said()
    assert main([*SAMPLE, "--samples", "12", "--out", str(tmp_path / "whole")]) == 0
    assert names(tmp_path / "run") == ["run.json", "traces.parquet"]
    whole = (tmp_path / "whole" / "traces.parquet").read_bytes()
    assert (tmp_path / "run" / "traces.parquet").read_bytes() == whole
