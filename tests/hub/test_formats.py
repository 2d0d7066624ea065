"""The tables of names: every parameter of a network, and exactly the tensors of the formats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import made_checkpoints as made
import pytest
import torch

import anyorder.families.block.published  # noqa: F401  (registers its formats)
from anyorder.families.block.config import BlockConfig
from anyorder.families.block.net import BlockNet
from anyorder.families.flexmdm.config import FlexConfig
from anyorder.families.flexmdm.net import FlexNet
from anyorder.families.flexmdm.published import RELEASE, extra_names
from anyorder.families.mdm.config import PlannedConfig
from anyorder.families.mdm.planner import PlannedNet
from anyorder.families.mdm.published import planner_tensors
from anyorder.hub.formats import find_layout
from anyorder.nets.denoiser import ShiftedNet
from anyorder.nets.shapes import ShiftedConfig, TransformerConfig
from anyorder.nets.transformer import Transformer

SEVEN_B = TransformerConfig(152_064, 3584, 28, 28, 4, 128, 18_944, rope_theta=1e6, tied=False)
EIGHT_B = TransformerConfig(
    126_464, 4096, 32, 32, 32, 128, 12_288,
    rope_theta=5e5, norm_eps=1e-5, qkv_bias=False, tied=False,
)  # fmt: skip


def sdar(width: int, layers: int, heads: int, mlp_width: int) -> BlockConfig:
    shape = TransformerConfig(
        151_936, width, layers, heads, 8, 128, mlp_width,
        rope_theta=1e6, qkv_bias=False, qk_norm=True, tied=False,
    )  # fmt: skip
    return BlockConfig(shape, 4, "absolute")


def flex(shape: TransformerConfig) -> FlexConfig:
    settings: dict[str, Any] = dict(RELEASE)
    return FlexConfig(replace(shape, time_modulated=True), **settings)


PUBLISHED = {
    "dream": ("qwen2", ShiftedConfig(SEVEN_B), ShiftedNet, 339, 7_615_616_512),
    "flexmdm": ("flexmdm", flex(SEVEN_B), FlexNet, 339 + 66, 7_615_616_512 + 835_161_601),
    "llada": ("llada", EIGHT_B, Transformer, 291, 8_015_581_184),
    "dultra": ("dultra", PlannedConfig(EIGHT_B, 12_288), PlannedNet, 311, 8_318_664_705),
    "sdar 1.7b": ("sdar", sdar(2048, 28, 16, 6144), BlockNet, 311, 2_031_739_904),
    "sdar 4b": ("sdar", sdar(2560, 36, 32, 9728), BlockNet, 399, 4_411_424_256),
    "sdar 8b": ("sdar", sdar(4096, 36, 32, 12_288), BlockNet, 399, 8_190_735_360),
    "fast-dllm": ("fast_dllm", BlockConfig(SEVEN_B, 32, shift=True), BlockNet, 339, 7_615_616_512),
}


@pytest.mark.parametrize(
    ("layout", "config", "kind", "tensors", "parameters"), PUBLISHED.values(), ids=PUBLISHED
)
def test_published_sizes_on_the_meta_device(
    layout: str, config: Any, kind: Any, tensors: int, parameters: int
) -> None:
    with torch.device("meta"):
        net = kind(config)
    names = find_layout(layout).names(config)
    sizes = {name: value.numel() for name, value in net.named_parameters()}
    assert names.keys() == sizes.keys()
    assert len(set(names.values())) == len(names) == tensors
    assert sum(sizes.values()) == parameters


def shapes_of(layout: str, config: Any, kind: Any) -> dict[str, tuple[int, ...]]:
    """Their names -> the shapes of our parameters."""
    with torch.device("meta"):
        net = kind(config)
    names = find_layout(layout).names(config)
    return {names[name]: tuple(value.shape) for name, value in net.named_parameters()}


def test_names_and_shapes_are_those_of_the_descriptions() -> None:
    """Written down twice, here and in made_checkpoints.py, from the same descriptions."""
    width = made.WIDTH // made.HEADS
    shape = TransformerConfig(
        made.ROWS, made.WIDTH, made.LAYERS, made.HEADS, made.KV_HEADS, width, made.INNER, tied=False
    )
    assert shapes_of("qwen2", ShiftedConfig(shape), ShiftedNet) == made.qwen_shapes()
    blocks = BlockConfig(replace(shape, head_width=2 * width, qkv_bias=False, qk_norm=True), 4)
    assert shapes_of("sdar", blocks, BlockNet) == made.sdar_shapes()
    found = shapes_of("flexmdm", flex(shape), FlexNet)
    assert found == made.qwen_shapes() | made.extra_shapes()
    plain = replace(shape, kv_heads=made.HEADS, qkv_bias=False)
    config = PlannedConfig(plain, made.INNER)
    found = shapes_of("dultra", config, PlannedNet)
    assert {name: found[name] for name in planner_tensors(config).values()} == made.planner_shapes()
    assert len(made.planner_shapes()) == 20
    assert len(extra_names(flex(SEVEN_B))) == len(made.extra_shapes(28)) == 66


def test_a_tied_head_and_biases_follow_the_configuration() -> None:
    shape = TransformerConfig(11, 16, 1, 2, 2, 8, 24, qkv_bias=False, o_bias=True)
    names = find_layout("llama").names(shape)
    assert "unembed.weight" not in names and len(names) == 12
    assert names["blocks.0.attention.out.bias"] == "model.layers.0.self_attn.o_proj.bias"
    with pytest.raises(ValueError, match="unknown layout 'gpt2': choose one of qwen2"):
        find_layout("gpt2").names(shape)
