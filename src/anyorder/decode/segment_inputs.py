"""Rebuilt canvases of segments as a network reads them: prompts, and a latent for every slot.

Of many canvases, those of one trace above all, most prompts and segments are the same: each is read
and encoded once. Letters: B canvases, S slots, N rows, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.decode.segment_moments import Ids, SegmentMoment, Slot
from anyorder.nets.segment_net import ReadPrompt, SegmentCoder
from anyorder.vocab import Vocab

OPEN, EMPTY, FIRST = 0, 1, 2
"""Rows of the table of latents: the mask vector, the empty vector, the first known segment."""


@dataclass(frozen=True)
class SegmentInputs:
    """How one network is given its canvases."""

    net: SegmentCoder
    vocab: Vocab
    empty: Tensor | None = None  # D
    """The latent of an empty segment, where there is one."""
    slots: int | None = None
    """Every canvas has so many slots, each at its number, and those that a trace does not name are
    empty; None: the segments of a canvas stand side by side."""
    device: torch.device | str = "cpu"

    def of(self, moments: Sequence[SegmentMoment]) -> tuple[ReadPrompt, Tensor, Tensor]:
        """Prompts, latents (B S D), and where there is a slot (B S)."""
        prompts = sorted({moment.prompt for moment in moments})
        read = self.net.read(*self.padded(prompts))
        prompt = read.keep(self.whole([prompts.index(moment.prompt) for moment in moments]))
        lengths = [len(moment.slots) if self.slots is None else self.slots for moment in moments]
        shown = [
            (row, place, slot)
            for row, moment in enumerate(moments)
            for place, slot in self.places(moment)
        ]
        known = sorted({slot.ids for _, _, slot in shown if slot.ids and not slot.open})
        number = {ids: FIRST + at for at, ids in enumerate(known)} | {(): EMPTY}
        which = torch.full((len(moments), max(lengths)), EMPTY)  # B S
        for row, place, slot in shown:
            which[row, place] = OPEN if slot.open else number[slot.ids]
        real = torch.arange(which.shape[1]) < torch.tensor(lengths)[:, None]
        return prompt, self._vectors(known)[which.to(self.device)], real.to(self.device)

    def places(self, moment: SegmentMoment) -> Iterator[tuple[int, Slot]]:
        """Where each segment stands."""
        for place, slot in enumerate(moment.slots):
            if self.slots is not None and slot.number >= self.slots:
                raise ValueError(
                    f"a trace has a segment {slot.number} and this model {self.slots} slots: give "
                    "the model that made it"
                )
            yield place if self.slots is None else slot.number, slot

    def _vectors(self, known: Sequence[Ids]) -> Tensor:
        """The latents of an open slot, of an empty one and of known segments.  # N D"""
        mask = self.net.mask_vector.to(self.device)
        empty = torch.zeros_like(mask) if self.empty is None else self.empty.to(mask)
        fixed = torch.stack([mask, empty])
        if not known:
            return fixed
        return torch.cat([fixed, self.net.encode(*self.padded(known)).to(mask)])

    def padded(self, rows: Sequence[Ids]) -> tuple[Tensor, Tensor]:
        """Ids and lengths of ragged rows.  # N T, N"""
        ids = torch.full((len(rows), max(map(len, rows))), self.vocab.pad_id)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.tensor(row, dtype=torch.int64)
        return ids.to(self.device), self.whole([len(row) for row in rows])

    def whole(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)
