"""`anyorder push`: its flags, and what it prints. The work is apps/exporting.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

from anyorder.cli.parsing import parse


@dataclass(frozen=True)
class Flags:
    """Upload a model to the hub, with a model card; log in with `hf auth login` before.

    A folder that `anyorder export` wrote goes as it is, any other model is exported first.

      anyorder push shared/flexmdm me/flexmdm --private
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """An exported folder, a model folder or a shipped name."""
    repo: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OWNER/NAME")]
    """Where to: made if it is not there."""
    private: bool = False
    """Make it visible to its owner alone."""
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "push", words)
    from anyorder.apps.export import push_model

    done = push_model(flags.model, flags.repo, private=flags.private)
    if flags.json:
        print(json.dumps(done))
    else:
        print(f"{done['repo']}: {done['commit']}")
