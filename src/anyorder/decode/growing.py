"""Rows that grow: the state of canvases into which slots are inserted.

Rows are left-packed: an insertion moves what stands right of it. A slot is therefore known by its
number, in order of creation (what is frozen first), never by its position. New slots are open, and
further slots may be inserted after them. Nothing is ever removed.

`Growth` is what happens to slots, whatever they hold; `GrowingRows` adds the tokens of slots that
hold one each. Letters: B rows, L positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingCanvas
from anyorder.decode.loop import keep_rows
from anyorder.vocab import Vocab


class FrozenRow(NamedTuple):
    """How one row begins: all its slots are frozen."""

    grows: Sequence[bool]
    """Whether slots may be inserted right after each."""
    room: int
    """At most so many slots are inserted."""
    key: int


class ShiftedPositions(NamedTuple):
    """What an insertion did to the positions."""

    spread: Callable[[Tensor, float], Tensor]
    """Values of the old slots (B L), and what stands elsewhere -> the same at the new positions."""
    fresh: Tensor  # B L, the new slots


@dataclass
class Growth:
    """Slots of the rows still being decoded; every tensor has one entry (or one line) per row."""

    row: Tensor  # B, the row's number in the request
    key: Tensor  # B
    length: Tensor  # B
    room: Tensor  # B, slots that may still be inserted
    numbered: Tensor  # B, the number of the next slot
    left: Tensor  # B, 1 - t: the time that is left, float64
    bound: Tensor  # B, what may be missing: the event clock's, 0 before the first call
    forwards: Tensor  # B
    ties: Tensor  # B
    slot: Tensor  # B L, the slot's number; -1 in padding
    open: Tensor  # B L, not yet revealed
    grows: Tensor  # B L, whether slots may be inserted right after this one
    insert: Tensor  # B L
    reveal: Tensor  # B L

    @classmethod
    def begin(cls, rows: Sequence[FrozenRow], device: torch.device, **more: Tensor) -> Self:
        """Rows of frozen slots; `more` are the fields that a subclass adds."""
        length = torch.tensor([len(row.grows) for row in rows])
        grows = torch.zeros(len(rows), int(length.max()), dtype=torch.bool)
        for number, row in enumerate(rows):
            grows[number, : len(row.grows)] = torch.tensor(row.grows)
        position = torch.arange(grows.shape[1]).expand_as(grows)
        zeros = torch.zeros(len(rows), dtype=torch.int64)
        given: dict[str, Tensor] = {
            "row": torch.arange(len(rows)),
            "key": torch.tensor([row.key for row in rows], dtype=torch.int64),
            "length": length,
            "room": torch.tensor([row.room for row in rows]),
            "numbered": length.clone(),
            "left": torch.ones(len(rows), dtype=torch.float64),
            "bound": torch.zeros(len(rows), dtype=torch.float64),
            "forwards": zeros,
            "ties": zeros.clone(),
            "slot": torch.where(position < length[:, None], position, -1),
            "open": torch.zeros_like(grows),
            "grows": grows,
            "insert": torch.zeros_like(position),
            "reveal": torch.zeros_like(position),
        }
        on_device: dict[str, Any] = {n: value.to(device) for n, value in (given | more).items()}
        return cls(**on_device)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def real(self) -> Tensor:
        """Where there is a slot, not padding.  # B L"""
        return torch.arange(self.slot.shape[1], device=self.slot.device) < self.length[:, None]

    def open_slots(self, counts: Tensor, step: int) -> ShiftedPositions | None:
        """Insert so many open slots after each position (B L); None: there are none to insert."""
        new = counts.sum(dim=1)
        length = self.length + new
        most, longest = torch.stack([new.max(), length.max()]).tolist()
        if not most:
            return None
        place = torch.arange(self.slot.shape[1] + most, device=self.slot.device)
        # An old slot moves by what is inserted before it; padding moves behind the row's new end.
        target = place[: self.slot.shape[1]] + counts.cumsum(dim=1) - counts  # B L

        def spread(old: Tensor, elsewhere: float) -> Tensor:
            wider = old.new_full((len(old), len(place)), elsewhere)
            return wider.scatter_(1, target, old)[:, :longest]

        taken = spread(torch.ones_like(self.open), False)
        fresh = ~taken & (place[:longest] < length[:, None])
        number = self.numbered[:, None] + fresh.long().cumsum(dim=1) - 1
        self.slot = torch.where(fresh, number, spread(self.slot, -1))
        self.open = spread(self.open, False) | fresh
        self.grows = spread(self.grows, False) | fresh
        self.insert = spread(self.insert, 0).masked_fill_(fresh, step)
        self.reveal = spread(self.reveal, 0)
        self.length, self.numbered, self.room = length, self.numbered + new, self.room - new
        return ShiftedPositions(spread, fresh)

    def keep(self, rows: Tensor) -> None:
        """Drop the other rows, and the columns that only they needed."""
        keep_rows(self, rows, "length")


@dataclass
class GrowingRows(Growth):
    """Rows whose every slot holds one token, the mask while it is open."""

    ids: Tensor  # B L
    log_prob: Tensor  # B L

    @classmethod
    def start(
        cls,
        canvases: Sequence[GrowingCanvas],
        keys: Sequence[int],
        vocab: Vocab,
        device: torch.device,
    ) -> GrowingRows:
        ids = torch.full((len(canvases), max(len(c.ids) for c in canvases)), vocab.pad_id)
        for row, canvas in enumerate(canvases):
            ids[row, : len(canvas.ids)] = torch.tensor(canvas.ids)
        beginnings = [
            FrozenRow(canvas.grows, canvas.room, key)
            for canvas, key in zip(canvases, keys, strict=True)
        ]
        log_prob = torch.full(ids.shape, torch.nan, dtype=torch.float64)
        return cls.begin(beginnings, device, ids=ids, log_prob=log_prob)

    def grow(self, counts: Tensor, step: int, vocab: Vocab) -> None:
        """Insert so many masked slots after each position (B L)."""
        moved = self.open_slots(counts, step)
        if moved is not None:
            self.ids = moved.spread(self.ids, vocab.pad_id).masked_fill_(moved.fresh, vocab.mask_id)
            self.log_prob = moved.spread(self.log_prob, torch.nan)

    def collect(self, index: int, canvas: GrowingCanvas, step: int) -> Decoded:
        """What was done with one row, `step` steps long."""
        span = slice(canvas.prompt_length, int(self.length[index]))
        return Decoded(
            token_ids=self.ids[index, span].tolist(),
            insert_step=self.insert[index, span].tolist(),
            reveal_step=self.reveal[index, span].tolist(),
            log_prob=self.log_prob[index, span].tolist(),
            steps=step,
            forwards=int(self.forwards[index]),
            ties=int(self.ties[index]),
        )
