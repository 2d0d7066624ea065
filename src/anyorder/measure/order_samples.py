"""One sample's order metrics: its nodes, their means, its controls, and its record in JSON.

Means are over the nodes with children (overall) and over those with two or more (split_only), for
the sample and for each control, whose rows are averaged. Aggregation over samples: order_table.py.

A high order score is not good as such: random order scores higher than any model. A control keeps
the final program and the number of tokens at each step, and assigns the steps to other tokens:

    left_to_right    the steps sorted
    right_to_left    the same, backwards
    random           permuted, once per seed
    segments         the segments' last steps permuted over the segments, once per seed: chance for
                     a sampler that commits a segment at once

Tokens outside the program and given tokens keep their steps. A permutation depends only on the
seed, the task and the sample's number.

Letters: R rows (sample and controls), T tokens, N nodes with children; 2 PARTS, 4 METRICS.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyorder.measure.intervals import plain
from anyorder.measure.order_nodes import METRICS
from anyorder.measure.order_program import ProgramFacts
from anyorder.trace import Trace

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

PARTS = ("overall", "split_only")


@dataclass(frozen=True)
class ScopeOrder:
    """One sample in one scope."""

    parents: IntArray  # N
    """Indices into the program's parents."""
    children: IntArray  # N
    depth: IntArray  # N
    scores: FloatArray  # 4 N
    """In the order of METRICS."""
    means: FloatArray  # 2 4
    """By PARTS and METRICS; NaN without such a node."""
    controls: dict[str, FloatArray]  # 2 4 each
    """The means of each control, its rows averaged."""
    control_scores: dict[str, FloatArray]  # 4 N each
    """The scores of each control per node, its rows averaged."""

    @classmethod
    def of(
        cls,
        parents: IntArray,
        children: IntArray,
        depth: IntArray,
        scores: FloatArray,
        where: dict[str, slice],
    ) -> ScopeOrder:
        """From the scores of all rows (4 R N); the first row is the sample's own."""
        means = np.stack([mean(scores), mean(scores[:, :, children > 1])])  # 2 4 R
        there = {name: rows for name, rows in where.items() if rows.stop > rows.start}
        controls = {name: mean(means[:, :, rows]) for name, rows in there.items()}
        per_node = {name: scores[:, rows].mean(axis=1) for name, rows in there.items()}
        return cls(parents, children, depth, scores[:, 0], means[:, :, 0], controls, per_node)


@dataclass(frozen=True)
class SegmentOrder:
    """The order in which the segments of one sample were finished."""

    unit: str
    """segment, or line where the trace has no segments."""
    count: int
    tau: float
    """Kendall's tau-b; NaN for one segment, or if all came at once."""
    chance: float
    """Mean tau of the control: 0 for segments, not for lines, since a longer line ends later."""


@dataclass(frozen=True)
class SampleOrder:
    """One sample, scored or not; `status` says which."""

    task_id: str
    sample: int
    status: str
    facts: ProgramFacts
    scopes: dict[str, ScopeOrder | None] = field(default_factory=dict)
    visits: IntArray | None = None
    segments: SegmentOrder | None = None

    def to_record(self, *, nodes: bool = True) -> dict[str, Any]:
        """As JSON; `nodes` adds every node's values."""
        record: dict[str, Any] = {
            "task_id": self.task_id,
            "sample": self.sample,
            "status": self.status,
            "fallback": self.facts.found,
            "misaligned": self.facts.misaligned,
            "scopes": {name: self._scope(name, nodes) for name in self.scopes},
        }
        if self.segments is not None:
            found = self.segments
            numbers = {"tau": plain(found.tau), "chance": plain(found.chance)}
            record["segments"] = {"unit": found.unit, "count": found.count, **numbers}
        return record

    def _scope(self, name: str, nodes: bool) -> dict[str, Any] | None:
        scope = self.scopes[name]
        if scope is None:
            return None
        record: dict[str, Any] = {
            part: named(scope.means[number]) for number, part in enumerate(PARTS)
        }
        record["nonleaf"] = len(scope.parents)
        record["split"] = int((scope.children > 1).sum())
        record["excluded"] = list(self.facts.excluded[name])
        record["controls"] = {
            control: {part: named(values[number]) for number, part in enumerate(PARTS)}
            for control, values in scope.controls.items()
        }
        if nodes:
            record["nodes"] = [self._node(scope, at) for at in range(len(scope.parents))]
        return record

    def _node(self, scope: ScopeOrder, at: int) -> dict[str, Any]:
        which = int(scope.parents[at])
        parent = self.facts.parents[which]
        first = sum(len(other.children) for other in self.facts.parents[:which])
        assert self.visits is not None
        visits = self.visits[first : first + len(parent.children)].tolist()
        return {
            "node": parent.number,
            "kind": parent.kind,
            "label": parent.label,
            "depth": parent.depth,
            "child_count": int(scope.children[at]),
            **named(scope.scores[:, at]),
            "visits": {str(c): count for c, count in zip(parent.children, visits, strict=True)},
        }


def mean(values: FloatArray) -> FloatArray:
    """The mean along the last axis; NaN for an empty axis, without a warning."""
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(values.mean(axis=-1))


def named(values: FloatArray) -> dict[str, float | None]:
    """Four numbers by the names of METRICS."""
    return {name: plain(value) for name, value in zip(METRICS, values.tolist(), strict=True)}


LEFT_TO_RIGHT, RIGHT_TO_LEFT, RANDOM, SEGMENTS = (
    *("left_to_right", "right_to_left", "random", "segments"),
)
SEEDS = tuple(range(8))


@dataclass(frozen=True)
class MovableTokens:
    """One sample's movable tokens, left to right."""

    steps: IntArray
    segments: IntArray | None
    """The segment of each, -1 for none; None if the trace has no segments."""
    keys: tuple[tuple[int, int, int], ...]
    """One per seed; a permutation depends on nothing else."""


def control_keys(trace: Trace, seeds: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Seed, sample and task, as numbers."""
    # crc32, because `hash` of a string differs between processes.
    return tuple((seed, trace.sample, zlib.crc32(trace.task_id.encode())) for seed in seeds)


def _left_to_right(dealt: MovableTokens) -> list[IntArray]:
    return [np.sort(dealt.steps)]


def _right_to_left(dealt: MovableTokens) -> list[IntArray]:
    return [np.sort(dealt.steps)[::-1]]


def _random(dealt: MovableTokens) -> list[IntArray]:
    return [np.random.default_rng(key).permutation(dealt.steps) for key in dealt.keys]


def _segments(dealt: MovableTokens) -> list[IntArray]:
    if dealt.segments is None:
        return []
    _, which = np.unique(dealt.segments, return_inverse=True)
    last = segment_steps(dealt.steps, which)
    return [np.random.default_rng(key).permutation(last)[which] for key in dealt.keys]


def segment_steps(steps: IntArray, which: IntArray) -> IntArray:
    """The last step of each segment; `which` numbers the segments 0, 1, 2, ..."""
    last = np.zeros(int(which.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(last, which, steps)
    return last


CONTROLS: dict[str, Callable[[MovableTokens], list[IntArray]]] = {
    LEFT_TO_RIGHT: _left_to_right,
    RIGHT_TO_LEFT: _right_to_left,
    RANDOM: _random,
    SEGMENTS: _segments,
}


def deal(
    steps: IntArray, movable: NDArray[np.bool_], dealt: MovableTokens, names: Sequence[str]
) -> tuple[IntArray, dict[str, slice]]:
    """The steps of a sample and its controls (R T), and the rows of each control.

    `steps` are those of all tokens; `movable` marks the ones in `dealt`.
    """
    rows = [steps]
    where = {}
    for name in names:
        made = CONTROLS[name](dealt)
        where[name] = slice(len(rows), len(rows) + len(made))
        for values in made:
            row = steps.copy()
            row[movable] = values
            rows.append(row)
    return np.stack(rows), where
