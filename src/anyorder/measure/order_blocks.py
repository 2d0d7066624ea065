"""Order within blocks: the two controls that keep it there, and chance in closed form.

Where blocks are filled one after another (trace/blocks.py), the order between them is given, and
raw scores are near left to right whatever the model does: with blocks of 4, tau over 256 tokens is
0.99 by chance. So the controls of such runs deal the steps out inside each block:

    left_to_right_in_blocks    the steps of each block sorted
    random_in_blocks           the steps of each block permuted, once per seed

Chance is the expectation over the second. Block b has L_b items, step e of it reveals n_be of them,
of m_be that are hidden in it before; N items in all, and n_first in the first step of all. With the
scores of arness_scores.py, if no step of a block comes before the last of an earlier one:

    global@k   sum_b sum_e n_be min(k, m_be) / m_be / N
    local@k    the expected number of chains / (items at the steps from k on). A chain is k + 1
               steps in a row that reveal k + 1 places in a row. A part of r steps inside block b
               has the probability prod n / (L_b (L_b - 1) ... (L_b - r + 1)) at each place where it
               may begin: L_b - k of them if the whole chain is inside; one if it leaves the block,
               since then it ends, or begins, at the block's border; one if it is a whole block,
               which must then have as many steps as items
    adjacent   [sum_b sum_{e>=1} (2 a n / L - a n (a-1) / (L (L-1))) + sum_{b>=2} a n / (L' L)]
               / (N - n_first), a the items of the step before, n those of the step, L of its block,
               L' of the block before; the second sum is over the first steps of blocks
    tau        P_x / sqrt(P U): P pairs, P_x of them in two blocks, U not of one step

Blocks whose steps overlap have no closed form; then chance is the mean over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
ControlKey = tuple[int, int, int]
"""Of arness_scores.control_keys: a permutation depends on nothing else."""

LEFT_TO_RIGHT_IN_BLOCKS, RANDOM_IN_BLOCKS = "left_to_right_in_blocks", "random_in_blocks"


def sorted_in_blocks(steps: IntArray, blocks: IntArray) -> IntArray:
    """The steps of each block sorted; block numbers do not fall."""
    return steps[np.lexsort((steps, blocks))]


def permuted_in_blocks(steps: IntArray, blocks: IntArray, key: ControlKey) -> IntArray:
    """The steps of each block permuted; block numbers do not fall."""
    chance = np.random.default_rng(key).permutation(len(steps))
    return steps[np.lexsort((chance, blocks))]


def one_after_another(times: IntArray, blocks: IntArray) -> bool:
    """Whether every step of a block comes after all steps of the blocks before."""
    # Sorted by block, then time: between blocks, the time has to rise too.
    order = np.lexsort((times, blocks))
    borders = np.diff(blocks[order]) > 0
    return bool((np.diff(times[order])[borders] > 0).all())


def chances_in_blocks(times: IntArray, blocks: IntArray, ks: Sequence[int]) -> dict[str, float]:
    """The expectation of every score over `random_in_blocks`, for blocks one after another."""
    steps = _Steps(times, blocks)
    chances = {f"global@{k}": steps.leftmost(k) for k in ks}
    chances |= {f"local@{k}": _ratio(steps.chains(k), steps.count[k:].sum()) for k in ks}
    chances["adjacent"] = _ratio(steps.neighbours(), steps.count[1:].sum())
    chances["tau"] = steps.tau()
    return chances


class _Steps:
    """The steps that reveal something, in order: E of them, in blocks that follow one another."""

    def __init__(self, times: IntArray, blocks: IntArray) -> None:
        _, first, self.count = np.unique(times, return_index=True, return_counts=True)  # n, E
        numbers, self.block, self.steps_in = np.unique(  # E; E; B
            blocks[first], return_inverse=True, return_counts=True
        )
        self.items = np.bincount(np.searchsorted(numbers, blocks))  # L, B
        self.begins = np.concatenate([[0], np.cumsum(self.steps_in)])[:-1]  # B

    def leftmost(self, k: int) -> float:
        done = np.cumsum(self.count) - self.count
        hidden = self.items[self.block] - (done - done[self.begins][self.block])  # m, E
        total = (self.count * np.minimum(k, hidden) / hidden).sum()
        return _ratio(total, self.count.sum())

    def chains(self, k: int) -> float:
        """The expected number of chains of k + 1 items."""
        return math.fsum(self._chain(end - k, end) for end in range(k, len(self.count)))

    def _chain(self, first: int, last: int) -> float:
        """The expected number of chains over the steps from `first` to `last`."""
        expected = 1.0
        for block in range(int(self.block[first]), int(self.block[last]) + 1):
            begin, items = int(self.begins[block]), int(self.items[block])
            end = begin + int(self.steps_in[block]) - 1
            part = self.count[max(first, begin) : min(last, end) + 1]
            if begin <= first and last <= end:
                expected *= items - len(part) + 1
            elif first < begin and end < last and items > len(part):
                return 0.0
            # Divide at each factor, because the product as a whole may overflow.
            for place, size in enumerate(part.tolist()):
                expected *= size / (items - place)
        return expected

    def neighbours(self) -> float:
        """The expected number of items with a neighbour in the step before."""
        before, now = self.count[:-1].astype(float), self.count[1:].astype(float)
        items, behind = self.items[self.block[1:]], self.items[self.block[:-1]]
        inside = 2 * before * now / items
        inside -= before * now * (before - 1) / (items * np.maximum(1, items - 1))
        same = self.block[1:] == self.block[:-1]
        return float(np.where(same, inside, before * now / (behind * items)).sum())

    def tau(self) -> float:
        pairs, inside, tied = (_pairs(n) for n in (self.items.sum(), self.items, self.count))
        return (pairs - inside) / math.sqrt(pairs * (pairs - tied)) if pairs > tied else math.nan


def _pairs(counts: NDArray[np.int64] | np.int64) -> int:
    return int(np.sum(counts * (counts - 1)) // 2)


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below else math.nan
