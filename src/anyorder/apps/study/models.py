"""The models of the study: where they are, whether they are what the plan says, and training them.

Models that ship with the package are used as they are. The others live in FOLDER/models/<name>, a
finished checkpoint each; `train_missing` makes those that are not there, in a folder of its own
where trainings resume, and copies what is finished.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anyorder.apps.study.model_plan import StudyModel, Training
from anyorder.files import replacing, replacing_path
from anyorder.model import CONFIG_FILE, SHIPPED, WEIGHTS_FILE

MODELS = "models"
KEPT = ("config.json", "model.safetensors", "vocabulary.json", "tokenizer.json")
METRICS_FILE, SUMMARY_FILE = "metrics.jsonl", "training.json"


def where(model: StudyModel, folder: Path) -> str | None:
    """What to load it by; None: it is not trained yet."""
    if model.shipped is not None:
        return model.shipped
    path = folder / MODELS / model.name
    return str(path) if (path / WEIGHTS_FILE).is_file() else None


def check_made(model: StudyModel, folder: Path) -> None:
    """Refuse a checkpoint that another training made."""
    path = (SHIPPED / model.shipped) if model.shipped else folder / MODELS / model.name
    recipe = json.loads((path / CONFIG_FILE).read_bytes())["recipe"]
    for name, wanted in wanted_of(model).items():
        found = _at(recipe, name)
        if found != wanted:
            raise ValueError(
                f"{path} was trained with {name} {found!r}, and the study's model has {wanted!r}: "
                "remove the folder, and `anyorder study --only models` trains it"
            )


def wanted_of(model: StudyModel) -> dict[str, Any]:
    """What its last training changes, as a recipe's record has it; threads do not matter."""
    if not model.trainings:
        return {}
    changes = model.trainings[-1].changes
    return {name: value for name, value in changes.items() if name != "threads"}


def _at(recipe: dict[str, Any], name: str) -> Any:
    room, _, last = name.rpartition(".")
    return recipe[room or "train"][last]


def train_missing(
    models: Sequence[StudyModel], folder: Path, work: Path, *, progress: bool = True
) -> list[str]:
    """Train what is missing, one after another; the names of those that were made."""
    made = []
    for model in models:
        if where(model, folder) is None:
            for training in model.trainings:
                _train(training, work, progress)
            keep(work / model.name, folder / MODELS / model.name)
            check_made(model, folder)
            made.append(model.name)
    return made


def _train(training: Training, work: Path, progress: bool) -> None:
    from anyorder.apps.training import train

    out = work / training.name
    if (out / WEIGHTS_FILE).is_file():
        return
    changes = dict(training.changes)
    if training.start is not None:
        changes["start"] = str(work / training.start)
    train(training.recipe, out=out, progress=progress, **changes)


def keep(trained: Path, target: Path) -> None:
    """Copy a finished checkpoint, with the last line of its metrics; the weights come last."""
    target.mkdir(parents=True, exist_ok=True)
    names = [name for name in KEPT if (trained / name).is_file()]
    metrics = trained / METRICS_FILE
    if metrics.is_file():
        last = (metrics.read_bytes().splitlines() or [b"{}"])[-1]
        with replacing(target / SUMMARY_FILE) as file:
            file.write(last + b"\n")
    for name in sorted(names, key=lambda name: name == WEIGHTS_FILE):
        with replacing_path(target / name) as path:
            shutil.copyfile(trained / name, path)
