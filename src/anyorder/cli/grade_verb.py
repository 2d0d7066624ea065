"""`anyorder grade`: its flags, and what it prints. The work is apps/grading.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from anyorder.apps.grade_job import GradeJob
from anyorder.cli.parsing import parse


@dataclass(frozen=True)
class Flags:
    """Run the programs of a run in a sandbox, and tell how many are right.

    Verdicts go to verdicts.parquet in the run folder. Repeating a command goes on where it
    stopped; what has a verdict is not run again.

      anyorder grade runs/mdm-stories
      anyorder grade runs/x --task humaneval --data HumanEval.jsonl.gz --workers 4
      anyorder grade runs/x --extraction sensitivity --json
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, written by `anyorder sample` or `anyorder import`."""
    job: Annotated[GradeJob, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "grade", words)
    from anyorder.apps.grade_report import print_graded
    from anyorder.apps.grading import grade_run

    graded = grade_run(flags.run, flags.job)
    if flags.json:
        print(json.dumps(graded.to_record()))
    else:
        print_graded(graded)
