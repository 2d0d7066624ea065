"""`anyorder demo`: its flags. The work is apps/demo.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from anyorder.cli.parsing import parse


@dataclass(frozen=True)
class Flags:
    """Train tiny/mdm for two minutes, then watch it write in the order that it chooses.

    anyorder demo
    """

    minutes: float = 2.0
    """How long to train at most; running it again goes on."""
    out: Path = Path("runs/demo")
    """Where the model and its samples go."""
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "demo", words)
    from anyorder.apps.demo import demo

    found = demo(flags.out, minutes=flags.minutes, quiet=flags.json)
    if flags.json:
        print(json.dumps(found))
