"""AR-ness of traces: does the sampler write from left to right? With chance and mirror.

The scores are those of reveal_order.py: global and local AR-ness at k (DiffuCoder, arXiv
2506.20639), adjacent moves and Kendall's tau. Which tokens they are computed on:

    items     the generated tokens that share a character with the sample's program (all text where
              none was looked for), in their final places. Tokens that were given are not items.
    silent    generated tokens without text: end of sequence, padding. Never items, because on a
              fixed canvas they outnumber the code and come first; told apart (`Silent`).

A place is an item's number among the items, and what is hidden before a step is every item that
has not its final token yet, also one whose slot is not inserted yet: a sampler that inserts a mask
and fills it at once chose that place. So ar, mdm and flexmdm are judged alike.

`ties` is the share of the sampler's choices that a tie rule made: where it is large, the order is
that rule's and not the model's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anyorder.measure.intervals import Interval
from anyorder.measure.placement_span import find_program, programs_looked_for
from anyorder.measure.pooling import known_mean, plain, sample_interval
from anyorder.measure.reveal_order import OrderScore, order_scores
from anyorder.trace import Run, Trace

KS = (1, 3)
COLUMNS = ("value", "chance", "left_to_right", "mirrored")
SCORED, NO_STEPS, NO_PROGRAM, TOO_SHORT = "scored", "no_steps", "no_program", "too_short"


@dataclass(frozen=True)
class Silent:
    """Generated tokens without text."""

    share: float
    """Of all generated tokens."""
    early: float
    """Share of them that came before the median item; NaN where there are none."""

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        return {"share": plain(self.share), "early": plain(self.early)}


@dataclass(frozen=True)
class SampleArness:
    """One sample, scored or not."""

    task_id: str
    sample: int
    status: str
    items: int = 0
    scores: dict[str, OrderScore] = field(default_factory=dict)
    silent: Silent | None = None
    ties: float | None = None
    """None where the trace does not say."""

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        record: dict[str, Any] = {
            "task_id": self.task_id,
            "sample": self.sample,
            "status": self.status,
            "items": self.items,
            "ties": self.ties,
        }
        if self.silent is not None:
            record["silent"] = self.silent.to_record()
        record["scores"] = {
            name: {column: plain(getattr(score, column)) for column in COLUMNS}
            for name, score in self.scores.items()
        }
        return record


@dataclass(frozen=True)
class ArnessCell:
    """One score over all samples that have it."""

    mean: float
    samples: int
    interval: Interval
    """Over tasks, each with all of its samples."""
    chance: float
    left_to_right: float
    mirrored: float

    @property
    def position(self) -> float:
        """0 at chance, 1 at left to right; NaN where the two are equal."""
        room = self.left_to_right - self.chance
        return (self.mean - self.chance) / room if room else math.nan

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "mean": plain(self.mean),
            "samples": self.samples,
            "interval": self.interval.to_record(),
            "chance": plain(self.chance),
            "left_to_right": plain(self.left_to_right),
            "mirrored": plain(self.mirrored),
            "position": plain(self.position),
        }


@dataclass(frozen=True)
class ArnessTable:
    """What `arness` found."""

    ks: tuple[int, ...]
    samples: tuple[SampleArness, ...]
    statuses: dict[str, int]
    """How many samples have each status; together all of them."""
    cells: dict[str, ArnessCell]
    silent: Silent
    """Means over the scored samples; `early` over those that have silent tokens."""
    ties: float
    """Mean share of ties; NaN where no trace says."""

    def to_record(self, *, samples: bool = True) -> dict[str, Any]:
        """As JSON; without `samples` only what is over all of them."""
        record: dict[str, Any] = {
            "measure": "arness",
            "ks": list(self.ks),
            "statuses": self.statuses,
            "aggregate": {name: cell.to_record() for name, cell in self.cells.items()},
            "silent": self.silent.to_record(),
            "ties": plain(self.ties),
        }
        if samples:
            record["samples"] = [sample.to_record() for sample in self.samples]
        return record


def arness(run_or_traces: Run | Iterable[Trace], *, ks: Sequence[int] = KS) -> ArnessTable:
    """The AR-ness of a run, or of traces, at each k."""
    if not ks or min(ks) < 1 or len(set(ks)) < len(ks):
        raise ValueError(f"ks={tuple(ks)}: give different whole numbers from 1 on")
    traces = run_or_traces.traces() if isinstance(run_or_traces, Run) else run_or_traces
    looked_for = isinstance(run_or_traces, Run) and programs_looked_for(run_or_traces)
    samples = tuple(sample_arness(trace, ks, looked_for=looked_for) for trace in traces)
    scored = [sample for sample in samples if sample.status == SCORED]
    silent = [sample.silent for sample in scored if sample.silent is not None]
    names = list(order_scores([1], ks))
    return ArnessTable(
        ks=tuple(ks),
        samples=samples,
        statuses=dict(Counter(sample.status for sample in samples)),
        cells={name: _cell(scored, name) for name in names},
        silent=Silent(known_mean(s.share for s in silent), known_mean(s.early for s in silent)),
        ties=known_mean(s.ties for s in samples if s.ties is not None),
    )


def sample_arness(
    trace: Trace, ks: Sequence[int] = KS, *, looked_for: bool = False
) -> SampleArness:
    """One sample; never an exception because of its text.

    looked_for: a program was looked for in every sample, so one without a program has no code.
    """
    if trace.reveal_step is None or trace.char_end is None:
        return SampleArness(trace.task_id, trace.sample, NO_STEPS)
    steps = trace.reveal_step.astype(np.int64)
    end = trace.char_end.astype(np.int64)
    start = np.concatenate([[0], end])[: len(end)]
    how, (first, after) = find_program(trace, looked_for)
    generated = steps > 0
    item = generated & (end > start) & (start < after) & (end > first)
    hidden = steps[generated & (end == start)]
    times = steps[item]
    known = SampleArness(trace.task_id, trace.sample, SCORED, len(times), ties=_tie_share(trace))
    if how == "none":
        return replace(known, status=NO_PROGRAM)
    if len(times) < 2:
        return replace(known, status=TOO_SHORT)
    silent = Silent(
        share=len(hidden) / int(generated.sum()),
        early=float((hidden < np.median(times)).mean()) if len(hidden) else math.nan,
    )
    return replace(known, scores=order_scores(times, ks), silent=silent)


def _tie_share(trace: Trace) -> float | None:
    chosen = int((trace.timing()[1] > 0).sum())
    # Where tokens were masked again, their earlier reveals were choices too.
    chosen += sum(event.piece is not None for event in trace.events or ())
    return trace.ties / chosen if trace.ties is not None and chosen else None


def _cell(samples: Sequence[SampleArness], name: str) -> ArnessCell:
    rows, tasks = [], []
    for sample in samples:
        score = sample.scores[name]
        if not math.isnan(score.value):
            rows.append([getattr(score, column) for column in COLUMNS])
            tasks.append(sample.task_id)
    table = np.array(rows).reshape(len(rows), len(COLUMNS))
    value, chance, left_to_right, mirrored = (known_mean(column) for column in table.T)
    return ArnessCell(
        mean=value,
        samples=len(rows),
        interval=sample_interval(tasks, table[:, 0]),
        chance=chance,
        left_to_right=left_to_right,
        mirrored=mirrored,
    )
