"""`anyorder grade`: its flags, and what it prints. The work is apps/grading.py."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from anyorder.apps.jobs import GradeJob, share_here, workers_here
from anyorder.cli.parsing import parse


@dataclass(frozen=True)
class Flags:
    """Run the programs of a run in a sandbox, and tell how many are right.

    Verdicts go to verdicts.parquet in the run folder. Repeating a command goes on where it
    stopped; what has a verdict is not run again.

      anyorder grade runs/mdm-stories
      anyorder grade runs/x --task humaneval --data HumanEval.jsonl.gz --workers 4
      anyorder grade runs/x --extraction sensitivity --json
      anyorder grade runs/x --shard 0/4
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, written by `anyorder sample` or `anyorder import`."""
    job: Annotated[GradeJob, tyro.conf.arg(name="")]
    shard: Annotated[str | None, tyro.conf.arg(metavar="i/n", help_behavior_hint="")] = None
    """Only every n-th problem from the i-th on: n processes grade one run together, and the last
    one reports. Unset: as torchrun or a Slurm array says, else all."""
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "grade", words)
    from anyorder.apps.grade import PartlyGraded, grade_run, grade_shard, print_graded

    share = share_here(flags.shard, os.environ)
    if share.origin and share.speaks:
        print(share.opening(), file=sys.stderr)
    job = flags.job
    if job.workers is None and not share.whole:
        job = replace(job, workers=workers_here(os.environ))
    found = (
        grade_run(flags.run, job)
        if share.whole
        else grade_shard(flags.run, job, share, progress=share.speaks)
    )
    if flags.json:
        print(json.dumps(found.to_record()))
    elif isinstance(found, PartlyGraded):
        print(found)
    else:
        print_graded(found)
