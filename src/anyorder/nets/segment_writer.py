"""Segments being written by a causal stack, each behind its condition, with a key/value cache.

    columns    condition, y_1, y_2, ...      at positions 0, 1, 2, ...
    the state at column j predicts y_{j+1}

The condition waits until something is asked: a `read` that comes before `first` feeds it together
with the tokens, so that checking a known segment under a new condition is one pass.

Not here: heads, choosing tokens, gradients (`LatentNet.decode_states` is for training).
Letters: N segments, T tokens, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyorder.nets.cache import Cache
from anyorder.nets.stack import Stack


class SegmentWriter:
    """A `Writer` of at most `room` tokens a segment."""

    def __init__(self, stack: Stack, embed: nn.Embedding, conditions: Tensor, room: int) -> None:
        self.stack = stack
        self.embed = embed
        self.room = room
        self._conditions = conditions
        self._first: Tensor | None = None
        self._cache: Cache | None = None

    @torch.no_grad()
    def first(self) -> Tensor:
        """N D: predicts the first token of each segment."""
        if self._first is None:
            self._first = self._advance(self._conditions[:, None], None)[:, 0]
        return self._first

    @torch.no_grad()
    def read(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        """The next tokens of every segment, N T, padded on the right (real: N T) -> N T D."""
        vectors = self.embed(ids)
        if self._first is not None:
            return self._advance(vectors, real)
        vectors = torch.cat([self._conditions[:, None].to(vectors.dtype), vectors], dim=1)
        states = self._advance(vectors, None if real is None else F.pad(real, (1, 0), value=True))
        self._first = states[:, 0]
        return states[:, 1:]

    def cut(self, lengths: Tensor) -> None:
        """Forget all but the first lengths[n] tokens of each segment."""
        if self._cache is None:
            self.first()
        assert self._cache is not None
        self._cache.cut(lengths + 1)  # the condition stays

    def keep(self, rows: Tensor) -> SegmentWriter:
        """A writer of these segments only (indices; they may repeat or reorder)."""
        kept = SegmentWriter(self.stack, self.embed, self._conditions[rows], self.room)
        if self._cache is not None and self._first is not None:
            kept._cache = self._cache.select(rows)
            kept._first = self._first[rows]
        return kept

    def _advance(self, vectors: Tensor, real: Tensor | None) -> Tensor:
        if self._cache is None:
            self._cache = self.stack.new_cache(len(vectors), 1 + self.room)
        return self.stack.advance(vectors, self._cache, real)
