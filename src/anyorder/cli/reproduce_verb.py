"""`anyorder reproduce`: its flags, and what it prints. The work is apps/reproducing.py."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from anyorder.apps.jobs import Count, Folder, Name
from anyorder.cli.parsing import command_line, parse


@dataclass(frozen=True)
class Flags:
    """Sample again what a run card describes, and compare trace by trace.

    Where the run was graded by its own task, verdicts are compared too. Exit code 1 when anything
    differs. The model and the data are found where the card says; name
    them if they have moved.

      anyorder reproduce runs/stories/run.json
      anyorder reproduce runs/stories --model models/mdm --out runs/again
    """

    card: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run.json, or the folder it is in."""
    model: Name = None
    """The model, if it is elsewhere now."""
    data: Name = None
    """The task's data file, if it is elsewhere now."""
    device: Name = None
    """Where to decode; unset: as recorded."""
    batch: Count = None
    """Samples decoded together; unset: as recorded."""
    out: Folder = None
    """Keep the new run in this folder."""
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "reproduce", words)
    from anyorder.apps.reproduce import Changes, reproduce

    changes = Changes(flags.model, flags.data, flags.device, flags.batch)
    result = reproduce(flags.card, changes, out=flags.out, command=command_line("reproduce", words))
    if flags.json:
        print(json.dumps(asdict(result) | {"reproduced": result.reproduced}))
    else:
        for note in result.notes:
            print(f"not the same to begin with: {note}")
        print(f"{result.identical} of {result.samples} samples are identical")
        if result.verdicts:
            print(f"{result.same_verdicts} of {result.verdicts} verdicts are the same")
    if not result.reproduced:
        shown = "\n".join(f"  {line}" for line in result.differences)
        other = result.verdicts - result.same_verdicts
        raise ValueError(
            f"{result.samples - result.identical} of {result.samples} samples and {other} of "
            f"{result.verdicts} verdicts differ\n{shown}"
        )
