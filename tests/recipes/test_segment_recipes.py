"""The recipes of latentmdm, flexlatent and their baselines: the published sizes and settings."""

from __future__ import annotations

import json

import pytest

from anyorder.cli import main
from anyorder.families.latentmdm.config import LatentNetConfig
from anyorder.recipes import LatentRecipe, find_recipe, names

PAPER = ["paper/latentmdm-125m", "paper/ar-125m", "paper/mdm-125m"]
TINY = ["tiny/flexmdm", "tiny/latentmdm", "tiny/flexlatent"]


def sizes(capsys: pytest.CaptureFixture[str], recipe: str, *words: str) -> dict[str, int]:
    assert main(["train", recipe, *words, "--dry-run", "--json"]) == 0
    found: dict[str, int] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("recipe", PAPER)
def test_the_published_models_have_the_published_size(
    recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sizes(capsys, recipe)["parameters"] == 125_395_968


@pytest.mark.parametrize("norm", ["encoder", "latent", "decoder"])
def test_a_final_norm_adds_its_width(norm: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = sizes(capsys, "paper/latentmdm-125m", f"--net.{norm}-norm")
    assert found["parameters"] == 125_395_968 + 512


def test_without_biases_the_published_size_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    found = sizes(capsys, "paper/latentmdm-125m", "--net.no-o-bias")
    assert found["parameters"] == 125_395_968 - 14 * 512


@pytest.mark.parametrize("recipe", PAPER)
def test_they_are_trained_as_published(recipe: str) -> None:
    """Appendix E, and the release where it is silent."""
    train, net = find_recipe(recipe).train, find_recipe(recipe).net
    assert (train.lr, train.betas, train.weight_decay) == (3e-4, (0.9, 0.999), 0.01)
    assert (train.batch, train.warmup, train.clip, train.ema) == (256, 1_000, 1.0, 0.9999)
    assert train.decay == "everything"
    assert (net.width, net.heads, net.mlp_width, net.vocab_size) == (512, 8, 1536, 151_645)


def test_the_published_latentmdm() -> None:
    recipe = find_recipe("paper/latentmdm-125m")
    assert isinstance(recipe, LatentRecipe) and isinstance(recipe.net, LatentNetConfig)
    net, segments = recipe.net, recipe.segments
    assert (net.encoder_layers, net.layers, net.decoder_layers) == (2, 10, 2)
    assert (segments.by, segments.slots, segments.segment_length) == ("line", 16, 32)
    assert segments.overflow == "truncate" and recipe.segment_loss.reconstruct == 0
    assert (net.attention, net.pooling) == ("bidirectional", "content")


def test_tiny_models_are_of_one_size(capsys: pytest.CaptureFixture[str]) -> None:
    """Those with additions to a plain backbone are compared at equal size: within 2 %."""
    found = {recipe: sizes(capsys, recipe)["parameters"] for recipe in TINY}
    assert max(found.values()) <= 1.02 * min(found.values()), found


@pytest.mark.parametrize("recipe", ["tiny/latentmdm", "tiny/flexlatent", "paper/latentmdm-125m"])
def test_segments_can_be_set_by_name(recipe: str) -> None:
    known = names(find_recipe(recipe))
    for name in ("by", "slots", "segment_length", "overflow"):
        assert f"segments.{name}" in known
    for name in ("pooling", "attention", "encoder_norm", "encoder_layers", "decoder_layers"):
        assert f"net.{name}" in known
