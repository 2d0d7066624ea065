"""CBC, RUB, RUB+ and OBW of every parent node, from token steps alone (appendix D).

A parent has k child blocks; a block is the set of tokens in a child's subtree. A block is opened by
its first token, finished by its last, and open between the two.

    CBC    blocks opened when the first of them is finished, / k
    RUB    blocks during which a sibling got a token, strictly after the block was opened and
           strictly before it was finished, / k
    RUB+   per block min(visits - 1, 2) / 2, the mean over the blocks. A visit is a maximal run of
           steps that reveal a token of the block, among the steps that reveal one in any of the k
    OBW    the largest number of blocks that are open after one and the same step, / k

With k = 1 all four are 1 by convention. All parents, and all rows of steps (a sample and its
controls), are computed at once by sorting; nothing loops over steps or tokens. `exact` and `compat`
differ by the switches of `NodeRules`.

Not here: trees, scopes, traces. Letters: R rows of steps, T tokens, C children, P parents,
M (child, token) pairs, E entries: a parent and a step that reveals something below it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

METRICS = ("cbc", "rub", "rub_plus", "obw")

UNSEEN = -1
"""The step of a Python token that the trace does not cover: in the prompt, or misaligned."""

RETURNS_COUNTED = 2

# Pairs handled at a time: a huge program then costs time, not memory.
PAIRS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class NodeRules:
    """Where `exact` and `compat` differ."""

    first_step: int
    """Tokens revealed before this step count as given: 1 leaves step 0 out."""
    empty_children: bool
    """Whether a child without a generated token is one of the k."""
    unseen_open: bool
    """Whether an UNSEEN token keeps its block open for ever; else it counts as given."""
    width_floor: bool
    """OBW is at least 1 / k once something was generated."""


RULES = {
    "exact": NodeRules(first_step=1, empty_children=False, unseen_open=False, width_floor=False),
    "compat": NodeRules(first_step=0, empty_children=True, unseen_open=True, width_floor=True),
}


@dataclass(frozen=True)
class Blocks:
    """Which tokens lie below which child of which parent."""

    parent: IntArray  # C
    """Per child: its parent, from 0 to below `parents`."""
    parents: int
    child: IntArray  # M
    token: IntArray  # M


@dataclass(frozen=True)
class NodeScores:
    """The four scores of each parent, NaN where it has no child that counts."""

    children: IntArray  # R P
    """k, the number of children that count."""
    cbc: FloatArray  # R P
    rub: FloatArray  # R P
    rub_plus: FloatArray  # R P
    obw: FloatArray  # R P
    visits: IntArray  # R C

    def stacked(self) -> FloatArray:
        """The scores in the order of METRICS.  # 4 R P"""
        return np.stack([getattr(self, name) for name in METRICS])


def score_nodes(steps: IntArray, blocks: Blocks, rules: NodeRules) -> NodeScores:
    """The scores for each row of steps (R T): the step that reveals each token, or UNSEEN."""
    at_once = max(1, PAIRS_AT_ONCE // max(1, len(blocks.token)))
    parts = [
        _score(steps[start : start + at_once], blocks, rules)
        for start in range(0, len(steps), at_once)
    ]
    if len(parts) == 1:
        return parts[0]
    names = ("children", *METRICS, "visits")
    return NodeScores(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True)
class _ChildSpans:
    """The children that got a token, with the numbers of the entries that open and finish them.

    Entries are numbered by parent and step, so the entries of one parent are consecutive.
    """

    who: IntArray  # children present
    parent: IntArray
    opened: IntArray
    finished: IntArray
    """Beyond every entry where an UNSEEN token keeps the block open."""
    returned: NDArray[np.bool_]
    visits: IntArray
    entry_parent: IntArray  # E


def _score(steps: IntArray, blocks: Blocks, rules: NodeRules) -> NodeScores:
    rows, children, parents = len(steps), len(blocks.parent), blocks.parents
    # Children and parents get distinct numbers per row, so one pass scores all rows.
    shift = np.arange(rows)[:, None]
    step = steps[:, blocks.token]  # R M
    child = shift * children + blocks.child
    parent_of = (shift * parents + blocks.parent).ravel()  # R C, flat
    stuck = child[(step == UNSEEN) & rules.unseen_open]
    unseen = np.bincount(stuck, minlength=rows * children) > 0
    counted = step >= rules.first_step
    spans = _child_spans(child[counted], step[counted], parent_of, unseen)

    size = rows * parents
    present = np.bincount(spans.parent, minlength=size)
    k = np.bincount(parent_of, minlength=size) if rules.empty_children else present
    returns = np.clip(spans.visits - 1, 0, RETURNS_COUNTED)
    sums = {
        "cbc": np.bincount(spans.parent, _opened_at_commit(spans, size), size),
        "rub": np.bincount(spans.parent, spans.returned, size),
        "rub_plus": np.bincount(spans.parent, returns / RETURNS_COUNTED, size),
        "obw": _widest(spans, size).astype(float),
    }
    if rules.width_floor:
        sums["obw"] = np.where(present > 0, np.maximum(sums["obw"], 1), sums["obw"])
    values = {name: _per_child(total, k).reshape(rows, parents) for name, total in sums.items()}
    visits = np.zeros(rows * children, dtype=np.int64)
    visits[spans.who] = spans.visits
    return NodeScores(k.reshape(rows, parents), **values, visits=visits.reshape(rows, children))


def _per_child(total: FloatArray, k: IntArray) -> FloatArray:
    scores = np.divide(total, k, out=np.full(len(total), np.nan), where=k > 0)
    scores[k == 1] = 1.0
    return scores


def _child_spans(
    child: IntArray, step: IntArray, parent_of: IntArray, unseen: NDArray[np.bool_]
) -> _ChildSpans:
    """Sort (child, step) pairs into spans; equal pairs count once."""
    # One integer per pair: sorting integers is much faster than sorting rows.
    base = int(step.max(initial=0)) + 1
    pairs = np.sort(child * base + step)
    who, when = np.divmod(pairs[_new(pairs)], base)
    parent = parent_of[who]
    moments = parent * base + when
    by_moment = np.argsort(moments, kind="stable")
    begins = _new(moments[by_moment])
    entries = moments[by_moment][begins]
    entry = np.empty_like(moments)
    entry[by_moment] = np.cumsum(begins) - 1
    sharing = np.bincount(entry, minlength=len(entries))
    first = _new(who)
    last = np.roll(first, -1)
    run_starts = first.copy()
    run_starts[1:] |= entry[1:] != entry[:-1] + 1

    size = len(parent_of)
    inside = (sharing[entry] == 1) & ~first & ~last  # entries of this child alone
    alone = np.bincount(who[inside], minlength=size)
    present = who[first]
    opened, finished = entry[first], entry[last]
    never = unseen[present]
    return _ChildSpans(
        who=present,
        parent=parent[first],
        opened=opened,
        finished=np.where(never, len(entries), finished),
        returned=(finished - opened - 1 - alone[present] > 0) & ~never,
        visits=np.bincount(who[run_starts], minlength=size)[present],
        entry_parent=entries // base,
    )


def _new(ordered: IntArray) -> NDArray[np.bool_]:
    """Where a value differs from the one before it; the first always does."""
    new = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return new


def _opened_at_commit(spans: _ChildSpans, parents: int) -> NDArray[np.bool_]:
    """Whether a child was opened when the first of its siblings was finished; False if none."""
    never = len(spans.entry_parent)
    commit = np.full(parents, never)
    np.minimum.at(commit, spans.parent, spans.finished)
    first = commit[spans.parent]
    return (spans.opened <= first) & (first < never)


def _widest(spans: _ChildSpans, parents: int) -> IntArray:
    """Per parent: the largest number of children that are opened and not finished."""
    widest = np.zeros(parents, dtype=np.int64)
    size = len(spans.entry_parent)
    if not size:
        return widest
    ends = np.bincount(spans.finished, minlength=size + 1)[:size]
    change = np.bincount(spans.opened, minlength=size) - ends
    # One running sum over all parents: each parent subtracts what was open before its first entry.
    after = np.cumsum(change)
    owner = spans.entry_parent
    starts = np.flatnonzero(_new(owner))
    before = np.repeat((after - change)[starts], np.diff([*starts, size]))
    widest[owner[starts]] = np.maximum.reduceat(after - before, starts)
    return widest
