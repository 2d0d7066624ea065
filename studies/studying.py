"""`make study`: train what is missing, sample and measure what is missing, write the page.

    models (models.py)  ->  runs (runs.py, comparing.py, the race)  ->  page (page.py)

Every stage skips what exists, so a repeated command continues where it was stopped. The page is
made from the study's folder alone and is the same every time. Runs of models that are not trained
are left out, and the page says so.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyorder.files import replacing
from studies.model_plan import StudyModel
from studies.models import check_made, train_missing, where
from studies.page import Written, write_page
from studies.plan import Plan
from studies.questions.all import QUESTIONS
from studies.records import RUNS
from studies.study_job import StudyJob, study_command
from studies.view import RACE_FILE, Study

RACERS = ("ar", "mdm", "flexmdm", "latentmdm", "flexlatent", "duo", "sflm")
COUNTED = "counted"
MILLISECONDS = {"mdm": 330, "flexmdm": 170, "latentmdm": 30, "flexlatent": 50, COUNTED: 500}
"""The rough time of a sample, for the progress bar and for the order of the jobs."""


@dataclass(frozen=True)
class Studied:
    """What was done."""

    trained: tuple[str, ...]
    done: tuple[str, ...]
    """The runs that this call made."""
    untrained: tuple[str, ...]
    """Models that are missing."""
    page: Written | None

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "trained": list(self.trained),
            "runs": list(self.done),
            "untrained": list(self.untrained),
            **({} if self.page is None else self.page.to_record()),
        }


def study(job: StudyJob, *, progress: bool = True) -> Studied:
    """Do the stages that were asked for."""
    plan, stages = job.plan, job.stages()
    if stages == ("page",) and not (job.folder / RUNS).is_dir():
        raise ValueError(f"no study in {job.folder}: `{study_command()}` makes one")
    if job.page.is_dir():
        raise ValueError(f"{job.page} is a folder: --page takes a file, such as results.md")
    needed = runs_needed(plan, job.chosen())
    Study(job.folder, plan).check_sizes()  # before anything is done
    models = _models(plan, needed)
    trained, done = [], []
    if "models" in stages:
        trained = train_missing(
            models,
            job.folder,
            job.traces / "models",
            processes=job.processes,
            progress=progress,
        )
    if "runs" in stages:
        done = _do_runs(plan, needed, job, progress)
    written = None
    if "page" in stages:
        written = write_page(Study(job.folder, plan), job.page)
    untrained = [model.name for model in models if where(model, job.folder) is None]
    return Studied(tuple(trained), tuple(done), tuple(untrained), written)


def runs_needed(plan: Plan, questions: Sequence[str]) -> list[str]:
    """The runs of some questions, each once."""
    return list(dict.fromkeys(name for each in questions for name in QUESTIONS[each].runs(plan)))


def _models(plan: Plan, runs: Sequence[str]) -> list[StudyModel]:
    names = dict.fromkeys(plan.runs[name].model for name in runs)
    return [plan.models[name] for name in names if name != COUNTED]


def _do_runs(plan: Plan, needed: Sequence[str], job: StudyJob, progress: bool) -> list[str]:
    from anyorder.apps.demo import do_all
    from studies.comparing import comparisons

    jobs = jobs_of(plan, needed, job)
    missing = [each for each in jobs if not each.done]
    # The longest first: short runs then fill the gaps at the end.
    missing.sort(key=lambda each: -each.weight)
    if missing:
        do_all(missing, "running", shown=progress, processes=job.processes)
    compared = [each for each in comparisons(jobs) if not each.done]
    if compared:
        do_all(compared, "comparing", shown=progress, processes=job.processes)  # type: ignore[arg-type]
    done = [each.run.name for each in missing]
    if "s6" in job.chosen() and not (job.folder / RACE_FILE).is_file():
        _race(plan, job, progress)
        done.append("race")
    return done


def jobs_of(plan: Plan, needed: Sequence[str], job: StudyJob) -> list[Any]:
    """The runs whose models are there, as jobs; prints the models that are missing."""
    from anyorder import load
    from studies.runs import RunJob

    digests: dict[str, str] = {}
    found, absent = [], set()
    for name in needed:
        run = plan.runs[name]
        location, digest, family = "", COUNTED, COUNTED
        if run.free is None:
            model = plan.models[run.model]
            location, family = where(model, job.folder) or "", model.family
            if not location:
                absent.add(model.name)
                continue
            if location not in digests:
                check_made(model, job.folder)
                digests[location] = load(location).digest
            digest = digests[location]
        weight = MILLISECONDS[family] * run.samples * run.problems / 10_000
        found.append(RunJob(run, location, digest, family, job.folder, job.traces, weight))
    if absent:
        names = ", ".join(sorted(absent))
        print(
            f"not trained yet ({study_command('--only models')}), their runs are left out: {names}",
            file=sys.stderr,
        )
    return found


def _race(plan: Plan, job: StudyJob, progress: bool) -> None:
    """Race all families, with nothing else running, and store the record."""
    from anyorder.apps.jobs import RaceJob
    from anyorder.apps.race import race

    out = job.traces / f"race-{plan.sizes.race}"
    raced = race(RaceJob(models=RACERS, limit=plan.sizes.race, out=out), progress=progress)
    source = next(path for path in raced.files if path.name == RACE_FILE)
    job.folder.mkdir(parents=True, exist_ok=True)
    _copy(source, job.folder / RACE_FILE)


def _copy(source: Path, target: Path) -> None:
    with replacing(target) as file:
        file.write(source.read_bytes())
