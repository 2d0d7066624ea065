"""`anyorder sample`: its flags, and what it prints. The work is apps/sampling.py."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated

import tyro

from anyorder.apps.jobs import Count, Name, Number, SampleJob
from anyorder.cli.parsing import command_line, parse


@dataclass(frozen=True)
class Decoding:
    """How to decode. What the family does not use is an error."""

    policy: Name = None
    """Which slots first: confidence (default), sampled (compat), margin, entropy, left_to_right
    or random."""
    quota: Name = None
    """How many a step: even (default; compat: dream), dream[:eps] or threshold[:p]."""
    posterior: Name = None
    """What scores read: untempered (default), filtered (compat): after temperature and top-p."""
    ties: Name = None
    """Who wins among equal scores: random (default) or leftmost (compat)."""
    block: Count = None
    """Close blocks of so many slots from left to right; unset: the whole canvas at once."""
    steps: Count = None
    """Steps in all; unset: one for each free slot."""
    eos: Name = None
    """What to do about the end token: plain (the default; forbid in gaps), last, fill, forbid."""
    temperature: Number = None
    """0 takes the most likely token, and is the default."""
    top_p: Number = None
    """Draw from the smallest set of best tokens with more than this mass."""
    top_k: Count = None
    """Draw from this many best tokens."""
    mode: Name = None
    """exact: as the mathematics says (the default); compat: as the published sampler does."""


@dataclass(frozen=True)
class Flags:
    """Decode with a model and write a run folder: the traces as a table, and a run card.

    Repeating a command goes on where it stopped.

      anyorder sample runs/mdm --task stories --limit 50 --policy confidence
      anyorder sample runs/mdm --prompt "..." --temperature 0.7 --samples 4
      anyorder sample runs/mdm --fill program.txt
    """

    job: Annotated[SampleJob, tyro.conf.arg(name="")]
    decoding: Annotated[Decoding, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "sample", words)
    from anyorder.apps.sampling import sample_to_run
    from anyorder.apps.show import print_run, summary

    options = {name: value for name, value in asdict(flags.decoding).items() if value is not None}
    run = sample_to_run(flags.job, options, command=command_line("sample", words))
    if flags.json:
        print(json.dumps(summary(run)))
    else:
        print_run(run)
