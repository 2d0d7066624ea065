"""Shared by the tests of applications: small models with random weights, in folders."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

SMALL = {"net.width": 16, "net.layers": 1, "net.heads": 2, "net.mlp_width": 32}


@pytest.fixture(scope="session")
def small_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model folder for each family, by its name; nothing is trained."""
    from anyorder.apps.train import network_config
    from anyorder.data.corpora.stories import stories_vocab
    from anyorder.families.family import FAMILIES
    from anyorder.model import Card, build
    from anyorder.recipes import find_recipe, override

    folder, vocab = tmp_path_factory.mktemp("models"), stories_vocab()
    for family in FAMILIES:
        recipe = override(find_recipe(f"tiny/{family}"), SMALL)
        net = asdict(network_config(recipe, vocab.size))
        card = Card(family, net, max_new_tokens=24, max_length=112, recipe=recipe.as_json())
        build(card, vocab, name=family).save(folder / family)
    return folder
