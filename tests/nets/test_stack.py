"""Rotary positions: turns keep norms, products depend on offsets, tables are made once."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.stack import Rotary, TimeEmbedding, modulate, rotate, sinusoids
from anyorder.nets.transformer import Transformer

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


# Time features and the modulation of a layer.


CONFIG = TransformerConfig(13, 16, 2, 2, 1, 8, 24, time_modulated=True)


def test_features_are_cosines_then_sines_of_a_thousand_times_the_time() -> None:
    features = sinusoids(torch.tensor([0.0, 0.37]), 6)
    frequency = [10_000 ** (-j / 3) for j in range(3)]
    expected = [math.cos(370 * f) for f in frequency] + [math.sin(370 * f) for f in frequency]
    torch.testing.assert_close(features[0], torch.tensor([1.0, 1, 1, 0, 0, 0]))
    torch.testing.assert_close(features[1], torch.tensor(expected), atol=2e-4, rtol=0)


def test_features_stay_in_float32_for_a_half_precision_module() -> None:
    time = torch.tensor([0.12345], dtype=torch.float64)
    assert sinusoids(time, 8).dtype == torch.float32
    embedding = TimeEmbedding(8).bfloat16()
    near = torch.tensor([0.12360], dtype=torch.float64)  # the same number in bfloat16
    assert time.bfloat16() == near.bfloat16()
    assert not torch.equal(embedding(time), embedding(near))


def test_scale_comes_first_and_none_is_the_identity() -> None:
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    scale, shift = torch.full((2, 1, 4), 0.5), torch.full((2, 1, 4), -1.0)
    torch.testing.assert_close(modulate(x, (scale, shift)), 1.5 * x - 1)
    assert modulate(x, None) is x


def test_a_fresh_modulation_changes_nothing() -> None:
    timed = Transformer(CONFIG, seed=3)
    plain = Transformer(replace(CONFIG, time_modulated=False))
    plain.load_state_dict({n: w for n, w in timed.state_dict().items() if n in plain.state_dict()})
    ids = torch.arange(10).view(2, 5)
    for time in (torch.zeros(2), torch.tensor([0.2, 0.9])):
        assert torch.equal(timed(ids, time=time), plain(ids))


def test_both_norms_of_a_layer_get_the_same_scale_and_shift_and_the_final_norm_none() -> None:
    net = Transformer(CONFIG, seed=1)
    generator = torch.Generator().manual_seed(5)
    for block in net.blocks:
        torch.nn.init.normal_(block.modulation.project.weight, std=0.3, generator=generator)
        torch.nn.init.normal_(block.modulation.project.bias, std=0.3, generator=generator)
    ids, time = torch.arange(10).view(2, 5), torch.tensor([0.1, 0.7])
    condition = net.time(time)
    context = net.plain_context(net.embed(ids))
    x = net.embed(ids)
    for block in net.blocks:
        scale, shift = block.modulation.project(condition)[:, None].split(CONFIG.width, dim=-1)
        x = x + block.attention(block.attention_norm(x) * (1 + scale) + shift, context)
        x = x + block.mlp(block.mlp_norm(x) * (1 + scale) + shift)
    torch.testing.assert_close(net.hidden(ids, time=time), net.norm(x))
    swapped = net.hidden(ids, time=time.flip(0))
    assert (swapped - net.norm(x)).abs().max() > 1e-3


def test_time_is_asked_for_exactly_where_it_is_used() -> None:
    ids = torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(ValueError, match="give a time for each row"):
        Transformer(CONFIG)(ids)
    with pytest.raises(ValueError, match="one for each of 2 rows"):
        Transformer(CONFIG)(ids, time=torch.tensor(0.5))
    with pytest.raises(ValueError, match="not time-modulated"):
        Transformer(replace(CONFIG, time_modulated=False))(ids, time=torch.zeros(2))
