"""Sets of trees as the arrays that the kernels read, and how a large comparison is cut up.

Labels become numbers shared by both sides. Of the two decompositions, along left paths or along
right ones (the same on mirrored trees), a pair of forests takes the one with fewer table entries in
all: for Python's trees mostly the right one. Nothing is computed about distances here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anyorder.measure.tree import Tree

IntArray = NDArray[np.int64]

# Gains are kept in 16 bits, and a gain is at most the nodes of both trees.
LARGEST_TREE = 16_000

# Nodes of samples times nodes of references that one memo may cover: at most 128 MB.
MEMO_CELLS = 1 << 26


@dataclass(frozen=True)
class Distinct:
    """Trees without repetition, and where each of the given ones is among them."""

    trees: list[Tree]
    index: IntArray
    first: IntArray
    """Per distinct tree: the first of the given ones that is this tree."""


def distinct(trees: Sequence[Tree], rename_cost: int) -> Distinct:
    """At rename cost 0 trees of the same shape count as the same."""
    known: dict[Any, int] = {}
    kept: list[Tree] = []
    first: list[int] = []
    index: list[int] = []
    for place, tree in enumerate(trees):
        key = identity(tree, rename_cost)
        if key not in known:
            known[key] = len(kept)
            kept.append(tree)
            first.append(place)
        index.append(known[key])
    return Distinct(kept, np.array(index, np.int64), np.array(first, np.int64))


def identity(tree: Tree, rename_cost: int) -> Any:
    """What two trees at distance 0 have in common."""
    return tree if rename_cost else tree.depths


@dataclass(frozen=True)
class Rows:
    """Trees in preorder, one after another."""

    labels: NDArray[np.int32]
    depths: NDArray[np.int32]
    starts: IntArray

    def cut(self, begin: int, end: int) -> Rows:
        """Some of the trees."""
        low, high = self.starts[begin], self.starts[end]
        starts = self.starts[begin : end + 1] - low
        return Rows(self.labels[low:high], self.depths[low:high], starts)

    @property
    def sizes(self) -> IntArray:
        """Nodes of each tree."""
        return np.diff(self.starts)


def rows_of(left: Sequence[Tree], right: Sequence[Tree], rename_cost: int) -> tuple[Rows, Rows]:
    """Both sides, with common numbers for labels; all 0 at rename cost 0."""
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
        sides.append(Rows(labels, depths, starts))
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
    """How many distinct ones there are."""


class Workspace(NamedTuple):
    """What the kernels write: S of pairs of subtree classes, and the table of one pair of trees."""

    memo: NDArray[np.int16]
    table: NDArray[np.int16]
    stride: int


@dataclass(frozen=True)
class Block:
    """A part of a comparison: trees `rows` of the left with trees `columns` of the right."""

    left: Forest
    right: Forest
    rows: slice
    columns: slice

    def workspace(self) -> Workspace:
        """Room for the computation; a new one knows nothing."""
        rows = int(np.diff(self.left.starts).max()) + 1
        stride = int(np.diff(self.right.starts).max()) + 1
        memo = np.zeros(self.left.subtrees * self.right.subtrees, np.int16)
        return Workspace(memo, np.zeros(rows * stride, np.int16), stride)


def blocks(left: Rows, right: Rows) -> Iterator[Block]:
    """All pairs, in parts whose memo is bounded; one part unless the trees are many and large."""
    if left.starts.size < 2 or right.starts.size < 2:
        return
    mirror = _right_is_cheaper(left, right)
    side = max(int(np.sqrt(MEMO_CELLS)), 1)
    for columns in _spans(right.starts, side):
        second = _forest(right.cut(columns.start, columns.stop), mirror)
        allowed = max(MEMO_CELLS // max(second.starts[-1], 1), 1)
        for rows in _spans(left.starts, int(allowed)):
            first = _forest(left.cut(rows.start, rows.stop), mirror)
            yield Block(first, second, rows, columns)


def _spans(starts: IntArray, nodes: int) -> Iterator[slice]:
    """Consecutive trees with about so many nodes together, at least one tree each."""
    begin, count = 0, starts.size - 1
    while begin < count:
        end = int(np.searchsorted(starts, starts[begin] + nodes, side="right")) - 1
        end = min(max(end, begin + 1), count)
        yield slice(begin, end)
        begin = end


def _right_is_cheaper(left: Rows, right: Rows) -> bool:
    cost = {mirror: cells(left, mirror).sum() * cells(right, mirror).sum() for mirror in _SIDES}
    return bool(cost[True] < cost[False])


_SIDES = (False, True)


def cells(rows: Rows, mirror: bool) -> IntArray:
    """Per tree; the table entries of a pair are the product of both numbers."""
    from anyorder.measure import tree_kernels as kernels

    _, first = kernels.postorder(rows.labels, rows.depths, rows.starts, mirror)
    return np.asarray(kernels.keyroots(first, rows.starts)[2])


def decomposition_cells(tree: Tree) -> tuple[int, int]:
    """What the tree contributes to the cost of a pair, along left paths and along right ones."""
    rows, _ = rows_of([tree], [], 0)
    return int(cells(rows, False)[0]), int(cells(rows, True)[0])


def _forest(rows: Rows, mirror: bool) -> Forest:
    from anyorder.measure import tree_kernels as kernels

    labels, first = kernels.postorder(rows.labels, rows.depths, rows.starts, mirror)
    keys, begins, _ = kernels.keyroots(first, rows.starts)
    classes, count = kernels.classes(labels, first)
    return Forest(labels, first, classes, keys, begins, rows.starts, count)
