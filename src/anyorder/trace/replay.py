"""A moment of a generation, rebuilt from the trace.

Snapshot s has the slots with insert_step <= s in their final left-to-right order (nothing is ever
deleted, so this is the left-packed canvas of that moment); a slot shows its token from its reveal
step on, before that what its events say, else a mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anyorder.trace import checks
from anyorder.trace.checks import IntArray

if TYPE_CHECKING:
    from anyorder.trace.trace import Trace

MASK_SIGN = "▁"


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The canvas after `step` steps. N below is the number of slots on it."""

    step: int
    slots: IntArray  # N
    """Which of the trace's tokens are on the canvas, left to right."""
    revealed: NDArray[np.bool_]  # N
    pieces: tuple[str, ...]
    """What each slot shows; empty where it is masked."""
    token_ids: IntArray | None  # N
    """Ids, valid where revealed; None for imported strings."""
    prompt: str
    prompt_ids: IntArray | None

    @property
    def masked(self) -> IntArray:
        """The slots on the canvas that show no token yet."""
        return self.slots[~self.revealed]

    def text(self, mask: str = MASK_SIGN, *, prompt: bool = False) -> str:
        """The canvas as text, `mask` for each masked slot."""
        shown = zip(self.pieces, self.revealed.tolist(), strict=True)
        body = "".join(piece if revealed else mask for piece, revealed in shown)
        return self.prompt + body if prompt else body

    def ids(self, mask_id: int, *, prompt: bool = False) -> IntArray:
        """The canvas as ids, `mask_id` for each masked slot."""
        if self.token_ids is None or self.prompt_ids is None:
            raise ValueError("this trace holds strings, not ids: use text() instead of ids()")
        body = np.where(self.revealed, self.token_ids, np.int32(mask_id))
        return np.concatenate([self.prompt_ids, body]) if prompt else body

    def __len__(self) -> int:
        return len(self.slots)

    def __str__(self) -> str:
        return self.text()


def replay(trace: Trace, step: int) -> Snapshot:
    """The snapshot of `trace` after `step` steps, 0..trace.steps."""
    insert, reveal = trace.timing()
    step = checks.count("step", step, highest=trace.steps or 0)
    slots = np.flatnonzero(insert <= step).astype(np.int32)
    revealed = reveal <= step  # per final token until it is narrowed to the slots below
    pieces = list(trace.pieces)
    ids = None if trace.token_ids is None else trace.token_ids.copy()
    for event in trace.events or ():
        if event.step > step:
            break
        if reveal[event.slot] <= step:
            continue
        revealed[event.slot] = event.piece is not None
        pieces[event.slot] = event.piece or ""
        if ids is not None and event.token_id is not None:
            ids[event.slot] = event.token_id
    return Snapshot(
        step=step,
        slots=slots,
        revealed=revealed[slots],
        pieces=tuple(pieces[slot] if revealed[slot] else "" for slot in slots.tolist()),
        token_ids=None if ids is None else ids[slots],
        prompt=trace.prompt,
        prompt_ids=trace.prompt_ids,
    )
