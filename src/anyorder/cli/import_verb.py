"""`anyorder import`: its flags, and what it prints. The work is apps/importing.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from anyorder.cli.parsing import command_line, parse


@dataclass(frozen=True)
class Flags:
    """Make a run folder of traces that another library wrote, one JSON object per line.

    Fields: task_id, sample, prompt, tokens (strings), insert_step and reveal_step (per token), and
    optionally log_prob, steps, entry_point, policy. Steps count from 1; 0 means given from the
    start. `text` alone, without tokens and steps, is accepted too.

      anyorder import theirs.jsonl --out runs/theirs
    """

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """The .jsonl file, or .jsonl.gz."""
    out: Path
    """The run folder to make."""
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "import", words)
    from anyorder.apps.importing import import_traces

    run, count = import_traces(flags.path, flags.out, command=command_line("import", words))
    if flags.json:
        print(json.dumps({"run": str(run.folder), "samples": count}))
    else:
        print(f"{count} samples in {run.folder}")
