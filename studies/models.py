"""The models of the study: finds them, checks them against the plan, and trains missing ones.

Models that ship with the package are used as they are. Every other model is a finished checkpoint
in FOLDER/models/<name>. `train_missing` trains those that are missing, in a separate folder where
trainings resume, and copies finished checkpoints.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyorder.apps.demo import working_pool
from anyorder.apps.jobs import progress_bar
from anyorder.files import replacing, replacing_path
from anyorder.model import CONFIG_FILE, SHIPPED, WEIGHTS_FILE
from anyorder.training.config import BEFORE
from studies.model_plan import StudyModel, Training
from studies.study_job import study_command
from studies.view import MODELS, SUMMARY_FILE

KEPT = ("config.json", "model.safetensors", "vocabulary.json", "tokenizer.json")
METRICS_FILE = "metrics.jsonl"
STEP = re.compile(rb'"step": (\d+)')
LOOK_EVERY = 2.0
"""Seconds between looks at the logs of trainings."""


def where(model: StudyModel, folder: Path) -> str | None:
    """The name or path to load it by; None: it is not trained yet."""
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
                f"remove the folder, and `{study_command('--only models')}` trains it"
            )


def wanted_of(model: StudyModel) -> dict[str, Any]:
    """The changes of its last training, as the record of a recipe spells them, without threads."""
    if not model.trainings:
        return {}
    changes = model.trainings[-1].changes
    return {name: value for name, value in changes.items() if name != "threads"}


def _at(recipe: dict[str, Any], name: str) -> Any:
    room, _, last = name.rpartition(".")
    return {**BEFORE, **recipe["train"]}[last] if not room else recipe[room][last]


def train_missing(
    models: Sequence[StudyModel],
    folder: Path,
    work: Path,
    *,
    processes: int = 1,
    progress: bool = True,
) -> list[str]:
    """Train missing models, several at a time; return the names of the new ones."""
    missing = [model for model in models if where(model, folder) is None]
    wanted = {each.name: each for model in missing for each in model.trainings}
    places = (work, folder / MODELS)
    jobs = [TrainJob(each, places) for each in wanted.values() if _made(each.name, places) is None]
    made: list[str] = []
    with progress_bar("training", sum(job.steps for job in jobs), shown=progress) as advance:
        # A training that others start from comes first, and only once.
        for wave in (False, True):
            own = [job for job in jobs if (job.training.start is not None) is wave]
            _train_all(own, processes, advance)
            made += _keep_finished(
                [each for each in missing if each.name not in made], folder, work
            )
    return made


def _keep_finished(models: Sequence[StudyModel], folder: Path, work: Path) -> list[str]:
    found = [model for model in models if _made(model.name, (work,)) is not None]
    for model in found:
        keep(work / model.name, folder / MODELS / model.name)
        check_made(model, folder)
    return [model.name for model in found]


@dataclass(frozen=True)
class TrainJob:
    """A training in its folder; it resumes."""

    training: Training
    places: tuple[Path, ...]
    """The folder where it trains; then other folders that may hold its start."""

    @property
    def out(self) -> Path:
        """Its folder."""
        return self.places[0] / self.training.name

    @property
    def steps(self) -> int:
        """All of them."""
        return int(self.training.changes["steps"])

    def do(self) -> None:
        """Train to the end."""
        from anyorder import train

        changes = dict(self.training.changes)
        if self.training.start is not None:
            changes["start"] = str(_made(self.training.start, self.places))
        train(self.training.recipe, out=self.out, progress=False, **changes)

    def reached(self) -> int:
        """The last step in its log."""
        path = self.out / METRICS_FILE
        lines = path.read_bytes().splitlines() if path.is_file() else []
        steps = [int(found[1]) for line in lines[-3:] if (found := STEP.search(line))]
        return max(steps, default=0)


def _made(name: str, places: Sequence[Path]) -> Path | None:
    """The first folder with the finished training; None: there is none."""
    return next((place / name for place in places if (place / name / WEIGHTS_FILE).is_file()), None)


def _train_all(jobs: Sequence[TrainJob], processes: int, advance: Callable[[int], None]) -> None:
    """Run all trainings, `processes` at a time; their logs move the progress bar."""
    if not jobs:
        return
    shown = 0
    with working_pool(min(processes, len(jobs))) as pool:
        running = [pool.apply_async(job.do) for job in jobs]
        while True:
            for each in running:
                if each.ready():
                    each.get()  # an error ends the work; trainings resume from their checkpoints
            reached = sum(job.reached() for job in jobs)
            advance(max(0, reached - shown))
            shown = max(shown, reached)
            if all(each.ready() for each in running):
                return
            running[-1].wait(LOOK_EVERY)


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
