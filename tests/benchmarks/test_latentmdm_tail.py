"""The tail rules beside ar: every way has every problem, and is compared with the right others."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from types import ModuleType

import pytest

import anyorder
from anyorder.bench.tasks import find_task

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("latentmdm_tail")


def test_every_way_has_every_problem(script: ModuleType) -> None:
    given = argparse.Namespace(
        policy=["average"], k=[1, 4], tail=["stop", "first"], temperature=0.0
    )
    ar, latent = anyorder.load("ar"), anyorder.load("latentmdm")
    ways = script.ways_of(ar, latent, given)
    task = find_task("stories", latent.trained_on)
    script.run(ways, task, task.problems(2), 0)
    names = [None if way.base is None else way.base.name for way in ways]
    assert names == [None, None, "average, k = 1, stop", None, "average, k = 4, stop"]
    for way in ways:
        assert len(way.traces) == len(way.seconds) == len(way.solved) == 2
        assert [trace.prompt for trace in way.traces] == [each.prompt for each in task.problems(2)]
    assert all(way.solved == [1.0, 1.0] for way in ways[:3])  # easy problems, one line at a time
    calls = [sum(trace.forwards or 0 for trace in way.traces) for way in ways]
    assert calls[2] < calls[1] and calls[4] <= calls[3]  # the tail rule saves calls
    assert ways[0].line(ways[0])[3] == "1.00 (1.00 to 1.00)"
    assert ways[2].line(ways[0])[-1] == "+0.0 (+0.0 to +0.0)"
