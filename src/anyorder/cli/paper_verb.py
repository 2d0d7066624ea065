"""`anyorder paper`: its flags, and what it prints. The work is apps/paper/."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

from anyorder.apps.paper.job import PaperJob
from anyorder.cli.parsing import parse


@dataclass(frozen=True)
class Flags:
    """A published protocol on a checkpoint: samples, grades, measures; the paper's rows beside.

    What the source varied is one run each: policies, and with --sweep insertion temperatures or k.
    Repeating a command goes on where it stopped.

      anyorder paper --model Dream-org/Dream-v0-Base-7B --preset similarity --device cuda
      anyorder paper --model DIR --preset flexmdm-passk --task mbpp:378 --sweep --device cuda
      anyorder paper --model DIR --preset similarity --limit 2 --data HumanEval.jsonl.gz
    """

    job: Annotated[PaperJob, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "paper", words)
    from anyorder.apps.grade import print_graded
    from anyorder.apps.measure import print_measured
    from anyorder.apps.paper.protocol import run_protocol

    found = run_protocol(flags.job, progress=True)
    if flags.json:
        print(json.dumps(found.to_record(), allow_nan=False))
        return
    for name, graded in found.graded.items():
        print(f"== {name}")
        print_graded(graded)
        print()
    print_measured(found.measured)
    print("by hand:", *found.commands, sep="\n  ")
