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
WORD = 0xFFFFFFFFFFFFFFFF


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
    value &= WORD
    return value - (1 << 64) if value >= 1 << 63 else value


def _fold(x: Tensor, bits: int) -> Tensor:
    """x xor (x >> bits) with a logical shift: torch copies the sign bit, so it is masked off."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1).bitwise_xor_(x)


def _mix(x: Tensor) -> Tensor:
    x = _fold(x, 30).mul_(_signed(MULTIPLY_1))
    return _fold(_fold(x, 27).mul_(_signed(MULTIPLY_2)), 31)


def _mix_number(x: int) -> int:
    """`_mix` of one number, signed; on a tensor this would be eleven calls of torch."""
    x &= WORD
    x = (x ^ (x >> 30)) * MULTIPLY_1 & WORD
    x = (x ^ (x >> 27)) * MULTIPLY_2 & WORD
    return _signed(x ^ (x >> 31))


def bits(seed: int, *keys: Tensor | int) -> Tensor:
    """64 hashed bits (int64) for each element of the broadcast keys."""
    state: Tensor | int = _mix_number(seed + GOLDEN)
    for place, key in enumerate(keys):
        if isinstance(key, Tensor):
            state = _mix((key.to(torch.int64) * _signed(GOLDEN)).add_(place) ^ state)
        else:
            word = _signed(int(key) * GOLDEN + place)
            state = _mix(state ^ word) if isinstance(state, Tensor) else _mix_number(state ^ word)
    return state if isinstance(state, Tensor) else torch.tensor(state, dtype=torch.int64)


def uniform(seed: int, *keys: Tensor | int) -> Tensor:
    """Uniform numbers in the open interval (0, 1), float64, one per element of the keys."""
    # 52 bits and a half: with 53, the largest value would round to 1.
    top = (bits(seed, *keys) >> 12).bitwise_and_((1 << 52) - 1)
    return top.to(torch.float64).add_(0.5).div_(1 << 52)


def key_of(*parts: str | int) -> int:
    """A 63-bit key from names and numbers, such as (seed, task, sample index).

    Strings are hashed with their lengths, so ("ab", "c") and ("a", "bc") differ.
    """
    text = "".join(f"{len(str(part))}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class Noise:
    """All the noise of one training step, addressed by example.

    `level`, if given, is the corrupted share of every example, or of each: validation walks over a
    grid of it, and the estimate of a likelihood spreads it evenly over its draws.
    """

    seed: int
    step: int
    level: float | tuple[float, ...] | None = None

    def uniform(self, stream: Stream, *keys: Tensor | int) -> Tensor:
        return uniform(self.seed, int(stream), self.step, *keys)

    def levels(self, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Stratified uniforms: one in each of `count` equal strata, in shuffled order.  # count

        u_i = (pi(i) + v_i) / count. Each u_i alone is uniform; together they cover (0, 1) evenly,
        which takes most of the variance of the level out of the gradient.
        """
        if isinstance(self.level, tuple):
            assert len(self.level) == count, "one level for each example"
            return torch.tensor(self.level, dtype=torch.float64, device=device)
        if self.level is not None:
            return torch.full((count,), self.level, dtype=torch.float64, device=device)
        row = torch.arange(count, device=device)
        stratum = self.uniform(Stream.ORDER, row).argsort()
        return (stratum + self.uniform(Stream.TIME, row)) / count
