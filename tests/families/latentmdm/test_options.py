"""Options of latentmdm: what is filled in, and what is refused because it would do nothing."""

from __future__ import annotations

from typing import Any

import pytest

from anyorder.families.latentmdm import decode as latentmdm
from anyorder.families.latentmdm.config import TAIL_THRESHOLD, TAILS, LatentOptions


def test_unset_choices_follow_the_mode() -> None:
    exact, compat = (
        latentmdm.resolve(LatentOptions()),
        latentmdm.resolve(LatentOptions(mode="compat")),
    )
    assert (exact.policy, exact.tail, exact.ties) == ("average", "stop", "random")
    assert (compat.policy, compat.tail, compat.ties) == ("average", "erase", "leftmost")
    assert (
        latentmdm.build_policy(compat).ties == "leftmost"
        and latentmdm.build_tail(compat) == TAILS["erase"]
    )
    assert latentmdm.resolve(LatentOptions(mode="compat", tail="keep")).tail == "keep"


def test_only_the_tail_first_has_a_threshold() -> None:
    assert latentmdm.resolve(LatentOptions(tail="first")).tail_threshold == TAIL_THRESHOLD == 0.98
    assert latentmdm.resolve(LatentOptions(tail="first", tail_threshold=0.9)).tail_threshold == 0.9
    for tail in ("stop", "keep"):
        assert latentmdm.resolve(LatentOptions(tail=tail)).tail_threshold is None
    assert latentmdm.resolve(LatentOptions(mode="compat")).tail_threshold is None


@pytest.mark.parametrize("policy", ["left_to_right", "random"])
def test_an_order_without_scores_has_no_ties(policy: str) -> None:
    assert latentmdm.resolve(LatentOptions(policy=policy)).ties is None
    assert latentmdm.resolve(LatentOptions(policy=policy, mode="compat")).ties is None


def test_a_slot_temperature_leaves_no_ties() -> None:
    assert latentmdm.resolve(LatentOptions(slot_temperature=0.5)).ties is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policy": "confidence"}, "ranks tokens: choose one of average, minimum, first"),
        ({"policy": "avg"}, "unknown policy"),
        ({"k": 0}, "k must be at least 1"),
        ({"slots": 0}, "slots must be at least 1"),
        ({"slot_temperature": -1.0}, "slot_temperature"),
        ({"slot_temperature": float("nan")}, "slot_temperature"),
        ({"slot_temperature": float("inf")}, "slot_temperature"),
        ({"tail": "drop"}, "tail='drop': choose"),
        ({"tail": "erase"}, "mode='compat'"),
        ({"tail": "keep", "tail_threshold": 0.9}, "no effect on the tail 'keep'"),
        ({"tail": "stop", "tail_threshold": 0.9}, "choose tail='first'"),
        ({"tail_threshold": 0.9}, "no effect on the tail 'stop'"),
        ({"mode": "compat", "tail_threshold": 0.9}, "no effect on the tail 'erase'"),
        ({"tail": "first", "tail_threshold": 1.0}, "a probability between 0 and 1"),
        ({"tail": "first", "tail_threshold": 0.0}, "a probability between 0 and 1"),
        ({"tail": "first", "tail_threshold": float("nan")}, "a probability between 0 and 1"),
        ({"ties": "rightmost"}, "ties='rightmost': choose"),
        ({"mode": "fast"}, "mode='fast': choose"),
        ({"policy": "random", "slot_temperature": 0.5}, "slot_temperature has no effect"),
        ({"policy": "left_to_right", "ties": "leftmost"}, "ties has no effect"),
        ({"slot_temperature": 0.5, "ties": "leftmost"}, "no ties"),
        ({"top_p": 0.9}, "at temperature 0"),
        ({"top_k": 3}, "at temperature 0"),
        ({"temperature": -1.0}, "temperature"),
    ],
)
def test_what_has_no_effect_is_an_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        latentmdm.resolve(LatentOptions(**given))
