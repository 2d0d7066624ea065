"""Keyed draws: numbers that are a pure function of a key, in plain Python.

What it is: `key` turns a tuple of integers and words into 64 bits, `Draws` counts upwards from such
a key (SplitMix64) and hands out uniforms. Two `Draws` with the same key give the same numbers on
every machine and every version of Python, and no draw depends on what was drawn elsewhere.

What it is not: a source of noise on tensors (that belongs to the process room), nor cryptography.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")

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

    def pick(self, items: Sequence[Item]) -> Item:
        """One of `items`, all alike."""
        return items[self.below(len(items))]

    def sample(self, items: Sequence[Item], count: int) -> list[Item]:
        """`count` different members of `items`, in the order drawn."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(count)]
