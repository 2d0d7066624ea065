"""How many files a command walks through: a reader should not need more."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

MOST = {"train": 45, "sample": 45, "measure": 25, "grade": 30}


@pytest.mark.long
def test_commands_walk_through_few_files() -> None:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "walk.py"
    spec = importlib.util.spec_from_file_location("walk", path)
    assert spec is not None
    assert spec.loader is not None
    walk = importlib.util.module_from_spec(spec)
    sys.modules["walk"] = walk
    spec.loader.exec_module(walk)
    walks = {each.verb: each for each in walk.walk_all()}
    assert walks.keys() == MOST.keys()
    for verb, most in MOST.items():
        assert len(walks[verb].touched) <= most, (verb, walks[verb].touched)
    assert not walks["train"].bench, "training needs no task and no sandbox"
    assert not walks["measure"].bench
