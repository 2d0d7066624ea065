"""Recipes: every name builds, fields change by name, unknown ones are refused."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from anyorder.cli import main
from anyorder.families.flexmdm.config import FlexNetConfig
from anyorder.families.latentmdm.config import LatentNetConfig
from anyorder.recipes import RECIPES, FlexRecipe, LatentRecipe, find_recipe, names, override


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds_and_is_json(name: str) -> None:
    recipe = find_recipe(name)
    family = json.loads(json.dumps(recipe.as_json()))["family"]
    of = name.split("/")[1].split("-")[0]
    assert family == {"planner": "mdm"}.get(of, of)  # a planner is a policy of mdm


def test_override_by_name() -> None:
    recipe = override(
        find_recipe("tiny/mdm"), {"steps": 7, "warmup": 0, "net.width": 32, "loss": "bound"}
    )
    assert (recipe.train.steps, recipe.net.width, recipe.loss) == (7, 32, "bound")


@pytest.mark.parametrize(
    "name", ["step", "net.depth", "data.stories", "optim.lr", "family", "net", ""]
)
def test_unknown_fields_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"choose from loss, start, steps"):
        override(find_recipe("tiny/mdm"), {name: 1})


@pytest.mark.parametrize("of", ["tiny/ar", "tiny/flexmdm", "paper/flexmdm-dreamcoder-7b"])
def test_names_are_what_override_takes(of: str) -> None:
    recipe = find_recipe(of)
    known = names(recipe)
    assert "net.width" in known and "data.layout" in known
    assert ("insertion.targets" in known) == ("net.gap_reads" in known) == ("flexmdm" in of)
    values = asdict(recipe)  # as_json leaves out what has no effect
    for name in known:
        room, _, last = name.rpartition(".")
        value = values[name] if name in ("loss", "start") else values[room or "train"][last]
        if name != "betas":  # JSON turns the pair into a list
            assert override(recipe, {name: value}) == recipe


def test_unknown_recipe() -> None:
    with pytest.raises(ValueError, match="tiny/ar, tiny/mdm, tiny/planner"):
        find_recipe("tiny/gpt")


def test_the_published_flexmdm() -> None:
    """Appendix D and the release, as far as a recipe can say it."""
    recipe = find_recipe("paper/flexmdm-dreamcoder-7b")
    train, net = recipe.train, recipe.net
    assert isinstance(net, FlexNetConfig)
    assert (train.steps, train.warmup, train.batch, train.micro_batch) == (75_000, 7_500, 576, 6)
    assert (train.lr, train.betas, train.weight_decay) == (1e-5, (0.9, 0.95), 0.01)
    assert set(train.multipliers.values()) == {2.0}
    assert (net.insertion_exponent, net.unmasking_exponent) == (1.7, 2.89)
    assert (net.convention, net.coordinate, recipe.data.max_length) == ("release", "raw", 768)
    assert isinstance(recipe, FlexRecipe)
    assert (recipe.insertion.weighting, recipe.insertion.normalise) == ("compat", "max_length")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"insertion.cap": 0.0}, "positive"),
        ({"insertion.infill": 1.5}, "from 0 to 1"),
        ({"insertion.weighting": "compat", "insertion.cap": 7.0}, "no effect"),
    ],
)
def test_flexmdm_settings_are_checked(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        override(find_recipe("tiny/flexmdm"), changes)


# The recipes of latentmdm, flexlatent and their baselines: the published sizes and settings.


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
