"""The key/value cache of a causal net: preallocated, with a length of its own for every row.

A ragged batch of prompts, padded on the right, is prefilled in one call; every later call writes
its tokens at each row's own length, so rows stay packed and padding costs one overwritten slot.
Token t of a call lands at position lengths + t and sees the keys 0 .. lengths + t of its row.

Host and device are kept apart: the shortest and the longest length are also known as Python
numbers, so attention runs over the filled part only and a step asks the device for nothing. Only
a call with a mask, `cut` and `select` read the lengths back (once, before the layers).

Not here: beams, paging, eviction, and gradients (a cache is for decoding).
Letters: B rows, C capacity, T tokens of this call, S keys attended to, G key/value heads, W head
width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class CacheShape:
    """How much a cache holds."""

    layers: int
    rows: int
    capacity: int
    """Tokens a row can hold."""
    kv_heads: int
    head_width: int


@dataclass(frozen=True)
class CacheStep:
    """One call's plan: where its tokens go and which keys they see. Shared by all layers."""

    positions: Tensor
    """B T: the position of each token in its row, also its rotary position."""
    slots: Tensor
    """B*T: the same places in the storage seen as one list of B*C slots."""
    span: int
    """S: keys attended to, the longest row included."""
    visible: Tensor | None
    """B 1 T S: keys each token may see; None when `causal` alone, or nothing, restricts them."""
    causal: bool
    """The cache was empty: the plain causal rule over T by T."""
    lengths: Tensor
    """B: the row lengths after this call."""
    shortest: int
    longest: int


class Cache:
    """Keys and values of every layer. `lengths` (B) counts the tokens held for each row."""

    def __init__(self, shape: CacheShape, *, device: torch.device, dtype: torch.dtype) -> None:
        if min(shape.rows, shape.capacity) < 1:
            raise ValueError(
                f"a cache needs at least one row and one token of capacity, not "
                f"{shape.rows} rows of {shape.capacity}"
            )
        self.shape = shape
        size = (shape.rows, shape.capacity, shape.kv_heads, shape.head_width)
        # Zeros, not uninitialised memory: a masked key gets weight 0, and 0 * nan is nan.
        # Outside inference mode, so that a cache outlives the mode it was made in.
        with torch.inference_mode(False):
            self.keys = [torch.zeros(size, device=device, dtype=dtype) for _ in range(shape.layers)]
            self.values = [torch.zeros_like(keys) for keys in self.keys]
            self.lengths = torch.zeros(shape.rows, device=device, dtype=torch.long)
        self.shortest = 0
        self.longest = 0

    def begin(self, rows: int, count: int, mask: Tensor | None) -> CacheStep:
        """Plan a call of `count` tokens a row; nothing changes until `end`.

        mask: B T bool, True = a real token; padding must come after the real tokens of its row.
        """
        if torch.is_grad_enabled():
            raise ValueError("a cache is for decoding: call under torch.no_grad()")
        if rows != self.shape.rows:
            raise ValueError(
                f"{rows} rows were given to a cache of {self.shape.rows}: "
                "keep the two in step with cache.select(rows)"
            )
        if self.longest + count > self.shape.capacity:
            raise ValueError(
                f"the cache is full: it holds {self.shape.capacity} tokens a row, the longest row "
                f"has {self.longest} and {count} more were given; make the cache with a capacity "
                f"of at least {self.longest + count}"
            )
        device = self.lengths.device
        ahead = torch.arange(count, device=device)
        positions = self.lengths[:, None] + ahead  # B T
        first_slot = torch.arange(rows, device=device)[:, None] * self.shape.capacity
        span = self.longest + count
        fresh = self.longest == 0
        # A single token of a batch of equal lengths sees every key there is.
        if fresh or (count == 1 and self.shortest == self.longest):
            visible = None
        else:
            visible = torch.arange(span, device=device) <= positions[:, None, :, None]
        lengths, shortest, longest = self._lengths_after(count, mask)
        slots = (first_slot + positions).flatten()
        return CacheStep(positions, slots, span, visible, fresh, lengths, shortest, longest)

    def write(
        self, layer: int, step: CacheStep, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values (B T G W); return all of the span (B S G W)."""
        all_keys, all_values = self.keys[layer], self.values[layer]
        for storage, new in ((all_keys, keys), (all_values, values)):
            flat = storage.view(-1, self.shape.kv_heads, self.shape.head_width)
            flat.index_copy_(0, step.slots, new.flatten(0, 1).to(storage.dtype))
        return all_keys[:, : step.span], all_values[:, : step.span]

    def end(self, step: CacheStep) -> None:
        """Accept the tokens of a planned call, once every layer has written them."""
        self.lengths = step.lengths
        self.shortest = step.shortest
        self.longest = step.longest

    def cut(self, lengths: Tensor) -> None:
        """Forget what stands beyond each row's new length (B), which may not be more than it has.

        Nothing is erased: what stands beyond a length is never looked at, and is overwritten.
        """
        lengths = lengths.to(self.lengths.device, torch.long, copy=True)
        if lengths.shape != self.lengths.shape:
            raise ValueError(
                f"{tuple(lengths.shape)} lengths were given to a cache of {self.shape.rows} rows: "
                "give one for each row"
            )
        excess = (lengths - self.lengths).max()
        shortest, longest, more = torch.stack([*lengths.aminmax(), excess]).tolist()
        if more > 0 or shortest < 0:
            raise ValueError("a cache can only be cut to lengths from 0 to what its rows hold")
        self.lengths, self.shortest, self.longest = lengths, shortest, longest

    def select(self, rows: Tensor | Sequence[int]) -> Cache:
        """A new cache of the given rows: drop finished ones, reorder, or repeat a shared prompt."""
        rows = torch.as_tensor(rows, device=self.lengths.device)
        if rows.dtype == torch.bool:
            rows = rows.nonzero()[:, 0]
        shape = self.shape
        chosen = CacheShape(
            shape.layers, len(rows), shape.capacity, shape.kv_heads, shape.head_width
        )
        picked = Cache(chosen, device=self.lengths.device, dtype=self.keys[0].dtype)
        picked.lengths = self.lengths[rows]
        picked.shortest, picked.longest = torch.stack(picked.lengths.aminmax()).tolist()
        filled = picked.longest
        for old, new in zip(self.keys + self.values, picked.keys + picked.values, strict=True):
            new[:, :filled] = old[rows, :filled]
        return picked

    def _lengths_after(self, count: int, mask: Tensor | None) -> tuple[Tensor, int, int]:
        if mask is None:
            return self.lengths + count, self.shortest + count, self.longest + count
        added = mask.sum(dim=1)
        packed = mask == (torch.arange(count, device=mask.device) < added[:, None])
        lengths = self.lengths + added
        shortest, longest, right_padded = torch.stack(
            [lengths.min(), lengths.max(), packed.all().long()]
        ).tolist()
        if not right_padded:
            raise ValueError(
                "the mask of a cached call has padding before real tokens: pad on the right"
            )
        return lengths, shortest, longest
