"""The options of flexlatent: what is filled in, what is refused and with what remedy."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from anyorder.families.flexlatent import decode as flexlatent
from anyorder.families.flexlatent.config import FlexLatentOptions

GOOD = [
    FlexLatentOptions(),
    FlexLatentOptions(policy="random", steps=16, counts="poisson", quota="poisson", hazard="left"),
    FlexLatentOptions(policy="minimum", temperature=0.7, top_p=0.9, top_k=5, ties="leftmost"),
    FlexLatentOptions(policy="first", clock="events", temperature=1.0, slots=4),
    FlexLatentOptions(policy="left_to_right", unmasking_schedule="1.5", candidates=True),
    FlexLatentOptions(unmasking_schedule="kept", insertion_schedule=1.7, insertion_temperature=0.6),
]


@pytest.mark.parametrize("options", GOOD, ids=str)
def test_resolving_twice_changes_nothing_and_gives_plain_values(options: FlexLatentOptions) -> None:
    full = flexlatent.resolve(options)
    assert flexlatent.resolve(full) == full
    assert FlexLatentOptions(**json.loads(json.dumps(asdict(full)))) == full


def test_defaults() -> None:
    full = flexlatent.resolve(FlexLatentOptions())
    assert (full.policy, full.ties, full.slots, full.candidates) == (
        "average",
        "random",
        None,
        False,
    )
    assert (full.steps, full.quota, full.counts, full.hazard) == (
        128, "thinned", "binomial", "exact",
    )  # fmt: skip
    assert (full.insertion_schedule, full.unmasking_schedule) == (2.9, "carried")
    events = flexlatent.resolve(FlexLatentOptions(clock="events"))
    assert (events.steps, events.quota, events.counts, events.hazard) == (None,) * 4
    assert flexlatent.resolve(FlexLatentOptions(policy="random")).ties is None
    assert flexlatent.resolve(FlexLatentOptions(unmasking_schedule="1.5")).unmasking_schedule == 1.5


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"policy": "confidence"}, "average, minimum, first"),
        ({"policy": "l2r"}, "unknown policy"),
        ({"clock": "sun"}, "events"),
        ({"steps": 0}, "at least 1"),
        ({"slots": 0}, "at least 1"),
        ({"quota": "even"}, "thinned or poisson"),
        ({"counts": "geometric"}, "binomial"),
        ({"hazard": "right"}, "midpoint"),
        ({"ties": "rightmost"}, "leftmost"),
        ({"insertion_schedule": 0.0}, "positive"),
        ({"unmasking_schedule": "later"}, "carried"),
        ({"insertion_temperature": 0.0}, "positive"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 0.9}, "at temperature 0"),
        ({"policy": "random", "ties": "leftmost"}, "no effect"),
        ({"clock": "events", "steps": 9}, "leave it out"),
        ({"clock": "events", "quota": "thinned"}, "leave it out"),
        ({"clock": "events", "counts": "poisson"}, "leave it out"),
        ({"clock": "events", "hazard": "exact"}, "leave it out"),
    ],
    ids=str,
)
def test_wrong_or_unused_options_are_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        flexlatent.resolve(FlexLatentOptions(**wrong))  # type: ignore[arg-type]
