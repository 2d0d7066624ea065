"""The large recipes on the meta device: tensor by tensor the lists of the published checkpoints."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

import anyorder.families.block.published
import anyorder.families.flexmdm.published
import anyorder.families.mdm.published  # noqa: F401  (registers the published formats)
from anyorder.apps.dry_run import meta_network
from anyorder.hub.formats import find_layout
from anyorder.recipes import find_recipe

Tensors = dict[str, tuple[int, ...]]

DREAM, DREAM_KV, DREAM_INNER, DREAM_ROWS = 3584, 512, 18_944, 152_064
LLADA, LLADA_INNER, LLADA_ROWS = 4096, 12_288, 126_464


def dream_coder() -> Tensors:
    """Qwen2.5-7B's: 28 layers, 28 heads and 4 for keys, biases on q, k and v."""
    found: Tensors = {
        "model.embed_tokens.weight": (DREAM_ROWS, DREAM),
        "model.norm.weight": (DREAM,),
        "lm_head.weight": (DREAM_ROWS, DREAM),
    }
    for layer in range(28):
        at = f"model.layers.{layer}"
        found |= {
            f"{at}.input_layernorm.weight": (DREAM,),
            f"{at}.post_attention_layernorm.weight": (DREAM,),
            f"{at}.self_attn.q_proj.weight": (DREAM, DREAM),
            f"{at}.self_attn.q_proj.bias": (DREAM,),
            f"{at}.self_attn.k_proj.weight": (DREAM_KV, DREAM),
            f"{at}.self_attn.k_proj.bias": (DREAM_KV,),
            f"{at}.self_attn.v_proj.weight": (DREAM_KV, DREAM),
            f"{at}.self_attn.v_proj.bias": (DREAM_KV,),
            f"{at}.self_attn.o_proj.weight": (DREAM, DREAM),
            f"{at}.mlp.gate_proj.weight": (DREAM_INNER, DREAM),
            f"{at}.mlp.up_proj.weight": (DREAM_INNER, DREAM),
            f"{at}.mlp.down_proj.weight": (DREAM, DREAM_INNER),
        }
    return found


def flexmdm_extras() -> Tensors:
    found: Tensors = {
        "insertion_head.norm.weight": (DREAM,),
        "insertion_head.norm.bias": (DREAM,),
        "insertion_head.proj1.weight": (DREAM, DREAM),
        "insertion_head.proj1.bias": (DREAM,),
        "insertion_head.proj2.weight": (1, DREAM),
        "insertion_head.proj2.bias": (1,),
        "time_mlp.0.weight": (4 * DREAM, DREAM),
        "time_mlp.0.bias": (4 * DREAM,),
        "time_mlp.2.weight": (DREAM, 4 * DREAM),
        "time_mlp.2.bias": (DREAM,),
    }
    for layer in range(28):
        found[f"temb_mods.{layer}.weight"] = (2 * DREAM, DREAM)
        found[f"temb_mods.{layer}.bias"] = (2 * DREAM,)
    return found


def llada_layer(at: str) -> Tensors:
    square, inner = (LLADA, LLADA), (LLADA_INNER, LLADA)
    return {
        f"{at}.attn_norm.weight": (LLADA,),
        f"{at}.ff_norm.weight": (LLADA,),
        **{f"{at}.{name}.weight": square for name in ("q_proj", "k_proj", "v_proj", "attn_out")},
        **{f"{at}.{name}.weight": inner for name in ("ff_proj", "up_proj")},
        f"{at}.ff_out.weight": (LLADA, LLADA_INNER),
    }


def llada() -> Tensors:
    found: Tensors = {
        "model.transformer.wte.weight": (LLADA_ROWS, LLADA),
        "model.transformer.ln_f.weight": (LLADA,),
        "model.transformer.ff_out.weight": (LLADA_ROWS, LLADA),
    }
    for layer in range(32):
        found |= llada_layer(f"model.transformer.blocks.{layer}")
    return found


def sdar() -> Tensors:
    """SDAR-4B's: 36 layers, 32 heads of 128 and 8 for keys, no biases, a head beside the table."""
    found: Tensors = {
        "model.embed_tokens.weight": (151_936, 2560),
        "model.norm.weight": (2560,),
        "lm_head.weight": (151_936, 2560),
    }
    for layer in range(36):
        at = f"model.layers.{layer}"
        found |= {
            f"{at}.input_layernorm.weight": (2560,),
            f"{at}.post_attention_layernorm.weight": (2560,),
            f"{at}.self_attn.q_proj.weight": (4096, 2560),
            f"{at}.self_attn.k_proj.weight": (1024, 2560),
            f"{at}.self_attn.v_proj.weight": (1024, 2560),
            f"{at}.self_attn.o_proj.weight": (2560, 4096),
            f"{at}.self_attn.q_norm.weight": (128,),
            f"{at}.self_attn.k_norm.weight": (128,),
            f"{at}.mlp.gate_proj.weight": (9728, 2560),
            f"{at}.mlp.up_proj.weight": (9728, 2560),
            f"{at}.mlp.down_proj.weight": (2560, 9728),
        }
    return found


def dultra_planner() -> Tensors:
    found = llada_layer("mask_head.0")
    for name, shape in {
        "time_embedding.mlp.0": (LLADA, 256),
        "time_embedding.mlp.2": (LLADA, LLADA),
        "norm_out_1.modulation": (2 * LLADA, LLADA),
        "norm_out_2.modulation": (2 * LLADA, LLADA),
        "mask_linear": (1, LLADA),
    }.items():
        found |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return found | {"mask_embedding.weight": (2, LLADA)}


PUBLISHED: dict[str, tuple[str, Tensors, int, int]] = {
    "paper/flexmdm-dreamcoder-7b": (
        "flexmdm",
        dream_coder() | flexmdm_extras(),
        339 + 66,
        7_615_616_512 + 835_161_601,
    ),
    "paper/planner-llada-8b": ("dultra", llada() | dultra_planner(), 311, 8_318_664_705),
    "paper/mdm-llada-8b": ("llada", llada(), 291, 8_015_581_184),
    "paper/block-sdar-4b": ("sdar", sdar(), 399, 4_411_424_256),
}
"""Layout, tensors, how many they are, and how many numbers."""


def built(recipe: str) -> tuple[nn.Module, dict[str, str]]:
    net: Any = meta_network(find_recipe(recipe))
    return net, find_layout(PUBLISHED[recipe][0]).names(net.config)


@pytest.mark.parametrize("recipe", PUBLISHED)
def test_the_tensors_are_the_published_ones(recipe: str) -> None:
    _, wanted, count, numbers = PUBLISHED[recipe]
    net, theirs = built(recipe)
    ours = {name: tuple(value.shape) for name, value in net.named_parameters()}
    assert all(value.is_meta for value in net.parameters())
    assert set(theirs) == set(ours), "every tensor of ours has a name of theirs, and no other"
    assert {theirs[name]: shape for name, shape in ours.items()} == wanted
    assert len(wanted) == count
    assert sum(value.numel() for value in net.parameters()) == numbers


def test_the_published_counts() -> None:
    """As the fact sheets have them: 66 tensors beside the backbone, about 303.1M of the planner."""
    extras, planner = flexmdm_extras(), dultra_planner()
    assert (len(extras), len(planner)) == (66, 20)
    assert sum(_numbers(shape) for shape in dream_coder().values()) == 7_615_616_512
    assert sum(_numbers(shape) for shape in extras.values()) == 835_161_601
    assert sum(_numbers(shape) for shape in planner.values()) / 1e6 == pytest.approx(303.1, abs=0.1)
    assert sum(_numbers(shape) for shape in llada().values()) / 1e9 == pytest.approx(
        8.016, abs=5e-4
    )


def _numbers(shape: tuple[int, ...]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def test_llada_has_its_own_numbers() -> None:
    """What no tensor tells: the base of its rotary positions, and its norms."""
    for recipe in ("paper/planner-llada-8b", "paper/mdm-llada-8b"):
        net: Any = meta_network(find_recipe(recipe))
        shape = getattr(net.config, "backbone", net.config)
        assert (shape.rope_theta, shape.norm_eps) == (5e5, 1e-5)
        assert (shape.qkv_bias, shape.o_bias, shape.tied, shape.causal) == (False,) * 4


def test_only_the_planner_learns() -> None:
    net = meta_network(find_recipe("paper/planner-llada-8b"))
    learning = {name for name, value in net.named_parameters() if value.requires_grad}
    assert len(learning) == 20 and all(name.startswith("planner.") for name in learning)
