"""Recipes for a laptop: a third of a million parameters, the built-in corpus, minutes on two cores.

All share one network shape and one corpus, so that families compare under equal conditions.
"""

from __future__ import annotations

from anyorder.recipes.recipe import Recipe
from anyorder.train.config import TrainConfig


def ar() -> Recipe:
    """Learns the corpus within a few minutes."""
    return Recipe(family="ar", train=TrainConfig(steps=800, lr=3e-3, warmup=100))


def mdm() -> Recipe:
    """Any-order training is harder: more steps for the same corpus."""
    return Recipe(family="mdm", train=TrainConfig(steps=3000, lr=3e-3, warmup=100))
