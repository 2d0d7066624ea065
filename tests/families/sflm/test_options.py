"""sflm's options: what is filled in, and what is refused because it would do nothing."""

from __future__ import annotations

from typing import Any

import pytest

from anyorder.apps.race.plan import ways
from anyorder.families.family import find_family
from anyorder.families.sflm import decode as sflm
from anyorder.families.sflm.config import SflmOptions, Velocity, parse_velocity
from anyorder.recipes.presets import find_preset


@pytest.mark.parametrize(
    ("text", "velocity"),
    [
        ("exact", Velocity()),
        ("top1", Velocity(k=1)),
        ("top_k:8", Velocity(k=8)),
        ("sampled", Velocity(drawn=True)),
        ("sampled:4", Velocity(k=4, drawn=True)),
    ],
)
def test_velocities(text: str, velocity: Velocity) -> None:
    assert parse_velocity(text) == velocity


@pytest.mark.parametrize("text", ["", "top_k", "top_k:0", "top_k:-1", "exact:3", "top1:2", "best"])
def test_what_is_no_velocity(text: str) -> None:
    with pytest.raises(ValueError, match="choose exact, top1, top_k:K, sampled or sampled:K"):
        parse_velocity(text)


def test_what_is_filled_in() -> None:
    plain = sflm.resolve(SflmOptions())
    assert (plain.velocity, plain.tail, plain.steps, plain.temperature) == (
        "top1",
        "greedy",
        16,
        1,
    )
    assert sflm.resolve(SflmOptions(temperature=0)).velocity == "top1"
    assert sflm.resolve(SflmOptions(temperature=1, velocity="exact")).velocity == "exact"
    assert sflm.resolve(SflmOptions(steps=1)) == SflmOptions(steps=1)  # nothing moves
    assert sflm.resolve(SflmOptions(steps=1, temperature=0)).velocity is None
    drawn = SflmOptions(steps=1, temperature=0.5, tail="ancestral")
    assert sflm.resolve(drawn) == drawn
    assert sflm.resolve(plain) == plain and plain.policy == "flow"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"temperature": -1.0}, "temperature must be 0 or positive"),
        ({"temperature": 0.0, "velocity": "exact"}, "temperature 0 leaves the most likely token"),
        ({"temperature": 0.0, "tail": "ancestral"}, "temperature 0 leaves the most likely token"),
        ({"temperature": 0.5}, "the same at every temperature"),
        ({"temperature": 0.5, "velocity": "top1"}, "the same at every temperature"),
        ({"temperature": 0.5, "steps": 1}, "the same at every temperature"),
        ({"velocity": "exact", "steps": 1}, "velocity has no effect on a single step"),
        ({"velocity": "top1", "steps": 1, "tail": "ancestral"}, "no effect on a single step"),
        ({"temperature": 0.5, "velocity": "sampled:1"}, "the same at every temperature"),
        ({"eos": "last"}, "choose plain, fill or forbid"),
        ({"eos": "never"}, "unknown eos choice"),
        ({"tail": "last"}, "tail='last' does not fit"),
        ({"policy": "confidence"}, "sflm does not use policy"),
        ({"mode": "compat"}, "sflm does not use mode"),
        ({"top_p": 0.9}, "sflm does not use top_p"),
    ],
)
def test_what_would_do_nothing_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_family("sflm").choose(given)


def test_the_preset_is_one_of_its_protocols() -> None:
    job, options = find_preset("sflm").settings("sflm", "gsm8k")
    chosen = find_family("sflm").choose(options)
    assert (chosen.steps, chosen.temperature, chosen.tail, job["batch"]) == (16, 1.0, "greedy", 1)
    for velocity in find_preset("sflm").sweep["velocity"]:
        assert find_family("sflm").choose(options | {"velocity": velocity}).velocity == velocity


def test_what_a_race_asks_for_is_accepted() -> None:
    family = find_family("sflm")
    asked = ways(family, 0.7, samples=4)
    assert {name: way["temperature"] for name, way in asked.items()} == {"one": 0.0, "several": 0.7}
    chosen = {name: family.choose(way | {"steps": 8}).velocity for name, way in asked.items()}
    assert chosen == {"one": "top1", "several": "exact"}
