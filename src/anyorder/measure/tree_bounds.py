"""Lower bounds of the tree edit distance, so that a best-match search skips most pairs.

    rename cost 1   preorder,      the Levenshtein distance of the labels read in that order: an
                    postorder      edit of the tree is an edit of either string
    rename cost 0   parentheses    half the insertions and deletions between the two shapes written
                                   as parentheses: a node is a pair of them
    both            size           | |T| - |T'| |; the strings' bounds are never below it

Nor are the strings' bounds ever below the number of nodes without an equal label on the other side,
so label counts are not looked at: bit-parallel strings (rapidfuzz) take about a microsecond a pair,
and there is nothing left to save. Bounds are checked against exact distances in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyorder.measure.tree_forest import Rows

Bounds = NDArray[np.int32]


def lower_bounds(left: Rows, right: Rows, rename_cost: int) -> Bounds:
    """For every pair a number that its distance is not below."""
    return _BOUNDS[rename_cost](left, right)


def _labels(left: Rows, right: Rows) -> Bounds:
    from rapidfuzz.distance import Levenshtein

    before = _compare(_preorder(left), _preorder(right), Levenshtein.distance)
    after = _compare(_postorder(left), _postorder(right), Levenshtein.distance)
    return np.maximum(before, after)


def _shapes(left: Rows, right: Rows) -> Bounds:
    from rapidfuzz.distance import Indel

    edits = _compare(_parentheses(left), _parentheses(right), Indel.distance)
    return (edits + 1) // 2


_BOUNDS: dict[int, Callable[[Rows, Rows], Bounds]] = {0: _shapes, 1: _labels}


def _compare(left: list[str], right: list[str], scorer: Callable[..., Any]) -> Bounds:
    from rapidfuzz.process import cdist

    return cdist(left, right, scorer=scorer, dtype=np.int32)


def _preorder(rows: Rows) -> list[str]:
    return _cut(rows.labels, rows.starts)


def _postorder(rows: Rows) -> list[str]:
    from anyorder.measure import tree_kernels as kernels

    labels, _ = kernels.postorder(rows.labels, rows.depths, rows.starts, False)
    return _cut(labels, rows.starts)


def _parentheses(rows: Rows) -> list[str]:
    # When node i of its tree opens, i nodes have opened before it and all of them but its ancestors
    # have closed: its parenthesis is number 2i - depth.
    number = np.arange(rows.labels.size) - np.repeat(rows.starts[:-1], rows.sizes)
    signs = np.zeros(2 * rows.labels.size, np.int32)
    signs[2 * np.repeat(rows.starts[:-1], rows.sizes) + 2 * number - rows.depths] = 1
    return _cut(signs, 2 * rows.starts)


def _cut(numbers: NDArray[np.int32], starts: NDArray[np.int64]) -> list[str]:
    """One string per tree, a character per number."""
    text = numbers.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
    return [text[begin:end] for begin, end in pairwise(starts.tolist())]
