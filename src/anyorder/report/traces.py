"""Traces packed into the JSON that the trace player reads (player/, docs/player.md).

One object for all samples of a page. Strings (pieces, prompts, task ids) stand once in a table, the
commonest piece first; everything else is a number that points into it, or a column of whole
numbers. A sample is decoded by the page only when it is looked at.

    {"format": "anyorder-traces", "version": 1,
     "strings": [...],                          the table that every "s" below points into
     "groups":  [{"run", "family", "policy"}],  what samples have in common, in words
     "trees":   [tree, ...],                    statement trees (trace_tree.py), equal ones once
     "samples": [{"group", "task": s, "sample", "prompt": s, ...columns}]}

A sample's columns, one entry per final token; a column whose entries are all equal is that one
number, and one that says nothing is left out:

    piece     s: the token's text            insert, reveal   steps; left out: 0
    logp      thousandths of a nat, negated; -1 where it is not known; left out: nowhere known
    segment   -1 for none; left out: none    score            {segment: thousandths}
    steps     the number of the last snapshot; left out where no steps were recorded

and, where there are any: `verdict` (s), `tree` (its number), `forwards`, `ties`, `seconds` (of
samples that were decoded one at a time), `events` {"step", "slot", "piece"} (-1: a mask) and
`candidates` {"step", "segment", "piece", "score", "taken"}, each a column. A sample of text alone
has one piece and no `steps`.

Rounding of log-probabilities and scores is the only loss. Nothing here draws: see player/.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anyorder.report.trace_tree import pack_tree
from anyorder.trace import Trace

FORMAT = "anyorder-traces"
VERSION = 1

UNKNOWN = -1
MASKED = -1

Key = tuple[str, int]
Column = list[int] | int


@dataclass(frozen=True)
class TraceGroup:
    """Samples that belong together, usually those of one run."""

    name: str
    """What the player calls the run."""
    traces: Sequence[Trace]
    verdicts: Mapping[Key, str] = field(default_factory=dict)
    """(task id, sample) -> a name of bench/verdicts.py; samples without one carry no mark."""
    timed: bool = False
    """Whether samples were decoded one at a time: the seconds of a batch are nobody's own."""


def pack(groups: Sequence[TraceGroup], *, trees: bool = True) -> dict[str, Any]:
    """The payload of a page. `trees` adds the statement tree of every text that parses."""
    packer = _Packer(_pieces(groups), trees)
    samples = [packer.sample(group, trace) for group in groups for trace in group.traces]
    return {
        "format": FORMAT,
        "version": VERSION,
        "strings": list(packer.strings),
        "groups": [
            {"run": run, "family": family, "policy": policy}
            for run, family, policy in packer.groups
        ],
        "trees": packer.tree_list,
        "samples": samples,
    }


def embed(payload: Mapping[str, Any]) -> str:
    """The payload as JSON that may stand inside a <script> element of any page."""
    text = json.dumps(payload, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c")


class _Packer:
    """The tables that samples share, grown as samples come."""

    def __init__(self, pieces: Iterable[str], trees: bool) -> None:
        self.strings: dict[str, int] = {piece: number for number, piece in enumerate(pieces)}
        self.groups: dict[tuple[str, str | None, str | None], int] = {}
        self.tree_list: list[dict[str, Any]] = []
        self._trees: dict[tuple[str, str], int | None] | None = {} if trees else None

    def sample(self, group: TraceGroup, trace: Trace) -> dict[str, Any]:
        common = (group.name, trace.family, trace.policy)
        verdict = group.verdicts.get((trace.task_id, trace.sample))
        packed: dict[str, Any] = {
            "group": self.groups.setdefault(common, len(self.groups)),
            "task": self._string(trace.task_id),
            "sample": trace.sample,
            "prompt": self._string(trace.prompt),
        }
        if verdict is not None:
            packed["verdict"] = self._string(verdict)
        for name in ("forwards", "ties"):
            if getattr(trace, name) is not None:
                packed[name] = getattr(trace, name)
        if group.timed and trace.seconds is not None:
            packed["seconds"] = round(trace.seconds, 3)
        packed.update(self._tokens(trace))
        if self._trees is not None:
            number = self._tree(trace)
            if number is not None:
                packed["tree"] = number
        return packed

    def _tokens(self, trace: Trace) -> dict[str, Any]:
        packed: dict[str, Any] = {"piece": [self._string(piece) for piece in _shown(trace)]}
        if trace.insert_step is None or trace.reveal_step is None:
            return packed
        packed["steps"] = trace.steps
        columns = {
            "insert": (trace.insert_step.tolist(), 0),
            "reveal": (trace.reveal_step.tolist(), 0),
            "logp": (_milli(trace.log_prob, -1000), UNKNOWN),
            "segment": ([] if trace.segment is None else trace.segment.tolist(), -1),
        }
        for name, (values, silent) in columns.items():
            column = _column(values)
            if column not in (silent, []):
                packed[name] = column
        if score := _segment_scores(trace):
            packed["score"] = score
        if trace.events:
            packed["events"] = self._events(trace)
        if trace.candidates:
            packed["candidates"] = self._candidates(trace)
        return packed

    def _events(self, trace: Trace) -> dict[str, Any]:
        events = trace.events or ()
        return {
            "step": _column([event.step for event in events]),
            "slot": _column([event.slot for event in events]),
            "piece": _column(
                [MASKED if event.piece is None else self._string(event.piece) for event in events]
            ),
        }

    def _candidates(self, trace: Trace) -> dict[str, Any]:
        found = trace.candidates or ()
        return {
            "step": _column([each.step for each in found]),
            "segment": _column([each.segment for each in found]),
            "piece": _column([self._string(each.piece) for each in found]),
            "score": [None if each.score is None else round(1000 * each.score) for each in found],
            "taken": _column([int(each.taken) for each in found]),
        }

    def _tree(self, trace: Trace) -> int | None:
        assert self._trees is not None
        key = (trace.prompt, trace.text)
        if key not in self._trees:
            tree = pack_tree(trace, self._string)
            self._trees[key] = None if tree is None else len(self.tree_list)
            if tree is not None:
                self.tree_list.append(tree)
        return self._trees[key]

    def _string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))


def _pieces(groups: Sequence[TraceGroup]) -> Iterator[str]:
    """Every piece, the commonest first: small numbers are short."""
    count = Counter(piece for group in groups for trace in group.traces for piece in _shown(trace))
    return (piece for piece, _ in count.most_common())


def _shown(trace: Trace) -> tuple[str, ...]:
    return (trace.text,) if trace.char_end is None else trace.pieces


def _column(values: list[int]) -> Column:
    """A list, or the one number that all its entries are."""
    return values[0] if values and values.count(values[0]) == len(values) else values


def _milli(values: Iterable[float] | None, scale: int) -> list[int]:
    """Whole thousandths; rounding may not turn a known value into the sign for none."""
    if values is None:
        return []
    numbers = (float(value) for value in values)
    return [UNKNOWN if math.isnan(value) else max(0, round(scale * value)) for value in numbers]


def _segment_scores(trace: Trace) -> dict[str, int]:
    """A segment's score stands at each of its tokens in the trace, here once."""
    if trace.segment is None or trace.score is None:
        return {}
    pairs = zip(trace.segment.tolist(), trace.score.tolist(), strict=True)
    return {
        str(segment): round(1000 * score)
        for segment, score in pairs
        if segment >= 0 and not math.isnan(score)
    }
