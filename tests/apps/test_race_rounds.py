"""Interleaving: every lane in every round, in an order that is even over rounds."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from anyorder.apps.race import round_order


@given(st.integers(1, 40), st.integers(0, 2**63 - 1), st.integers(0, 10**6))
def test_a_round_has_every_lane_once(lanes: int, seed: int, number: int) -> None:
    order = round_order(lanes, seed, number)
    assert sorted(order) == list(range(lanes))
    assert order == round_order(lanes, seed, number)


def test_no_lane_has_a_place_of_its_own() -> None:
    """Over many rounds each lane is in each place about equally often, next to every other."""
    lanes, rounds = 6, 1200
    places, followed = Counter(), Counter()
    for number in range(rounds):
        order = round_order(lanes, 0, number)
        places.update(enumerate(order))
        followed.update(itertools.pairwise(order))
    expected = rounds / lanes
    assert all(abs(count - expected) < 0.3 * expected for count in places.values())
    assert len(places) == lanes * lanes and len(followed) == lanes * (lanes - 1)
    pairs = rounds * (lanes - 1) / (lanes * (lanes - 1))
    assert all(abs(count - pairs) < 0.35 * pairs for count in followed.values())
