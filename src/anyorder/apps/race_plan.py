"""The plan of a race: everything that can be refused is refused while nothing is written.

A folder holds one race, by what its rounds depend on: the models and their weights, the data, the
settings. Whoever repeats the command finds it again; another race is refused.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyorder.apps.race_fairness import Fairness, compare, facts_of, refuse_unequal
from anyorder.apps.race_families import ONE, own_options, parse_grids, ways
from anyorder.apps.race_infill import Gap, can_fill, gaps_of, usable_gaps
from anyorder.apps.race_job import RaceJob
from anyorder.apps.race_lanes import ROUNDS, Entrant, Lane, make_lanes, named
from anyorder.apps.sampling_plan import Subject
from anyorder.bench.tasks import Task, find_task
from anyorder.files import LOCK_FILE, replacing
from anyorder.model import Model, load
from anyorder.trace import Run
from anyorder.trace.run import CARD_FILE

RACE_FILE = "race.json"
SETTINGS = ("models", "task", "data", "limit", "samples", "temperature", "grid", "seed", "threads")
"""The fields of a job that its rounds depend on, besides the device."""


@dataclass(frozen=True)
class RacePlan:
    """A race, checked and ready to run."""

    job: RaceJob
    entrants: list[Entrant]
    fairness: Fairness
    task: Task
    subject: Subject
    lanes: list[Lane]
    gaps: list[Gap]
    """To be filled by every entrant that can."""
    gaps_left_out: int
    """Programs whose middle some of them could not be asked for."""

    @property
    def settings(self) -> dict[str, Any]:
        """What makes it this race and no other."""
        told = {name: getattr(self.job, name) for name in SETTINGS}
        digests = {each.name: each.model.digest for each in self.entrants}
        record = {**told, "device": self.job.device, "digests": digests}
        record["data_digest"] = self.task.digest
        return dict(json.loads(json.dumps(record)))


def planned(job: RaceJob) -> RacePlan:
    """Everything that can be refused is refused here, before anything is written."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("a race ends with a figure: pip install 'anyorder[report]'")
    if len(set(job.models)) < len(job.models):
        raise ValueError("a model is named twice: name each once")
    entrants = named([load(name, device=job.device) for name in job.models])
    fairness = compare([facts_of(each.name, each.model) for each in entrants])
    if not job.unequal:
        refuse_unequal(fairness)
    families = dict.fromkeys(each.model.family.name for each in entrants)
    known = list(dict.fromkeys([*(each.name for each in entrants), *families]))
    grids = parse_grids(job.grid, known)
    task = find_task(job.task, entrants[0].model.trained_on, data=job.data)
    subject = Subject.of(task, job.limit)
    ungraded = [problem.task_id for problem in subject.problems if not problem.checks]
    if ungraded:
        raise ValueError(f"{ungraded[0]} has no checks to grade by: race on another task")
    _same_problems(job, entrants, task)
    lanes = make_lanes(job, entrants, subject, grids)
    gaps = gaps_of(task.problems(job.infill)) if job.infill else []
    usable = usable_gaps(fillers(job, entrants), gaps)
    left_out = len(gaps) - len(usable)
    return RacePlan(job, entrants, fairness, task, subject, lanes, usable, left_out)


def fillers(job: RaceJob, entrants: Sequence[Entrant]) -> dict[Model, dict[str, Any]]:
    """The models that fill gaps, and how they decode them."""
    return {
        each.model: ways(each.model.family, job.temperature, 1)[ONE] | own_options(each.model.net)
        for each in entrants
        if can_fill(each.model)
    }


def _same_problems(job: RaceJob, entrants: list[Entrant], task: Task) -> None:
    """Entrants whose training makes them other problems cannot race."""
    for each in entrants[1:]:
        other = find_task(job.task, each.model.trained_on, data=job.data)
        if other.digest != task.digest:
            raise ValueError(
                f"{job.task} is a task of other problems for {each.name} than for "
                f"{entrants[0].name}, by the data that they were trained on: race models of one "
                "corpus"
            )


def claim(plan: RacePlan) -> None:
    """Make the folder this race's, or find that it is."""
    path = plan.job.out / RACE_FILE
    if path.exists():
        try:
            stored = json.loads(path.read_bytes())["settings"]
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{path} is damaged: restore it, or choose another --out") from None
        different = [name for name, value in plan.settings.items() if stored.get(name) != value]
        if different:
            raise ValueError(
                f"{plan.job.out} holds another race, which differs in {', '.join(different)}: "
                "choose another --out, or repeat the command that made it"
            )
        return
    foreign = sorted(item.name for item in plan.job.out.iterdir() if item.name != LOCK_FILE)
    if foreign:
        raise ValueError(
            f"{plan.job.out} is not empty ({foreign[0]}) and not a race: choose another --out"
        )
    write_json(path, {"status": "running", "settings": plan.settings})


def release(plan: RacePlan) -> None:
    """Take back a race of which nothing is stored yet."""
    rounds = plan.job.out / ROUNDS
    folders = [lane.folder for lane in plan.lanes if (lane.folder / CARD_FILE).is_file()]
    runs = [Run.open(folder) for folder in folders]
    if any(run.done_parts() for run in runs):
        return
    for run in runs:
        run.discard_if_empty()
    (plan.job.out / RACE_FILE).unlink(missing_ok=True)
    folders = [*(lane.folder for lane in plan.lanes), *(lane.folder.parent for lane in plan.lanes)]
    for folder in (*folders, rounds):
        with suppress(OSError):  # not there any more, or somebody else's file is in it
            folder.rmdir()


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Whole or not at all."""
    with replacing(path) as file:
        file.write(json.dumps(record, indent=1, allow_nan=False).encode() + b"\n")
