"""Complete configurations by name, as Python functions."""

from __future__ import annotations

from collections.abc import Callable

from anyorder.recipes import tiny
from anyorder.recipes.recipe import DataConfig, NetConfig, Recipe, names, override

RECIPES: dict[str, Callable[[], Recipe]] = {"tiny/ar": tiny.ar, "tiny/mdm": tiny.mdm}


def find_recipe(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise ValueError(f"no recipe {name!r}: choose one of {', '.join(RECIPES)}")
    return RECIPES[name]()


__all__ = ["RECIPES", "DataConfig", "NetConfig", "Recipe", "find_recipe", "names", "override"]
