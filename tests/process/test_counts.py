"""Counts against their closed forms: cumulative laws, means, and what the edges must give."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anyorder.process.insertion import binomial, floor_bernoulli, poisson
from anyorder.process.noise import uniform


def one(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


def poisson_cdf(k: int, rate: float) -> float:
    return math.fsum(math.exp(j * math.log(rate) - rate - math.lgamma(j + 1)) for j in range(k + 1))


def binomial_cdf(k: int, n: int, p: float) -> float:
    return math.fsum(math.comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(k + 1))


inside = st.floats(1e-12, 1 - 1e-12)


@given(st.floats(1e-6, 400), inside)
def test_poisson_is_the_first_count_whose_cumulative_mass_passes(rate: float, u: float) -> None:
    k = int(poisson(one(rate), one(u)))
    assert poisson_cdf(k, rate) >= u - 1e-11
    assert k == 0 or poisson_cdf(k - 1, rate) <= u + 1e-11


@given(st.integers(0, 60), st.floats(0, 1), inside)
def test_binomial_is_the_first_count_whose_cumulative_mass_passes(
    n: int, p: float, u: float
) -> None:
    k = int(binomial(one(n), one(p), one(u)))
    assert 0 <= k <= n
    assert binomial_cdf(k, n, p) >= u - 1e-11
    assert k == 0 or binomial_cdf(k - 1, n, p) <= u + 1e-11


def test_laws_of_many_draws() -> None:
    """Pearson's statistic over the counts that occur often; 30 is far out for at most 9 of them."""
    draws = 40_000
    u = uniform(3, torch.arange(draws))
    cases = [
        (poisson(torch.full_like(u, 0.7), u), lambda k: poisson_cdf(k, 0.7)),
        (poisson(torch.full_like(u, 3.0), u), lambda k: poisson_cdf(k, 3.0)),
        (binomial(torch.full_like(u, 5), torch.full_like(u, 0.3), u),
         lambda k: binomial_cdf(k, 5, 0.3)),
        (binomial(torch.full_like(u, 6), torch.full_like(u, 0.8), u),
         lambda k: binomial_cdf(k, 6, 0.8)),
    ]  # fmt: skip
    for drawn, cdf in cases:
        statistic = 0.0
        for k in range(9):
            expected = draws * (cdf(k) - (cdf(k - 1) if k else 0.0))
            if expected > 10:
                statistic += (int((drawn == k).sum()) - expected) ** 2 / expected
        assert statistic < 30


@pytest.mark.parametrize("size", [50.0, 1000.0, 5000.0])
def test_large_counts_keep_mean_and_spread(size: float) -> None:
    u = uniform(4, torch.arange(4000))
    for drawn, mean, variance in (
        (poisson(torch.full_like(u, size), u), size, size),
        (binomial(torch.full_like(u, 2 * size), torch.full_like(u, 0.5), u), size, size / 2),
        (binomial(torch.full_like(u, 2 * size), torch.full_like(u, 0.9), u), 1.8 * size,
         0.18 * size),
    ):  # fmt: skip
        error = math.sqrt(variance / len(u))
        assert abs(float(drawn.double().mean()) - mean) < 4 * error
        assert float(drawn.double().var()) == pytest.approx(variance, rel=0.12)


def test_extreme_noise_stays_within_the_law() -> None:
    low, high = one(0.5 / 2**52), one(1 - 0.5 / 2**52)
    assert int(poisson(one(3000.0), low)) > 2000 and int(poisson(one(3000.0), high)) < 4000
    assert int(binomial(one(4000), one(0.25), low)) > 700
    assert int(binomial(one(4000), one(0.25), high)) < 1300


def test_edges() -> None:
    u = uniform(5, torch.arange(500))
    zero = torch.zeros_like(u)
    assert not poisson(zero, u).any()
    assert not binomial(zero, zero + 0.4, u).any()
    assert not binomial(zero + 9, zero, u).any()
    assert (binomial(zero + 9, zero + 1, u) == 9).all()
    assert (floor_bernoulli(zero + 3, u) == 3).all()


@given(st.floats(0, 50), inside)
def test_floor_bernoulli_rounds_up_as_often_as_the_mean_asks(rate: float, u: float) -> None:
    whole = math.floor(rate)
    assert int(floor_bernoulli(one(rate), one(u))) == whole + (u < rate - whole)


def test_a_draw_does_not_depend_on_its_neighbours() -> None:
    rate = torch.tensor([[0.1, 900.0, 2.5], [7.0, 0.0, 40.0]], dtype=torch.float64)
    u = uniform(6, torch.arange(6).view(2, 3))
    together = poisson(rate, u)
    for i in range(2):
        for j in range(3):
            assert together[i, j] == poisson(rate[i : i + 1, j], u[i : i + 1, j])[0]
