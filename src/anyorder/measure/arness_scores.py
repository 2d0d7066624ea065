"""AR-ness of traces: does the sampler write from left to right? With chance and mirror.

Scores: global and local AR-ness at k (DiffuCoder, arXiv 2506.20639), adjacent moves, Kendall's tau.

Items are the generated tokens that share a character with the sample's program (with all text where
no program was looked for), in their final places. Given tokens are not items. Nor are tokens
without text (end of sequence, padding): on a fixed canvas they outnumber the code and come first,
so they are reported apart (`TextlessTokens`). An item counts as hidden until it has its final
token, even if its slot is not inserted yet, so ar, mdm and flexmdm are judged alike.

Items 0..N-1 go from left to right; `times[i]` is the step that reveals item i. A step may reveal
several items; they have no order among themselves, so an item is judged by the canvas *before* its
step. Steps that reveal something are numbered e = 0, 1, ...; step e reveals n_e items, of m_e that
are hidden before it.

    global@k   share of items that are among the k leftmost hidden before their step
    local@k    share of items i, of those revealed at e >= k, with item i-1 revealed at step e-1,
               i-2 at e-2, ..., i-k at e-k: k moves to the next place in a row
    adjacent   share of items, of those at e >= 1, with a neighbour on either side revealed at e-1
    tau        Kendall's tau-b of place and time; a pair of one step is tied and counts for neither
               side: (concordant - discordant) / sqrt(pairs * pairs not tied); NaN if all are tied

With one item a step, strict left to right scores 1 everywhere. With more it cannot, so every value
comes with `left_to_right`, the same step sizes in that order, and with `chance`, the expectation
over random orders, in closed form:

    global@k   sum_e n_e min(k, m_e) / m_e / N
    local@k    (N-k) sum_{e>=k} n_e n_{e-1} ... n_{e-k} / (N (N-1) ... (N-k)) / sum_{e>=k} n_e
    adjacent   sum_{e>=1} [2 a b / N - a b (a-1) / (N (N-1))] / sum_{e>=1} b,  a = n_{e-1}, b = n_e
    tau        0: mirroring an order changes its sign

`ties` is the share of the sampler's choices that a tie rule made. Where it is large, the order is
that rule's and not the model's.

Where a sampler fills blocks from left to right (trace/blocks.py), the order between blocks is
given. Every score then has two more controls, which deal the steps out inside blocks
(order_blocks.py), and there is one more score:

    tau_in_blocks    the mean of the blocks' own tau-b, each weighted by its number of pairs, over
                     the blocks that have an order; chance is 0. With one item a step it is
                     (tau - chance) / (1 - chance) of the raw tau, chance that within blocks

A block revealed in one step has no order; `ordered` is the share of the pairs inside blocks that do
not come in one step.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anyorder.measure.intervals import (
    LEAST_ROOM,
    Interval,
    as_record,
    known_mean,
    plain,
    sample_interval,
)
from anyorder.measure.order_blocks import (
    ControlKey,
    chances_in_blocks,
    one_after_another,
    permuted_in_blocks,
    sorted_in_blocks,
)
from anyorder.measure.placement_scores import find_program, programs_looked_for
from anyorder.trace import Run, Trace
from anyorder.trace.blocks import BlockRule

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class OrderScore:
    """One score of one order, beside the scores of the same steps in other orders."""

    value: float
    chance: float
    left_to_right: float
    """The score of the same steps in left-to-right order."""
    mirrored: float
    """The same score read from right to left."""


def order_scores(times: ArrayLike, ks: Sequence[int]) -> dict[str, OrderScore]:
    """`global@k` and `local@k` for each k, `adjacent` and `tau`; NaN where undefined."""
    own = np.asarray(times, dtype=np.int64)
    sizes = np.unique(own, return_counts=True)[1]
    chances = _chances(sizes, ks)
    here, best, back = (_values(each, ks) for each in (own, np.sort(own), own[::-1]))
    return {name: OrderScore(here[name], chances[name], best[name], back[name]) for name in here}


def tau_b(times: ArrayLike) -> float:
    """Kendall's tau-b of the times of items from left to right."""
    own = np.asarray(times, dtype=np.int64)
    return _tau(*_left_counts(own))


def control_keys(trace: Trace, seeds: Sequence[int]) -> tuple[ControlKey, ...]:
    """Seed, sample and task, as numbers, for the permutations of a control."""
    # crc32, because `hash` of a string differs between processes.
    return tuple((seed, trace.sample, zlib.crc32(trace.task_id.encode())) for seed in seeds)


@dataclass(frozen=True)
class BlockEnds:
    """The scores of the same steps in other orders inside the blocks."""

    random_in_blocks: float
    """The expectation over orders inside blocks; over seeds, where the blocks' steps overlap."""
    left_to_right_in_blocks: float


def block_ends(
    times: ArrayLike, blocks: ArrayLike, ks: Sequence[int], keys: Sequence[ControlKey]
) -> dict[str, BlockEnds]:
    """The two controls within blocks of each of `order_scores`.

    Block numbers do not fall from left to right; `keys` are of seeds (control_keys).
    """
    own, inside = (np.asarray(each, dtype=np.int64) for each in (times, blocks))
    best = _values(sorted_in_blocks(own, inside), ks)
    if one_after_another(own, inside):
        chances = chances_in_blocks(own, inside, ks)
    else:
        dealt = [_values(permuted_in_blocks(own, inside, key), ks) for key in keys]
        chances = {name: known_mean(each[name] for each in dealt) for name in best}
    return {name: BlockEnds(chances[name], value) for name, value in best.items()}


def tau_in_blocks(times: ArrayLike, blocks: ArrayLike) -> OrderScore:
    """The mean tau-b of the blocks that have an order, weighted by pairs; NaN without one."""
    own, inside = (np.asarray(each, dtype=np.int64) for each in (times, blocks))

    def mean(times: IntArray) -> float:
        taus, pairs = _block_taus(times, inside)
        known = ~np.isnan(taus)
        return float(np.average(taus[known], weights=pairs[known])) if known.any() else math.nan

    value = mean(own)
    chance = math.nan if math.isnan(value) else 0.0
    return OrderScore(value, chance, mean(sorted_in_blocks(own, inside)), -value)


def _block_taus(times: IntArray, blocks: IntArray) -> tuple[FloatArray, IntArray]:
    """Each block's tau-b, and its number of pairs."""
    parts = np.split(times, np.flatnonzero(np.diff(blocks)) + 1)
    pairs = [len(part) * (len(part) - 1) // 2 for part in parts]
    return np.array([tau_b(part) for part in parts]), np.array(pairs)


def ordered_share(times: ArrayLike, blocks: ArrayLike) -> float:
    """The share of the pairs inside blocks that do not come in one step; NaN without pairs."""
    own, inside = (np.asarray(each, dtype=np.int64) for each in (times, blocks))
    sizes = np.unique(inside, return_counts=True)[1]
    tied = np.unique(np.stack([inside, own]), axis=1, return_counts=True)[1]
    pairs, same = (int((each * (each - 1)).sum()) for each in (sizes, tied))
    return 1 - same / pairs if pairs else math.nan


def _values(times: IntArray, ks: Sequence[int]) -> dict[str, float]:
    later, same = _left_counts(times)
    hidden_left = later + same
    entry = np.unique(times, return_inverse=True)[1]
    run = _runs(entry)
    values = {f"global@{k}": _share(hidden_left < k) for k in ks}
    values |= {f"local@{k}": _share(run[entry >= k] >= k) for k in ks}
    neighbour = np.zeros(len(entry), dtype=bool)
    neighbour[1:] |= entry[1:] == entry[:-1] + 1
    neighbour[:-1] |= entry[:-1] == entry[1:] + 1
    values["adjacent"] = _share(neighbour[entry >= 1])
    values["tau"] = _tau(later, same)
    return values


def _left_counts(times: IntArray) -> tuple[IntArray, IntArray]:
    """Per item: how many to its left are revealed later, and how many in the same step."""
    # A sorted list, because both counts are then two bisections instead of a scan of the prefix.
    seen: list[int] = []
    later, same = [], []
    for time in times.tolist():
        first, after = bisect_left(seen, time), bisect_right(seen, time)
        later.append(len(seen) - after)
        same.append(after - first)
        seen.insert(after, time)
    return np.array(later, dtype=np.int64), np.array(same, dtype=np.int64)


def _tau(later: IntArray, same: IntArray) -> float:
    pairs = len(later) * (len(later) - 1) // 2
    untied = pairs - int(same.sum())
    discordant = int(later.sum())
    return (untied - 2 * discordant) / math.sqrt(pairs * untied) if untied else math.nan


def _runs(entry: IntArray) -> IntArray:
    """Per item: how many steps in a row went to the next place, up to this item."""
    moves = np.zeros(len(entry), dtype=bool)
    moves[1:] = entry[1:] == entry[:-1] + 1
    place = np.arange(len(entry))
    return place - np.maximum.accumulate(np.where(moves, 0, place))


def _share(hits: NDArray[np.bool_]) -> float:
    return float(hits.mean()) if hits.size else math.nan


def _chances(sizes: IntArray, ks: Sequence[int]) -> dict[str, float]:
    n = int(sizes.sum())
    left = (n - np.concatenate([[0], np.cumsum(sizes)]))[:-1]  # m_e
    chances = {f"global@{k}": _ratio((sizes * np.minimum(k, left) / left).sum(), n) for k in ks}
    for k in ks:
        products = np.ones(max(0, len(sizes) - k))
        for back in range(k + 1):
            # Divide at each factor, because n (n-1) ... (n-k) as a whole may overflow.
            products = products * sizes[k - back : len(sizes) - back] / (n - back)
        chances[f"local@{k}"] = _ratio((n - k) * products.sum(), sizes[k:].sum())
    before, now = sizes[:-1].astype(float), sizes[1:].astype(float)
    expected = (2 * before * now / n - before * now * (before - 1) / (n * max(1, n - 1))).sum()
    chances["adjacent"] = _ratio(expected, sizes[1:].sum())
    chances["tau"] = 0.0 if len(sizes) > 1 else math.nan
    return chances


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below else math.nan


KS = (1, 3)
SEEDS = tuple(range(8))
TAU_IN_BLOCKS = "tau_in_blocks"
COLUMNS = ("value", "chance", "left_to_right", "mirrored")
SCORED, NO_STEPS, NO_PROGRAM, TOO_SHORT = "scored", "no_steps", "no_program", "too_short"


@dataclass(frozen=True)
class TextlessTokens:
    """Generated tokens without text."""

    share: float
    """Of all generated tokens."""
    early: float
    """Share of them that came before the median item; NaN without any."""


@dataclass(frozen=True)
class InBlocks:
    """The order of one sample inside its blocks."""

    slots: int
    """Generated tokens in the largest block, items or not."""
    ordered: float
    """`ordered_share`."""
    ends: dict[str, BlockEnds]
    """By score, `tau_in_blocks` too."""


@dataclass(frozen=True)
class SampleArness:
    """One sample, scored or not."""

    task_id: str
    sample: int
    status: str
    items: int = 0
    scores: dict[str, OrderScore] = field(default_factory=dict)
    silent: TextlessTokens | None = None
    ties: float | None = None
    """None where the trace does not record it."""
    in_blocks: InBlocks | None = None
    """None where the run has no blocks."""

    def to_record(self) -> dict[str, Any]:
        names = ("task_id", "sample", "status", "items", "ties")
        record = {name: getattr(self, name) for name in names}
        if self.silent is not None:
            record["silent"] = as_record(self.silent)
        if self.in_blocks is not None:
            record["in_blocks"] = as_record(self.in_blocks)
        return record | {"scores": as_record(self.scores)}


@dataclass(frozen=True)
class ArnessCell:
    """One score over all samples that have it."""

    mean: float
    samples: int
    interval: Interval
    """Draws tasks, each with all of its samples."""
    chance: float
    left_to_right: float
    mirrored: float
    ends: BlockEnds | None = None
    """The controls within blocks; None where the run has no blocks."""

    @property
    def position(self) -> float:
        """0 at chance, 1 at left to right; NaN where they differ by less than LEAST_ROOM."""
        return self._between(self.chance, self.left_to_right)

    @property
    def position_in_blocks(self) -> float:
        """The same between the controls within blocks; NaN without blocks."""
        if self.ends is None:
            return math.nan
        return self._between(self.ends.random_in_blocks, self.ends.left_to_right_in_blocks)

    def _between(self, chance: float, left_to_right: float) -> float:
        room = left_to_right - chance
        return (self.mean - chance) / room if abs(room) >= LEAST_ROOM else math.nan

    def to_record(self) -> dict[str, Any]:
        record = as_record(self) | {"position": plain(self.position)}
        del record["ends"]
        if self.ends is not None:
            record |= as_record(self.ends) | {"position_in_blocks": plain(self.position_in_blocks)}
        return dict(record)


class BlockFacts(NamedTuple):
    """The blocks of a run."""

    slots: int
    """Generated tokens in the largest block."""
    ordered: float
    """The mean over samples of the share of pairs inside blocks that have an order."""

    def to_record(self) -> dict[str, Any]:
        return {"slots": self.slots, "ordered": plain(self.ordered), "order_between": "given"}


@dataclass(frozen=True)
class ArnessTable:
    """The result of `arness`."""

    ks: tuple[int, ...]
    samples: tuple[SampleArness, ...]
    statuses: dict[str, int]
    """How many samples have each status."""
    cells: dict[str, ArnessCell]
    silent: TextlessTokens
    """Means over the scored samples; `early` over those that have silent tokens."""
    ties: float
    """Mean share of ties; NaN where no trace records them."""
    blocks: BlockFacts | None = None
    """None where the run has no blocks."""

    def to_record(self, *, samples: bool = True) -> dict[str, Any]:
        """As JSON; `samples` adds a record for each sample."""
        record: dict[str, Any] = {
            "measure": "arness",
            "ks": list(self.ks),
            "statuses": self.statuses,
            "aggregate": {name: cell.to_record() for name, cell in self.cells.items()},
            "silent": as_record(self.silent),
            "ties": plain(self.ties),
        }
        if self.blocks is not None:
            record["blocks"] = self.blocks.to_record()
        if samples:
            record["samples"] = [sample.to_record() for sample in self.samples]
        return record


def arness(run_or_traces: Run | Iterable[Trace], *, ks: Sequence[int] = KS) -> ArnessTable:
    """The AR-ness of a run, or of traces, at each k."""
    if not ks or min(ks) < 1 or len(set(ks)) < len(ks):
        raise ValueError(f"ks={tuple(ks)}: give different whole numbers from 1 on")
    source = run_or_traces if isinstance(run_or_traces, Run) else list(run_or_traces)
    traces = source.traces() if isinstance(source, Run) else source
    looked_for = isinstance(source, Run) and programs_looked_for(source)
    blocks = source.blocks() if isinstance(source, Run) else BlockRule().if_several(source)
    samples = tuple(
        sample_arness(trace, ks, looked_for=looked_for, blocks=blocks) for trace in traces
    )
    scored = [sample for sample in samples if sample.status == SCORED]
    silent = [sample.silent for sample in scored if sample.silent is not None]
    names = [*order_scores([1], ks), *([] if blocks is None else [TAU_IN_BLOCKS])]
    inside = [sample.in_blocks for sample in scored if sample.in_blocks is not None]
    return ArnessTable(
        ks=tuple(ks),
        samples=samples,
        statuses=dict(Counter(sample.status for sample in samples)),
        cells={name: _cell(scored, name) for name in names},
        silent=TextlessTokens(
            known_mean(s.share for s in silent), known_mean(s.early for s in silent)
        ),
        ties=known_mean(s.ties for s in samples if s.ties is not None),
        blocks=None
        if blocks is None
        else BlockFacts(
            max((each.slots for each in inside), default=0),
            known_mean(each.ordered for each in inside),
        ),
    )


def sample_arness(
    trace: Trace,
    ks: Sequence[int] = KS,
    *,
    looked_for: bool = False,
    blocks: BlockRule | None = None,
) -> SampleArness:
    """One sample; its text never raises.

    looked_for: extraction ran on every sample, so a sample without a program has no code.
    """
    if trace.reveal_step is None or trace.char_end is None:
        return SampleArness(trace.task_id, trace.sample, NO_STEPS)
    steps = trace.reveal_step.astype(np.int64)
    end = trace.char_end.astype(np.int64)
    start = np.concatenate([[0], end])[: len(end)]
    how, (first, after) = find_program(trace, looked_for)
    generated = (steps > 0) & (steps <= (trace.steps or 0))  # later: never revealed
    item = generated & (end > start) & (start < after) & (end > first)
    hidden = steps[generated & (end == start)]
    times = steps[item]
    known = SampleArness(trace.task_id, trace.sample, SCORED, len(times), ties=_tie_share(trace))
    if how == "none":
        return replace(known, status=NO_PROGRAM)
    if len(times) < 2:
        return replace(known, status=TOO_SHORT)
    silent = TextlessTokens(
        share=len(hidden) / int(generated.sum()),
        early=float((hidden < np.median(times)).mean()) if len(hidden) else math.nan,
    )
    known = replace(known, scores=order_scores(times, ks), silent=silent)
    if blocks is None:
        return known
    inside = blocks.tokens(trace)[item]
    own = tau_in_blocks(times, inside)
    ends = block_ends(times, inside, ks, control_keys(trace, SEEDS))
    ends[TAU_IN_BLOCKS] = BlockEnds(own.chance, own.left_to_right)
    return replace(
        known,
        scores=known.scores | {TAU_IN_BLOCKS: own},
        in_blocks=InBlocks(blocks.largest(trace), ordered_share(times, inside), ends),
    )


def _tie_share(trace: Trace) -> float | None:
    reveal = trace.timing()[1]
    chosen = int(((reveal > 0) & (reveal <= (trace.steps or 0))).sum())
    # A token that was masked again had earlier reveals, and a deleted one had some: choices too.
    chosen += sum(event.piece is not None for event in trace.events or ())
    chosen += sum((ghost.reveal_step or 0) > 0 for ghost in trace.ghosts or ())
    return trace.ties / chosen if trace.ties is not None and chosen else None


def _cell(samples: Sequence[SampleArness], name: str) -> ArnessCell:
    rows, tasks, ends = [], [], []
    for sample in samples:
        score = sample.scores[name]
        if not math.isnan(score.value):
            rows.append([getattr(score, column) for column in COLUMNS])
            tasks.append(sample.task_id)
            if sample.in_blocks is not None:
                ends.append(sample.in_blocks.ends[name])
    table = np.array(rows).reshape(len(rows), len(COLUMNS))
    value, chance, left_to_right, mirrored = (known_mean(column) for column in table.T)
    mean_ends = BlockEnds(
        known_mean(each.random_in_blocks for each in ends),
        known_mean(each.left_to_right_in_blocks for each in ends),
    )
    return ArnessCell(
        mean=value,
        samples=len(rows),
        interval=sample_interval(tasks, table[:, 0]),
        chance=chance,
        left_to_right=left_to_right,
        mirrored=mirrored,
        ends=mean_ends if ends else None,
    )
