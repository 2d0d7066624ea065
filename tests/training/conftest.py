"""Shared by the tests of the training room: the toy, and what makes two runs equal."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import same_run
import torch

TOY = Path(__file__).parents[1] / "support" / "toy.py"


@pytest.fixture(scope="session")
def toy() -> ModuleType:
    return _module("anyorder_train_toy", TOY)


@pytest.fixture(scope="session")
def ranks() -> ModuleType:
    """Trainings in several processes (rank_jobs.py)."""
    return _module("anyorder_rank_jobs", TOY.with_name("rank_jobs.py"))


def _module(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _rewrite_state(folder: Path, **changes: Any) -> None:
    """Change fields of a checkpoint's state.json as a version with such fields would write it."""
    path = folder / "state.json"
    state = json.loads(path.read_text()) | changes
    state.pop("sha256")
    state["sha256"] = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(state))


@pytest.fixture(scope="session")
def rewrite_state() -> Any:
    return _rewrite_state


@pytest.fixture(scope="session")
def metrics() -> Any:
    return same_run.metrics


@pytest.fixture(scope="session")
def fingerprint() -> Any:
    return same_run.fingerprint


@pytest.fixture(scope="session")
def uninterrupted(toy: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy's 40 steps in one go."""
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    toy.train(out)
    return out
