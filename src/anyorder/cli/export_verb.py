"""`anyorder export`: its flags, and what it prints. The work is apps/exporting.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from anyorder.cli.parsing import parse

Name = Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]


@dataclass(frozen=True)
class Flags:
    """Write a model as a folder that other libraries know, with a model card.

    anyorder export runs/mdm --out shared/mdm
    anyorder export runs/flexmdm-7b --out shared/flexmdm --dtype bfloat16 --shard-gb 5
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A model folder, a shipped name or a hub id."""
    out: Path
    """The folder to make."""
    layout: Name = None
    """qwen2, llama, llada, flexmdm, dultra or anyorder; unset: what fits, else anyorder."""
    dtype: Name = None
    """float32, bfloat16 or float16; unset: as stored."""
    shard_gb: float = 5.0
    """The largest file of weights, in GB."""
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "export", words)
    from anyorder.apps.export import ExportOptions, export_to

    options = ExportOptions(flags.layout, flags.dtype, flags.shard_gb)
    made = export_to(flags.model, flags.out, options)
    if flags.json:
        print(json.dumps(made))
    else:
        print(f"{made['folder']}: {len(made['files'])} files in the layout {made['layout']}")
