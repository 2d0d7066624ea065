"""What decoders know of a network over segments (latentmdm, flexlatent), and the segment writer.

A row is a prompt and a number of slots, one vector for each (paper, Section 4.2):

    an open slot                     mask_vector
    a revealed segment y             encode(y)
    a revealed empty segment         empty_vector            (a slot that the text does not need)

From these vectors the latent network makes one *condition* for every slot, and a writer makes a
segment of a condition, token by token, until EOS or `segment_length` tokens. EOS closes segments
inside the network only; callers give and get ids without it, except to and from a writer.

`SegmentWriter` writes segments with a causal stack and a key/value cache, each behind its
condition:

    columns    condition, y_1, y_2, ...      at positions 0, 1, 2, ...
    the state at column j predicts y_{j+1}

The condition waits until something is asked: a `read` that comes before `first` feeds it together
with the tokens, so that checking a known segment under a new condition is one pass.

Not here: the networks (families/latentmdm/net.py, families/flexlatent/net.py), how tokens and
segments are chosen (decode), and gradients (`LatentNet.decode_states` is for training).
Letters: B rows, P prompt positions, S slots, N segments, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyorder.nets.cache import Cache
from anyorder.nets.stack import Stack


class ReadPrompt(Protocol):
    """Prompts that were read once; what is kept of them is the network's business."""

    def keep(self, rows: Tensor) -> ReadPrompt:
        """Only these rows (indices; they may repeat or reorder)."""
        ...


class SegmentDrafter(Protocol):
    """N segments being written, each from its condition."""

    def first(self) -> Tensor:
        """N D: head(first()) predicts the first token of each segment."""
        ...

    def read(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        """The next tokens of every segment: N T -> N T D; head(states[n, j]) predicts what follows.

        real: N T bool, padding on the right only; None: all are. States at padding mean nothing.
        Reading before the first call of `first` is one pass through the network instead of two.
        """
        ...

    def cut(self, lengths: Tensor) -> None:
        """Forget all but the first lengths[n] tokens of each segment."""
        ...

    def keep(self, rows: Tensor) -> Self:
        """A writer of these segments only (indices; they may repeat or reorder)."""
        ...


class SegmentCoder(Protocol):
    """What every network over segments can do: between tokens and vectors."""

    @property
    def slots(self) -> int:
        """L_s: slots of a training example (its most segments, where no slot may stay empty)."""
        ...

    @property
    def segment_length(self) -> int:
        """L_seg: positions of a segment, the closing EOS included."""
        ...

    @property
    def mask_vector(self) -> Tensor:
        """D: the latent of an open slot."""
        ...

    def read(self, ids: Tensor, length: Tensor) -> ReadPrompt:
        """Prompts B P of `length` (B) tokens, padded on the right."""
        ...

    def encode(self, ids: Tensor, length: Tensor) -> Tensor:
        """Segments N T of `length` (N) >= 1 tokens, padded on the right, without EOS -> N D."""
        ...

    def write(self, conditions: Tensor) -> SegmentDrafter:
        """Begin N >= 1 segments from their conditions, N D."""
        ...

    def head(self, states: Tensor) -> Tensor:
        """Logits of a writer's states: (..., D) -> (..., V)."""
        ...


class SegmentNet(SegmentCoder, Protocol):
    """A network of latentmdm: any number of slots after a prompt -> conditions."""

    @property
    def empty_vector(self) -> Tensor:
        """D: the latent of a slot that is revealed to be empty."""
        ...

    def conditions(self, prompt: ReadPrompt, latents: Tensor, real: Tensor | None = None) -> Tensor:
        """latents B S D, real B S bool (None: all are) -> B S D; those at padding mean nothing.

        Slots stand right after each prompt's true end; padding slots come after the real ones.
        """
        ...


class SegmentLook(NamedTuple):
    """What one call of an inserting network says of its slots."""

    states: Tensor
    """The conditions of the slots.  # B S D"""
    gaps: Tensor
    """log of the expected number of segments missing after the anchor (first column) and after
    each slot.  # B S+1"""


class SegmentInserter(SegmentCoder, Protocol):
    """A network of flexlatent: slots after a prompt that ends with an anchor, at a time."""

    @property
    def coordinate(self) -> str: ...
    @property
    def insertion_exponent(self) -> float: ...
    @property
    def unmasking_exponent(self) -> float: ...

    def look(
        self, prompt: ReadPrompt, latents: Tensor, real: Tensor | None = None, *, time: Tensor
    ) -> SegmentLook:
        """latents B S D (S may be 0), real B S bool (None: all are), time B.

        Each prompt's last token is its anchor: the first gap stands right after it.
        """
        ...


class SegmentWriter:
    """A `SegmentDrafter` of at most `room` tokens a segment."""

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
