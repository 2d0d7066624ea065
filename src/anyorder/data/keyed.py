"""Keyed draws and the order of examples: pure functions of a key, in plain Python.

`key` turns a tuple of integers and words into 64 bits; `Draws` counts upwards from a key
(SplitMix64) and gives uniforms. Equal keys give the same numbers on every machine and every version
of Python, and no draw depends on what was drawn elsewhere. This is neither noise on tensors
(process/noise.py) nor cryptography.

`example_at` is the order of examples as a function of (seed, position), with nothing to store or
resume. A finite source of n examples is read in epochs, each a keyed permutation of range(n), made
by a Feistel network on the smallest even number of bits that holds n, with cycle walking: a value
outside range(n) goes through the network again until it is inside. One element costs a few integer
operations, whatever n is. A source without end is read in its own order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

Element = TypeVar("Element")

WORD = (1 << 64) - 1
"""All ones in 64 bits: arithmetic here is modulo 2**64."""

_STRIDE = 0x9E3779B97F4A7C15


def key(*parts: int | str) -> int:
    """64 bits that identify `parts`; ("a", 1) and ("a1",) differ."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def mix(value: int) -> int:
    """A bijection of 64-bit integers that scatters neighbouring values (the SplitMix64 finish)."""
    value &= WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & WORD
    return value ^ (value >> 31)


class Draws:
    """A stream of draws that belongs to one key."""

    def __init__(self, *parts: int | str) -> None:
        self._state = key(*parts)

    def uniform(self) -> float:
        """The next number in [0, 1)."""
        self._state = (self._state + _STRIDE) & WORD
        return (mix(self._state) >> 11) * 2.0**-53

    def below(self, count: int) -> int:
        """The next integer in range(count)."""
        return int(self.uniform() * count)

    def between(self, low: int, high: int) -> int:
        """The next integer from low to high, both included."""
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[Element]) -> Element:
        """One of `items`, all equally likely."""
        return items[self.below(len(items))]

    def sample(self, items: Sequence[Element], count: int) -> list[Element]:
        """`count` different members of `items`, in the order drawn."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(count)]


ROUNDS = 6
MIN_HALF_BITS = 3
"""Narrower halves have too few round functions to shuffle well."""


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
        # A bijection's cycle through `position` returns to it, so the walk ends; distinct positions
        # end at distinct values.
        while value >= self.size:
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
