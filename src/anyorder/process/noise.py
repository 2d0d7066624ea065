"""Noise as a function: the same (seed, keys) always give the same number.

A random draw is a hash of integers: `uniform(seed, key_1, key_2, ...)` broadcasts its keys and
mixes them one after another with the finaliser of SplitMix64,

    h_0 = mix(seed + GOLDEN),   h_{j+1} = mix(h_j xor (key_j * GOLDEN + j)),
    u = (top 52 bits of h + 1/2) / 2^52.

There is no generator and no hidden state, so a sample does not depend on its neighbours in the
batch, training noise does not depend on the number of processes, and a resumed run sees the noise
of an uninterrupted one. Not for cryptography.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
MULTIPLY_1 = 0xBF58476D1CE4E5B9
MULTIPLY_2 = 0x94D049BB133111EB


class Stream(IntEnum):
    """One tag per use of noise, so that two uses with equal keys stay independent."""

    TOKEN = 1
    TIE = 2
    ORDER = 3
    PLACE = 4
    TIME = 5
    REVEAL = 6
    INSERT = 7
    COUNT = 8
    EVENT = 9
    SPAN = 10
    UNIFORM = 11
    SPHERE = 12
    PLAN = 13
    REMASK = 14


def _signed(value: int) -> int:
    """The 64-bit pattern of `value` as the signed integer that torch stores."""
    value &= 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >= 1 << 63 else value


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """A logical shift: torch shifts signed integers arithmetically, so the copied sign bits go."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift_right(x, 30)) * _signed(MULTIPLY_1)
    x = (x ^ _shift_right(x, 27)) * _signed(MULTIPLY_2)
    return x ^ _shift_right(x, 31)


def bits(seed: int, *keys: Tensor | int) -> Tensor:
    """64 hashed bits (int64) for each element of the broadcast keys."""
    device = next((key.device for key in keys if isinstance(key, Tensor)), torch.device("cpu"))
    state = _mix(torch.tensor(_signed(seed + GOLDEN), dtype=torch.int64, device=device))
    for place, key in enumerate(keys):
        if isinstance(key, Tensor):
            word = key.to(torch.int64)
        else:
            word = torch.tensor(_signed(int(key)), dtype=torch.int64, device=device)
        state = _mix(state ^ (word * _signed(GOLDEN) + place))
    return state


def uniform(seed: int, *keys: Tensor | int) -> Tensor:
    """Uniform numbers in the open interval (0, 1), float64, one per element of the keys."""
    # 52 bits and a half: with 53, the largest value would round to 1.
    return (_shift_right(bits(seed, *keys), 12).to(torch.float64) + 0.5) / (1 << 52)


def key_of(*parts: str | int) -> int:
    """A 63-bit key from names and numbers, such as (seed, task, sample index).

    Strings are hashed with their lengths, so ("ab", "c") and ("a", "bc") differ.
    """
    text = "".join(f"{len(str(part))}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class Noise:
    """All the noise of one training step, addressed by example.

    `level`, the share that is corrupted, fixes that of every example: validation walks over a grid.
    """

    seed: int
    step: int
    level: float | None = None

    def uniform(self, stream: Stream, *keys: Tensor | int) -> Tensor:
        return uniform(self.seed, int(stream), self.step, *keys)

    def levels(self, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Stratified uniforms: one in each of `count` equal strata, in shuffled order.  # count

        u_i = (pi(i) + v_i) / count. Each u_i alone is uniform; together they cover (0, 1) evenly,
        which takes most of the variance of the level out of the gradient.
        """
        if self.level is not None:
            return torch.full((count,), self.level, dtype=torch.float64, device=device)
        row = torch.arange(count, device=device)
        stratum = self.uniform(Stream.ORDER, row).argsort()
        return (stratum + self.uniform(Stream.TIME, row)) / count
