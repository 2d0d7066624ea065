"""A recipe for `anyorder train tiny/backward`."""

from __future__ import annotations

from anyorder.recipes import Recipe
from anyorder.training.config import TrainConfig


def backward() -> Recipe:
    """Small enough for a test."""
    return Recipe(family="backward", train=TrainConfig(steps=4, warmup=1, batch=8))


RECIPES = {"tiny/backward": backward}
