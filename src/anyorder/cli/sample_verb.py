"""`anyorder sample`: its flags, and what it prints. The work is apps/sampling.py."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import tyro

from anyorder.apps.jobs import Count, Name, Number, SampleJob, device_here, share_here
from anyorder.cli.parsing import command_line, parse, without


@dataclass(frozen=True)
class Decoding:
    """How to decode. What the family does not use is an error."""

    policy: Name = None
    """Which slots first: confidence (default), sampled (compat), margin, entropy, left_to_right
    or random; planner, the default of an mdm that has one; of segments: average (default), minimum,
    first, left_to_right or random."""
    quota: Name = None
    """How many a step. mdm: even (default; compat: dream), dream[:eps], threshold[:p] or
    factor[:f]; of a planner bernoulli (default) or expected; flexmdm: thinned (default) or poisson
    (compat)."""
    posterior: Name = None
    """What scores read: untempered (default), filtered (compat): after temperature and top-p."""
    ties: Name = None
    """Who wins among equal scores: random (default) or leftmost (compat)."""
    block: Count = None
    """Close blocks of so many slots from left to right; unset: the whole canvas at once."""
    cache: Name = None
    """mdm, fewer columns a step, approximately (docs/fast_decoding.md): prefix keeps the prompt and
    the closed blocks, block also what is right of the block; none (default): all is computed."""
    cache_refresh: Count = None
    """With --cache: compute all columns anew every N network calls, not at block starts only."""
    steps: Count = None
    """Steps in all; unset: one for each free slot (mdm, duo), 16 (sflm), 128 (flexmdm; compat:
    512)."""
    planner_temperature: Number = None
    """planner: above 1 its chances move towards a half, below 1 away from it. Default: 1."""
    remask: Name = None
    """mdm: mask revealed tokens again: cap:ETA, rescale:ETA, loop:ETA (ReMDM; needs --steps, order
    random unless --policy says otherwise), or confidence[:ETA], a heuristic."""
    velocity: Name = None
    """sflm, where slots move: top1 (default; to the most likely token), exact (the mean over all
    tokens), top_k:K (over the K most likely), sampled or sampled:K (to one drawn token)."""
    k: Count = None
    """latentmdm: segments revealed in a step; unset: 1."""
    slots: Count = None
    """latentmdm, flexlatent: the most segments; unset: as in training."""
    slot_temperature: Number = None
    """latentmdm: above 0, which segments come next is drawn, not decided. Default: 0."""
    tail: Name = None
    """latentmdm, once an empty segment is revealed: stop (default: what is open after it is empty
    too), keep (nothing follows from it) or erase (compat: all after it is emptied). duo,
    sflm, the last step: ancestral (a draw; duo's default) or greedy (sflm's)."""
    candidates: bool = False
    """latentmdm, flexlatent: store every proposal of every step with its score, and show those of
    the first sample."""
    clock: Name = None
    """Growing canvases (flexmdm, flexlatent): steps (default), or events: one insertion or reveal
    for each network call."""
    counts: Name = None
    """Growing canvases, how many slots a step inserts: binomial (default), poisson (compat) or
    floor_bernoulli."""
    hazard: Name = None
    """Growing canvases, what share of the waiting events a step holds: exact (default), left
    (compat) or midpoint."""
    insertion_schedule: Number = None
    """Growing canvases: 1 - (1 - t)^X of the slots are inserted by time t; unset: 2.9."""
    unmasking_schedule: Annotated[
        str | None, tyro.conf.arg(metavar="kept|carried|X", help_behavior_hint="")
    ] = None
    """Growing canvases: training's, carried along with the insertions (default) or kept
    (compat), or 1 - (1 - t)^X."""
    insertion_temperature: Number = None
    """Growing canvases: below 1 slots go rather where most are missing; their number
    stays. Default: 1."""
    force_unmask: bool = False
    """flexmdm: reveal one more token inside each long run of masks that a step left alone."""
    meaningful_replace: bool = False
    """flexmdm: exchange a step's least likely reveal for a likely word inside a long run."""
    eos: Name = None
    """What to do about the end token: plain (the default; forbid in gaps), last, fill, forbid."""
    temperature: Number = None
    """0 takes the most likely token, and is the default; of duo and sflm the default is 1."""
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
      anyorder sample runs/mdm --task stories --limit 50 --steps 64 --remask cap:0.05
      anyorder sample runs/mdm --task stories --limit 3 --batch 1 --watch
      anyorder sample runs/flexmdm --task stories --limit 50 --insertion-temperature 0.6
      anyorder sample runs/latentmdm --task stories --limit 50 --policy average --k 2
      anyorder sample duo --task stories --limit 20 --steps 32 --tail greedy
      anyorder sample sflm --task stories --limit 20 --velocity exact
      anyorder sample runs/mdm --task stories --limit 50 --batch 8 --shard 0/4
    """

    job: Annotated[SampleJob, tyro.conf.arg(name="")]
    decoding: Annotated[Decoding, tyro.conf.arg(name="")]
    watch: bool = False
    """Show the canvases while they fill."""
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "sample", words)
    from anyorder.apps.sample import sample_to_run
    from anyorder.apps.show import print_run, print_segments, summary

    # A flag that was not given is no option: families refuse what they do not use.
    given = asdict(flags.decoding).items()
    options = {name: value for name, value in given if value is not None and value is not False}
    share = share_here(flags.job.shard, os.environ)
    if share.origin and share.speaks:
        print(share.opening(), file=sys.stderr)
    run = sample_to_run(
        replace(flags.job, shard=str(share)),
        options,
        command=command_line("sample", without("--shard", words)),
        progress=share.speaks,
        watch=flags.watch,
        place=device_here(flags.job.device, os.environ),
    )
    if not run.complete:
        told = {"run": str(run.folder), "complete": False, "shard": str(share)}
        told |= {"parts": len(run.done_parts())}
        print(json.dumps(told) if flags.json else _unfinished(told))
        return
    if flags.json:
        print(json.dumps(summary(run)))
        return
    if flags.decoding.candidates:
        first = next(run.traces(), None)
        if first is not None and first.candidates:  # a text of no segments had no proposals
            print_segments(first)
    print_run(run)


def _unfinished(told: dict[str, object]) -> str:
    return (
        f"{told['run']}: shard {told['shard']} is there; the run has {told['parts']} batches by "
        "now and is finished by its last shard (or by this command with --shard 0/1)"
    )
