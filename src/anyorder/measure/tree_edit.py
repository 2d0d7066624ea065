"""Exact tree edit distances and best matches, for sets of trees (appendix B).

    TED(T, T')   the least number of insertions, deletions and renames; a rename costs 0 or 1
    Sim(T, T')   max(0, 1 - TED / max(|T|, |T'|))

At rename cost 0 labels do not matter: they are made equal, and the same kernel (tree_kernels.py)
serves. Identical trees are computed once. `best_match` finds for every sample its most similar
reference without computing all pairs: an identical one ends the search at once, and a pair whose
lower bound (tree_bounds.py) cannot beat the best so far is left out. Its results equal those of the
full matrix, the first of equals included.

The kernels hold no lock, so jobs run side by side on all cores. Importing this compiles nothing;
the first call does, once per machine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anyorder.measure.tree import Tree
from anyorder.measure.tree_bounds import lower_bounds
from anyorder.measure.tree_forest import Distinct, Rows, blocks, distinct, identity, rows_of

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

RENAME_COSTS = (0, 1)


class Job(NamedTuple):
    """Samples, and the references that each of them is compared with."""

    samples: Sequence[Tree]
    references: Sequence[Tree] | None
    """None: the other samples. An equal one among them counts, a sample itself does not."""


@dataclass(frozen=True)
class Matches:
    """The best match of every sample."""

    similarity: FloatArray
    """NaN where there are no references."""
    reference: IntArray
    """Which reference, the first of equals; -1 where there are none."""
    computed: int
    """Pairs that needed the exact distance; the rest were identical, repeated or ruled out."""


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


def best_match(
    samples: Sequence[Tree],
    references: Sequence[Tree],
    rename_cost: int = 1,
    *,
    threads: int | None = None,
) -> Matches:
    """For every sample its most similar reference."""
    threads = min(threads or cores(), max(len(samples), 1))
    pieces = np.array_split(np.arange(len(samples)), threads)
    jobs = [Job([samples[i] for i in piece], references) for piece in pieces]
    found = best_matches(jobs, rename_cost, threads=threads)
    return Matches(
        np.concatenate([part.similarity for part in found]),
        np.concatenate([part.reference for part in found]),
        sum(part.computed for part in found),
    )


def best_matches(
    jobs: Sequence[Job], rename_cost: int = 1, *, threads: int | None = None
) -> list[Matches]:
    """The best matches of several jobs (prompts), side by side on all cores."""
    _check(rename_cost)
    search = partial(_search, rename_cost=rename_cost)
    threads = min(threads or cores(), len(jobs))
    if threads <= 1:
        return [search(job) for job in jobs]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(search, jobs))


def cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _search(job: Job, rename_cost: int) -> Matches:
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
    best[which >= 0] = 1.0
    others = np.flatnonzero(which < 0)
    pairs = rows_of([rows.trees[i] for i in others], columns.trees, rename_cost)
    found = _search_distinct(*pairs, rename_cost)
    best[others], which[others] = found.similarity, found.reference
    return Matches(best[rows.index], columns.first[which[rows.index]], found.computed)


def _search_among(rows: Distinct, rename_cost: int) -> Matches:
    """Each sample's best match among the others: a copy if there is one."""
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
    for place, tree in enumerate(rows.index):  # the first copy is matched with the second
        if repeated[tree] and which[place] == place:
            which[place] = int(np.flatnonzero(rows.index == tree)[1])
    return Matches(best[rows.index], which, found.computed)


def _search_distinct(
    left: Rows, right: Rows, rename_cost: int, barred: IntArray | None = None
) -> Matches:
    """Best matches of trees none of which is on the right, but for the one that is `barred`."""
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
        limits = np.ascontiguousarray(bounds[rows, columns])  # another layout compiles anew
        known = best[rows], which[rows]
        computed += kernels.search(
            block.left, block.right, limits, block.workspace(), *known, columns.start
        )
    return Matches(best, which, computed)


def _check(rename_cost: int) -> None:
    if rename_cost not in RENAME_COSTS:
        raise ValueError(f"rename_cost is {rename_cost!r}: choose 0 or 1")
