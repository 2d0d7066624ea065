"""The Gaussian relaxation: golden values of its transform, its law, and its soft tokens."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from anyorder.process.noise import Noise
from anyorder.process.uniform import GammaLine, discrete_alpha, gamma_at, relax

GOLDEN = {
    50257: {
        -4: 0.99869,
        -3.55: 0.94547,
        -3: 0.59625,
        -2.5: 0.23797,
        -2: 0.07203,
        -1.85: 0.04932,
        -1: 0.00619,
    },
    151645: {-3.55: 0.91556, -3: 0.50383, -2.5: 0.17081, -2: 0.04441},
    16: {-2: 0.79358, -1: 0.43767, 0: 0.21131},
    4: {-1: 0.65531},
}


@pytest.mark.parametrize("count", GOLDEN)
def test_golden_transform(count: int) -> None:
    gammas = torch.tensor(list(GOLDEN[count]), dtype=torch.float64)
    found, _ = discrete_alpha(gammas, count)
    assert found.tolist() == pytest.approx(list(GOLDEN[count].values()), abs=6e-6)


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(50257, -3.565, -1.855), (49153, -3.563, -1.851), (151645, -3.643, -2.042)],
)
def test_golden_bounds(count: int, low: float, high: float) -> None:
    line = GammaLine.of(count)
    assert (line.low, line.high) == pytest.approx((low, high), abs=6e-4)


@given(st.integers(2, 200_000), st.floats(-6, 3))
@settings(max_examples=25)
def test_transform_and_slope_against_adaptive_quadrature(count: int, gamma: float) -> None:
    mu = math.exp(-gamma / 2)

    def mean(weight: float) -> float:
        """Of weight + (1 - weight) * e over the event that the clean entry mu + e is largest."""

        def density(offset: float) -> float:
            exponent = (count - 1) * special.log_ndtr(mu + offset) - offset**2 / 2
            scale = (weight + (1 - weight) * offset) / math.sqrt(2 * math.pi)
            return float(math.exp(exponent) * scale)

        return float(integrate.quad(density, -9, 9, limit=400, epsabs=1e-12)[0])

    value, slope = discrete_alpha(torch.tensor(gamma, dtype=torch.float64), count)
    assert float(value) == pytest.approx((count * mean(1.0) - 1) / (count - 1), abs=1e-9)
    assert float(slope) == pytest.approx(count / (count - 1) * mean(0.0) * -mu / 2, abs=1e-9)


@pytest.mark.parametrize("count", [2, 16, 165, 50257])
def test_bounds_invert_the_transform(count: int) -> None:
    for alpha in (0.95, 0.5, 0.05):
        value, _ = discrete_alpha(torch.tensor(gamma_at(alpha, count)), count)
        assert float(value) == pytest.approx(alpha, abs=1e-6)
    line = GammaLine.of(count)
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    alpha, slope = line.alpha(ends, count)
    assert alpha.tolist() == pytest.approx([0.95, 0.05], abs=1e-9)
    nudged, _ = line.alpha(ends + 1e-6, count)
    assert ((nudged - alpha) / 1e-6).tolist() == pytest.approx(slope.tolist(), rel=1e-3)
    assert bool((slope < 0).all())


def test_argmax_is_a_uniform_state_sample() -> None:
    rows, count, gamma = 20_000, 16, -1.0
    states, place = torch.full((rows,), 5), torch.zeros(rows, dtype=torch.int64)
    gammas = torch.full((rows,), gamma)
    latent = relax(states, torch.arange(rows), place, Noise(4, 2), gammas, count)
    alpha = float(discrete_alpha(torch.tensor(gamma), count)[0])
    assert alpha == pytest.approx(0.4377, abs=1e-4)
    observed = torch.bincount(latent.argmax(dim=-1), minlength=count)
    expected = [rows * (alpha * (state == 5) + (1 - alpha) / count) for state in range(count)]
    assert stats.chisquare(observed, expected).pvalue > 1e-4
    spread = math.sqrt(1 / (1 + math.exp(-gamma)))
    assert float(latent[:, 6].std()) == pytest.approx(spread, rel=0.02)
    signal = math.sqrt(1 / (1 + math.exp(gamma)))
    means = [signal * (state == 5) for state in range(count)]
    assert latent.mean(dim=0).tolist() == pytest.approx(means, abs=0.03)


def test_noise_belongs_to_the_example() -> None:
    """And to its place: whatever else is relaxed beside it."""
    index, place = torch.tensor([7, 7, 9, 9]), torch.tensor([0, 2, 0, 1])
    states, gamma, noise = torch.tensor([0, 3, 1, 1]), torch.linspace(-1, 1, 4), Noise(0, 3)
    forward = relax(states, index, place, noise, gamma, 5)
    some = torch.tensor([3, 0])
    again = relax(states[some], index[some], place[some], noise, gamma[some], 5)
    assert torch.equal(forward[some], again)
    assert len(forward.flatten().unique()) == forward.numel()


def test_an_impossible_share_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        gamma_at(1.0, 5)
