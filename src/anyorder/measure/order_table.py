"""The order metrics of one sample, and the table over samples: means, controls, intervals.

As published: each sample has the mean over its nodes with children (overall) and over those with
two children or more (split_only; none without such a node); then comes the plain mean over all
samples that have one. Controls are averaged in the same way, their rows first, and

    position = (score - left_to_right) / (random - left_to_right)

so strict left to right scores 0 on the same programs, and chance 1; there is no position where the
two controls differ by less than 0.05 (intervals.LEAST_ROOM). Intervals draw tasks, each with
all of its samples. Runs with blocks have a second position, between the two controls within blocks
(order_blocks.py). The scores come from order_scores.py.

Letters: R rows (sample and controls), N nodes with children; 2 PARTS, 4 METRICS.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anyorder.measure.intervals import (
    LEAST_ROOM,
    LEVEL,
    Interval,
    as_record,
    bootstrap,
    known_mean,
    plain,
    ratio_interval,
    sample_interval,
    task_sums,
)
from anyorder.measure.order_anchors import AnchorOrder, Tau, shown_first
from anyorder.measure.order_blocks import LEFT_TO_RIGHT_IN_BLOCKS, RANDOM_IN_BLOCKS
from anyorder.measure.order_nodes import METRICS
from anyorder.measure.order_program import ProgramFacts

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

PARTS = ("overall", "split_only")
LEFT_TO_RIGHT, RANDOM = "left_to_right", "random"
"""The two controls between which a score is placed."""


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
        means = np.stack([_mean(scores), _mean(scores[:, :, children > 1])])  # 2 4 R
        there = {name: rows for name, rows in where.items() if rows.stop > rows.start}
        controls = {name: _mean(means[:, :, rows]) for name, rows in there.items()}
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
    """Mean tau of the control: 0 for segments, not for lines, since a longer line ends later. Of
    the control within blocks, where there are blocks."""


class BlockPairs(NamedTuple):
    """The freedom that blocks leave to the order of one sample's nodes."""

    slots: int
    """Generated tokens in the largest block."""
    inside: int
    """Pairs of children of one node with all their tokens in one block."""
    pairs: int
    """All pairs of children of one node; the order of the others is given, or partly."""

    @property
    def share(self) -> float:
        """NaN without pairs."""
        return self.inside / self.pairs if self.pairs else math.nan


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
    anchor: AnchorOrder | None = None
    """None where the task names no anchor."""
    blocks: BlockPairs | None = None
    """None where the run has no blocks."""

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
            record["segments"] = as_record(self.segments)
        if self.anchor is not None:
            record["anchor"] = as_record(self.anchor)
        if self.blocks is not None:
            record["blocks"] = self.blocks._asdict()
        return record

    def _scope(self, name: str, nodes: bool) -> dict[str, Any] | None:
        scope = self.scopes[name]
        if scope is None:
            return None
        record = _by_part(scope.means)
        record["nonleaf"] = len(scope.parents)
        record["split"] = int((scope.children > 1).sum())
        record["excluded"] = list(self.facts.excluded[name])
        record["controls"] = {name: _by_part(values) for name, values in scope.controls.items()}
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
            **_named(scope.scores[:, at]),
            "visits": {str(c): count for c, count in zip(parent.children, visits, strict=True)},
        }


def _mean(values: FloatArray) -> FloatArray:
    """The mean along the last axis; NaN for an empty axis, without a warning."""
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(values.mean(axis=-1))


def _named(values: FloatArray) -> dict[str, float | None]:
    """Four numbers by the names of METRICS."""
    return {name: plain(value) for name, value in zip(METRICS, values.tolist(), strict=True)}


def _by_part(values: FloatArray) -> dict[str, Any]:
    """Eight numbers (2 4) by PARTS and METRICS."""
    return {part: _named(values[number]) for number, part in enumerate(PARTS)}


@dataclass(frozen=True)
class OrderCell:
    """One metric over all samples."""

    mean: float
    """Over samples, as published."""
    samples: int
    """Samples with a value."""
    interval: Interval
    """Over tasks."""
    controls: dict[str, float]
    """The mean of each control; `segments` only where traces have segments."""
    position: Interval | None
    """Between left to right (0) and random (1); None without these controls, NaN where they differ
    by less than LEAST_ROOM."""
    position_in_blocks: Interval | None = None
    """The same between the controls within blocks; None where the run has no blocks."""

    def to_record(self) -> dict[str, Any]:
        record = dict(as_record(self))
        if self.position_in_blocks is None:
            del record["position_in_blocks"]
        return record


@dataclass(frozen=True)
class DepthRow:
    """The nodes of one depth; the module has depth 0."""

    depth: int
    nodes: int
    samples: int
    means: FloatArray  # 2 4
    """By PARTS and METRICS."""
    controls: dict[str, FloatArray]  # 2 4 each

    def to_record(self) -> dict[str, Any]:
        counts = {"depth": self.depth, "nodes": self.nodes, "samples": self.samples}
        controls = {name: _by_part(values) for name, values in self.controls.items()}
        return counts | _by_part(self.means) | {"controls": controls}


class SegmentCell(NamedTuple):
    """The order of the segments, or lines, over all samples that have one."""

    samples: int
    tau: Interval
    chance: float
    """The mean of the control; NaN without it."""


class AnchorCell(NamedTuple):
    """The order of the lines, or segments, of all samples with one anchor."""

    order: SegmentCell
    outwards: SegmentCell

    def to_record(self) -> dict[str, Any]:
        return {name: as_record(part._asdict()) for name, part in self._asdict().items()}


ALL_ANCHORS = "all"
"""The name of the row over all anchors."""


@dataclass(frozen=True)
class OrderSetting:
    """The arguments of `order`."""

    mode: str
    scopes: tuple[str, ...]
    controls: tuple[str, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class OrderTable:
    """The result of `order`."""

    setting: OrderSetting
    samples: tuple[SampleOrder, ...]
    statuses: dict[str, int]
    """How many samples have each status."""
    misaligned: int
    cells: dict[tuple[str, str, str], OrderCell]
    """By scope, part and metric."""
    depths: dict[str, tuple[DepthRow, ...]]
    segments: dict[str, SegmentCell]
    """Per unit, segment or line."""
    anchors: dict[str, dict[str, AnchorCell]] = field(default_factory=dict)
    """Per unit and anchor; empty where the task names no anchors."""

    @property
    def blocks(self) -> tuple[int, float] | None:
        """(generated tokens in the largest block, mean share of the pairs of children that lie
        inside one block); None where the run has no blocks."""
        found = [sample.blocks for sample in self.samples if sample.blocks is not None]
        if not found:
            return None
        return max(each.slots for each in found), known_mean(each.share for each in found)

    def to_record(self, *, samples: bool = True, nodes: bool = True) -> dict[str, Any]:
        """As JSON; `samples` adds a record for each sample, `nodes` its nodes."""
        aggregate: dict[str, Any] = {}
        for scope in self.setting.scopes:
            aggregate[scope] = {
                part: {name: self.cells[scope, part, name].to_record() for name in METRICS}
                for part in PARTS
            }
            aggregate[scope]["depth"] = [row.to_record() for row in self.depths[scope]]
        record: dict[str, Any] = {
            "measure": "order",
            "mode": self.setting.mode,
            "seeds": list(self.setting.seeds),
            "statuses": self.statuses,
            "misaligned": self.misaligned,
            "aggregate": aggregate,
            "segments": {unit: as_record(each._asdict()) for unit, each in self.segments.items()},
        }
        if self.anchors:
            record["anchors"] = {
                unit: {anchor: cell.to_record() for anchor, cell in cells.items()}
                for unit, cells in self.anchors.items()
            }
        if self.blocks is not None:
            slots, inside = self.blocks
            pairs = {"pairs_inside_one": plain(inside), "order_between": "given"}
            record["blocks"] = {"slots": slots, **pairs}
        if samples:
            record["samples"] = [sample.to_record(nodes=nodes) for sample in self.samples]
        return record


def aggregate(samples: Sequence[SampleOrder], setting: OrderSetting) -> OrderTable:
    """Bring samples together."""
    cells = {}
    for scope in setting.scopes:
        for (row, part), (column, metric) in product(enumerate(PARTS), enumerate(METRICS)):
            cells[scope, part, metric] = _cell(samples, scope, setting.controls, (row, column))
    return OrderTable(
        setting=setting,
        samples=tuple(samples),
        statuses=dict(Counter(sample.status for sample in samples)),
        misaligned=sum(sample.facts.misaligned for sample in samples),
        cells=cells,
        depths={scope: _depths(samples, scope) for scope in setting.scopes},
        segments=_segments(samples),
        anchors=_anchors(samples),
    )


def _cell(
    samples: Sequence[SampleOrder], scope: str, controls: Sequence[str], at: tuple[int, int]
) -> OrderCell:
    tasks, values = [], []
    for sample in samples:
        found = sample.scopes.get(scope)
        if found is not None and not math.isnan(found.means[at]):
            tasks.append(sample.task_id)
            others = (found.controls[c][at] if c in found.controls else math.nan for c in controls)
            values.append([found.means[at], *others])
    # Sums per task, so that a draw of tasks keeps the samples of each together.
    table = np.array(values).reshape(len(values), 1 + len(controls))
    sums, counts = task_sums(tasks, table)
    columns = dict(zip(controls, sums.T[1:], strict=True))

    def position(low: str, high: str) -> Interval | None:
        if low not in columns or high not in columns:
            return None
        return _position(sums[:, 0], columns[low], columns[high], counts)

    blocks = any(sample.blocks is not None for sample in samples)
    own, *means = (known_mean(column) for column in table.T)
    return OrderCell(
        mean=own,
        samples=len(values),
        interval=ratio_interval(sums[:, 0], counts),
        controls={c: mean for c, mean in zip(controls, means, strict=True) if not math.isnan(mean)},
        position=position(LEFT_TO_RIGHT, RANDOM),
        position_in_blocks=position(LEFT_TO_RIGHT_IN_BLOCKS, RANDOM_IN_BLOCKS) if blocks else None,
    )


def _position(own: FloatArray, low: FloatArray, high: FloatArray, counts: NDArray[Any]) -> Interval:
    """The position of the mean between its controls; NaN where these differ by too little.

    Arguments are sums over each task's samples, and the numbers of these.
    """
    if not own.size or abs(high.sum() - low.sum()) < LEAST_ROOM * counts.sum():
        return Interval(math.nan, math.nan, math.nan, own.size, LEVEL, "controls too close")
    try:
        return bootstrap(_between, [own, low, high])
    except ValueError:  # on some draws the two controls are equal
        estimate = float(_between(own[None], low[None], high[None])[0])
        return Interval(estimate, math.nan, math.nan, own.size, LEVEL, "too few tasks")


def _between(own: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    bottom = low.mean(axis=-1)
    return np.asarray((own.mean(axis=-1) - bottom) / (high.mean(axis=-1) - bottom))


def _depths(samples: Sequence[SampleOrder], scope: str) -> tuple[DepthRow, ...]:
    orders = [order for sample in samples if (order := sample.scopes.get(scope)) is not None]
    rows = []
    for depth in sorted({depth for order in orders for depth in order.depth.tolist()}):
        here = [order for order in orders if bool((order.depth == depth).any())]
        nodes = sum(int((order.depth == depth).sum()) for order in here)
        means = _mean_of_some(np.stack([_at_depth(order.scores, order, depth) for order in here]))
        controls = {}
        for name in sorted({name for order in here for name in order.control_scores}):
            those = [order for order in here if name in order.control_scores]
            found = [_at_depth(order.control_scores[name], order, depth) for order in those]
            controls[name] = _mean_of_some(np.stack(found))
        rows.append(DepthRow(depth, nodes, len(here), means, controls))
    return tuple(rows)


def _at_depth(scores: FloatArray, order: ScopeOrder, depth: int) -> FloatArray:
    """The means over one sample's nodes of that depth, by PARTS.  # 2 4"""
    here = order.depth == depth
    return np.stack([_mean(scores[:, here]), _mean(scores[:, here & (order.children > 1)])])


def _segments(samples: Sequence[SampleOrder]) -> dict[str, SegmentCell]:
    found: dict[str, list[tuple[str, SegmentOrder]]] = defaultdict(list)
    for sample in samples:
        own = sample.segments
        if own is not None and not math.isnan(own.tau):
            found[own.unit].append((sample.task_id, own))
    return {unit: _tau_cell(rows) for unit, rows in sorted(found.items())}


def _tau_cell(rows: Sequence[tuple[str, SegmentOrder | Tau]]) -> SegmentCell:
    """The mean of the samples that have a tau: (task id, tau) each."""
    known = [(task_id, own) for task_id, own in rows if not math.isnan(own.tau)]
    tau = sample_interval([task_id for task_id, _ in known], np.array([o.tau for _, o in known]))
    return SegmentCell(len(known), tau, known_mean(own.chance for _, own in known))


def _anchors(samples: Sequence[SampleOrder]) -> dict[str, dict[str, AnchorCell]]:
    found: dict[str, dict[str, list[tuple[str, AnchorOrder]]]] = {}
    for sample in samples:
        if (own := sample.anchor) is not None:
            cells = found.setdefault(own.unit, defaultdict(list))
            cells[own.anchor].append((sample.task_id, own))
    return {unit: _anchor_cells(rows) for unit, rows in sorted(found.items())}


def _anchor_cells(rows: dict[str, list[tuple[str, AnchorOrder]]]) -> dict[str, AnchorCell]:
    parts = {anchor: rows[anchor] for anchor in sorted(rows, key=shown_first)}
    parts[ALL_ANCHORS] = [row for part in parts.values() for row in part]
    return {
        anchor: AnchorCell(
            _tau_cell([(task_id, own.order) for task_id, own in part]),
            _tau_cell([(task_id, own.outwards) for task_id, own in part]),
        )
        for anchor, part in parts.items()
    }


def _mean_of_some(rows: FloatArray) -> FloatArray:
    """The mean over the first axis, NaN left out; `nanmean` would warn where all are NaN."""
    known = ~np.isnan(rows)
    count = known.sum(axis=0)
    total = np.where(known, rows, 0).sum(axis=0)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
