"""Complete training configurations by name (`RECIPES`). Each is a Python function."""

from __future__ import annotations

from collections.abc import Callable

from anyorder.checks import refuse_unknown
from anyorder.families.config import NetConfig
from anyorder.families.flexlatent.config import FlexLatentNetConfig
from anyorder.families.flexmdm.config import FlexNetConfig
from anyorder.families.latentmdm.config import LatentNetConfig
from anyorder.families.mdm.config import PlannedNetConfig
from anyorder.families.sflm.config import SphereNetConfig
from anyorder.recipes import paper, tiny
from anyorder.recipes import paper as llada
from anyorder.recipes.recipe import (
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
    "paper/ar-125m": paper.ar_125m,
    "paper/mdm-125m": paper.mdm_125m,
    "paper/duo-125m": paper.duo_125m,
    "paper/latentmdm-125m": paper.latentmdm_125m,
    "paper/sflm-125m": paper.sflm_125m,
    "paper/sflm-205m": paper.sflm_205m,
    "paper/flexmdm-dreamcoder-7b": paper.flexmdm_dreamcoder_7b,
    "paper/planner-llada-8b": llada.planner_llada_8b,
    "paper/mdm-llada-8b": llada.mdm_llada_8b,
}


def find_recipe(name: str) -> Recipe:
    """The recipe of that name."""
    refuse_unknown("recipe", name, RECIPES)
    return RECIPES[name]()


__all__ = [
    "RECIPES",
    "DataConfig",
    "DuoRecipe",
    "FlexLatentNetConfig",
    "FlexLatentRecipe",
    "FlexNetConfig",
    "FlexRecipe",
    "LatentNetConfig",
    "LatentRecipe",
    "NetConfig",
    "PlannedNetConfig",
    "PlannerRecipe",
    "Recipe",
    "SphereNetConfig",
    "SphereRecipe",
    "find_recipe",
    "names",
    "override",
]
