"""The shape of a network that starts from a trained one: what is taken, kept, refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_checkpoints as made
import numpy as np
import pytest

from anyorder.apps.train import shaped_by, train, train_recipe
from anyorder.loading import open_weights
from anyorder.nets.init import same_setting
from anyorder.recipes import Recipe, find_recipe, override

BRIEF: dict[str, Any] = {
    "steps": 2,
    "batch": 4,
    "warmup": 1,
    "validate_every": 0,
    "device": "cpu",
}
ROUNDED = {"rms_norm_eps": float(np.float32(1e-6)), "rope_theta": float(np.float32(1e4 / 3))}


def test_settings_agree_up_to_float32() -> None:
    assert same_setting(1e-6, float(np.float32(1e-6))) and same_setting(2, 2)
    assert not same_setting(1e-6, 1e-5) and not same_setting(1e-6, 1e-6 * (1 + 1e-6))


def test_round_off_is_no_difference(tmp_path: Path) -> None:
    made.dream(tmp_path / "dream", **ROUNDED)
    assert ROUNDED["rms_norm_eps"] != 1e-6 and ROUNDED["rope_theta"] != 1e4 / 3
    recipe = override(find_recipe("tiny/mdm"), {"net.norm_eps": 1e-6, "net.rope_theta": 1e4 / 3})
    shaped = shaped_by(recipe, open_weights(str(tmp_path / "dream")), ["norm_eps", "rope_theta"])
    assert (shaped.net.norm_eps, shaped.net.rope_theta) == (1e-6, 1e4 / 3)


def test_an_unusual_width_of_heads(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    made.llama(tmp_path / "llama", head_dim=12)
    base = open_weights(str(tmp_path / "llama"))
    shaped = shaped_by(find_recipe("tiny/ar"), base)
    assert shaped.net.head_width == 12 != shaped.net.width // shaped.net.heads
    assert shaped.net.backbone(base.vocab.size, causal=True) == base.net.config
    assert shaped.as_json()["net"]["head_width"] == 12
    assert "head_width" not in find_recipe("tiny/ar").as_json()["net"]


def test_what_a_family_adds_is_chosen_and_what_it_has_is_taken(tmp_path: Path) -> None:
    """A flexmdm from an mdm keeps its own exponents; one from a flexmdm takes them."""
    small = {"net.width": 32, "net.layers": 2}
    exponents = {"net.unmasking_exponent": 1.5}
    train("tiny/mdm", out=tmp_path / "mdm", progress=False, **BRIEF, **small)
    flex = override(find_recipe("tiny/flexmdm"), BRIEF | exponents)
    of_mdm = shaped_by(flex, open_weights(str(tmp_path / "mdm")))
    assert (of_mdm.net.width, of_mdm.net.layers, of_mdm.net.unmasking_exponent) == (32, 2, 1.5)
    train_recipe(replace(of_mdm, start=str(tmp_path / "mdm")), tmp_path / "flex", progress=False)
    base = open_weights(str(tmp_path / "flex"))
    taken = shaped_by(find_recipe("tiny/flexmdm"), base)
    assert taken.net == of_mdm.net
    with pytest.raises(ValueError, match=r"net.unmasking_exponent is 1.5 and not 2.0.*leave"):
        shaped_by(
            override(find_recipe("tiny/flexmdm"), {"net.unmasking_exponent": 2.0}),
            base,
            ["unmasking_exponent"],
        )


@pytest.mark.parametrize("chosen", [None, False])
def test_a_training_that_began_unshifted_goes_on_so(tmp_path: Path, chosen: bool | None) -> None:
    """From a causal model one began unshifted before the start decided; one may still say so."""
    train("tiny/ar", out=tmp_path / "ar", progress=False, **BRIEF)
    start = override(find_recipe("tiny/mdm"), BRIEF | {"start": str(tmp_path / "ar")})
    recipe = override(start, {"net.shift": chosen})
    train_recipe(recipe, tmp_path / "run", asked=["shift"], progress=False)
    train_recipe(recipe, tmp_path / "run", progress=False)
    assert "shift" not in json.loads((tmp_path / "run" / "config.json").read_text())["net"]
    assert _shift(start, tmp_path / "ar") is True


def _shift(recipe: Recipe, start: Path) -> bool | None:
    return shaped_by(recipe, open_weights(str(start))).net.shift


def test_the_message_of_another_vocabulary_names_the_flag(tmp_path: Path) -> None:
    made.dream(tmp_path / "dream")
    with pytest.raises(ValueError, match=rf"--data.vocab {tmp_path / 'dream'}"):
        train("tiny/mdm", out=tmp_path / "x", start=str(tmp_path / "dream"), **BRIEF)
