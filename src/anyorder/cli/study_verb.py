"""`anyorder study`: its flags, and what it prints. The work is apps/study/studying.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

from anyorder.apps.study.study_job import StudyJob
from anyorder.cli.parsing import parse


@dataclass(frozen=True)
class Flags:
    """The paper's questions, asked of trained models: samples, grades, measures, writes a page.

    Runs that are there are not done again, and the page is made from the stored records alone.
    Models that are missing are named, and trained with --train.

      anyorder study                             every run that is missing, then docs/results.md
      anyorder study --only page                 the page again, from what is stored
      anyorder study s4 dial --problems 20       two questions on few problems
      anyorder study --only models               train what is missing, for hours
    """

    job: Annotated[StudyJob, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "study", words)
    from anyorder.apps.study.studying import study

    studied = study(flags.job, progress=True)
    if flags.json:
        print(json.dumps(studied.to_record(), allow_nan=False))
        return
    if studied.trained:
        print(f"trained: {', '.join(studied.trained)}")
    if studied.done:
        print(f"{len(studied.done)} runs done")
    if studied.untrained:
        print(f"not trained yet: {', '.join(studied.untrained)}")
    if studied.page is not None:
        for name, claims in studied.page.claims.items():
            for claim in claims:
                print(f"{name:11}{claim.holds:17}{claim.says}")
        print(f"written to {studied.page.page}")
