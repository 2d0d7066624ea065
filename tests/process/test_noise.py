"""Keyed noise: a pure function of its keys, uniform, and independent between keys."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from anyorder.process.noise import Noise, Stream, bits, key_of, uniform


def reference_bits(seed: int, *keys: int) -> int:
    """The docstring's definition in plain integers."""
    word = (1 << 64) - 1

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & word
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & word
        return x ^ (x >> 31)

    state = mix((seed + 0x9E3779B97F4A7C15) & word)
    for place, key in enumerate(keys):
        state = mix(state ^ ((key * 0x9E3779B97F4A7C15 + place) & word))
    return state


@given(st.integers(0, 2**63 - 1), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4))
def test_tensor_hash_is_the_integer_hash(seed: int, keys: list[int]) -> None:
    got = int(bits(seed, *[torch.tensor(key) for key in keys])) & ((1 << 64) - 1)
    assert got == reference_bits(seed, *keys)
    assert int(bits(seed, *keys)) & ((1 << 64) - 1) == got
    for first in (0, 1):  # numbers before, between and behind tensors
        mixed = [torch.tensor(k) if i % 2 == first else k for i, k in enumerate(keys)]
        assert int(bits(seed, *mixed)) & ((1 << 64) - 1) == got


def test_uniform_broadcasts_and_each_element_depends_on_its_own_keys_only() -> None:
    rows, columns = torch.arange(5), torch.arange(7)
    table = uniform(3, rows[:, None], columns[None, :])
    assert table.shape == (5, 7)
    assert float(table[2, 4]) == float(uniform(3, 2, 4))


def test_uniform_is_uniform_and_neighbours_are_uncorrelated() -> None:
    table = uniform(1, torch.arange(400)[:, None], torch.arange(250)[None, :]).numpy()
    assert stats.kstest(table.ravel(), "uniform").pvalue > 1e-4
    assert table.min() > 0 and table.max() < 1
    for a, b in ((table[:, 1:], table[:, :-1]), (table[1:], table[:-1])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.015


def test_key_of_separates_parts() -> None:
    assert key_of("ab", "c") != key_of("a", "bc")
    assert key_of(1, "x") == key_of(1, "x")
    assert 0 <= key_of("anything") < 1 << 63


@given(st.integers(1, 200), st.integers(0, 1000))
def test_levels_hit_every_stratum_once(count: int, step: int) -> None:
    levels = Noise(seed=5, step=step).levels(count)
    assert sorted((levels * count).floor().int().tolist()) == list(range(count))


def test_levels_are_shuffled_and_can_be_fixed() -> None:
    firsts = torch.stack([Noise(0, step).levels(8)[0] for step in range(2000)])
    assert stats.kstest(firsts.numpy(), "uniform").pvalue > 1e-4
    assert Noise(0, 0, level=0.25).levels(3).tolist() == [0.25] * 3


def test_streams_are_independent() -> None:
    noise = Noise(0, 0)
    keys = torch.arange(5000)
    a, b = noise.uniform(Stream.TOKEN, keys), noise.uniform(Stream.TIE, keys)
    assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 0.05
