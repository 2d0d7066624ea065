"""The tuning mathematics: actions are a distribution, advantages are against the group."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anyorder.process.masking import action_log_prob, group_advantages

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


def test_advantages_are_against_the_groups_own_mean_and_not_divided() -> None:
    rewards = torch.tensor([[1.0, 0.0, 1.0, 0.0], [10.0, 10.0, 10.0, 10.0]])
    assert group_advantages(rewards).tolist() == [[0.5, -0.5, 0.5, -0.5], [0.0] * 4]
    assert group_advantages(rewards, 0.0).tolist() == [[0.5, 0.0, 0.5, 0.0], [0.0] * 4]
