"""Compares the programs of a model's policies with those that it writes from left to right.

Similarity needs pairs of runs, so it is measured after all runs are sampled. There is one job for
each reference run. Its values go to the folders of the runs that were compared (pairs.parquet).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anyorder.measure import similarity
from anyorder.measure.programs import Programs
from anyorder.measure.similarity_scores import SimilarityOptions
from studies.records import PAIRS_FILE, read_about, write_table
from studies.runs import RunJob

RESAMPLES = 1
"""The study computes its own intervals (cells.py) and needs only the values of each problem."""


@dataclass(frozen=True)
class CompareJob:
    """The runs that share a reference."""

    runs: tuple[RunJob, ...]
    reference: RunJob
    weight: float = 1.0

    @property
    def done(self) -> bool:
        """Whether the values of exactly these runs are there."""
        return all(read_about(self._path(job)) == self._about(job) for job in self.runs)

    def _about(self, job: RunJob) -> dict[str, Any]:
        return {"run": job.run.name, "key": job.key, "reference": self.reference.key}

    @staticmethod
    def _path(job: RunJob) -> Any:
        return job.target / PAIRS_FILE

    def do(self) -> None:
        """Compare, and keep the values of every problem."""
        own = [_programs(job) for job in self.runs if job is not self.reference]
        base = _programs(self.reference)
        options = SimilarityOptions(resamples=RESAMPLES, threads=1)
        table = similarity(own, base, options)
        for job in self.runs:
            ceiling = job is self.reference
            rows = [
                {"task_id": task, "filter": row.filter, "ceiling": ceiling, **values}
                for row in table.rows
                if row.policy == job.run.name and row.ceiling == ceiling
                for task, values in row.per_prompt.items()
            ]
            write_table(self._path(job), rows, self._about(job))


def _programs(job: RunJob) -> Programs:
    """The programs in the traces of a run. Traces may be missing even if the records are there."""
    run = job.sampled()
    job.verdicts(run)  # without verdicts, no program would count as correct
    return Programs.of_run(run, job.run.name)


def comparisons(jobs: Sequence[RunJob]) -> list[CompareJob]:
    """One job for each reference among the runs."""
    by_name = {job.run.name: job for job in jobs}
    groups: dict[str, list[RunJob]] = {}
    for job in jobs:
        if job.run.reference in by_name:
            groups.setdefault(job.run.reference, []).append(job)
    return [CompareJob(tuple(own), by_name[name]) for name, own in groups.items()]
