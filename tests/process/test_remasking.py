"""Remasking's chances: the bound, the shares they keep, and what the heuristic does instead."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from anyorder.process.remasking import (
    LEVEL,
    Cap,
    ConfidenceHeuristic,
    Loop,
    Remasking,
    Rescale,
    bound,
    reveal_chance,
)

SHARE = st.floats(0, 1, allow_nan=False)
ETA = st.floats(0, 1, allow_nan=False)
WAYS = {"cap": Cap, "rescale": Rescale, "loop": Loop, "confidence": ConfidenceHeuristic}


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


@st.composite
def moves(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two shares and a sigma that they allow."""
    before = draw(st.floats(0, 0.999))
    after = before + draw(SHARE) * (1 - before)
    sigma = draw(SHARE) * float(bound(number(before), number(after)))
    return number(before), number(after), number(sigma)


@given(moves())
def test_a_step_keeps_the_share_that_the_grid_says(
    move: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    before, after, sigma = move
    rho = reveal_chance(before, after, sigma)
    assert 0 <= rho <= 1
    assert float(before * (1 - sigma) + (1 - before) * rho) == pytest.approx(float(after), abs=1e-9)


@given(moves())
def test_no_remasking_is_thinning(move: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    before, after, _ = move
    rho = reveal_chance(before, after, number(0.0))
    assert float(rho) == pytest.approx(float(1 - (1 - after) / (1 - before)), abs=1e-9)


@given(moves(), st.floats(1e-6, 1))
def test_a_sigma_above_the_bound_is_refused(
    move: tuple[torch.Tensor, torch.Tensor, torch.Tensor], more: float
) -> None:
    before, after, _ = move
    with pytest.raises(ValueError, match="sigma must be"):
        reveal_chance(before, after, bound(before, after) + more)
    with pytest.raises(ValueError, match="sigma must be"):
        reveal_chance(before, after, number(-more))


def test_the_bound_is_where_every_mask_is_revealed() -> None:
    before, after = number(0.8), number(0.9)
    most = bound(before, after)
    assert float(most) == pytest.approx(0.1 / 0.8)
    assert float(reveal_chance(before, after, most)) == pytest.approx(1.0)
    assert float(bound(number(0.0), number(0.3))) == 1.0
    assert float(bound(number(0.1), number(0.2))) == 1.0  # below one half it is a probability's


@given(st.sampled_from(sorted(WAYS)), ETA, st.integers(4, 200))
def test_grids_run_from_nothing_to_everything(name: str, eta: float, steps: int) -> None:
    grid = WAYS[name](eta).grid(steps)
    before, after = grid.share[:-1], grid.share[1:]
    assert float(grid.share[0]) == 0 and float(grid.share[-1]) == 1
    assert bool((after >= before).all()) and len(grid.sigma) == steps
    assert bool((grid.sigma <= bound(before, after)).all()) and bool((grid.sigma >= 0).all())
    assert float(reveal_chance(before, after, grid.sigma)[-1]) == 1.0
    assert float(grid.sigma[-1]) == 0.0


def test_sigmas_of_a_small_grid() -> None:
    """Shares 0, 1/4, 1/2, 3/4, 1: bounds 1, 1 (2 cut), 1/2, 0."""
    assert Cap(0.3).grid(4).sigma.tolist() == pytest.approx([0.3, 0.3, 0.3, 0.0])
    assert Cap(0.7).grid(4).sigma.tolist() == pytest.approx([0.7, 0.7, 0.5, 0.0])
    assert Rescale(0.1).grid(4).sigma.tolist() == pytest.approx([0.1, 0.1, 0.05, 0.0])
    assert ConfidenceHeuristic().grid(4).sigma.tolist() == pytest.approx([1.0, 1.0, 0.5, 0.0])


def test_the_loop_stands_still_while_it_exchanges() -> None:
    grid = Loop(0.02).grid(100)
    stands = grid.sigma > 0
    assert stands.sum() == 50 and bool((grid.share[:-1][stands] == LEVEL).all())
    assert bool((grid.share[1:][stands] == LEVEL).all())
    assert grid.sigma[stands].tolist() == [0.02] * 50
    # In and out of balance: as many are revealed as are masked again.
    rho = reveal_chance(grid.share[:-1], grid.share[1:], grid.sigma)[stands]
    assert rho.tolist() == pytest.approx([0.02 * LEVEL / (1 - LEVEL)] * 50)
    with pytest.raises(ValueError, match="4 at least"):
        Loop(0.02).grid(3)


@pytest.mark.parametrize("way", [Cap(0.2), Rescale(0.2), Loop(0.2)], ids=str)
def test_the_schedules_treat_all_items_alike(way: Remasking) -> None:
    revealed = torch.tensor([[True, False, True]])
    spread = way.sigmas(number(0.25), torch.tensor([[0.9, torch.nan, 0.1]]), revealed)
    assert spread.tolist() == [[0.25] * 3] and way.keeps_marginals


def test_the_heuristic_prefers_what_was_least_sure() -> None:
    confidence = torch.tensor([[0.9, torch.nan, 0.1], [torch.nan] * 3], dtype=torch.float64)
    revealed = ~confidence.isnan()
    way = ConfidenceHeuristic()
    spread = way.sigmas(number(0.5), confidence, revealed)
    weights = torch.tensor([-0.9, -0.1], dtype=torch.float64).softmax(0)
    assert spread[0, [0, 2]].tolist() == pytest.approx((0.5 * weights).tolist())
    assert spread[0, 1] == 0 and spread[1].tolist() == [0.0] * 3
    assert spread[0, 2] > spread[0, 0] and not way.keeps_marginals


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_wrong_numbers_are_refused(way: type) -> None:
    for eta in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="eta"):
            way(eta)
    with pytest.raises(ValueError, match="at least 1"):
        way(0.1).grid(0)
