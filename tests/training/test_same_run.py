"""Going on with another configuration is refused in the words of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anyorder.training.loop import check_same_run, differences

RUN: dict[str, Any] = {
    "lr": 0.01,
    "steps": 40,
    "multipliers": {},
    "levels": [0.5, None],
    "about.family": "mdm",
    "about.net": {"width": 64, "layers": 2},
    "about.data": {"path": "a.jsonl", "seed": 0},
    "about.data_digest": "a" * 64,
    "about.vocab_digest": "b" * 64,
}


def test_equal_numbers_are_equal_however_they_are_written() -> None:
    check_same_run(Path("x"), RUN, RUN | {"steps": 40.0})
    assert differences(RUN, dict(reversed(RUN.items()))) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lr": 0.02}, ["lr (checkpoint 0.01, now 0.02)"]),
        ({"levels": [None]}, ["validation levels (checkpoint [0.5, None], now [None])"]),
        ({"about.family": "ar"}, ["family (checkpoint 'mdm', now 'ar')"]),
        ({"about.net": {"width": 96, "layers": 2}}, ["net.width (checkpoint 64, now 96)"]),
        ({"multipliers": {"embed": 2.0}}, ["multipliers.embed (checkpoint None, now 2.0)"]),
        ({"about.data_digest": "c" * 64}, ["data (the file has changed since)"]),
        ({"about.vocab_digest": "c" * 64}, ["vocabulary"]),
        (
            {"about.data_digest": "c" * 64, "about.data": {"path": "a.jsonl", "seed": 1}},
            ["data.seed (checkpoint 0, now 1)"],
        ),
        ({"about.weights": "d" * 64}, ["weights (checkpoint None, now dddddddd)"]),
    ],
)
def test_differences_are_named_for_people(changes: dict[str, Any], said: list[str]) -> None:
    assert differences(RUN, RUN | changes) == said


def test_at_most_four_are_shown() -> None:
    changed = dict.fromkeys(RUN, "other") | {"about.net": {"width": 1}, "extra": 1}
    with pytest.raises(ValueError, match="another configuration") as caught:
        check_same_run(Path("x"), RUN, changed)
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert said.count("(checkpoint") <= 4
    assert " and 8 more. Give the earlier values" in said
    assert "about." not in said
    with pytest.raises(ValueError, match=r"now 2\)\. Give"):
        check_same_run(Path("x"), {}, dict.fromkeys("abcd", 2))
