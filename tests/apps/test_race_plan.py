"""The settings of a race: the table, and the grids that override it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.apps.jobs import RaceJob
from anyorder.apps.race.plan import (
    ONE,
    SEVERAL,
    TOLERANCE,
    Facts,
    RacePoint,
    compare,
    facts_of,
    parse_grids,
    planned,
    points_of,
    refuse_unequal,
    ways,
)
from anyorder.apps.train import train
from anyorder.families.descriptions import DESCRIPTIONS
from anyorder.families.family import FAMILIES, find_family
from anyorder.files import sha256_of
from anyorder.model import SHIPPED, load

STORIES = set(DESCRIPTIONS) - {"block"}  # no block of stories ships
TRAILS = {f"trails/{path.name}" for path in (SHIPPED / "trails").iterdir()} - {"trails/planner"}
KNOWN = ["mine", "mdm", "latentmdm"]


def test_every_default_setting_is_one_that_its_family_takes() -> None:
    for name in set(DESCRIPTIONS) & set(FAMILIES):
        family = find_family(name)
        for point in points_of(name, family, {}):
            for options in ways(family, 1.0, 4).values():
                assert family.choose({**options, **point.options}) is not None


def test_one_attempt_is_greedy_and_several_have_the_races_temperature() -> None:
    found = ways(find_family("mdm"), 0.7, 4)
    assert found == {ONE: {"temperature": 0.0}, SEVERAL: {"temperature": 0.7}}
    assert list(ways(find_family("mdm"), 0.7, 1)) == [ONE]


def test_a_planner_head_is_used() -> None:
    mdm, planned = find_family("mdm"), SimpleNamespace(plan=None)
    assert points_of("planner", mdm, {}, planned) == [RacePoint({"policy": "planner"})]
    grids = parse_grids(["mdm:steps=4"], KNOWN)
    assert points_of("planner", mdm, grids, planned) == [RacePoint({"policy": "planner"})]
    own = {"planner": [RacePoint({"steps": 4})]}
    assert points_of("planner", mdm, own, planned) == [RacePoint({"steps": 4})]  # as told
    assert RacePoint({"clock": "events"}) in points_of("flexmdm", find_family("flexmdm"), {})


def test_grids_multiply_within_and_add_between() -> None:
    grids = parse_grids(
        ["mdm:steps=8,16;policy=random", "mdm:quota=threshold:0.9", "latentmdm:k=1"], KNOWN
    )
    assert [point.options for point in grids["mdm"]] == [
        {"steps": 8, "policy": "random"},
        {"steps": 16, "policy": "random"},
        {"quota": "threshold:0.9"},
    ]
    assert grids["latentmdm"] == [RacePoint({"k": 1})]


def test_an_entrants_own_grid_comes_before_its_familys() -> None:
    grids = parse_grids(["mine:steps=4", "mdm:steps=8", "mdm:steps=8"], KNOWN)
    mdm = find_family("mdm")
    assert points_of("mine", mdm, grids) == [RacePoint({"steps": 4})]
    assert points_of("other", mdm, grids) == [RacePoint({"steps": 8})]  # once, though told twice
    assert points_of("ar", find_family("ar"), grids) == [RacePoint({})]


def test_points_have_words_and_folder_names() -> None:
    point = RacePoint({"steps": 16, "quota": "threshold:0.9"})
    assert point.label == "steps 16, quota threshold:0.9"
    assert point.slug == "steps-16-quota-threshold_0.9"
    assert (RacePoint({}).label, RacePoint({}).slug) == ("", "plain")


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("steps=8", "write NAME:OPTION=V,V"),
        ("mdm:", "write NAME:OPTION=V,V"),
        ("duo2:steps=8", "no 'duo2' races: choose from mine, mdm, latentmdm"),
        ("mdm:steps", "is no OPTION=V,V"),
        ("mdm:steps=8,,16", "is no OPTION=V,V"),
        ("mdm:temperature=0.5", "set --temperature"),
        ("mdm:steps=8;steps=16", "steps is given twice"),
    ],
)
def test_bad_grids_are_refused(word: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_grids([word], KNOWN)


NAMES = st.sampled_from(["steps", "k", "policy", "top_p"])
VALUES = st.one_of(st.integers(0, 99), st.sampled_from([0.5, 0.25]), st.sampled_from(["a", "b:1"]))


@given(st.dictionaries(NAMES, st.lists(VALUES, min_size=1, max_size=3, unique=True), min_size=1))
def test_what_is_written_is_what_is_read(options: dict[str, list[object]]) -> None:
    word = ";".join(f"{name}={','.join(map(str, values))}" for name, values in options.items())
    [points] = parse_grids([f"mdm:{word}"], KNOWN).values()
    product = 1
    for name, values in options.items():
        product *= len(values)
        assert {point.options[name] for point in points} == set(values)
    assert len(points) == product


# Equal conditions: what is counted, what is resolved, what is refused and what is only said.


CORPUS = {"source": "stories", "layout": 1.0, "wording": 0.0, "seed": 0}
CORPUS |= {"canvas": 64, "state_layout": False}
FACTS = Facts("a", "mdm", 1000, 500, CORPUS, "v")


def pair(**changes: Any) -> tuple[Facts, Facts]:
    return FACTS, replace(FACTS, name="b", **changes)


def test_shipped_models_are_equal() -> None:
    names = [name for name in DESCRIPTIONS if (SHIPPED / name / "card.json").is_file()]
    assert len(names) >= 5
    fairness = compare([facts_of(name, load(name)) for name in names])
    assert fairness.equal, fairness.differences
    assert not fairness.unknown
    refuse_unequal(fairness)
    assert {each.texts for each in fairness.facts} == {384_000}  # flexmdm with its start


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parameters": 1021}, "parameters differ by 2.1 %: a 1,000, b 1,021"),
        ({"texts": 400}, "training texts differ by 25.0 %: a 500, b 400"),
        ({"corpus": CORPUS | {"layout": 0.0}}, "the data differ in layout: a 1.0, b 0.0"),
        ({"corpus": CORPUS | {"seed": 3}}, "the data differ in seed"),
        ({"corpus": CORPUS | {"canvas": 32}}, "the data differ in canvas: a 64, b 32"),
        ({"corpus": CORPUS | {"state_layout": True}}, "the data differ in state_layout"),
        ({"vocabulary": "w"}, "vocabularies differ"),
    ],
)
def test_what_differs_is_refused_with_a_way_round(changes: dict[str, Any], said: str) -> None:
    fairness = compare(pair(**changes))
    assert len(fairness.differences) == 1 and said in fairness.differences[0]
    with pytest.raises(ValueError, match="--unequal"):
        refuse_unequal(fairness)
    assert fairness.to_record()["equal"] is False


def test_what_is_not_known_is_said_and_not_refused() -> None:
    fairness = compare(pair(texts=None, corpus={}, unknown=("b: who knows",)))
    assert fairness.equal and fairness.unknown == ("b: who knows",)
    refuse_unequal(fairness)


@given(st.integers(1, 10**9), st.floats(0, 0.1))
def test_two_per_cent_are_allowed(parameters: int, more: float) -> None:
    other = round(parameters * (1 + more))
    fairness = compare((replace(FACTS, parameters=parameters), pair(parameters=other)[1]))
    assert fairness.equal == (other <= parameters * (1 + TOLERANCE))


@pytest.fixture
def model(small_models: Path, tmp_path: Path) -> Path:
    """A model folder of one's own to change."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for path in (small_models / "mdm").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def texts_of(folder: Path, **train: Any) -> tuple[int | None, tuple[str, ...]]:
    path = folder / "config.json"
    card = json.loads(path.read_text())
    start = train.pop("start", None)
    card["recipe"]["start"] = start
    card["recipe"]["train"] |= train
    path.write_text(json.dumps(card))
    facts = facts_of("mine", load(str(folder)))
    return facts.texts, facts.unknown


def test_texts_are_steps_times_batch_and_those_of_the_start(model: Path) -> None:
    assert texts_of(model, steps=10, batch=8) == (80, ())
    start = model.parent / "start"
    start.mkdir()
    for path in model.iterdir():
        (start / path.name).write_bytes(path.read_bytes())
    assert texts_of(model, steps=5, batch=4, start="elsewhere/start") == (20 + 80, ())
    found, unknown = texts_of(model, steps=5, batch=4, start="nowhere")
    assert found is None and "it began with nowhere, which is gone" in unknown[0]
    found, unknown = texts_of(model, minutes=3.0)
    assert found is None and "3.0 minutes" in unknown[0]


def test_a_start_is_what_load_finds_and_never_the_model_itself(model: Path) -> None:
    """`--start mdm --out runs/mdm`: the shipped model, though the folder has its name."""
    mine = model.parent / "runs" / "mdm"
    shutil.copytree(model, mine)
    assert texts_of(mine, steps=5, batch=4, start="mdm") == (20 + 384_000, ())
    other = mine.with_name("other")
    shutil.copytree(model, other)
    assert texts_of(other, steps=5, batch=4, start="mdm") == (20 + 384_000, ())  # not the sibling
    texts_of(mine, steps=5, batch=4, start="elsewhere/other")
    found, unknown = texts_of(other, steps=5, batch=4, start="elsewhere/mdm")
    assert found is None and "began with elsewhere/other, which is gone" in unknown[0]


def test_a_start_has_the_digest_that_training_wrote_down(tmp_path: Path) -> None:
    small = {"net.width": 16, "net.layers": 1, "net.heads": 2, "net.mlp_width": 32}
    brief: dict[str, Any] = {"batch": 2, "warmup": 0, "validate_every": 0, "threads": 1, **small}
    start, mine = tmp_path / "start", tmp_path / "mine"
    train("tiny/mdm", out=start, steps=3, progress=False, **brief)
    train("tiny/mdm", out=mine, steps=2, progress=False, start=str(start), **brief)
    assert facts_of("mine", load(mine)).texts == 2 * 2 + 3 * 2
    moved = tmp_path / "moved"
    moved.mkdir()
    start.rename(moved / "start")
    mine.rename(moved / "mine")
    assert facts_of("mine", load(moved / "mine")).texts == 2 * 2 + 3 * 2
    shutil.rmtree(moved / "start")
    train("tiny/mdm", out=moved / "start", steps=4, progress=False, **brief)
    facts = facts_of("mine", load(moved / "mine"))
    assert facts.texts is None and "gone or has changed" in facts.unknown[0]


def test_a_card_counts_only_for_its_own_weights(model: Path) -> None:
    card = {"texts": 77, "weights": sha256_of(model / "model.safetensors")}
    (model / "card.json").write_text(json.dumps(card))
    assert texts_of(model, steps=10, batch=8) == (77, ())
    (model / "card.json").write_text(json.dumps(card | {"weights": "others"}))
    assert texts_of(model, steps=10, batch=8) == (80, ())


@pytest.mark.parametrize(
    ("given", "task", "models"),
    [
        ({}, "trails", TRAILS),
        ({"task": "stories"}, "stories", STORIES),
        ({"task": "trails:strict"}, "trails:strict", TRAILS),
        ({"models": ("mdm", "ar")}, "stories", {"mdm", "ar"}),
        ({"models": ("trails/mdm",)}, "trails", {"trails/mdm"}),
    ],
)
def test_models_and_task_name_each_other(
    given: dict[str, Any], task: str, models: set[str], tmp_path: Path
) -> None:
    plan = planned(RaceJob(**given, limit=2, infill=0, out=tmp_path / "race"))
    assert (plan.job.task, set(plan.job.models)) == (task, models)
    assert plan.task.name == task and plan.fairness.equal


def test_a_model_of_another_corpus_needs_a_task(tmp_path: Path) -> None:
    model = load("mdm")
    model.card.recipe["data"]["source"] = "mine.jsonl"
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="name a --task"):
        planned(RaceJob((str(tmp_path / "model"),), out=tmp_path / "race"))
