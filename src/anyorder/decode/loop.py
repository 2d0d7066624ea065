"""The decoding loop of all families: step, show, collect finished rows, continue with the rest.

    while rows are left:
        advance    one step of all rows (a family's `Stepper`)
        watch      show the rows to the watcher, if there is one
        collect    the results of finished rows
        keep       drop them, so that the next step computes only unfinished rows

A stepper owns the state of its batch, which usually is a dataclass of tensors with one entry per
row (B) or one line of slots per row (B L).

Not here: what a step does (families/*/decode.py), and how a canvas is drawn for a human
(apps/show.py for the terminal, apps/play/ for the page).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Protocol

from torch import Tensor

from anyorder.decode.canvas import Decoded, Watcher


class Stepper(Protocol):
    """A batch that is being decoded by one family. Steps are counted from 1."""

    @property
    def row(self) -> Tensor:
        """The numbers in the request of the rows that are left.  # B"""
        ...

    def advance(self, step: int) -> None:
        """Take one step with all rows."""
        ...

    def done(self, step: int) -> Tensor:
        """Which rows are finished after `step` steps; called with 0 before the first.  # B"""
        ...

    def collect(self, index: int, step: int) -> Decoded:
        """The result of the row at this index after `step` steps, finished or not."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these (indices, at least one)."""
        ...


def run(stepper: Stepper, watch: Watcher | None = None) -> list[Decoded]:
    """Decode until every row is finished; the results in the order of the request."""
    results: dict[int, Decoded] = {}
    step = 0
    while True:
        # Before the first step too: a canvas without room is finished from the start.
        done = stepper.done(step)
        if bool(done.any()):  # the loop's one wait for the device in a step
            results |= _collected(stepper, done.nonzero()[:, 0].tolist(), step)
            left = (~done).nonzero()[:, 0]
            if not len(left):
                return [results[number] for number in sorted(results)]
            stepper.keep(left)
        step += 1
        stepper.advance(step)
        if watch is not None:
            # Before finished rows leave, so that their last step is shown too.
            watch(list(_collected(stepper, range(len(stepper.row)), step).values()))


def _collected(stepper: Stepper, at: Sequence[int], step: int) -> dict[int, Decoded]:
    numbers = stepper.row.tolist()
    return {
        numbers[index]: replace(stepper.collect(index, step), row=numbers[index]) for index in at
    }


def keep_rows(batch: Any, rows: Tensor, lengths: str) -> None:
    """Drop the other rows of a dataclass of tensors, and the columns that only they needed.

    `lengths` names the field with the lengths of rows: slots (B), or real positions (B L).
    """
    for each in fields(batch):
        setattr(batch, each.name, getattr(batch, each.name)[rows])
    given = getattr(batch, lengths)
    longest = int((given.sum(dim=1) if given.dim() == 2 else given).max())
    for each in fields(batch):
        value = getattr(batch, each.name)
        if value.dim() == 2:
            setattr(batch, each.name, value[:, :longest])


def counted_from(first: int, watch: Watcher | None) -> Watcher | None:
    """The watcher of a batch whose rows are numbered from `first` on."""
    if watch is None or first == 0:
        return watch

    def renumbered(rows: Sequence[Decoded]) -> None:
        watch([replace(each, row=first + each.row) for each in rows])

    return renumbered


class TimedWatcher:
    """A watcher that counts its own time, so that it can be taken off the decoder's."""

    def __init__(self, watch: Watcher) -> None:
        self.watch = watch
        self.seconds = 0.0

    def __call__(self, rows: Sequence[Decoded]) -> None:
        started = time.perf_counter()
        self.watch(rows)
        self.seconds += time.perf_counter() - started
