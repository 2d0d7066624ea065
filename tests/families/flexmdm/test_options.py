"""The options of flexmdm: what is filled in, what is refused and with what remedy."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from anyorder.families.flexmdm import decode as flexmdm
from anyorder.families.flexmdm.config import FlexOptions
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.config import MdmOptions

GOOD = [
    FlexOptions(),
    FlexOptions(policy="random", steps=16, counts="poisson", quota="poisson", hazard="left"),
    FlexOptions(
        policy="entropy", temperature=0.7, top_p=0.9, posterior="filtered", ties="leftmost"
    ),
    FlexOptions(clock="events", temperature=1.0, unmasking_schedule="carried"),
    FlexOptions(clock="events", policy="left_to_right", unmasking_schedule=1.0),
    FlexOptions(unmasking_schedule="1.5", insertion_schedule=1.7, insertion_temperature=0.6),
    FlexOptions(force_unmask=True, meaningful_replace=True),
    FlexOptions(correct=30),
    FlexOptions(mode="compat"),
    FlexOptions(mode="compat", policy="entropy", hazard="midpoint", counts="floor_bernoulli"),
    FlexOptions(mode="compat", policy="random", steps=64, insertion_temperature=0.6),
    FlexOptions(mode="compat", unmasking_schedule=1.0, force_unmask=True),
]


@pytest.mark.parametrize("options", GOOD, ids=str)
def test_resolving_twice_changes_nothing_and_gives_plain_values(options: FlexOptions) -> None:
    full = flexmdm.resolve(options)
    assert flexmdm.resolve(full) == full
    assert FlexOptions(**json.loads(json.dumps(asdict(full)))) == full


def test_defaults() -> None:
    exact = flexmdm.resolve(FlexOptions(clock="steps"))
    assert (exact.policy, exact.steps, exact.quota, exact.counts, exact.hazard) == (
        "confidence", 128, "thinned", "binomial", "exact",
    )  # fmt: skip
    assert (exact.insertion_schedule, exact.unmasking_schedule) == (2.9, "carried")
    assert (exact.posterior, exact.ties) == ("untempered", "random")
    compat = flexmdm.resolve(FlexOptions(mode="compat"))
    assert (compat.policy, compat.steps, compat.quota, compat.counts, compat.hazard) == (
        "sampled", 512, "poisson", "poisson", "left",
    )  # fmt: skip
    assert (compat.posterior, compat.ties) == (None, None)
    events = flexmdm.resolve(FlexOptions())
    assert events.clock == "events" and events.correct == 0
    assert (events.steps, events.quota, events.counts, events.hazard) == (None,) * 4
    assert flexmdm.resolve(FlexOptions(mode="compat", policy="random")).quota is None
    assert flexmdm.resolve(FlexOptions(unmasking_schedule="1.5")).unmasking_schedule == 1.5


@pytest.mark.parametrize(
    "given",
    [
        {"steps": 9},
        {"quota": "poisson"},
        {"counts": "poisson"},
        {"hazard": "left"},
        {"force_unmask": True},
        {"meaningful_replace": True},
        {"mode": "compat"},
    ],
    ids=str,
)
def test_what_only_a_grid_has_chooses_the_grid(given: dict[str, object]) -> None:
    assert flexmdm.resolve(FlexOptions(**given)).clock == "steps"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"policy": "l2r"}, "unknown policy"),
        ({"mode": "fast"}, "exact"),
        ({"clock": "sun"}, "events"),
        ({"steps": 0}, "at least 1"),
        ({"quota": "even"}, "thinned or poisson"),
        ({"counts": "geometric"}, "binomial"),
        ({"hazard": "right"}, "midpoint"),
        ({"ties": "rightmost"}, "leftmost"),
        ({"insertion_schedule": 0.0}, "positive"),
        ({"insertion_schedule": float("nan")}, "positive"),
        ({"unmasking_schedule": -1.0}, "positive"),
        ({"unmasking_schedule": "later"}, "carried"),
        ({"insertion_temperature": 0.0}, "positive"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 0.9}, "at temperature 0"),
        ({"posterior": "filtered"}, "untempered one"),
        ({"policy": "random", "ties": "leftmost"}, "no effect"),
        ({"policy": "left_to_right", "posterior": "untempered"}, "no effect"),
        ({"clock": "events", "steps": 9}, "leave it out"),
        ({"clock": "events", "quota": "thinned"}, "leave it out"),
        ({"clock": "events", "counts": "poisson"}, "leave it out"),
        ({"clock": "events", "hazard": "exact"}, "leave it out"),
        ({"clock": "events", "force_unmask": True}, "leave it out"),
        ({"steps": 100, "meaningful_replace": True}, "more steps"),
        ({"mode": "compat", "clock": "events"}, "'steps'"),
        ({"mode": "compat", "policy": "confidence"}, "'sampled'"),
        ({"mode": "compat", "quota": "thinned"}, "'poisson'"),
        ({"mode": "compat", "counts": "binomial"}, "'floor_bernoulli'"),
        ({"mode": "compat", "hazard": "exact"}, "'midpoint'"),
        ({"mode": "compat", "unmasking_schedule": "carried"}, "'kept'"),
        ({"mode": "compat", "policy": "random", "quota": "poisson"}, "leave it out"),
        ({"mode": "compat", "policy": "random", "force_unmask": True}, "leave it out"),
        ({"mode": "compat", "temperature": 1.0, "top_p": 0.9}, "leave it out"),
        ({"mode": "compat", "temperature": 1.0, "top_k": 5}, "leave it out"),
        ({"mode": "compat", "ties": "leftmost"}, "leave it out"),
        ({"mode": "compat", "posterior": "untempered"}, "leave it out"),
    ],
    ids=str,
)
def test_wrong_or_unused_options_are_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        flexmdm.resolve(FlexOptions(**wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("quota", ["thinned", "poisson"])
def test_mdm_has_no_clock_for_these_quotas(quota: str) -> None:
    with pytest.raises(ValueError, match="choose even"):
        mdm.resolve(MdmOptions(quota=quota))
