"""`anyorder report`: its flags, and what it prints. The work is apps/reporting.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

from anyorder.apps.jobs import ReportJob
from anyorder.cli.parsing import parse


@dataclass(frozen=True)
class Flags:
    """Write one HTML file about runs: findings in plain words, figures, tables, the trace player.

    It needs no network to be read. What the runs were graded and measured for is in it; order and
    similarity to a left-to-right run among them are computed where that was not done.

      anyorder report runs/confidence runs/left_to_right runs/random
      anyorder report runs/* --out report.html --title "My checkpoint"
      anyorder report runs/mine --no-figures --json
    """

    job: Annotated[ReportJob, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON document: where the files are, the findings, what is absent."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "report", words)
    from anyorder.apps.report import report

    reported = report(flags.job, progress=True)
    if flags.json:
        print(json.dumps(reported.to_record()))
        return
    gathered = reported.material.gathered
    print(f"{len(gathered.runs)} runs, {gathered.samples} samples: {reported.page}")
    if reported.figures:
        print(f"{len(reported.figures)} figure files: {reported.figures[0].parent}")
    for title, commands in reported.absent:
        print(f"not in it: {title}", *(f"  {command}" for command in commands), sep="\n")
