"""Tasks by name: held-out problems, with the dials that the model was trained with."""

from __future__ import annotations

import pytest

from anyorder.bench.tasks import find_task
from anyorder.data.stories import StoriesConfig, problem


def test_stories_are_held_out_and_have_the_models_dials() -> None:
    trained_on = {"source": "stories", "layout": 1.0, "state_layout": True, "canvas": 64}
    task = find_task("stories", trained_on)
    expected = problem(StoriesConfig(split="heldout", layout=1.0, state_layout=True), 2)
    assert task.problems(3)[2].prompt == expected.prompt
    assert task.problems(3)[2].entry_point == "solve"
    assert len(task.problems(None)) == 200


def test_the_digest_tells_corpora_apart() -> None:
    plain, other = find_task("stories", {}), find_task("stories", {"source": "stories", "seed": 1})
    assert plain.digest == find_task("stories", {"source": "mine.jsonl", "seed": 1}).digest
    assert plain.digest != other.digest


def test_wrong_names_and_dials_are_refused() -> None:
    with pytest.raises(ValueError, match="choose one of stories"):
        find_task("humaneval?", {})
    with pytest.raises(ValueError, match="layout is 'much'"):
        find_task("stories", {"source": "stories", "layout": "much"})
