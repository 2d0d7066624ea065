"""`anyorder grade --shard i/n`: several processes grade one run together.

Each takes every n-th problem of the task and writes verdicts in parts of its own. Whoever is the
last, and finds that every sample has its verdict, brings the parts together and reports. A shard
that was killed is started again; a command with another n, or with none, does what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anyorder.apps.grade_job import GradeJob
from anyorder.apps.grade_report import Graded
from anyorder.apps.grading import give_verdicts, lacking, planned, reported, settle
from anyorder.apps.shards import Share
from anyorder.files import COPY_IT, alone_if_free, together_in
from anyorder.trace import Run


@dataclass(frozen=True)
class PartlyGraded:
    """What there is when a shard ends before the others."""

    run: Path
    shard: str
    verdicts: int
    of: int

    def to_record(self) -> dict[str, Any]:
        return {
            "run": str(self.run),
            "complete": False,
            "shard": self.shard,
            "verdicts_there": self.verdicts,
            "verdicts_in_all": self.of,
        }

    def __str__(self) -> str:
        return (
            f"{self.run}: shard {self.shard} is there; {self.verdicts} of {self.of} verdicts by "
            "now. The last shard reports (or this command with --shard 0/1)"
        )


def grade_shard(
    folder: str | Path, job: GradeJob, share: Share, *, progress: bool = True
) -> Graded | PartlyGraded:
    """Grade a share of the problems, and report if nothing is missing any more."""
    if job.again:
        raise ValueError(
            "--again would discard what other shards have just found: leave --shard out, or "
            "delete verdicts.parquet and grade in shards"
        )
    run = Run.open(folder)
    with together_in(run.folder, COPY_IT):
        plan = planned(run, job, together=True)
        mine = dict(share.pick(list(plan.problems.items())))
        keys = [key for key in plan.keys if key[0] in mine]
        if keys:
            give_verdicts(replace(plan, problems=mine, keys=keys), job, progress)
    total = len(plan.keys) * len(plan.modes)
    missing = len(lacking(plan, job))
    with alone_if_free(run.folder) as alone:
        if alone:
            missing = len(lacking(plan, job))
            if not missing:
                settle(plan)
                return reported(plan, job)
    return PartlyGraded(run.folder, str(share), total - missing, total)
