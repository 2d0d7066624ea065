"""The tuning mathematics: actions are a distribution, gradients are right, clipping clips."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anyorder.process.planning import action_log_prob, clipped_loss, group_advantages

ODDS = st.lists(st.floats(-4, 4), min_size=2, max_size=5)


@given(ODDS, st.integers(1, 5))
def test_the_chances_of_all_subsets_add_up_to_one(odds: list[float], open_slots: int) -> None:
    z = torch.tensor([odds], dtype=torch.float64)
    eligible = torch.arange(len(odds))[None] < open_slots
    free = int(eligible.sum())
    total = 0.0
    for chosen in itertools.product([False, True], repeat=free):
        taken = torch.tensor([[*chosen, *[False] * (len(odds) - free)]])
        total += float(action_log_prob(z, taken, eligible).exp())
    assert total == pytest.approx(1, abs=1e-9)


def test_a_hand_computed_action() -> None:
    u = [0.8, 0.3, 0.6, 0.5]
    z = torch.tensor([[math.log(p / (1 - p)) for p in u]])
    taken = torch.tensor([[True, False, False, False]])
    eligible = torch.tensor([[True, True, True, False]])
    tokens = torch.tensor([[math.log(0.9), 1.0, 1.0, 1.0]])
    bare = math.log(0.8) + math.log(0.7) + math.log(0.4)
    assert float(action_log_prob(z, taken, eligible)) == pytest.approx(bare, abs=1e-6)
    whole = float(action_log_prob(z, taken, eligible, tokens))
    assert whole == pytest.approx(bare + math.log(0.9), abs=1e-6)


@given(ODDS, st.integers(0, 31), st.floats(-2, 2), st.floats(-0.6, 0.9))
def test_gradients_of_the_clipped_loss(
    odds: list[float], which: int, advantage: float, moved: float
) -> None:
    """Against finite differences, at a ratio other than 1; a clipped step has no gradient."""
    z = torch.tensor([odds], dtype=torch.float64, requires_grad=True)
    taken = torch.tensor([[bool(which >> j & 1) for j in range(len(odds))]])
    everywhere = torch.ones_like(taken)
    weight = torch.tensor([advantage], dtype=torch.float64)
    old = action_log_prob(z.detach(), taken, everywhere) - moved

    def loss(at: torch.Tensor) -> torch.Tensor:
        return clipped_loss(action_log_prob(at, taken, everywhere), old, weight, 0.2, 1.0).sum()

    (gradient,) = torch.autograd.grad(loss(z), z)
    for j in range(len(odds)):
        step = torch.zeros_like(z)
        step[0, j] = 1e-6
        with torch.no_grad():
            slope = float((loss(z + step) - loss(z - step)) / 2e-6)
        assert float(gradient[0, j]) == pytest.approx(slope, abs=1e-5)


def test_clipping() -> None:
    ratio = torch.tensor([0.5, 1.0, 3.0, 0.5, 3.0]).log()
    advantages = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0])
    lost = clipped_loss(ratio, torch.zeros(5), advantages, 0.2, 1.0)
    assert lost.tolist() == pytest.approx([-0.5, -1.0, -2.0, 0.8, 3.0])


def test_advantages_are_against_the_groups_own_mean_and_not_divided() -> None:
    rewards = torch.tensor([[1.0, 0.0, 1.0, 0.0], [10.0, 10.0, 10.0, 10.0]])
    assert group_advantages(rewards).tolist() == [[0.5, -0.5, 0.5, -0.5], [0.0] * 4]
    assert group_advantages(rewards, 0.0).tolist() == [[0.5, 0.0, 0.5, 0.0], [0.0] * 4]
