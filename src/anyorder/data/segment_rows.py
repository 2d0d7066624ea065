"""A batch's flat rows -> its segments, each a row of its own, padded; without a loop.

Segment s of row b begins where the prompt and the segments before it end:

    start[b, s] = prompt_length[b] + sum of segment_length[b, :s]

Letters: B rows of the batch, L positions, S slots, N chosen segments, T tokens of the longest one
that was chosen.

What this file does not do: cut text (segments.py), choose what is masked.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.data.batches import Batch


@dataclass(frozen=True, eq=False)
class ChosenSegments:
    """Some segments of a batch, in the order of their rows and slots."""

    tokens: Tensor  # N T
    """Padded on the right with zeros: `length` says how many are real."""
    length: Tensor  # N
    """0: an empty segment."""
    row: Tensor  # N
    slot: Tensor  # N

    @property
    def real(self) -> Tensor:
        """Where there is no padding."""
        places = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return places < self.length[:, None]  # N T


def segments_of(batch: Batch, chosen: Tensor | None = None) -> ChosenSegments:
    """The segments where `chosen` (B S) is True; unset: all that are not empty.

    Empty slots can be chosen, and are rows of no tokens.
    """
    lengths = batch.segment_length
    assert lengths is not None, "the batch was made without segments"
    if chosen is None:
        chosen = lengths > 0
    assert chosen.shape == lengths.shape, f"{tuple(chosen.shape)} is not rows x slots"
    start = batch.prompt_length[:, None] + lengths.cumsum(dim=1) - lengths  # B S
    row, slot = chosen.nonzero(as_tuple=True)
    length = lengths[row, slot]
    longest = int(length.max()) if len(length) else 0
    places = torch.arange(longest, device=lengths.device)  # T
    real = places < length[:, None]  # N T
    # What is not real might lie beyond the row; read its first token instead, then blank it.
    at = torch.where(real, start[row, slot][:, None] + places, 0)
    tokens = batch.ids[row[:, None], at].masked_fill(~real, 0)
    return ChosenSegments(tokens, length, row, slot)
