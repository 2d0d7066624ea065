"""Complete configurations by name, as Python functions."""

from __future__ import annotations

from collections.abc import Callable

from anyorder.recipes import paper, tiny
from anyorder.recipes.recipe import (
    DataConfig,
    FlexLatentNetConfig,
    FlexLatentRecipe,
    FlexNetConfig,
    FlexRecipe,
    LatentNetConfig,
    LatentRecipe,
    NetConfig,
    Recipe,
    names,
    override,
)

RECIPES: dict[str, Callable[[], Recipe]] = {
    "tiny/ar": tiny.ar,
    "tiny/mdm": tiny.mdm,
    "tiny/flexmdm": tiny.flexmdm,
    "tiny/latentmdm": tiny.latentmdm,
    "tiny/flexlatent": tiny.flexlatent,
    "paper/ar-125m": paper.ar_125m,
    "paper/mdm-125m": paper.mdm_125m,
    "paper/latentmdm-125m": paper.latentmdm_125m,
    "paper/flexmdm-dreamcoder-7b": paper.flexmdm_dreamcoder_7b,
}


def find_recipe(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise ValueError(f"no recipe {name!r}: choose one of {', '.join(RECIPES)}")
    return RECIPES[name]()


__all__ = [
    "RECIPES",
    "DataConfig",
    "FlexLatentNetConfig",
    "FlexLatentRecipe",
    "FlexNetConfig",
    "FlexRecipe",
    "LatentNetConfig",
    "LatentRecipe",
    "NetConfig",
    "Recipe",
    "find_recipe",
    "names",
    "override",
]
