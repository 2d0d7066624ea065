"""Rows of a batch that are decoded together, and leave it when they are complete.

The state of a batch is a dataclass of tensors; each has one entry per row (B), or one line of slots
per row (B L). Not here: who is complete, and what is kept beside such a dataclass.

How decoders tell a `Watcher` (canvas.py) what they do, step by step.

A row that is not finished can be collected as if it were: that is what its watcher is shown.
Nothing here draws a canvas; the terminal's is apps/watching.py, the page's apps/playing.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from torch import Tensor

from anyorder.decode.canvas import Decoded, Seen, Watcher


def keep_rows(batch: Any, rows: Tensor, lengths: str) -> None:
    """Drop the other rows, and the columns that only they needed.

    `lengths` names the field that says how long rows are: in slots (B), or by which are real (B L).
    """
    for each in fields(batch):
        setattr(batch, each.name, getattr(batch, each.name)[rows])
    said = getattr(batch, lengths)
    if not len(said):
        return
    longest = int((said.sum(dim=1) if said.dim() == 2 else said).max())
    for each in fields(batch):
        value = getattr(batch, each.name)
        if value.dim() == 2:
            setattr(batch, each.name, value[:, :longest])


def seen(row: int, so_far: Decoded) -> Seen:
    """What a watcher is shown of row number `row`, collected after its last step."""
    return Seen(
        row=row,
        step=so_far.steps,
        token_ids=so_far.token_ids,
        insert_step=so_far.insert_step,
        reveal_step=so_far.reveal_step,
        log_prob=so_far.log_prob,
        segment=so_far.segment,
        masked_again=[
            change.slot
            for change in so_far.changes
            if change.step == so_far.steps and change.token_id is None
        ],
    )


def counted_from(first: int, watch: Watcher | None) -> Watcher | None:
    """The watcher of a batch whose rows are numbered from `first` on."""
    if watch is None or first == 0:
        return watch

    def shifted(rows: Sequence[Seen]) -> None:
        watch([replace(each, row=first + each.row) for each in rows])

    return shifted


class Timed:
    """A watcher that keeps count of its own time, which is not the decoder's."""

    def __init__(self, watch: Watcher) -> None:
        self.watch = watch
        self.seconds = 0.0

    def __call__(self, rows: Sequence[Seen]) -> None:
        started = time.perf_counter()
        self.watch(rows)
        self.seconds += time.perf_counter() - started
