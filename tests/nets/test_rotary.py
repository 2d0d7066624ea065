"""Rotary positions: turns keep norms, products depend on offsets, tables are made once."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anyorder.nets.stack import Rotary, rotate

CPU = torch.device("cpu")


def turned(rotary: Rotary, x: torch.Tensor, position: int) -> torch.Tensor:
    return rotate(x[None, None, None], rotary.at(torch.tensor([[position]])))[0, 0, 0]


def test_pairs_are_half_a_head_apart_and_turn_by_their_own_frequency() -> None:
    rotary = Rotary(head_width=4, theta=100.0)
    out = turned(rotary, torch.tensor([1.0, 0.0, 0.0, 2.0]), 3)
    slow = 3 * 100.0**-0.5
    expected = [math.cos(3), -2 * math.sin(slow), math.sin(3), 2 * math.cos(slow)]
    torch.testing.assert_close(out, torch.tensor(expected))


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    head_width=st.sampled_from([2, 8, 64]),
    theta=st.sampled_from([100.0, 10_000.0, 1e6]),
    query_at=st.integers(0, 500),
    offset=st.integers(0, 300),
    moved=st.integers(0, 500),
)
def test_norms_are_kept_and_products_depend_on_the_offset_alone(
    seed: int, head_width: int, theta: float, query_at: int, offset: int, moved: int
) -> None:
    rotary = Rotary(head_width, theta)
    query, key = torch.randn(2, head_width, generator=torch.Generator().manual_seed(seed))
    size = float(query.norm() * key.norm())
    here = turned(rotary, query, query_at)
    assert float(here.norm()) == pytest.approx(float(query.norm()), rel=1e-5)
    product = here @ turned(rotary, key, query_at + offset)
    elsewhere = turned(rotary, query, moved) @ turned(rotary, key, moved + offset)
    assert float(product - elsewhere) == pytest.approx(0, abs=2e-4 * size)


def test_all_three_ways_to_a_position_agree() -> None:
    rotary = Rotary(8, 10_000.0)
    positions = torch.tensor([[0, 5, 99], [7, 7, 1]])
    for got, picked, whole in zip(
        rotary.at(positions), rotary.pick(positions, 100), rotary.prefix(100, CPU), strict=True
    ):
        assert got.shape == (2, 3, 1, 8)
        assert torch.equal(got, picked)
        assert torch.equal(got, whole[0, positions])


def test_tables_are_computed_once_and_grow_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    rotary = Rotary(8, 10_000.0)
    computed = []
    at = rotary.at
    monkeypatch.setattr(
        rotary, "at", lambda positions: computed.append(positions.shape) or at(positions)
    )
    for length in (1, 60, 64, 3, 65, 128, 100):
        assert rotary.prefix(length, CPU)[0].shape[1] == length
    assert computed == [(1, 64), (1, 128)]


def test_rotation_of_half_precision_happens_in_float32() -> None:
    rotary = Rotary(64, 10_000.0)
    x = torch.randn(1, 400, 1, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    exact = rotate(x.double(), rotary.prefix(400, CPU))
    got = rotate(x, rotary.prefix(400, CPU))
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got, exact.bfloat16(), rtol=2**-7, atol=1e-6)
