"""`anyorder measure`: its flags, and what it prints. The work is apps/measuring.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

from anyorder.apps.jobs import MeasureJob
from anyorder.cli.parsing import parse


@dataclass(frozen=True)
class Flags:
    """Measure in which order runs were written, and how much alike their programs are.

    Every score stands beside its controls: the same programs written left to right and in random
    order. Results are kept in measures.json in each run folder.

      anyorder measure runs/confidence
      anyorder measure runs/confidence runs/random --reference runs/left_to_right
      anyorder measure runs/confidence --placement models/mdm --only placement
      anyorder measure runs/theirs --mode compat --json
    """

    job: Annotated[MeasureJob, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON document: every sample, every node."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "measure", words)
    from anyorder.apps.measure import measure_runs, print_measured

    measured = measure_runs(flags.job)
    if flags.json:
        print(json.dumps(measured.to_record(), allow_nan=False))
    else:
        print_measured(measured)
