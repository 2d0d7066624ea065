"""Checkpoints: all that a run needs to go on, as safetensors and JSON, written atomically.

    checkpoints/step-00000020/model.safetensors       the weights
                              ema.safetensors         the averaged weights (when there are any)
                              optimiser.safetensors   exp_avg.<name>, exp_avg_sq.<name>, step.<name>
                              state.json              step, configuration, versions, sha256 of
                                                      each file and of its own other fields

A checkpoint is written to a `.partial-*` folder, synced, and renamed: it is there whole or not at
all. Left-over partial folders are removed; a damaged checkpoint is refused by name and never
skipped, since silently going back would hide the damage. Nothing here is pickled, and nothing
here is a model folder to share: the caller exports that.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from anyorder.files import sha256_of, sync
from anyorder.nets.hub import load_weights, save_weights
from anyorder.train.config import digest
from anyorder.train.ema import Ema
from anyorder.train.log import Meter
from anyorder.train.optimiser import optimiser_tensors, restore_optimiser

FORMAT = 1
PARTIAL = ".partial-"
STEP = "step-"
SEAL = "sha256"
"""The field of state.json that is the digest of its other fields."""
WEIGHTS, AVERAGE, OPTIMISER = "model.safetensors", "ema.safetensors", "optimiser.safetensors"
NEEDED = frozenset({WEIGHTS, OPTIMISER})
FIELDS = {"step": int, "versions": dict, "files": dict, "config": dict, "run": dict}
FIELDS |= {"digest": str, "meter": dict}
"""The other fields of state.json."""


@dataclass(frozen=True)
class Trained:
    """What training changes."""

    net: nn.Module
    ema: Ema | None
    optimiser: torch.optim.Optimizer


def checkpoints(root: Path) -> list[Path]:
    """The complete checkpoints in `root`, oldest first."""
    found = [path for path in root.glob(f"{STEP}*") if path.name[len(STEP) :].isdigit()]
    return sorted(found, key=step_of)


def step_of(folder: Path) -> int:
    return int(folder.name[len(STEP) :])


def remove_partial(root: Path) -> None:
    """Remove what a killed process left half-written or half-removed."""
    for path in root.glob(f"{PARTIAL}*"):
        shutil.rmtree(path)


def save(root: Path, step: int, trained: Trained, state: Mapping[str, Any], keep: int) -> Path:
    """Write the checkpoint of `step`, then remove all but the `keep` newest ones."""
    final = root / f"{STEP}{step:08d}"
    assert not final.exists(), f"{final} exists: a run saves each step once"
    partial = root / f"{PARTIAL}{final.name}"
    partial.mkdir(parents=True)
    save_weights(partial / WEIGHTS, trained.net)
    if trained.ema is not None:
        save_weights(partial / AVERAGE, trained.ema.module)
    tensors = optimiser_tensors(trained.optimiser)
    save_file(
        {name: value.detach().contiguous().cpu() for name, value in tensors.items()},
        partial / OPTIMISER,
    )
    document: dict[str, Any] = {
        "format": FORMAT,
        "step": step,
        "versions": versions(),
        "files": {path.name: sha256_of(path) for path in sorted(partial.iterdir())},
        **state,
    }
    document[SEAL] = _seal(document)
    (partial / "state.json").write_text(
        json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8"
    )
    for path in [*partial.iterdir(), partial]:
        sync(path)
    os.rename(partial, final)
    sync(root)
    for old in checkpoints(root)[:-keep]:
        # Renamed first: a kill in the middle must not leave a checkpoint with missing files.
        os.rename(old, root / f"{PARTIAL}{old.name}")
    remove_partial(root)
    return final


def read_state(folder: Path) -> dict[str, Any]:
    """The verified state.json of a checkpoint: whole itself, and every file has its sha256."""
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(folder, f"state.json cannot be read ({error})") from error
    # Before anything in it is believed: a changed setting must not pass for another run's.
    if not isinstance(state, dict) or state.get(SEAL) != _seal(state):
        raise _damaged(folder, "state.json does not have its recorded sha256")
    if state.get("format") != FORMAT:
        raise ValueError(
            f"checkpoint {folder} has format {state.get('format')} and this version reads "
            f"{FORMAT}: go on with the version that wrote it, or train into another folder"
        )
    wrong = _wrong_field(state)
    if wrong is not None:
        raise _damaged(folder, f"state.json has no usable {wrong!r}")
    if state["step"] != step_of(folder):
        raise _damaged(folder, f"state.json is of step {state['step']}")
    for name, expected in state["files"].items():
        path = folder / name
        if not path.is_file():
            raise _damaged(folder, f"{name} is missing")
        if sha256_of(path) != expected:
            raise _damaged(folder, f"{name} does not have its recorded sha256")
    return state


def _seal(state: Mapping[str, Any]) -> str:
    """sha256 of all other fields, however they are laid out."""
    return digest({name: value for name, value in state.items() if name != SEAL})


def _wrong_field(state: Mapping[str, Any]) -> str | None:
    """The first field that is absent or not what `save` writes."""
    for name, kind in FIELDS.items():
        value = state.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            return name
    if not NEEDED <= state["files"].keys() <= NEEDED | {AVERAGE}:
        return "files"
    if bool(state["run"].get("ema")) != (AVERAGE in state["files"]):
        return "files"
    if state["digest"] != digest(state["run"]):
        return "digest"
    return None if Meter.is_state(state["meter"]) else "meter"


def restore(folder: Path, trained: Trained, updates: int) -> None:
    """Put a verified checkpoint's tensors into the network, the average and the optimiser."""
    load_weights(folder / WEIGHTS, trained.net)
    if trained.ema is not None:
        load_weights(folder / AVERAGE, trained.ema.module)
        trained.ema.updates = updates
    try:
        restore_optimiser(trained.optimiser, load_file(folder / OPTIMISER))
    except ValueError as error:
        raise ValueError(
            f"checkpoint {folder} does not fit this network: {error}. "
            "Choose another output folder to start anew"
        ) from error


def versions() -> dict[str, str]:
    """What the bits of a run depend on besides its configuration."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "safetensors": safetensors.__version__,
    }


def _damaged(folder: Path, what: str) -> ValueError:
    earlier = [path for path in checkpoints(folder.parent) if step_of(path) < step_of(folder)]
    onward = f"go on from {earlier[-1].name}" if earlier else "start from the beginning"
    return ValueError(
        f"checkpoint {folder} is damaged: {what}. Delete the folder {folder.name} to {onward}"
    )
