"""`anyorder paper --model ID --preset NAME`: the paper's protocols on published checkpoints.

    the preset's settings  ->  sample  ->  grade  ->  measure, each as its own verb does it

The paper's rows are printed beside the new ones if a run follows the protocol exactly (measure.py).
A preset says how to sample; each value that its source varied (policies, insertion temperatures, k)
is a run. Every step resumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from anyorder.apps.grade import Graded, grade_run
from anyorder.apps.jobs import GradeJob, MeasureJob, PaperJob, SampleJob
from anyorder.apps.measure import Measured, measure_runs
from anyorder.apps.report import command
from anyorder.apps.sample import sample_to_run
from anyorder.recipes.presets import find_preset

REFERENCE = "left_to_right"
COMPARED = (REFERENCE, "random", "sampled", "margin", "entropy")
POLICIES = {
    "similarity": COMPARED,
    "similarity-llada": COMPARED,
    "dultra": (*COMPARED, "planner"),
}
"""Presets that compare policies; the others have one policy, or sweep it."""
SAMPLED = ("model", "task", "data", "preset", "limit", "batch", "device")
"""The fields that the sampling job shares with the protocol's."""
MODE = "compat"
"""The paper's order metrics are those of its published code."""


@dataclass(frozen=True)
class Protocolled:
    """The commands of a protocol and their results."""

    commands: tuple[str, ...]
    """Commands that do the same."""
    graded: dict[str, Graded]
    measured: Measured

    def to_record(self) -> dict[str, Any]:
        return {
            "commands": list(self.commands),
            "graded": {name: each.to_record() for name, each in self.graded.items()},
            "measured": self.measured.to_record(nodes=False),
        }


def settings_of(job: PaperJob) -> dict[str, dict[str, Any]]:
    """The runs by name, with the options that each adds to the preset."""
    preset = find_preset(job.preset)
    if job.sweep and (job.preset in POLICIES or not preset.sweep):
        raise ValueError(f"preset {job.preset!r} has no sweep: leave --sweep out")
    if job.preset in POLICIES:
        return {policy: {"policy": policy} for policy in POLICIES[job.preset]}
    if not job.sweep:
        return {"own": {}}
    settings = [
        dict(zip(preset.sweep, values, strict=True)) for values in product(*preset.sweep.values())
    ]
    return {"-".join(f"{key}_{value}" for key, value in each.items()): each for each in settings}


def run_protocol(job: PaperJob, *, progress: bool = True) -> Protocolled:
    """Sample, grade and measure every setting."""
    settings = settings_of(job)
    base = job.out / f"{_name(job.model)}-{job.task.replace(':', '_')}-{job.preset}"
    grading = GradeJob(workers=job.workers, allow_weak_isolation=job.allow_weak_isolation)
    same = {name: getattr(job, name) for name in SAMPLED}
    graded, commands = {}, []
    for name, options in settings.items():
        sampling = SampleJob(**same, out=base / name)
        line = command("sample", sampling, options)
        sample_to_run(sampling, dict(options), command=line, progress=progress)
        graded[name] = grade_run(base / name, grading, progress=progress)
        commands += [line, command("grade", grading, named=[str(base / name)])]
    measuring = _measuring(job, base, list(settings))
    measured = measure_runs(measuring, progress=progress)
    return Protocolled((*commands, command("measure", measuring)), graded, measured)


def _name(model: str) -> str:
    """The name of the model's folder; a hub id keeps its owner."""
    path = Path(model)
    return path.resolve().name if path.exists() else model.strip("/").replace("/", "--")


def _measuring(job: PaperJob, base: Path, names: list[str]) -> MeasureJob:
    """Compare all policies with left to right if it is among the runs; else measure each run."""
    compares = REFERENCE in names
    runs = tuple(base / name for name in names if name != REFERENCE or not compares)
    return MeasureJob(
        runs=runs,
        reference=base / REFERENCE if compares else None,
        placement=job.model if job.placement else None,
        mode=MODE,
    )
