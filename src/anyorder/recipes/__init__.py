"""Complete training configurations by name (`RECIPES`). Each is a Python function."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from anyorder.checks import refuse_unknown
from anyorder.plugins import entries, family_part
from anyorder.recipes import paper, tiny, trails
from anyorder.recipes.recipe import (
    BlockRecipe,
    DataConfig,
    DuoRecipe,
    FlexLatentRecipe,
    FlexRecipe,
    LatentRecipe,
    PlannerRecipe,
    Recipe,
    SphereRecipe,
    names,
    override,
)

RECIPES: dict[str, Callable[[], Recipe]] = {
    "tiny/ar": tiny.ar,
    "tiny/mdm": tiny.mdm,
    "tiny/planner": tiny.planner,
    "tiny/planner-grpo": tiny.planner_grpo,
    "tiny/flexmdm": tiny.flexmdm,
    "tiny/latentmdm": tiny.latentmdm,
    "tiny/flexlatent": tiny.flexlatent,
    "tiny/duo": tiny.duo,
    "tiny/sflm": tiny.sflm,
    "tiny/block": tiny.block,
    "trails/ar": trails.ar,
    "trails/mdm": trails.mdm,
    "trails/planner": trails.planner,
    "trails/flexmdm": trails.flexmdm,
    "trails/latentmdm": trails.latentmdm,
    "trails/flexlatent": trails.flexlatent,
    "trails/duo": trails.duo,
    "trails/sflm": trails.sflm,
    "trails/block": trails.block,
    "paper/ar-125m": paper.ar_125m,
    "paper/mdm-125m": paper.mdm_125m,
    "paper/duo-125m": paper.duo_125m,
    "paper/latentmdm-125m": paper.latentmdm_125m,
    "paper/sflm-125m": paper.sflm_125m,
    "paper/sflm-205m": paper.sflm_205m,
    "paper/flexmdm-dreamcoder-7b": paper.flexmdm_dreamcoder_7b,
    "paper/planner-llada-8b": paper.planner_llada_8b,
    "paper/mdm-llada-8b": paper.mdm_llada_8b,
    "paper/block-sdar-4b": paper.block_sdar_4b,
}


def find_recipe(name: str) -> Recipe:
    """The recipe of that name."""
    if name in RECIPES:
        return RECIPES[name]()
    refuse_unknown("recipe", name, recipe_names())
    return _installed_recipes()[name]()


def recipe_names() -> list[str]:
    """Our own recipes, then those of installed packages."""
    return [*RECIPES, *_installed_recipes()]


def _installed_recipes() -> dict[str, Callable[[], Recipe]]:
    """Those of installed packages that add a family and have recipes for it."""
    found: dict[str, Callable[[], Recipe]] = {}
    for name, entry in entries("families").items():
        if find_spec(f"{entry.value}.recipes") is not None:
            found |= family_part(name, "recipes").RECIPES
    return found


__all__ = [
    "RECIPES",
    "BlockRecipe",
    "DataConfig",
    "DuoRecipe",
    "FlexLatentRecipe",
    "FlexRecipe",
    "LatentRecipe",
    "PlannerRecipe",
    "Recipe",
    "SphereRecipe",
    "find_recipe",
    "names",
    "override",
    "recipe_names",
]
