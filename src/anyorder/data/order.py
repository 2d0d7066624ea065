"""The order of examples: a pure function of (seed, position), with nothing to store or resume.

A finite source of n examples is read in epochs; each epoch is a keyed permutation of range(n), made
by a Feistel network on the smallest even number of bits that holds n and by cycle walking: a value
that falls outside range(n) is sent through the network again until it falls inside. One element
costs a few integer operations, whatever n is. A source without end is read as it comes.

What this file does not do: touch text or tensors.
"""

from __future__ import annotations

from functools import lru_cache

from anyorder.data.keyed import key, mix

ROUNDS = 6
MIN_HALF_BITS = 3
"""Narrower halves have too few keyed functions to shuffle well."""


class Permutation:
    """A bijection of range(size), chosen by `keys`."""

    def __init__(self, size: int, *keys: int | str) -> None:
        if size < 1:
            raise ValueError(f"a permutation of {size} things: give it at least one")
        self.size = size
        self._half = max(MIN_HALF_BITS, ((size - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        self._round_keys = [key("order", *keys, turn) for turn in range(ROUNDS)]

    def __call__(self, position: int) -> int:
        """Where `position` goes."""
        if not 0 <= position < self.size:
            raise ValueError(f"position {position} is not in range({self.size})")
        value = self._network(position)
        while value >= self.size:  # ends: the network's cycle through `position` comes back to it
            value = self._network(value)
        return value

    def _network(self, value: int) -> int:
        left, right = value >> self._half, value & self._mask
        for round_key in self._round_keys:
            left, right = right, left ^ (mix(round_key ^ right) & self._mask)
        return (left << self._half) | right


@lru_cache(maxsize=8)
def _epoch(size: int, seed: int, epoch: int) -> Permutation:
    return Permutation(size, seed, epoch)


def example_at(position: int, size: int | None, seed: int) -> int:
    """The index of the example that is read at `position`; `size` None is a source without end."""
    if position < 0:
        raise ValueError(f"position {position} is before the first example: give it from 0 on")
    if size is None:
        return position
    if size < 1:
        raise ValueError("the source is empty: check its path, its fields and its filters")
    epoch, offset = divmod(position, size)
    return _epoch(size, seed, epoch)(offset)
