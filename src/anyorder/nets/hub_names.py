"""Our parameter names beside the tensor names of published checkpoints, layout by layout.

    qwen2, llama   Qwen2, Dream, DiffuCoder, Dream-Coder; Llama: `model.layers.N.self_attn. ...`
    llada          `model.transformer.blocks.N. ...`; the head's leaf name, ff_out, is also that of
                   every block's last map
    flexmdm        qwen2, and the 66 tensors (at 28 layers) that the release stores apart
    dultra         llada, and the 20 tensors of the planner head

Names only: which layout a folder has is hub_config.py, how tensors are read is hub_files.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyorder.nets.shapes import FlexConfig, PlannedConfig, ShiftedConfig, TransformerConfig

Names = dict[str, str]
"""Our parameter name -> their tensor name."""

_BLOCKS = {
    "qwen2": {
        "attention_norm": "input_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.out": "self_attn.o_proj",
        "mlp_norm": "post_attention_layernorm",
        "mlp.gate": "mlp.gate_proj",
        "mlp.up": "mlp.up_proj",
        "mlp.down": "mlp.down_proj",
    },
    "llada": {
        "attention_norm": "attn_norm",
        "attention.query": "q_proj",
        "attention.key": "k_proj",
        "attention.value": "v_proj",
        "attention.out": "attn_out",
        "mlp_norm": "ff_norm",
        "mlp.gate": "ff_proj",
        "mlp.up": "up_proj",
        "mlp.down": "ff_out",
    },
}
"""The maps and norms of one layer."""
_AROUND = {
    "qwen2": {
        "embed": "model.embed_tokens",
        "blocks": "model.layers",
        "norm": "model.norm",
        "unembed": "lm_head",
    },
    "llada": {
        "embed": "model.transformer.wte",
        "blocks": "model.transformer.blocks",
        "norm": "model.transformer.ln_f",
        "unembed": "model.transformer.ff_out",
    },
}
_FLEX = {
    "gap.norm": "insertion_head.norm",
    "gap.inner": "insertion_head.proj1",
    "gap.outer": "insertion_head.proj2",
    "backbone.time.inner": "time_mlp.0",
    "backbone.time.outer": "time_mlp.2",
}
_PLANNER = {
    "planner.inner": "time_embedding.mlp.0",
    "planner.outer": "time_embedding.mlp.2",
    "planner.before": "norm_out_1.modulation",
    "planner.after": "norm_out_2.modulation",
    "planner.odds": "mask_linear",
}
_QKV = ("attention.query", "attention.key", "attention.value")
PLANNER_BLOCK = "mask_head.0"


def names_for(layout: str, config: Any) -> Names:
    """All tensors of a network of this configuration, in the order of our parameters' kinds."""
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}: choose one of {', '.join(LAYOUTS)}")
    return LAYOUTS[layout](config)


def extra_names(config: FlexConfig) -> Names:
    """What the release of flexmdm stores beside its backbone."""
    found = _both(_FLEX)
    for layer in range(config.backbone.layers):
        ours = f"backbone.blocks.{layer}.modulation.project"
        found |= _both({ours: f"temb_mods.{layer}"})
    return found


def planner_names(config: PlannedConfig) -> Names:
    """What dUltra stores beside its backbone."""
    found = _layer("llada", config.backbone, "planner.layer.blocks.0", PLANNER_BLOCK)
    return found | _both(_PLANNER) | {"planner.mark.weight": "mask_embedding.weight"}


def _backbone(style: str) -> Callable[[Any], Names]:
    def names(config: Any) -> Names:
        plain = isinstance(config, TransformerConfig)
        shape: TransformerConfig = config if plain else config.backbone
        prefix = "" if plain else "backbone."
        around = _AROUND[style]
        found = {f"{prefix}embed.weight": f"{around['embed']}.weight"}
        for layer in range(shape.layers):
            ours, theirs = f"{prefix}blocks.{layer}", f"{around['blocks']}.{layer}"
            found |= _layer(style, shape, ours, theirs)
        found[f"{prefix}norm.weight"] = f"{around['norm']}.weight"
        if not shape.tied:
            found[f"{prefix}unembed.weight"] = f"{around['unembed']}.weight"
        return found

    return names


def _layer(style: str, shape: TransformerConfig, ours: str, theirs: str) -> Names:
    found = {}
    for mine, name in _BLOCKS[style].items():
        found[f"{ours}.{mine}.weight"] = f"{theirs}.{name}.weight"
        if (shape.qkv_bias and mine in _QKV) or (shape.o_bias and mine == "attention.out"):
            found[f"{ours}.{mine}.bias"] = f"{theirs}.{name}.bias"
    return found


def _both(names: Names) -> Names:
    """Weight and bias of each."""
    return {f"{a}.{leaf}": f"{b}.{leaf}" for a, b in names.items() for leaf in ("weight", "bias")}


LAYOUTS: dict[str, Callable[[Any], Names]] = {
    "qwen2": _backbone("qwen2"),
    "llama": _backbone("qwen2"),
    "llada": _backbone("llada"),
    "flexmdm": lambda config: _backbone("qwen2")(config) | extra_names(config),
    "dultra": lambda config: _backbone("llada")(config) | planner_names(config),
}

HEADS = {
    layout: f"{_AROUND[style]['unembed']}.weight"
    for layout, style in {
        "qwen2": "qwen2",
        "llama": "qwen2",
        "llada": "llada",
        "flexmdm": "qwen2",
        "dultra": "llada",
    }.items()
}
"""Their names of the vocabulary head, which a tied checkpoint may store as well."""

CONFIGS: dict[str, tuple[type, ...]] = {
    "qwen2": (TransformerConfig, ShiftedConfig),
    "llama": (TransformerConfig, ShiftedConfig),
    "llada": (TransformerConfig,),
    "flexmdm": (FlexConfig,),
    "dultra": (PlannedConfig,),
}
"""The networks that a layout can hold."""
