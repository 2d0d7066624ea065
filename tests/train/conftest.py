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
import torch

TOY = Path(__file__).with_name("toy.py")


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


def _metrics(out: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in row.items() if name not in ("seconds", "tokens_per_second")}
        for row in rows
    ]


def _fingerprint(out: Path) -> dict[str, Any]:
    """The newest checkpoint's files, byte for byte, and the metrics without times."""
    newest = sorted((out / "checkpoints").glob("step-*"))[-1]
    state = json.loads((newest / "state.json").read_text())
    files = {name: (newest / name).read_bytes() for name in state["files"]}
    return {"step": state["step"], "files": files, "metrics": _metrics(out)}


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
    return _metrics


@pytest.fixture(scope="session")
def fingerprint() -> Any:
    return _fingerprint


@pytest.fixture(scope="session")
def uninterrupted(toy: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy's 40 steps in one go."""
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    toy.train(out)
    return out
