"""Equal conditions: what is counted, what is resolved, what is refused and what is only said."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.apps.race.plan import TOLERANCE, Facts, compare, facts_of, refuse_unequal
from anyorder.apps.train import train
from anyorder.families.descriptions import DESCRIPTIONS
from anyorder.files import sha256_of
from anyorder.model import SHIPPED, load

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
