"""The sphere: the published golden numbers, the geometry's laws, and the noise to begin with."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from anyorder.process import sphere
from anyorder.process.noise import Noise
from anyorder.process.sphere import Truncated, enough_signal

TABLE = sphere.unit(torch.tensor([[1.0, 0, 0, 0], [1, 1, 0, 0], [0, 1, 2, 0]], dtype=torch.float64))
NOISE = sphere.unit(torch.tensor([[0.0, 0, 1, 1]], dtype=torch.float64))
POINT = sphere.slerp(NOISE, TABLE[:1], torch.tensor([0.1], dtype=torch.float64))
PROBABILITY = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64)


def points(seed: int, count: int, width: int) -> Tensor:
    keys = torch.full((count,), seed)
    return sphere.sampling_noise(keys, torch.arange(count), width)


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def assert_golden(found: Tensor, golden: list[float]) -> None:
    assert found.squeeze(0).tolist() == pytest.approx(golden, abs=6e-7)


@pytest.mark.parametrize(
    ("vocab_size", "width", "delta", "golden"),
    [
        (12, 512, 0.1, 0.0927),
        (12, 768, 0.1, 0.0756),
        (49153, 768, 0.1, 0.1214),
        (50257, 768, 0.1, 0.1215),
        (50000, 768, 0.01, 0.1314),
        (100000, 1024, 0.1, 0.1077),
        (151645, 768, 0.1, 0.1263),
        (151645, 512, 0.1, 0.1553),
        (49153, 512, 0.1, 0.1492),
    ],
)
def test_the_published_truncations(
    vocab_size: int, width: int, delta: float, golden: float
) -> None:
    # One of the published numbers, 0.15525, is rounded up.
    assert enough_signal(vocab_size, width, delta) == pytest.approx(golden, abs=5.1e-5)


def test_no_truncation_where_the_bound_says_nothing() -> None:
    assert enough_signal(260, 16, 0.1) == 1.0
    with pytest.raises(ValueError, match="a delta between 0 and 1"):
        enough_signal(260, 64, 1.0)


def test_the_truncation_tells_tokens_apart() -> None:
    """At a* the clean one of V random tokens is the nearest, but for a share below delta."""
    vocab_size, width, delta = 200, 96, 0.1
    signal = number(enough_signal(vocab_size, width, delta))
    table = points(1, vocab_size, width)
    start = points(2, 20 * vocab_size, width)
    clean = torch.arange(vocab_size).repeat(20)
    found = sphere.slerp(start, table[clean], signal.expand(len(clean))) @ table.T
    wrong = (found.argmax(dim=1) != clean).double().mean()
    assert wrong < delta
    early = sphere.slerp(start, table[clean], (signal / 3).expand(len(clean))) @ table.T
    assert (early.argmax(dim=1) != clean).double().mean() > delta


def test_the_golden_path() -> None:
    assert_golden(POINT, [0.156434, 0, 0.698401, 0.698401])
    assert_golden(sphere.log_map(POINT, TABLE[:1]), [1.396311, 0, -0.15638, -0.15638])
    assert_golden(sphere.log_map(POINT, TABLE[1:2]), [1.013298, 1.038717, -0.113484, -0.113484])
    assert_golden(sphere.log_map(POINT, TABLE[2:]), [-0.112136, 0.513188, 0.525746, -0.500629])


def test_the_golden_velocity_and_step() -> None:
    velocity = sphere.velocity(POINT, PROBABILITY, TABLE)
    assert_golden(velocity, [0.979718, 0.414253, -0.007086, -0.212361])
    assert abs(float((velocity * POINT).sum())) < 1e-15
    moved = sphere.euler_step(POINT, velocity, number(0.1), number(0.3))
    assert_golden(moved, [0.367525, 0.091167, 0.67665, 0.631474])


def test_the_golden_step_towards_one_token() -> None:
    one_hot = torch.tensor([[1.0, 0, 0]], dtype=torch.float64)
    velocity = sphere.velocity(POINT, one_hot, TABLE)
    moved = sphere.euler_step(POINT, velocity, number(0.1), number(0.3))
    assert_golden(moved, [0.45399, 0, 0.630037, 0.630037])
    path = sphere.slerp(NOISE, TABLE[:1], number(0.3)[None])
    assert torch.allclose(moved, path, atol=1e-15)


def test_the_golden_grid_of_sixteen_steps() -> None:
    signals = Truncated(most=0.121).value(sphere.grid(16))
    assert len(signals) == 17
    assert signals[:3].tolist() == pytest.approx([0.0010, 0.0085, 0.0160], abs=5e-5)
    assert float(signals[15]) == pytest.approx(0.1135, abs=5e-5)  # where tokens are read
    share = (signals[1:] - signals[:-1]) / (1 - signals[:-1])
    assert share[:2].tolist() == pytest.approx([0.00751, 0.00756], abs=5e-6)
    assert float(share[14]) == pytest.approx(0.00839, abs=5e-6)
    sigma = -signals.log()
    assert sigma[:3].tolist() == pytest.approx([6.908, 4.768, 4.135], abs=5e-4)
    assert float(sigma[15]) == pytest.approx(2.176, abs=5e-4)


def test_schedules_that_are_none() -> None:
    for least, most in ((0.0, 0.5), (0.5, 0.5), (0.1, 1.1)):
        with pytest.raises(ValueError, match="0 < least < most <= 1"):
            Truncated(most=most, least=least)


def test_training_times_are_stratified() -> None:
    times = sphere.training_times(Noise(3, 7), 64)
    assert float(times.min()) > sphere.FIRST_TIME and float(times.max()) < 1
    scaled = (times - sphere.FIRST_TIME) / (1 - sphere.FIRST_TIME)
    assert sorted((scaled * 64).floor().int().tolist()) == list(range(64))


seeds = st.integers(0, 1 << 40)
signals = st.floats(0, 1)


@given(seeds, signals, st.integers(2, 70))
def test_slerp_stays_on_the_sphere_and_joins_its_ends(seed: int, signal: float, width: int) -> None:
    start, clean = points(seed, 6, width), points(seed + 1, 6, width)
    level = number(signal).expand(6)
    found = sphere.slerp(start, clean, level)
    assert torch.allclose(found.norm(dim=1), torch.ones(6, dtype=torch.float64), atol=1e-9)
    whole = sphere.angle(start, clean)
    assert torch.allclose(sphere.angle(start, found), signal * whole, atol=1e-6)
    assert torch.equal(sphere.slerp(start, clean, torch.zeros(6)), start)
    assert torch.equal(sphere.slerp(start, clean, torch.ones(6)), clean)


@given(seeds, st.floats(0, 1e-3), signals, st.booleans())
def test_near_equal_and_near_opposite_points_stay_finite(
    seed: int, apart: float, signal: float, opposite: bool
) -> None:
    start, other = points(seed, 4, 8), points(seed + 1, 4, 8)
    clean = sphere.unit((-start if opposite else start) + apart * other).requires_grad_()
    found = sphere.slerp(start, clean, number(signal).expand(4))
    found.sum().backward()
    assert clean.grad is not None
    assert bool(found.isfinite().all()) and bool(clean.grad.isfinite().all())
    if not opposite:
        assert torch.allclose(found.norm(dim=1), torch.ones(4, dtype=torch.float64), atol=1e-9)
    velocity = sphere.velocity(start, torch.full((4, 4), 0.25).double(), clean.detach())
    assert bool(velocity.isfinite().all())
    moved = sphere.exp_map(start, velocity)
    assert torch.allclose(moved.norm(dim=1), torch.ones(4, dtype=torch.float64), atol=1e-9)


@given(seeds, st.integers(2, 40))
def test_log_and_exp_undo_each_other(seed: int, width: int) -> None:
    here, there = points(seed, 6, width), points(seed + 1, 6, width)
    way = sphere.log_map(here, there)
    assert torch.allclose((way * here).sum(dim=1), torch.zeros(6).double(), atol=1e-7)
    close = sphere.angle(here, there) > math.pi - 1e-2  # almost no one way leads there
    arrived = sphere.exp_map(here, way)
    assert torch.allclose(arrived[~close], there[~close], atol=1e-6)
    assert torch.allclose(sphere.log_map(here, here), torch.zeros(6, width).double(), atol=1e-9)


@given(seeds, st.integers(2, 40), st.integers(1, 12))
def test_two_products_are_the_sum_of_log_maps(seed: int, width: int, tokens: int) -> None:
    here, table = points(seed, 5, width), points(seed + 1, tokens, width)
    probability = (3 * points(seed + 2, 5, tokens)).softmax(dim=1)
    whole = sphere.velocity(here, probability, table)
    summed = sum(
        probability[:, v : v + 1] * sphere.log_map(here, table[v].expand(5, -1))
        for v in range(tokens)
    )
    assert torch.allclose(whole, summed, atol=1e-12)
    few = sphere.velocity_to(here, probability, table.expand(5, -1, -1))
    assert torch.allclose(whole, few, atol=1e-12)
    assert torch.allclose((whole * here).sum(dim=1), torch.zeros(5).double(), atol=1e-9)


@settings(max_examples=30)
@given(seeds, st.lists(st.floats(0.001, 0.999), min_size=1, max_size=8), st.integers(3, 40))
def test_with_one_token_every_step_stays_on_the_path(
    seed: int, levels: list[float], width: int
) -> None:
    start, table = points(seed, 4, width), points(seed + 1, 4, width)
    probability = torch.eye(4, dtype=torch.float64)
    levels = [0.0, *sorted(levels)]
    here = start
    for signal, following in itertools.pairwise(levels):
        velocity = sphere.velocity(here, probability, table)
        here = sphere.euler_step(here, velocity, number(signal), number(following))
    path = sphere.slerp(start, table, number(levels[-1]).expand(4))
    apart = sphere.angle(start, table) < math.pi - 0.2
    assert torch.allclose(here[apart], path[apart], atol=1e-11)
    assert torch.allclose(here.norm(dim=1), torch.ones(4, dtype=torch.float64), atol=1e-12)


def test_noise_is_uniform_on_the_sphere() -> None:
    """Its projections have the law of a coordinate of a uniform point, and no direction leads."""
    width = 6
    found = points(5, 20_000, width)
    law = stats.beta((width - 1) / 2, (width - 1) / 2, loc=-1, scale=2)
    direction = sphere.unit(torch.arange(1.0, width + 1).double())
    for projected in (found[:, 0], found[:, 4], found @ direction):
        assert stats.kstest(projected.numpy(), law.cdf).pvalue > 1e-4
    assert float(found.mean(dim=0).norm()) < 0.02


def test_noise_belongs_to_its_key_and_position() -> None:
    keys = torch.tensor([7, 7, 9])
    found = sphere.sampling_noise(keys, torch.tensor([0, 1, 1]), 5)
    assert torch.equal(found[1:2], sphere.sampling_noise(keys[1:2], torch.tensor([1]), 5))
    assert float((found[0] * found[1]).sum().abs()) < 0.999
    assert float((found[1] * found[2]).sum().abs()) < 0.999
    noise = Noise(1, 4)
    index = torch.tensor([7, 9])
    trained = sphere.training_noise(noise, index, torch.tensor([2, 2]), 5)
    assert torch.equal(trained[1:], sphere.training_noise(noise, index[1:], torch.tensor([2]), 5))
    later = sphere.training_noise(Noise(1, 5), index, torch.tensor([2, 2]), 5)
    assert not torch.allclose(trained, later)
