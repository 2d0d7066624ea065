"""Checkpoints: everything that resumption needs, as safetensors and JSON, written atomically.

    checkpoints/step-00000020/model.safetensors       the weights
                              ema.safetensors         the averaged weights (if there are any)
                              optimiser.safetensors   exp_avg.<name>, exp_avg_sq.<name>, step.<name>
                              state.json              step, configuration, versions, sha256 of
                                                      each file and of its own other fields

All processes write a sharded network together, each its rows in its own files (processes.py);
state.json has their number. Any number of processes can read either kind.

A checkpoint is written to a `.partial-*` folder, synced, and renamed, so it is whole or absent. A
damaged checkpoint is refused by name and never skipped: a silent step back would hide the damage.
Nothing is pickled. A checkpoint is not a model folder to share; the caller exports that.
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
from safetensors.torch import save_file
from torch import Tensor, nn

from anyorder.files import sha256_of, sync
from anyorder.hub.weights import load_weights, save_weights
from anyorder.training.config import digest
from anyorder.training.log import Meter
from anyorder.training.optimiser import Ema, optimiser_tensors, restore_optimiser
from anyorder.training.processes import (
    ALONE,
    Ranks,
    TensorReader,
    file_names,
    local,
    rows_of,
    save_shard,
)

FORMAT, SHARDED_FORMAT = 1, 2
"""Whole files, which all versions read, and sharded files."""
PARTIAL = ".partial-"
STEP = "step-"
SEAL = "sha256"
"""The field of state.json that is the digest of its other fields."""
STEMS = ("model", "optimiser")
AVERAGE_STEM = "ema"
SHARDS = "parts"
"""The field of state.json with the number of files of each kind, if they are sharded."""
FIELDS = {"step": int, "versions": dict, "files": dict, "config": dict, "run": dict}
FIELDS |= {"digest": str, "meter": dict}
"""The other fields of state.json."""


@dataclass(frozen=True)
class TrainingState:
    """The tensors that training changes."""

    net: nn.Module
    ema: Ema | None
    optimiser: torch.optim.Optimizer

    @property
    def shards(self) -> int | None:
        """The number of processes that share the tensors; None: not sharded."""
        tensor = next(self.net.parameters())
        return None if rows_of(tensor) is None else tensor.device_mesh.size(-1)  # type: ignore[attr-defined]

    @property
    def shard(self) -> int:
        """The number of this process's shard."""
        tensor = next(self.net.parameters())
        return 0 if rows_of(tensor) is None else tensor.device_mesh.get_local_rank(-1)  # type: ignore[attr-defined]


def checkpoints(root: Path) -> list[Path]:
    """The complete checkpoints in `root`, oldest first."""
    found = [path for path in root.glob(f"{STEP}*") if path.name[len(STEP) :].isdigit()]
    return sorted(found, key=step_of)


def step_of(folder: Path) -> int:
    return int(folder.name[len(STEP) :])


def folder_of(root: Path, step: int) -> Path:
    return root / f"{STEP}{step:08d}"


def remove_partial(root: Path) -> None:
    """Remove checkpoints that a killed process left half-written or half-removed."""
    for path in root.glob(f"{PARTIAL}*"):
        shutil.rmtree(path)


def save(
    root: Path,
    step: int,
    trained: TrainingState,
    state: Mapping[str, Any],
    keep: int,
    ranks: Ranks = ALONE,
) -> Path:
    """Write the checkpoint of `step`, then remove all but the `keep` newest ones.

    All processes must call it; those that have nothing to write wait.
    """
    final = folder_of(root, step)
    partial = root / f"{PARTIAL}{final.name}"
    if ranks.first:
        assert not final.exists(), f"{final} exists: a run saves each step once"
        partial.mkdir(parents=True)
    ranks.wait()  # the others write into the folder too
    digests = _write_shards(partial, trained, ranks) if trained.shards else None
    if ranks.first:
        if digests is None:
            _write_whole(partial, trained)
            digests = {path.name: sha256_of(path) for path in sorted(partial.iterdir())}
        _complete(partial, final, {"step": step, "files": digests, **state}, trained.shards)
        for old in checkpoints(root)[:-keep]:
            # Renamed first: a kill in the middle must not leave a checkpoint with missing files.
            os.rename(old, root / f"{PARTIAL}{old.name}")
        remove_partial(root)
    ranks.wait()
    return final


def _write_whole(folder: Path, trained: TrainingState) -> None:
    save_weights(folder / "model.safetensors", trained.net)
    if trained.ema is not None:
        with trained.ema.shown() as averaged:
            save_weights(folder / "ema.safetensors", averaged)
    tensors = optimiser_tensors(trained.optimiser)
    save_file(
        {name: value.detach().contiguous().cpu() for name, value in tensors.items()},
        folder / "optimiser.safetensors",
    )


def _write_shards(folder: Path, trained: TrainingState, ranks: Ranks) -> dict[str, str]:
    """Write this process's files; returns the sha256 of all processes' files by name."""
    shards, shard = trained.shards, trained.shard
    stems = _stems(trained.ema is not None)
    names = {stem: file_names(stem, shards) for stem in stems}
    mine = [folder / names[stem][shard] for stem in stems]
    if ranks.rank < (shards or 0):  # with shard=hybrid the other machines hold the same rows
        save_shard(mine[0], dict(trained.net.named_parameters()), shard)
        save_shard(mine[1], optimiser_tensors(trained.optimiser), shard)
        if trained.ema is not None:
            with trained.ema.shown() as averaged:
                save_shard(mine[2], dict(averaged.named_parameters()), shard)
        for path in mine:
            sync(path)
        digests = b"".join(bytes.fromhex(sha256_of(path)) for path in mine)
    else:
        digests = bytes(32 * len(mine))
    # Sent as digests, so that rank 0 does not read the others' files again.
    every = ranks.gathered(torch.frombuffer(bytearray(digests), dtype=torch.uint8))
    return {
        names[stem][shard]: bytes(every[shard][32 * n : 32 * n + 32].tolist()).hex()
        for n, stem in enumerate(stems)
        for shard in range(shards or 0)
    }


def _complete(partial: Path, final: Path, about: Mapping[str, Any], shards: int | None) -> None:
    """Write state.json, sync all files and rename the folder, in this order."""
    document: dict[str, Any] = {
        "format": FORMAT if shards is None else SHARDED_FORMAT,
        "versions": versions(),
        **about,
    }
    document |= {} if shards is None else {SHARDS: shards}
    document[SEAL] = _seal(document)
    (partial / "state.json").write_text(
        json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8"
    )
    for path in [*partial.iterdir(), partial]:
        sync(path)
    os.rename(partial, final)
    sync(final.parent)  # else a power cut could undo the rename after older ones are removed


def _stems(averaged: bool) -> tuple[str, ...]:
    return (*STEMS, AVERAGE_STEM) if averaged else STEMS


def saved_config(root: Path, entry: str = "config") -> dict[str, Any]:
    """The training configuration in the newest checkpoint; empty: there is none.

    `entry` run: with the fields about the network and the data.

    Nothing is verified: `read_state` does that, and names the damage.
    """
    try:
        found: Any = json.loads((checkpoints(root)[-1] / "state.json").read_bytes())[entry]
    except (IndexError, OSError, ValueError, RecursionError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def read_state(folder: Path, ranks: Ranks = ALONE) -> dict[str, Any]:
    """The state.json of a checkpoint, after its own sha256 and that of every file are verified.

    Several processes divide the files among them; if one finds damage, all end.
    """
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(folder, f"state.json cannot be read ({error})") from error
    # Before any field is used: a damaged setting must not look like another run's setting.
    if not isinstance(state, dict) or state.get(SEAL) != _seal(state):
        raise _damaged(folder, "state.json does not have its recorded sha256")
    if state.get("format") not in (FORMAT, SHARDED_FORMAT):
        raise ValueError(
            f"checkpoint {folder} has format {state.get('format')}, and this version reads only "
            f"{FORMAT} and {SHARDED_FORMAT}: use the version that wrote it, or train into another "
            "folder"
        )
    wrong = _wrong_field(state)
    if wrong is not None:
        raise _damaged(folder, f"state.json has no usable {wrong!r}")
    if state["step"] != step_of(folder):
        raise _damaged(folder, f"state.json is of step {state['step']}")
    files = list(state["files"].items())
    for name, expected in files[ranks.rank :: ranks.count]:
        path = folder / name
        if not path.is_file():
            raise _damaged(folder, f"{name} is missing")
        if sha256_of(path) != expected:
            raise _damaged(folder, f"{name} does not have its recorded sha256")
    return state


def _seal(state: Mapping[str, Any]) -> str:
    """sha256 of all other fields; it does not depend on the layout of the JSON."""
    return digest({name: value for name, value in state.items() if name != SEAL})


def _wrong_field(state: Mapping[str, Any]) -> str | None:
    """The first field that is missing or invalid."""
    for name, kind in FIELDS.items():
        value = state.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            return name
    shards = state.get(SHARDS)
    if state["format"] == SHARDED_FORMAT and (not isinstance(shards, int) or shards < 1):
        return SHARDS
    stems = _stems(bool(state["run"].get("ema")))
    if state["files"].keys() != {name for stem in stems for name in file_names(stem, shards)}:
        return "files"
    if state["digest"] != digest(state["run"]):
        return "digest"
    return None if Meter.is_state(state["meter"]) else "meter"


def restore(folder: Path, trained: TrainingState, state: Mapping[str, Any]) -> None:
    """Put a verified checkpoint's tensors into the network, the average and the optimiser."""
    shards = state.get(SHARDS)
    paths = {
        stem: [folder / name for name in file_names(stem, shards)]
        for stem in _stems(trained.ema is not None)
    }
    _load(paths["model"], trained.net)
    if trained.ema is not None:
        with trained.ema.shown() as averaged:
            _load(paths[AVERAGE_STEM], averaged)
        trained.ema.updates = state["step"]  # one update a step; the decay's warm-up depends on it
    try:
        restore_optimiser(trained.optimiser, _optimiser_state(paths["optimiser"], trained))
    except ValueError as error:
        raise ValueError(
            f"checkpoint {folder} does not fit this network: {error}. "
            "Choose another output folder for a new training"
        ) from error


def _load(paths: list[Path], net: nn.Module) -> None:
    """Load weights from whole or sharded files into a whole or sharded network."""
    weights = dict(net.named_parameters())
    if len(paths) == 1 and all(rows_of(weight) is None for weight in weights.values()):
        load_weights(paths[0], net)
        return
    with TensorReader(paths) as stored:
        check_names(paths[0], stored.shapes, {name: w.shape for name, w in weights.items()})
        with torch.no_grad():
            for name, weight in weights.items():
                local(weight).copy_(stored.rows(name, rows_of(weight)))


def check_names(
    path: Path, found: Mapping[str, tuple[int, ...]], needed: Mapping[str, tuple[int, ...]]
) -> None:
    """Refuse files with other tensors, and name some that differ."""
    wrong = sorted(
        name
        for name in found.keys() | needed.keys()
        if name not in found or name not in needed or tuple(needed[name]) != found[name]
    )
    if wrong:
        raise ValueError(
            f"{path} holds the weights of another model: {len(wrong)} names or shapes differ "
            f"({', '.join(wrong[:5])}). Build the model from the configuration saved beside it"
        )


def _optimiser_state(paths: list[Path], trained: TrainingState) -> dict[str, Tensor]:
    """AdamW's tensors, sharded like their weights."""
    weights = dict(trained.net.named_parameters())
    with TensorReader(paths) as stored:
        return {
            key: stored.read(key, weights[name])
            if stored.shapes[key] and name in weights
            else stored.rows(key)
            for key in stored.shapes
            for name in [key.partition(".")[2]]
        }


def versions() -> dict[str, str]:
    """The versions that may change the bits of a run."""
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
