"""Exact tree edit distances and best matches, for sets of trees (appendix B).

    TED(T, T')   the least number of insertions, deletions and renames; a rename costs 0 or 1
    Sim(T, T')   max(0, 1 - TED / max(|T|, |T'|))

At rename cost 0 all labels are made equal, so the same kernel (tree_kernels.py) serves. Identical
trees are computed once. Trees become arrays, with numbers for labels that both sides share. Of the
two decompositions, along left paths or along right ones (left paths of mirrored trees), a pair of
sets takes the one with fewer table entries: for Python's trees mostly the right one.

`best_matches` finds the most similar reference of every sample without computing all pairs: an
identical one ends the search, and a pair is skipped if its lower bound cannot beat the best so far.
The result equals that of the full matrix, the first of equals included. Lower bounds:

    rename cost 1   preorder,      the Levenshtein distance of the labels read in that order: an
                    postorder      edit of the tree is an edit of either string
    rename cost 0   parentheses    half the insertions and deletions between the two shapes written
                                   as parentheses: a node is a pair of them

These are never below the difference in size, or the count of labels without a partner, so such
bounds are not needed; bit-parallel strings (rapidfuzz) take about a microsecond a pair.

The kernels hold no lock, so jobs run in threads on all cores. Importing this file compiles nothing;
the first call does, once per machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anyorder.measure.trees import Tree

IntArray = NDArray[np.int64]

# Gains are int16, and a gain is at most the nodes of both trees together.
LARGEST_TREE = 16_000

# Most entries of one memo (nodes of samples times nodes of references): 128 MB.
MEMO_CELLS = 1 << 26


@dataclass(frozen=True)
class Distinct:
    """Trees without repetition, and the index of each given tree among them."""

    trees: list[Tree]
    index: IntArray
    first: IntArray
    """Per distinct tree: the first given tree that equals it."""


def distinct(trees: Sequence[Tree], rename_cost: int) -> Distinct:
    """Remove repetitions; at rename cost 0 trees of the same shape are equal."""
    known: dict[Any, int] = {}
    unique: list[Tree] = []
    first: list[int] = []
    index: list[int] = []
    for place, tree in enumerate(trees):
        key = identity(tree, rename_cost)
        if key not in known:
            known[key] = len(unique)
            unique.append(tree)
            first.append(place)
        index.append(known[key])
    return Distinct(unique, np.array(index, np.int64), np.array(first, np.int64))


def identity(tree: Tree, rename_cost: int) -> Any:
    """A key that is equal exactly for trees at distance 0."""
    return tree if rename_cost else tree.depths


@dataclass(frozen=True)
class TreeRows:
    """Trees in preorder, one after another."""

    labels: NDArray[np.int32]
    depths: NDArray[np.int32]
    starts: IntArray

    def cut(self, begin: int, end: int) -> TreeRows:
        """Some of the trees."""
        low, high = self.starts[begin], self.starts[end]
        starts = self.starts[begin : end + 1] - low
        return TreeRows(self.labels[low:high], self.depths[low:high], starts)

    @property
    def sizes(self) -> IntArray:
        """Nodes of each tree."""
        return np.diff(self.starts)


def rows_of(
    left: Sequence[Tree], right: Sequence[Tree], rename_cost: int
) -> tuple[TreeRows, TreeRows]:
    """Both sides, with shared numbers for labels; all 0 at rename cost 0."""
    numbers: dict[str, int] = {}
    sides = []
    for trees in (left, right):
        sizes = [tree.size for tree in trees]
        if max(sizes, default=0) > LARGEST_TREE:
            raise ValueError(
                f"a tree of {max(sizes)} nodes is too large: distances are computed up to "
                f"{LARGEST_TREE}; leave such programs out"
            )
        starts = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=starts[1:])
        total = int(starts[-1])
        depths = np.fromiter(chain.from_iterable(tree.depths for tree in trees), np.int32, total)
        labels = np.zeros(total, np.int32)
        if rename_cost:
            texts = chain.from_iterable(tree.labels for tree in trees)
            labels[:] = [numbers.setdefault(text, len(numbers)) for text in texts]
        sides.append(TreeRows(labels, depths, starts))
    return sides[0], sides[1]


class Forest(NamedTuple):
    """Trees in postorder, as `tree_kernels.fill` reads them."""

    labels: NDArray[np.int32]
    first: NDArray[np.uint32]
    classes: NDArray[np.uint32]
    keys: NDArray[np.uint32]
    begins: IntArray
    starts: IntArray
    subtrees: int
    """The number of distinct subtrees."""


class Workspace(NamedTuple):
    """Arrays that the kernels write: S per pair of classes, and the table of one pair of trees."""

    memo: NDArray[np.int16]
    table: NDArray[np.int16]
    stride: int


@dataclass(frozen=True)
class EditBlock:
    """A part of a comparison: trees `rows` of the left with trees `columns` of the right."""

    left: Forest
    right: Forest
    rows: slice
    columns: slice

    def workspace(self) -> Workspace:
        """A new workspace, in which nothing is computed."""
        rows = int(np.diff(self.left.starts).max()) + 1
        stride = int(np.diff(self.right.starts).max()) + 1
        memo = np.zeros(self.left.subtrees * self.right.subtrees, np.int16)
        return Workspace(memo, np.zeros(rows * stride, np.int16), stride)


def blocks(left: TreeRows, right: TreeRows) -> Iterator[EditBlock]:
    """All pairs, in parts whose memo is bounded; mostly one part."""
    if left.starts.size < 2 or right.starts.size < 2:
        return
    along_left, along_right = (
        cells(left, mirror).sum() * cells(right, mirror).sum() for mirror in (False, True)
    )
    mirror = bool(along_right < along_left)
    # Start from square parts: a long thin part would share fewer subtrees.
    side = max(int(np.sqrt(MEMO_CELLS)), 1)
    for columns in _spans(right.starts, side):
        second = _forest(right.cut(columns.start, columns.stop), mirror)
        allowed = max(MEMO_CELLS // max(second.starts[-1], 1), 1)
        for rows in _spans(left.starts, int(allowed)):
            first = _forest(left.cut(rows.start, rows.stop), mirror)
            yield EditBlock(first, second, rows, columns)


def _spans(starts: IntArray, nodes: int) -> Iterator[slice]:
    """Consecutive trees with at most `nodes` nodes together, at least one tree each."""
    begin, count = 0, starts.size - 1
    while begin < count:
        end = int(np.searchsorted(starts, starts[begin] + nodes, side="right")) - 1
        end = min(max(end, begin + 1), count)
        yield slice(begin, end)
        begin = end


def cells(rows: TreeRows, mirror: bool) -> IntArray:
    """Cells per tree; the table entries of a pair are the product of its two."""
    from anyorder.measure import tree_kernels as kernels

    _, first = kernels.postorder(rows.labels, rows.depths, rows.starts, mirror)
    return np.asarray(kernels.keyroots(first, rows.starts)[2])


def decomposition_cells(tree: Tree) -> tuple[int, int]:
    """The cells of a tree along left paths and along right ones."""
    rows, _ = rows_of([tree], [], 0)
    return int(cells(rows, False)[0]), int(cells(rows, True)[0])


def _forest(rows: TreeRows, mirror: bool) -> Forest:
    from anyorder.measure import tree_kernels as kernels

    labels, first = kernels.postorder(rows.labels, rows.depths, rows.starts, mirror)
    keys, begins, _ = kernels.keyroots(first, rows.starts)
    classes, count = kernels.classes(labels, first)
    return Forest(labels, first, classes, keys, begins, rows.starts, count)


Bounds = NDArray[np.int32]


def lower_bounds(left: TreeRows, right: TreeRows, rename_cost: int) -> Bounds:
    """A lower bound of the distance of every pair."""
    from rapidfuzz.distance import Indel, Levenshtein
    from rapidfuzz.process import cdist

    def compared(write: Callable[[TreeRows], list[str]], scorer: Callable[..., Any]) -> Bounds:
        return cdist(write(left), write(right), scorer=scorer, dtype=np.int32)

    if rename_cost == 0:
        return (compared(_parentheses, Indel.distance) + 1) // 2
    preorder = compared(lambda rows: _cut(rows.labels, rows.starts), Levenshtein.distance)
    return np.maximum(preorder, compared(_postorder, Levenshtein.distance))


def _postorder(rows: TreeRows) -> list[str]:
    from anyorder.measure import tree_kernels as kernels

    labels, _ = kernels.postorder(rows.labels, rows.depths, rows.starts, False)
    return _cut(labels, rows.starts)


def _parentheses(rows: TreeRows) -> list[str]:
    # When node i opens, i nodes have opened before it, and all of them but its `depth` ancestors
    # have closed: its parenthesis is number 2i - depth.
    number = np.arange(rows.labels.size) - np.repeat(rows.starts[:-1], rows.sizes)
    signs = np.zeros(2 * rows.labels.size, np.int32)
    signs[2 * np.repeat(rows.starts[:-1], rows.sizes) + 2 * number - rows.depths] = 1
    return _cut(signs, 2 * rows.starts)


def _cut(numbers: NDArray[np.int32], starts: NDArray[np.int64]) -> list[str]:
    """One string per tree, a character per number."""
    text = numbers.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
    return [text[begin:end] for begin, end in pairwise(starts.tolist())]


FloatArray = NDArray[np.float64]

RENAME_COSTS = (0, 1)


class EditJob(NamedTuple):
    """Samples, and the references that each of them is compared with."""

    samples: Sequence[Tree]
    references: Sequence[Tree] | None
    """None: the other samples, equal ones included, but never the sample itself."""


@dataclass(frozen=True)
class Matches:
    """The best match of every sample."""

    similarity: FloatArray
    """NaN without references."""
    reference: IntArray
    """The index of the reference, the first of equals; -1 without references."""
    computed: int
    """Pairs that needed the exact distance."""


def distance(left: Tree, right: Tree, rename_cost: int = 1) -> int:
    """The tree edit distance of two trees."""
    return int(distances([left], [right], rename_cost)[0, 0])


def distances(left: Sequence[Tree], right: Sequence[Tree], rename_cost: int = 1) -> IntArray:
    """The distance of every tree on the left to every tree on the right."""
    from anyorder.measure import tree_kernels as kernels

    _check(rename_cost)
    rows, columns = distinct(left, rename_cost), distinct(right, rename_cost)
    first, second = rows_of(rows.trees, columns.trees, rename_cost)
    out = np.zeros((len(rows.trees), len(columns.trees)), np.int64)
    for block in blocks(first, second):
        part = kernels.all_pairs(block.left, block.right, block.workspace())
        out[block.rows, block.columns] = part
    return out[np.ix_(rows.index, columns.index)]


def similarities(left: Sequence[Tree], right: Sequence[Tree], rename_cost: int = 1) -> FloatArray:
    """Sim of every tree on the left and every tree on the right."""
    sizes = [np.array([tree.size for tree in trees], np.int64) for trees in (left, right)]
    larger = np.maximum(sizes[0][:, None], sizes[1][None, :])
    return np.maximum(0.0, 1.0 - distances(left, right, rename_cost) / larger)


def best_matches(
    jobs: Sequence[EditJob], rename_cost: int = 1, *, threads: int | None = None
) -> list[Matches]:
    """The best matches of several jobs (prompts), in threads on all cores."""
    _check(rename_cost)
    search = partial(_search, rename_cost=rename_cost)
    threads = min(threads or cores(), len(jobs))
    if threads <= 1:
        return [search(job) for job in jobs]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(search, jobs))


def cores() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _search(job: EditJob, rename_cost: int) -> Matches:
    rows = distinct(job.samples, rename_cost)
    if job.references is None:
        return _search_among(rows, rename_cost)
    columns = distinct(job.references, rename_cost)
    best = np.full(len(rows.trees), -1.0)
    which = np.full(len(rows.trees), -1, np.int64)
    if not columns.trees:
        return Matches(np.full(rows.index.size, np.nan), which[rows.index], 0)
    known = {identity(tree, rename_cost): number for number, tree in enumerate(columns.trees)}
    for number, tree in enumerate(rows.trees):
        which[number] = known.get(identity(tree, rename_cost), -1)
    best[which >= 0] = 1.0  # identical trees need no search
    others = np.flatnonzero(which < 0)
    pairs = rows_of([rows.trees[i] for i in others], columns.trees, rename_cost)
    found = _search_distinct(*pairs, rename_cost)
    best[others], which[others] = found.similarity, found.reference
    return Matches(best[rows.index], columns.first[which[rows.index]], found.computed)


def _search_among(rows: Distinct, rename_cost: int) -> Matches:
    """The best match of each sample among the others: a copy if there is one."""
    count = rows.index.size
    if count < 2:
        return Matches(np.full(count, np.nan), np.full(count, -1, np.int64), 0)
    repeated = np.bincount(rows.index) > 1
    alone = np.flatnonzero(~repeated)
    found = Matches(np.empty(0), np.empty(0, np.int64), 0)
    if alone.size:
        pairs = rows_of([rows.trees[i] for i in alone], rows.trees, rename_cost)
        found = _search_distinct(*pairs, rename_cost, barred=alone)
    best = np.ones(len(rows.trees))
    which = rows.first.copy()
    best[alone], which[alone] = found.similarity, rows.first[found.reference]
    which = which[rows.index]
    for place, tree in enumerate(rows.index):  # the first copy matches the second
        if repeated[tree] and which[place] == place:
            which[place] = int(np.flatnonzero(rows.index == tree)[1])
    return Matches(best[rows.index], which, found.computed)


def _search_distinct(
    left: TreeRows, right: TreeRows, rename_cost: int, barred: IntArray | None = None
) -> Matches:
    """Best matches of trees that are not on the right, except at `barred`, which does not count."""
    from anyorder.measure import tree_kernels as kernels

    count = left.starts.size - 1
    best, which = np.full(count, -1.0), np.full(count, -1, np.int64)
    if not count:
        return Matches(best, which, 0)
    bounds = lower_bounds(left, right, rename_cost)
    if barred is not None:
        bounds[np.arange(count), barred] = kernels.BARRED
    computed = 0
    for block in blocks(left, right):
        rows, columns = block.rows, block.columns
        limits = np.ascontiguousarray(bounds[rows, columns])  # another layout would compile again
        known = best[rows], which[rows]
        computed += kernels.search(
            block.left, block.right, limits, block.workspace(), *known, columns.start
        )
    return Matches(best, which, computed)


def _check(rename_cost: int) -> None:
    if rename_cost not in RENAME_COSTS:
        raise ValueError(f"rename_cost is {rename_cost!r}: choose 0 or 1")
