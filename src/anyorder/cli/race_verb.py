"""`anyorder race`: its flags, and what it prints. The work is apps/racing.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

from anyorder.apps.race.job import RaceJob
from anyorder.cli.parsing import parse


@dataclass(frozen=True)
class Flags:
    """Race models on one task: how often right, against how long it takes, at several settings.

    All lanes run problem by problem in one process, in shuffled order, one sample at a time, so
    that noise hits all alike. Models of unequal size, data or training are refused. Beside it: how
    likely held-out texts are to each model, and how well it fills the middle of a program.
    Repeating a command goes on where it stopped.

      anyorder race ar mdm flexmdm latentmdm flexlatent duo sflm
      anyorder race ar mdm latentmdm --limit 100 --out runs/race-100
      anyorder race mdm latentmdm --grid "mdm:steps=4,8;policy=confidence,random" latentmdm:k=1,3
      anyorder race ar runs/mine --unequal --json
    """

    job: Annotated[RaceJob, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "race", words)
    from anyorder.apps.race import race
    from anyorder.report.tables import print_tables

    raced = race(flags.job, progress=True)
    if flags.json:
        print(json.dumps(raced.to_record(), allow_nan=False))
        return
    print_tables(raced.tables)
    print(f"written to {', '.join(str(path) for path in raced.files)}")
