"""The blocks of traces: which slots were filled before which others, whatever the model wanted.

Some samplers fill blocks of slots one after another, from left to right, and choose an order only
inside each. The order between blocks is then given; nothing is found out by measuring it. A token's
block is that of the trace's column `block`. Without one, the run card's option `block` = n says it,
with the grid's `origin`:

    no origin       block b holds the free slots b n, ..., b n + n - 1 of the canvas; given slots
                    are in no block (decode/quota.py: block_of_slots)
    absolute        slot i of the row, prompt included, is in block floor(i / n)
    after_prompt,   the same, counted from the prompt's end
    left_padded

`Run.blocks` gives the rule of a run. `grid_blocks` and `canvas_blocks` give the column for samplers
of other libraries. Not here: measures within blocks (measure/order_blocks.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anyorder.checks import whole
from anyorder.trace.trace import Trace

IntArray = NDArray[np.int64]

GIVEN_ORDER = (
    "the sampler fills blocks of at most {} slots from left to right, so the order between blocks "
    "is given, not found"
)
"""What every table of order says of a run with blocks."""


@dataclass(frozen=True)
class BlockRule:
    """How the tokens of some traces fall into blocks."""

    slots: int | None = None
    """Slots in a block, by the run card; None: only traces with a column have blocks."""
    origin: str | None = None
    """Where the grid begins, by the run card; None: free slots are counted."""

    def if_several(self, traces: Iterable[Trace]) -> BlockRule | None:
        """The rule, if one of the traces has two blocks or more; else None."""
        several = (len(np.unique(self.generated(trace))) > 1 for trace in traces)
        return self if any(several) else None

    def tokens(self, trace: Trace) -> IntArray:
        """Per final token: its block, -1 for given tokens of none; all 0 where none is known.

        The numbers never fall from left to right.
        """
        if trace.block is not None:
            return trace.block.astype(np.int64)
        if trace.reveal_step is None:
            return np.zeros(0, np.int64)
        free = trace.reveal_step > 0
        if self.slots is None:
            return np.zeros(len(free), np.int64)
        if self.origin is None:
            return np.where(free, (np.cumsum(free) - 1) // self.slots, -1)
        prompt = trace.prompt_ids if self.origin == "absolute" else None
        return grid_blocks(len(free), self.slots, 0 if prompt is None else len(prompt))

    def generated(self, trace: Trace) -> IntArray:
        """The blocks of the generated tokens alone."""
        steps = trace.reveal_step
        return self.tokens(trace)[steps > 0] if steps is not None else np.zeros(0, np.int64)

    def largest(self, trace: Trace) -> int:
        """The number of generated tokens in the largest block."""
        counts = np.unique(self.generated(trace), return_counts=True)[1]
        return int(counts.max(initial=0))


def grid_blocks(count: int, length: int, before: int = 0) -> IntArray:
    """The blocks of `count` slots in a grid of blocks of `length`, `before` slots from its start.

    The first of these slots is in block 0.
    """
    return (before + np.arange(count)) // length - before // length


def canvas_blocks(
    widths: Sequence[int], prompt_length: int, block_length: int | None = None
) -> IntArray | None:
    """The column `block` of the slots behind a prompt, on a canvas that had these widths.

    A canvas that grows shows its blocks: each ends where a canvas ended. One of fixed width does
    not, so `block_length` says it, counted from the prompt's end.
    """
    slots = np.arange(prompt_length, widths[-1])
    grown = len(set(widths)) > 1
    if block_length is None:
        ends = np.searchsorted(np.unique(widths), slots, side="right")
        return several_or_none(ends - ends.min(initial=len(widths))) if grown else None
    if grown:
        raise ValueError("block_length: the canvas grows, which shows its blocks: leave it out")
    return several_or_none(grid_blocks(len(slots), whole("block_length", block_length)))


def several_or_none(blocks: IntArray) -> IntArray | None:
    """The blocks, if there are two, and two slots in one; else None: they say nothing of order."""
    return blocks if 0 < int(blocks.max(initial=0)) < len(blocks) - 1 else None
