"""The release's buffer: rows of one size, filled from the left, the rest is PAD.

Slots that are inserted push what stands right of them further right, until the buffer is full.
Unlike growing.py it never changes its width, because the release's draws have its shape.
Letters: B rows, L slots of the buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingCanvas
from anyorder.vocab import Vocab


@dataclass
class Buffer:
    """The canvases, packed to the left. Columns of a slot move with it."""

    ids: Tensor  # B L
    length: Tensor  # B
    prompt: Tensor  # B
    insert: Tensor  # B L
    reveal: Tensor  # B L
    log_prob: Tensor  # B L
    ties: Tensor  # B
    mask_id: int
    pad_id: int

    @classmethod
    def start(cls, canvases: Sequence[GrowingCanvas], vocab: Vocab, device: torch.device) -> Buffer:
        """Prompts on the left, PAD behind them; all rows have the size of the first."""
        size = len(canvases[0].ids) + canvases[0].room
        ids = torch.full((len(canvases), size), vocab.pad_id)
        for row, canvas in enumerate(canvases):
            ids[row, : len(canvas.ids)] = torch.tensor(canvas.ids)
        ids = ids.to(device)
        length = torch.tensor([len(canvas.ids) for canvas in canvases], device=device)
        return cls(
            ids=ids,
            length=length,
            prompt=length.clone(),
            insert=torch.zeros_like(ids),
            reveal=torch.zeros_like(ids),
            log_prob=torch.full(ids.shape, torch.nan, dtype=torch.float64, device=device),
            ties=torch.zeros_like(length),
            mask_id=vocab.mask_id,
            pad_id=vocab.pad_id,
        )

    @property
    def place(self) -> Tensor:
        return torch.arange(self.ids.shape[1], device=self.ids.device)

    @property
    def active(self) -> Tensor:
        return self.place < self.length[:, None]  # B L

    @property
    def masked(self) -> Tensor:
        return (self.ids == self.mask_id) & self.active  # B L

    @property
    def gaps(self) -> Tensor:
        """The gaps that may grow: after the prompt's last token and after all that follows."""
        return self.active & (self.place >= self.prompt[:, None] - 1)  # B L

    def grow(self, counts: Tensor, step: int) -> None:
        """Insert so many masks (B L) after each slot; from left to right while there is room."""
        room = self.ids.shape[1] - self.length
        until = counts.cumsum(dim=1).minimum(room[:, None])  # B L, inserted up to here
        before = F.pad(until[:, :-1], (1, 0))
        # What is no token goes into one more column, which is dropped.
        target = torch.where(self.active, self.place + before, self.ids.shape[1])
        self.length = self.length + until[:, -1]
        self.ids = _moved(self.ids, target, torch.where(self.active, self.mask_id, self.pad_id))
        self.insert = _moved(self.insert, target, torch.full_like(self.insert, step))
        self.reveal = _moved(self.reveal, target, torch.zeros_like(self.reveal))
        self.log_prob = _moved(self.log_prob, target, torch.full_like(self.log_prob, torch.nan))

    def collect(self, row: int, canvas: GrowingCanvas, steps: int) -> Decoded:
        """What was done with one row; every step called the network."""
        span = slice(canvas.prompt_length, int(self.length[row]))
        return Decoded(
            token_ids=self.ids[row, span].tolist(),
            insert_step=self.insert[row, span].tolist(),
            reveal_step=self.reveal[row, span].tolist(),
            log_prob=self.log_prob[row, span].tolist(),
            steps=steps,
            forwards=steps,
            ties=int(self.ties[row]),
        )


def _moved(column: Tensor, target: Tensor, fresh: Tensor) -> Tensor:
    """The column with its entries at their targets, and `fresh` elsewhere.  # B L"""
    return F.pad(fresh, (0, 1)).scatter(1, target, column)[:, :-1]
