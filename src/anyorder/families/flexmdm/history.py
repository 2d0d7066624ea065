"""The record of a row that changes after decoding: its slots from their insertion to their end.

`TextHistory` starts from what a decoder made (`Decoded`), makes one change after another, and gives
the row after each step, with the changes and ghosts of trace/events.py. A deletion is one step. An
insertion is two: a mask, then its content. A replacement is two as well: a token is masked again
and revealed; a segment, which may change its length, is deleted with a new one at its place.

Not here: which changes are made (correct.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from anyorder.decode.canvas import Decoded
from anyorder.trace.events import Change, Ghost


class Move(NamedTuple):
    """One change of a text."""

    kind: Literal["insert", "delete", "replace"]
    place: int
    """Of the item that changes, or of the new one."""
    times: tuple[float, ...]
    """The network's time, for each step of the trace."""
    ids: tuple[int, ...] = ()
    """What is written."""
    log_prob: tuple[float, ...] = ()
    """Of each token of it."""


@dataclass(eq=False)
class SlotRecord:
    """One item in the trace, from its insertion to its end."""

    insert: int
    shown: list[tuple[int, tuple[int, ...] | None]] = field(default_factory=list)
    """What it shows from each step on; None for a mask, which it is at first."""
    log_prob: Sequence[float] = ()
    """Of the tokens that it shows now."""
    score: float = math.nan
    gone: int | None = None
    """The step that deleted it."""

    @property
    def ids(self) -> tuple[int, ...] | None:
        return self.shown[-1][1] if self.shown else None


@dataclass
class TextHistory:
    """The record of a row that changes after decoding."""

    decoded: Decoded
    slots: list[SlotRecord]
    """All that ever were, in the order of the text."""
    mask_id: int
    segment: int | None = None
    """The number of the first item, if items are segments. A replaced token keeps its slot; a
    replaced segment, which may have another length, gets a new one."""
    step: int = field(init=False)
    times: list[float] = field(init=False)

    def __post_init__(self) -> None:
        assert self.decoded.times is not None
        self.step, self.times = self.decoded.steps, list(self.decoded.times)

    def make(self, move: Move) -> Iterator[Decoded]:
        """Make a change; yields the row after each of its steps."""
        live = [slot for slot in self.slots if slot.gone is None]
        behind = live[move.place] if move.place < len(live) else None
        first, *more = move.times
        self._step(first)
        slot = None if move.kind == "insert" else behind
        if slot is not None and (move.kind == "delete" or self.segment is not None):
            slot.gone = self.step
        elif slot is not None:
            slot.shown.append((self.step, None))
            slot.log_prob = ()
        if move.kind != "delete" and (slot is None or slot.gone is not None):
            slot = SlotRecord(self.step)
            at = len(self.slots) if behind is None else self.slots.index(behind)
            self.slots.insert(at, slot)
        yield self.row()
        for time in more:
            assert slot is not None
            self._step(time)
            slot.shown.append((self.step, move.ids))
            slot.log_prob = move.log_prob
            yield self.row()

    def _step(self, time: float) -> None:
        self.step += 1
        self.times.append(time)

    def row(self) -> Decoded:
        """The row as it is now."""
        row = replace(
            self.decoded,
            token_ids=[],
            insert_step=[],
            reveal_step=[],
            log_prob=[],
            steps=self.step,
            segment=None if self.segment is None else [],
            score=None if self.segment is None else [],
            times=list(self.times),
        )
        changes, of_ghosts, ghosts = list[Change](), list[Change](), list[Ghost]()
        number = self.segment
        for slot in self.slots:
            before = slot.shown if slot.ids is None else slot.shown[:-1]
            if slot.gone is None:
                changes += _changes(before, len(row.token_ids))
                _write(row, slot, number, self.mask_id)
                number = None if number is None else number + 1
            else:
                of_ghosts += _changes(before, len(ghosts))
                ghosts += _ghosts(slot, len(row.token_ids) - 1)
        changes += [each._replace(slot=len(row.token_ids) + each.slot) for each in of_ghosts]
        return replace(row, changes=sorted(changes, key=lambda each: each[:2]), ghosts=ghosts)


def _changes(shown: Sequence[tuple[int, tuple[int, ...] | None]], slot: int) -> Iterator[Change]:
    # Only tokens show several things in one slot.
    return (Change(step, slot, None if ids is None else ids[0]) for step, ids in shown)


def _ghosts(slot: SlotRecord, after: int) -> Iterator[Ghost]:
    assert slot.ids is not None and slot.gone is not None, "what is deleted has been revealed"
    reveal = slot.shown[-1][0]
    return (Ghost(after, slot.insert, reveal, slot.gone, token, None) for token in slot.ids)


def _write(row: Decoded, slot: SlotRecord, segment: int | None, mask_id: int) -> None:
    """Add the tokens of a slot to the columns of a row."""
    ids = slot.ids or (mask_id,)
    row.token_ids.extend(ids)
    row.insert_step.extend([slot.insert] * len(ids))
    row.reveal_step.extend([slot.shown[-1][0] if slot.ids else 0] * len(ids))
    row.log_prob.extend(slot.log_prob or [math.nan] * len(ids))
    if row.segment is not None and row.score is not None:
        assert segment is not None
        row.segment.extend([segment] * len(ids))
        row.score.extend([slot.score] * len(ids))
