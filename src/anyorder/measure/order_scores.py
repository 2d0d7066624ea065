"""The any-order metrics of traces, with their controls (paper Section 3.2 and appendix D).

    table = order(run)                       exact: the paper's definitions
    table = order(run, mode="compat")        the release's choices, number for number

Per sample: text -> program and blocks (order_program.py); the trace's steps -> one step per Python
token, for the sample and its controls; -> CBC, RUB, RUB+, OBW per node (order_nodes.py).
order_table.py aggregates. docs/order.md lists where the two modes differ.

A Python token is revealed when the last of the trace's tokens that overlap it is. exact takes the
step at which a slot got its final token, compat the first at which it showed any.

A sample without a score is in the table with its status: that of syntax.Status, `no_steps` where
only the text is known, or `given` where no token of the program was generated.

A high score is not good as such: random order scores higher than any model. A control keeps the
final program and the number of tokens at each step, and assigns the steps to other tokens:

    left_to_right    the steps sorted
    right_to_left    the same, backwards
    random           permuted, once per seed
    segments         the segments' last steps permuted over the segments, once per seed: chance for
                     a sampler that commits a segment at once
    left_to_right_in_blocks, random_in_blocks    the steps of each block sorted, or permuted, where
                     a sampler fills blocks from left to right (order_blocks.py)

Tokens outside the program and given tokens keep their steps. A permutation depends only on the
seed, the task and the sample's number.

Letters: R rows of steps (sample and controls), N tokens of the trace, T Python tokens, P parents.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyorder.checks import refuse_unknown
from anyorder.measure.arness_scores import SEEDS, control_keys, tau_b
from anyorder.measure.intervals import known_mean
from anyorder.measure.order_anchors import AnchorOrder, Units, anchor_order
from anyorder.measure.order_blocks import (
    LEFT_TO_RIGHT_IN_BLOCKS,
    RANDOM_IN_BLOCKS,
    ControlKey,
    permuted_in_blocks,
    sorted_in_blocks,
)
from anyorder.measure.order_nodes import RULES, UNSEEN, NodeScores, score_nodes
from anyorder.measure.order_program import SCOPES, OrderProgram, ProgramFacts, prepare
from anyorder.measure.order_table import (
    LEFT_TO_RIGHT,
    RANDOM,
    BlockPairs,
    OrderSetting,
    OrderTable,
    SampleOrder,
    ScopeOrder,
    SegmentOrder,
    aggregate,
)
from anyorder.trace import Run, Trace
from anyorder.trace.blocks import BlockRule

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
PreparedOrder = OrderProgram | ProgramFacts

NO_STEPS, GIVEN = "no_steps", "given"
NEWLINE = re.compile("\n")

# Samples of one task are often equal, so a cache of the last few texts catches most repetitions.
PROGRAMS_CACHED = 256


@dataclass(frozen=True)
class MovableTokens:
    """One sample's movable tokens, left to right."""

    steps: IntArray
    segments: IntArray | None
    """The segment of each, -1 for none; None if the trace has no segments."""
    keys: tuple[ControlKey, ...]
    """One per seed; a permutation depends on nothing else."""
    blocks: IntArray | None = None
    """The block of each; None if the run has no blocks."""


def segment_steps(steps: IntArray, which: IntArray) -> IntArray:
    """The last step of each segment; `which` numbers the segments 0, 1, 2, ..."""
    last = np.zeros(int(which.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(last, which, steps)
    return last


def _segments(tokens: MovableTokens) -> list[IntArray]:
    if tokens.segments is None:
        return []
    _, which = np.unique(tokens.segments, return_inverse=True)
    last = segment_steps(tokens.steps, which)
    return [np.random.default_rng(key).permutation(last)[which] for key in tokens.keys]


CONTROLS: dict[str, Callable[[MovableTokens], list[IntArray]]] = {
    LEFT_TO_RIGHT: lambda tokens: [np.sort(tokens.steps)],
    "right_to_left": lambda tokens: [np.sort(tokens.steps)[::-1]],
    RANDOM: lambda tokens: [
        np.random.default_rng(key).permutation(tokens.steps) for key in tokens.keys
    ],
    "segments": _segments,
    LEFT_TO_RIGHT_IN_BLOCKS: lambda tokens: (
        [] if tokens.blocks is None else [sorted_in_blocks(tokens.steps, tokens.blocks)]
    ),
    RANDOM_IN_BLOCKS: lambda tokens: (
        []
        if tokens.blocks is None
        else [permuted_in_blocks(tokens.steps, tokens.blocks, key) for key in tokens.keys]
    ),
}
"""Control -> the rows of steps that it gives the movable tokens."""


def control_rows(
    steps: IntArray, movable: BoolArray, tokens: MovableTokens, names: Sequence[str]
) -> tuple[IntArray, dict[str, slice]]:
    """The steps of a sample and its controls (R N), and the rows of each control.

    `steps` are those of all tokens; `movable` marks the ones in `tokens`.
    """
    rows = [steps]
    where = {}
    for name in names:
        made = CONTROLS[name](tokens)
        where[name] = slice(len(rows), len(rows) + len(made))
        for values in made:
            row = steps.copy()
            row[movable] = values
            rows.append(row)
    return np.stack(rows), where


def order(
    run_or_traces: Run | Iterable[Trace],
    mode: str = "exact",
    *,
    scopes: Sequence[str] = tuple(SCOPES),
    controls: Sequence[str] = tuple(CONTROLS),
    seeds: Sequence[int] = SEEDS,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
) -> OrderTable:
    """The order metrics of a run, or of traces; `controls=()` leaves the controls out.

    `facts` by task id, None: those of the run card; order_anchors.py says which are read.
    """
    for what, names, known in (
        ("mode", [mode], RULES),
        ("scope", scopes, SCOPES),
        ("control", controls, CONTROLS),
    ):
        for name in names:
            refuse_unknown(what, name, known)
    if controls and not seeds:
        raise ValueError("seeds is empty: give at least one for the random control")
    source = run_or_traces if isinstance(run_or_traces, Run) else list(run_or_traces)
    if facts is None:
        facts = (isinstance(source, Run) and source.card.facts) or {}
    setting = OrderSetting(mode, tuple(scopes), tuple(controls), tuple(seeds))
    programs = _Programs(setting)
    blocks = source.blocks() if isinstance(source, Run) else BlockRule().if_several(source)
    samples = [
        measure_sample(trace, setting, programs, facts.get(trace.task_id, {}), blocks)
        for trace in (source.traces() if isinstance(source, Run) else source)
    ]
    return aggregate(samples, setting)


class _Programs:
    """The most recent programs of one call, by text."""

    def __init__(self, setting: OrderSetting) -> None:
        self.setting = setting
        self._known: OrderedDict[tuple[str, str, str | None], PreparedOrder] = OrderedDict()

    def of(self, trace: Trace) -> PreparedOrder:
        key = (trace.prompt, trace.text, trace.entry_point)
        if key not in self._known:
            self._known[key] = prepare(trace, self.setting.scopes, self.setting.mode)
        self._known.move_to_end(key)
        while len(self._known) > PROGRAMS_CACHED:
            self._known.popitem(last=False)
        return self._known[key]


def measure_sample(
    trace: Trace,
    setting: OrderSetting,
    programs: _Programs | None = None,
    known: Mapping[str, Any] | None = None,
    blocks: BlockRule | None = None,
) -> SampleOrder:
    """One trace; its text never raises. `known` are the facts of its problem, `blocks` the rule of
    its run."""
    program = (programs or _Programs(setting)).of(trace)
    facts = program if isinstance(program, ProgramFacts) else program.facts
    status = NO_STEPS if trace.reveal_step is None else facts.status
    if isinstance(program, ProgramFacts) or trace.reveal_step is None:
        return SampleOrder(trace.task_id, trace.sample, status, facts)
    places = _Places.of(trace, program, blocks, first_shown=setting.mode == "compat")
    tokens = MovableTokens(
        places.steps[places.movable],
        None if places.segments is None else places.segments[places.movable],
        control_keys(trace, setting.seeds),
        None if places.blocks is None else places.blocks[places.movable],
    )
    steps, where = control_rows(places.steps, places.movable, tokens, setting.controls)
    token_steps = revealed_at(places.start, places.end, steps, program.spans)
    scores = score_nodes(token_steps, program.blocks, RULES[setting.mode])
    if facts.parents and not scores.children[0].any():
        status = GIVEN
    chance = RANDOM if blocks is None else RANDOM_IN_BLOCKS
    random = steps[where.get(chance, slice(0))]
    segments, anchor = _unit_orders(trace, places, random, known or {})
    return SampleOrder(
        trace.task_id,
        trace.sample,
        status,
        facts,
        scopes=_by_scope(program, scores, where),
        visits=scores.visits[0],
        segments=segments,
        anchor=anchor,
        blocks=None
        if blocks is None
        else BlockPairs(blocks.largest(trace), *sibling_pairs(places, program)),
    )


class _Places:
    """The trace's tokens that have characters, left to right.  # N each"""

    def __init__(self, start: IntArray, end: IntArray, steps: IntArray) -> None:
        self.start, self.end, self.steps = start, end, steps
        self.movable: BoolArray = np.ones(len(steps), dtype=bool)
        self.segments: IntArray | None = None
        self.blocks: IntArray | None = None

    @classmethod
    def of(
        cls, trace: Trace, program: OrderProgram, blocks: BlockRule | None, *, first_shown: bool
    ) -> _Places:
        assert trace.char_end is not None
        end = trace.char_end.astype(np.int64)
        start = np.concatenate([[0], end])[: len(end)]
        wide = end > start
        steps = reveal_steps(trace, first_shown=first_shown)
        places = cls(start[wide], end[wide], steps[wide])
        first, after = program.extent
        places.movable = (places.start < after) & (places.end > first) & (places.steps > 0)
        if trace.segment is not None:
            places.segments = trace.segment.astype(np.int64)[wide]
        if blocks is not None:
            places.blocks = blocks.tokens(trace)[wide]
        return places


def reveal_steps(trace: Trace, *, first_shown: bool = False) -> IntArray:
    """The step at which each slot got its final token, or first showed any.

    Tokens of step 0 do not count as shown: duo's canvases begin as noise.
    """
    steps = trace.first_reveal_step if first_shown else trace.timing()[1]
    return steps.astype(np.int64)


def revealed_at(start: IntArray, end: IntArray, steps: IntArray, spans: IntArray) -> IntArray:
    """The step of each Python token (R T): the latest of the trace's tokens (R N) it overlaps."""
    first = np.searchsorted(end, spans[:, 0], side="right")
    after = np.searchsorted(start, spans[:, 1], side="left")
    # `reduceat` needs indices below the length, so a last column makes N itself a valid bound.
    padded = np.concatenate([steps, np.full((len(steps), 1), UNSEEN)], axis=1)
    if not len(spans):
        return padded[:, :0]
    bounds = np.stack([first, np.maximum(after, first)], axis=1).ravel()
    # Bounds come in pairs; every second result is the gap between two tokens.
    latest = np.maximum.reduceat(padded, bounds, axis=1)[:, ::2]
    return np.where(after > first, latest, UNSEEN)


def _by_scope(
    program: OrderProgram, scores: NodeScores, where: dict[str, slice]
) -> dict[str, ScopeOrder | None]:
    depth = np.array([parent.depth for parent in program.facts.parents], dtype=np.int64)
    stacked = scores.stacked()  # 4 R P
    found: dict[str, ScopeOrder | None] = {}
    for name, members in program.scopes.items():
        if members is None:
            found[name] = None
            continue
        chosen = members[scores.children[0, members] > 0]
        found[name] = ScopeOrder.of(
            chosen, scores.children[0, chosen], depth[chosen], stacked[:, :, chosen], where
        )
    return found


def sibling_pairs(places: _Places, program: OrderProgram) -> tuple[int, int]:
    """Of the pairs of generated children of one node: those inside one block, and all.

    Only inside one block is the order of two children free.
    """
    assert places.blocks is not None
    # Of every Python token, the first and the last block; `revealed_at` takes the latest.
    beyond = int(places.blocks.max(initial=0)) + 1
    own = np.where(places.movable, np.stack([beyond - places.blocks, places.blocks + 1]), 0)  # 2 N
    first, last = revealed_at(places.start, places.end, own, program.spans)[:, program.blocks.token]
    ends = np.zeros((2, len(program.blocks.parent)), dtype=np.int64)  # 2 C
    np.maximum.at(ends[0], program.blocks.child, first)
    np.maximum.at(ends[1], program.blocks.child, last)
    there = ends[1] > 0
    parent, block = program.blocks.parent[there], ends[1][there] - 1
    whole = beyond - ends[0][there] == block
    _, children = np.unique(parent, return_counts=True)
    _, inside = np.unique(np.stack([parent, block])[:, whole], axis=1, return_counts=True)
    pairs = [int((counts * (counts - 1)).sum()) // 2 for counts in (inside, children)]
    return pairs[0], pairs[1]


def _unit_orders(
    trace: Trace, places: _Places, random: IntArray, known: Mapping[str, Any]
) -> tuple[SegmentOrder | None, AnchorOrder | None]:
    """The order of the segments' last steps, or of the lines' where there are no segments; and the
    same as seen from the anchor.

    `random` are the rows of the random control (R N), that within blocks if there are blocks.
    Permuted segments have a tau of 0 on average; permuted tokens do not, where lines differ in
    length, or keep to their blocks.
    """
    inside, units = _units(trace, places)
    if not units.texts:
        return None, None
    rows = np.concatenate([places.steps[None], random])[:, inside]
    last = np.stack([segment_steps(row, units.number) for row in rows])  # R U
    chance = known_mean(map(tau_b, last[1:])) if units.name == "line" else 0.0
    segments = SegmentOrder(units.name, len(units.texts), tau_b(last[0]), chance)
    return segments, anchor_order(units, last, known, trace.entry_point)


def _units(trace: Trace, places: _Places) -> tuple[BoolArray, Units]:
    """The tokens (N) that belong to a segment or line, and these."""
    if places.segments is not None:
        name, which = "segment", places.segments
        inside = places.movable & (which >= 0)
    else:
        breaks = np.array([match.start() for match in NEWLINE.finditer(trace.text)])
        name, which = "line", np.searchsorted(breaks, places.start)
        inside = places.movable
    _, first, number = np.unique(which[inside], return_index=True, return_inverse=True)
    start, end = places.start[inside], places.end[inside]
    after = segment_steps(end, number)
    texts = (trace.text[a:b] for a, b in zip(start[first].tolist(), after.tolist(), strict=True))
    return inside, Units(name, number, tuple(texts))
