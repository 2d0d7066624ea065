"""The models that come with the package: small, alike in size and training, and able."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from anyorder.apps.grade import grade_run
from anyorder.apps.jobs import GradeJob, SampleJob
from anyorder.apps.sample import sample_to_run
from anyorder.bench.tasks import find_task
from anyorder.cli import main
from anyorder.files import sha256_of
from anyorder.model import SHIPPED, WEIGHTS_FILE, load
from anyorder.recipes import find_recipe

FLOORS = {
    "ar": 0.90,
    "mdm": 0.90,
    "flexmdm": 0.42,
    "latentmdm": 0.90,
    "flexlatent": 0.50,
    "duo": 0.70,
    "sflm": 0.60,
    "planner": 0.90,
}
"""Solved of 100 held-out problems, at the least: below what the cards say by what chance allows."""
OPTIONS: dict[str, dict[str, Any]] = {
    "flexmdm": {"clock": "events"},
    "flexlatent": {"clock": "events"},
    "duo": {"steps": 32, "temperature": 0.0},
    "sflm": {"steps": 32, "temperature": 0.0},
    "planner": {"policy": "planner"},
}
EQUAL = [name for name in FLOORS if name != "planner"]
"""All but the one that comes on top of another."""
TRAILS_FLOORS = {
    "trails/ar": 0.35,
    "trails/mdm": 0.35,
    "trails/flexmdm": 0.04,
    "trails/latentmdm": 0.80,
    "trails/flexlatent": 0.28,
    "trails/planner": 0.33,
    "trails/sflm": 0.12,
}
ALL = [*FLOORS, *TRAILS_FLOORS]
OPTIONS |= {
    f"trails/{name}": options for name, options in OPTIONS.items() if "clock" not in options
}


def task_of(name: str) -> str:
    return "trails" if name in TRAILS_FLOORS else "stories"


def test_help_names_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sample", "--help"])
    told = " ".join(re.findall(r"[\w,()]+", capsys.readouterr().out))
    named = re.search(r"A shipped model \((.*?)\)", told)
    assert named is not None and set(re.findall(r"\w+", named[1])) - {"or"} == set(FLOORS)


def card_of(name: str) -> dict[str, Any]:
    return dict(json.loads((SHIPPED / name / "card.json").read_bytes()))


@pytest.mark.parametrize("name", ALL)
def test_small_and_as_its_card_says(name: str) -> None:
    folder, card = SHIPPED / name, card_of(name)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 3e6
    assert card["weights"] == sha256_of(folder / WEIGHTS_FILE)
    model = load(name)
    family = name.removeprefix("trails/")
    assert model.family.name == {"planner": "mdm"}.get(family, family)
    assert sum(value.numel() for value in model.net.parameters()) == card["parameters"]
    recipe_name = name if name in TRAILS_FLOORS else f"tiny/{name}"
    assert load(recipe_name).digest == model.digest, "its recipe's name is its own"
    words = card["commands"][-1].split()
    assert words[2].startswith(recipe_name)
    assert steps_of(words) == model.card.recipe["train"]["steps"]
    assert {key: model.trained_on[key] for key in card["corpus"]} == card["corpus"]


@pytest.mark.parametrize("name", ALL)
def test_a_card_says_how_to_sample_and_to_grade(name: str) -> None:
    sample, grade = (shlex.split(line) for line in card_of(name)["held_out"]["commands"])
    assert sample[:5] == ["anyorder", "sample", name, "--task", task_of(name)]
    assert grade == ["anyorder", "grade", sample[sample.index("--out") + 1]]
    clock = OPTIONS.get(name, {}).get("clock")
    assert (["--clock", clock] == sample[-4:-2]) if clock else "--clock" not in sample


def equal(corpus: str) -> list[str]:
    """The shipped models of a corpus that are made under equal conditions."""
    return [name for name in EQUAL if not corpus or corpus + name in TRAILS_FLOORS]


@pytest.mark.parametrize("corpus", ["", "trails/"])
def test_equal_conditions(corpus: str) -> None:
    cards = [card_of(corpus + name) for name in equal(corpus)]
    sizes = [card["parameters"] for card in cards]
    assert max(sizes) / min(sizes) < 1.02
    assert len({card["texts"] for card in cards}) == 1
    assert len({json.dumps(card["corpus"], sort_keys=True) for card in cards}) == 1


@pytest.mark.parametrize("corpus", ["", "trails/"])
def test_the_texts_of_a_card_are_those_of_its_trainings(corpus: str) -> None:
    for name in equal(corpus):
        assert texts_of(corpus + name) == card_of(corpus + name)["texts"]
    planner, mdm = (card_of(corpus + name)["texts"] for name in ("planner", "mdm"))
    assert texts_of(f"{corpus}planner") == planner - mdm


def texts_of(name: str) -> int:
    """Over all trainings that its card names."""
    texts = 0
    for words in map(str.split, card_of(name)["commands"]):
        texts += steps_of(words) * find_recipe(words[2]).train.batch
    return texts


def steps_of(words: list[str]) -> int:
    """The steps of a command, or of its recipe."""
    if "--steps" in words:
        return int(words[words.index("--steps") + 1])
    return find_recipe(words[2]).train.steps


def solved(name: str, problems: int, folder: Path) -> float:
    job = SampleJob(model=name, task=task_of(name), limit=problems, out=folder)
    run = sample_to_run(job, OPTIONS.get(name, {}), command="test", progress=False)
    return (
        grade_run(run.folder, GradeJob(workers=1), progress=False)
        .reports[0]
        .rates[0]
        .interval.estimate
    )


@pytest.mark.parametrize("name", ["ar", "mdm", "latentmdm", "trails/latentmdm"])
def test_solves_what_it_never_saw(name: str, tmp_path: Path) -> None:
    assert solved(name, 12, tmp_path / "run") >= 0.75


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_floor_on_a_hundred_problems(name: str, tmp_path: Path) -> None:
    assert solved(name, 100, tmp_path / "run") >= (FLOORS | TRAILS_FLOORS)[name]


def test_a_folder_of_that_name_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flexmdm").mkdir()
    assert load("flexmdm").digest == load(SHIPPED / "flexmdm").digest
    load("latentmdm").save(tmp_path / "flexmdm")  # a model of one's own does
    assert load("flexmdm").family.name == "latentmdm"


@pytest.mark.parametrize("name", ["latentmdm", "flexlatent"])
def test_a_prompt_longer_than_anything_trained_on_is_refused(name: str) -> None:
    model = load(name)
    prompt = find_task("stories", model.trained_on).problems(1)[0].prompt
    with pytest.raises(ValueError, match=f"at most {model.card.max_length}: shorten it"):
        model.prepare(prompt * 10)
