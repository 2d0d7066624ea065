"""`anyorder export` and `anyorder push`: their flags, and what they print.

The work is apps/export.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from anyorder.apps.jobs import Name
from anyorder.cli.flags import Group
from anyorder.cli.parsing import parse


@dataclass(frozen=True)
class ExportFlags:
    """What to export, how and where to."""

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


EXPORT_GROUPS = (
    Group("what and where to", ("out",)),
    Group("how it is written", ("layout", "dtype", "shard_gb")),
    Group("what is printed", ("json",)),
)


def export_verb(words: list[str]) -> None:
    """Write a model as a folder that other libraries know, with a model card.

    anyorder export mdm --out shared/mdm
    anyorder export ar --out shared/ar --dtype bfloat16 --shard-gb 5
    """
    flags = parse(ExportFlags, "export", words, about=export_verb.__doc__, groups=EXPORT_GROUPS)
    from anyorder.apps.export import ExportOptions, export_to

    options = ExportOptions(flags.layout, flags.dtype, flags.shard_gb)
    made = export_to(flags.model, flags.out, options)
    if flags.json:
        print(json.dumps(made))
    else:
        print(f"{made['folder']}: {len(made['files'])} files in the layout {made['layout']}")


@dataclass(frozen=True)
class PushFlags:
    """What to upload, and where to."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """An exported folder, a model folder or a shipped name."""
    repo: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OWNER/NAME")]
    """Where to: made if it is not there."""
    private: bool = False
    """Make it visible to its owner alone."""
    json: bool = False
    """Print one JSON document."""


PUSH_GROUPS = (
    Group("what and where to", ("private",)),
    Group("what is printed", ("json",)),
)


def push_verb(words: list[str]) -> None:
    """Upload a model to the hub, with a model card; log in with `hf auth login` before.

    A folder that `anyorder export` wrote goes as it is, any other model is exported first.

      anyorder push mdm me/mdm --private
    """
    flags = parse(PushFlags, "push", words, about=push_verb.__doc__, groups=PUSH_GROUPS)
    from anyorder.apps.export import push_model

    done = push_model(flags.model, flags.repo, private=flags.private)
    if flags.json:
        print(json.dumps(done))
    else:
        print(f"{done['repo']}: {done['commit']}")
