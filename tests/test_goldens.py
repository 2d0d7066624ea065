"""Nothing that a user has changes: what anyorder writes and prints is compared with what is stored.

The stored goldens are in `tests/goldens/`, and `tests/goldens/make.py` makes them: help texts, the
run folder of each shipped model, other ways to sample, two training steps of each tiny recipe, a
race, the demo. Where a change is meant, store the golden again and read the difference:

    python tests/goldens/make.py NAME ...

What is compared how: text, tokens, steps, names, types and counts exactly; log-probabilities and
scores to 1e-4; losses and sums of weights to 1e-5; other numbers to 1e-4 of their size. Rounding
differs between processors by less than that.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from tests.goldens import make

SHOWN = 20
LOG_PROBABILITIES = {"log_prob", "score"}

STORE = "python tests/goldens/make.py"


def differences(golden: Any, made: Any, relative: float = 1e-4, path: str = "") -> list[str]:
    """Where two records differ, each place in a line."""
    if isinstance(golden, dict) and isinstance(made, dict):
        found = [f"{path}/{key}: gone" for key in golden if key not in made]
        found += [f"{path}/{key}: new, {made[key]!r:.80}" for key in made if key not in golden]
        for key in golden.keys() & made.keys():
            found += differences(golden[key], made[key], relative, f"{path}/{key}")
        return found
    if isinstance(golden, list) and isinstance(made, list):
        if len(golden) != len(made):
            return [f"{path}: {len(golden)} entries, now {len(made)}: {made!r:.120}"]
        pairs = enumerate(zip(golden, made, strict=True))
        return [
            line
            for at, (old, new) in pairs
            for line in differences(old, new, relative, f"{path}/{at}")
        ]
    if same(golden, made, relative, path):
        return []
    return [f"{path}: {golden!r:.120} is now {made!r:.120}"]


def same(golden: Any, made: Any, relative: float, path: str) -> bool:
    """Whether two plain values agree; an int stays an int and a float a float."""
    if type(golden) is not type(made):
        return False
    if not isinstance(golden, float):
        return bool(golden == made)
    if math.isnan(golden):
        return math.isnan(made)
    if LOG_PROBABILITIES & set(path.split("/")):
        return abs(golden - made) <= 1e-4
    return math.isclose(golden, made, rel_tol=relative, abs_tol=relative / 100)


def check(name: str, golden: Any, made: Any, relative: float = 1e-4) -> None:
    found = differences(golden, make.short(made), relative)
    summary = f"{len(found)} differences from the golden {name!r}; meant? {STORE} {name}"
    assert not found, "\n".join([summary, *found[:SHOWN]])


def test_help_of_the_program_of_every_verb_and_recipe(tmp_path: Path) -> None:
    golden, made = make.stored("help"), make.made("help", tmp_path)
    assert sorted(golden) == sorted(made)
    for name, text in golden.items():
        assert made[name] == text, f"{name}; meant? {STORE} help"


def test_every_verb_of_the_program_is_among_them() -> None:
    listed = re.findall(r"^  ([a-z]+)  +\w", make.stored("help")["anyorder.txt"], re.MULTILINE)
    assert sorted(listed) == sorted(make.VERBS)


@pytest.mark.parametrize("model", make.MODELS)
def test_run_folder_of_a_shipped_model(model: str, tmp_path: Path) -> None:
    """Card, traces, verdicts, measures, schemas and the interchange line."""
    name = f"runs-{model}"
    golden, made = make.stored(name), make.made(name, tmp_path)
    for table in ("traces.parquet", "verdicts.parquet"):  # columns keep their order, too
        columns = [list(each["schemas"][table]["columns"]) for each in (golden, made)]
        assert columns[0] == columns[1]
    check(name, golden, made)


def test_other_ways_to_sample(tmp_path: Path) -> None:
    check("ways", make.stored("ways"), make.made("ways", tmp_path))


def test_gaps_are_filled_from_python(tmp_path: Path) -> None:
    check("gaps", make.stored("gaps"), make.made("gaps", tmp_path))


@pytest.mark.parametrize(
    "recipe",
    # The rollouts of this one cost as much as all the other recipes together.
    [*make.MODELS, "block", pytest.param("planner-grpo", marks=pytest.mark.long)],
)
def test_two_steps_of_training(recipe: str, tmp_path: Path) -> None:
    """Configuration, losses, names of tensors, and sums over the weights."""
    name = f"train-{recipe}"
    golden, made = make.stored(name), make.made(name, tmp_path)
    old, new = golden.pop("weights"), made.pop("weights")
    assert {key: each["shape"] for key, each in old.items()} == {
        key: each["shape"] for key, each in new.items()
    }
    for key, weights in old.items():
        # A sum may cancel: what it may be off by goes with the length of the tensor as a vector.
        length = math.sqrt(weights["squares"])
        assert new[key]["sum"] == pytest.approx(weights["sum"], abs=1e-5 * max(1.0, length)), key
        assert new[key]["squares"] == pytest.approx(weights["squares"], rel=1e-5, abs=1e-9), key
    check(name, golden, made, relative=1e-5)


def test_race_of_all_shipped_models(tmp_path: Path) -> None:
    check("race", make.stored("race"), make.made("race", tmp_path))


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_the_demo_prints_the_same_numbers(tmp_path: Path) -> None:
    """Its words may be improved; its numbers, in their order, and its verdicts stay."""
    golden, made = make.stored("demo"), make.made("demo", tmp_path)
    assert made["verdicts"] == golden["verdicts"]
    assert numbers(made["printed"]) == numbers(golden["printed"])


def numbers(lines: list[str]) -> list[str]:
    """All numbers in their order, with their signs; punctuation around them is no part of them."""
    return re.findall(r"\u2212?\d+(?:[.,]\d+)*", "\n".join(lines))


def test_a_difference_is_seen() -> None:
    """The comparison itself: what it lets pass and what it does not."""
    golden = {"a": [1, 2.0], "log_prob": [-0.5, math.nan], "b": None}
    assert not differences(golden, {"a": [1, 2.0001], "log_prob": [-0.50009, math.nan], "b": None})
    assert differences(golden, golden | {"a": [1, 2.001]}) == ["/a/1: 2.0 is now 2.001"]
    assert differences(golden, golden | {"a": [1.0, 2.0]}) == ["/a/0: 1 is now 1.0"]
    assert differences(golden, golden | {"log_prob": [-0.5, -1.0]})
    assert differences(golden, golden | {"a": [1]}) and differences(golden, {"a": [1, 2.0]})
    assert differences(golden, golden | {"c": 1}) == ["/c: new, 1"]
