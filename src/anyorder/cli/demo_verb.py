"""`anyorder demo`: its flags. The work is apps/demo.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from anyorder.cli.parsing import parse


@dataclass(frozen=True)
class Flags:
    """The whole story on eight tiny models that come with the package: they write programs in
    several orders, the programs are executed, the orders are measured, and a page shows it all.

      anyorder demo
      anyorder demo --train
      anyorder demo --problems 20 --out runs/quick
    """

    problems: int = 60
    """Held-out problems that every model is asked."""
    train: bool = False
    """First train tiny/mdm, live, and watch it write."""
    minutes: float = 2.0
    """How long to train at most; running it again goes on."""
    out: Path = Path("runs/demo")
    """Where samples, measures and the page go."""
    json: bool = False
    """Print one JSON document."""

    def __post_init__(self) -> None:
        if self.problems < 2:
            raise ValueError(f"--problems {self.problems}: give at least 2, for the intervals")


def main(words: list[str]) -> None:
    flags = parse(Flags, "demo", words)
    from anyorder.apps.demo import demo, train_live

    found = {}
    if flags.train:
        found["trained"] = train_live(flags.out, minutes=flags.minutes, quiet=flags.json)
    found |= demo(flags.out, problems=flags.problems, quiet=flags.json)
    if flags.json:
        print(json.dumps(found))
