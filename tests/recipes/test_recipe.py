"""Recipes: every name builds, fields change by name, unknown ones are refused."""

from __future__ import annotations

import json

import pytest

from anyorder.recipes import RECIPES, find_recipe, names, override


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds_and_is_json(name: str) -> None:
    recipe = find_recipe(name)
    assert json.loads(json.dumps(recipe.as_json()))["family"] == name.split("/")[1]


def test_override_by_name() -> None:
    recipe = override(
        find_recipe("tiny/mdm"), {"steps": 7, "warmup": 0, "net.width": 32, "loss": "bound"}
    )
    assert (recipe.train.steps, recipe.net.width, recipe.loss) == (7, 32, "bound")


@pytest.mark.parametrize(
    "name", ["step", "net.depth", "data.stories", "optim.lr", "family", "net", ""]
)
def test_unknown_fields_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"choose from loss, steps"):
        override(find_recipe("tiny/mdm"), {name: 1})


def test_names_are_what_override_takes() -> None:
    recipe = find_recipe("tiny/ar")
    assert "net.width" in names() and "data.layout" in names()
    values = recipe.as_json()
    for name in names():
        room, _, last = name.rpartition(".")
        value = recipe.loss if name == "loss" else values[room or "train"][last]
        if name != "betas":  # JSON turns the pair into a list
            assert override(recipe, {name: value}) == recipe


def test_unknown_recipe() -> None:
    with pytest.raises(ValueError, match="tiny/ar, tiny/mdm"):
        find_recipe("tiny/gpt")
