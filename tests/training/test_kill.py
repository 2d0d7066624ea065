"""A real process, killed by SIGKILL at random moments, ends as if it had never been killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from waiting import wait_until

TOY = Path(__file__).parents[1] / "support" / "toy.py"
STEPS, SAVE_EVERY = 150, 4


class Nursery:
    """Starts training processes and tells how they ended (toy.py as a program)."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(TOY)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, out: Path, *, doomed: bool) -> int:
        """The id of a process that trains in `out`; it stays until `wait` is called.

        A doomed one never ends by itself, however late its killer comes.
        """
        return self._ask(f"{out} {STEPS} {SAVE_EVERY} {'doomed' if doomed else ''}")

    def wait(self) -> int:
        """The exit code of the last process."""
        return self._ask("wait")

    def _ask(self, line: str) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    yield found
    found.process.communicate(timeout=240)


def kill_at(nursery: Nursery, out: Path, rows: int, delay: float) -> None:
    """Kill a training process `delay` seconds after its metrics reached a number of rows.

    Rows come before checkpoints, and much of the toy's time is spent writing: a short random delay
    hits every part of a step and of a checkpoint.
    """
    metrics = out / "metrics.jsonl"
    child = nursery.start(out, doomed=True)
    try:
        wait_until(
            lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= rows, pause=0.001
        )
        time.sleep(delay)
    finally:
        os.kill(child, signal.SIGKILL)
        ended = nursery.wait()
    assert ended == -signal.SIGKILL


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize(
    ("seed", "kills"), [(0, 3), *(pytest.param(n, 9, marks=pytest.mark.long) for n in range(1, 9))]
)
def test_killed_at_random_moments(
    toy: ModuleType, nursery: Nursery, tmp_path: Path, fingerprint: Any, seed: int, kills: int
) -> None:
    toy.train(tmp_path / "whole", steps=STEPS, save_every=SAVE_EVERY)
    whole = fingerprint(tmp_path / "whole")
    moments = random.Random(seed)
    for rows in sorted(moments.sample(range(1, len(whole["metrics"]) * 3 // 4), kills)):
        kill_at(nursery, tmp_path / "killed", rows, moments.uniform(0, 0.03))
    nursery.start(tmp_path / "killed", doomed=False)
    assert nursery.wait() == 0
    assert fingerprint(tmp_path / "killed") == whole
