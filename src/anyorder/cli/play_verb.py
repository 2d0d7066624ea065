"""`anyorder play`: its flags. The work is apps/playing.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from anyorder.apps.play.server import PlayJob
from anyorder.cli.parsing import parse


@dataclass(frozen=True)
class Flags:
    """Open a local page: type a prompt, watch it being written in any order, compare policies.

    Only this machine can reach it, and only with the address that is printed. Ctrl-C ends it.

      anyorder play
      anyorder play runs/mdm --port 8000 --no-browser
    """

    job: Annotated[PlayJob, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON document: the address."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "play", words)
    from anyorder.apps.play.server import play

    play(flags.job, as_json=flags.json)
