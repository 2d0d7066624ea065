"""Rows that grow: the state of canvases into which slots are inserted.

Rows are left-packed: an insertion moves what stands right of it. A slot is therefore known by its
number, in order of creation (frozen tokens first), never by its position. New slots are masked, and
further slots may be inserted after them. Nothing is ever removed.
Letters: B rows, L positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingCanvas
from anyorder.vocab import Vocab


@dataclass
class Rows:
    """The rows still being decoded; every tensor has one entry (or one line) per row."""

    row: Tensor  # B, the row's number in the request
    key: Tensor  # B
    length: Tensor  # B
    room: Tensor  # B, slots that may still be inserted
    numbered: Tensor  # B, the number of the next slot
    left: Tensor  # B, 1 - t: the time that is left, float64
    bound: Tensor  # B, tokens that may be missing: the event clock's, 0 before the first call
    forwards: Tensor  # B
    ties: Tensor  # B
    ids: Tensor  # B L
    slot: Tensor  # B L, the slot's number; -1 in padding
    open: Tensor  # B L, masked and not yet revealed
    grows: Tensor  # B L, whether slots may be inserted right after this one
    insert: Tensor  # B L
    reveal: Tensor  # B L
    log_prob: Tensor  # B L

    @classmethod
    def start(
        cls,
        canvases: Sequence[GrowingCanvas],
        keys: Sequence[int],
        vocab: Vocab,
        device: torch.device,
    ) -> Rows:
        length = torch.tensor([len(canvas.ids) for canvas in canvases])
        ids = torch.full((len(canvases), int(length.max())), vocab.pad_id)
        grows = torch.zeros(ids.shape, dtype=torch.bool)
        for row, canvas in enumerate(canvases):
            ids[row, : len(canvas.ids)] = torch.tensor(canvas.ids)
            grows[row, : len(canvas.ids)] = torch.tensor(canvas.grows)
        position = torch.arange(ids.shape[1]).expand_as(ids)
        zeros = torch.zeros(len(canvases), dtype=torch.int64)
        rows = cls(
            row=torch.arange(len(canvases)),
            key=torch.tensor(keys, dtype=torch.int64),
            length=length,
            room=torch.tensor([canvas.room for canvas in canvases]),
            numbered=length.clone(),
            left=torch.ones(len(canvases), dtype=torch.float64),
            bound=torch.zeros(len(canvases), dtype=torch.float64),
            forwards=zeros,
            ties=zeros.clone(),
            ids=ids,
            slot=torch.where(position < length[:, None], position, -1),
            open=torch.zeros_like(grows),
            grows=grows,
            insert=torch.zeros_like(ids),
            reveal=torch.zeros_like(ids),
            log_prob=torch.full(ids.shape, torch.nan, dtype=torch.float64),
        )
        for each in fields(rows):
            setattr(rows, each.name, getattr(rows, each.name).to(device))
        return rows

    def __len__(self) -> int:
        return len(self.row)

    @property
    def real(self) -> Tensor:
        """Where there is a slot, not padding.  # B L"""
        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.length[:, None]

    def grow(self, counts: Tensor, step: int, vocab: Vocab) -> None:
        """Insert so many masked slots after each position (B L)."""
        new = counts.sum(dim=1)
        length = self.length + new
        most, longest = torch.stack([new.max(), length.max()]).tolist()
        if not most:
            return
        place = torch.arange(self.ids.shape[1] + most, device=self.ids.device)
        # An old slot moves by what is inserted before it; padding moves behind the row's new end.
        target = place[: self.ids.shape[1]] + counts.cumsum(dim=1) - counts  # B L

        def spread(old: Tensor, elsewhere: float) -> Tensor:
            wider = old.new_full((len(old), len(place)), elsewhere)
            return wider.scatter_(1, target, old)[:, :longest]

        taken = spread(torch.ones_like(self.open), False)
        fresh = ~taken & (place[:longest] < length[:, None])
        number = self.numbered[:, None] + fresh.long().cumsum(dim=1) - 1
        self.ids = spread(self.ids, vocab.pad_id).masked_fill_(fresh, vocab.mask_id)
        self.slot = torch.where(fresh, number, spread(self.slot, -1))
        self.open = spread(self.open, False) | fresh
        self.grows = spread(self.grows, False) | fresh
        self.insert = spread(self.insert, 0).masked_fill_(fresh, step)
        self.reveal = spread(self.reveal, 0)
        self.log_prob = spread(self.log_prob, torch.nan)
        self.length, self.numbered, self.room = length, self.numbered + new, self.room - new

    def keep(self, rows: Tensor) -> None:
        """Drop the other rows, and the columns that only they needed."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name)[rows])
        if len(self):
            longest = int(self.length.max())
            for each in fields(self):
                value = getattr(self, each.name)
                if value.dim() == 2:
                    setattr(self, each.name, value[:, :longest])

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
