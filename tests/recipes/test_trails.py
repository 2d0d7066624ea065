"""The recipes on trails: equal conditions for all families, and room for every problem."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anyorder.apps.train import network_config
from anyorder.data.corpora.trails import TrailsConfig, sizes, trails_vocab
from anyorder.families.family import find_family
from anyorder.recipes import RECIPES, find_recipe

NAMES = sorted(name for name in RECIPES if name.startswith("trails/"))
ALONE = [name for name in NAMES if name != "trails/planner"]
"""The planner is an mdm with a head more."""


def parameters(name: str) -> int:
    recipe = find_recipe(name)
    with torch.device("meta"):
        net = find_family(recipe.family).network.build(
            network_config(recipe, trails_vocab().size), seed=0
        )
    return sum(weight.numel() for weight in net.parameters())


def test_parameters_are_equal_within_two_percent() -> None:
    counts = {name: parameters(name) for name in ALONE}
    assert max(counts.values()) <= 1.02 * min(counts.values()), counts


@pytest.mark.parametrize("name", ALONE)
def test_data_and_training_are_the_same(name: str) -> None:
    first, recipe = find_recipe(ALONE[0]), find_recipe(name)
    assert (recipe.train, recipe.data, recipe.trails) == (first.train, first.data, first.trails)
    assert recipe.net.prompt == "sentences"


@pytest.mark.parametrize("name", NAMES)
def test_every_problem_fits(name: str) -> None:
    recipe: Any = find_recipe(name)
    largest = sizes(TrailsConfig(**vars(recipe.trails)))
    assert recipe.data.canvas == largest.program + 1
    assert recipe.data.max_length >= largest.prompt + recipe.data.canvas
    if hasattr(recipe, "segments"):
        assert recipe.segments.slots == largest.lines
        assert recipe.segments.segment_length == largest.line + 1
