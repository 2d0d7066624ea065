"""A published checkpoint's config.json -> the shape of our network, its family and its layout.

    Dream, DiffuCoder, Dream-Coder   model_type Dream: Qwen2's shape, bidirectional, shifted states
    FlexMDM's release                the same beside flexmdm_extras.pt
    LLaDA                            model_type llada: Llama's shape, bidirectional, not shifted
    dUltra                           the same with the planner's tensors
    Qwen2, Llama                     left to right; as mdm they begin shifted

Settings that our backbone does not compute (rope scaling, sliding windows, other activations) are
refused by name. What a release stores nowhere (time scale, schedules, conventions of the FlexMDM
release) is supplied here.

The file also holds our parameter names beside the tensor names of published checkpoints, layout by
layout:

    qwen2, llama   Qwen2, Dream, DiffuCoder, Dream-Coder; Llama: `model.layers.N.self_attn. ...`
    llada          `model.transformer.blocks.N. ...`; the head's leaf name, ff_out, is also that of
                   every block's last map
    flexmdm        qwen2, and the 66 tensors (at 28 layers) that the release stores apart
    dultra         llada, and the 20 tensors of the planner head

Not here: how tensors are read (files.py), how they are written (weights.py), tokenizers (vocab.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
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
FLEX_RELEASE = "flexmdm"
"""The layout of the FlexMDM release."""


def names_for(layout: str, config: Any) -> Names:
    """All tensors of a network of this configuration, in the order of our parameters' kinds."""
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}: choose one of {', '.join(LAYOUTS)}")
    return LAYOUTS[layout](config)


def names_apart(layout: str, config: Any) -> Names:
    """What a layout stores in a file of its own, `EXTRAS_FILE`; most have none."""
    return extra_names(config) if layout == FLEX_RELEASE else {}


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
    FLEX_RELEASE: lambda config: _backbone("qwen2")(config) | extra_names(config),
    "dultra": lambda config: _backbone("llada")(config) | planner_names(config),
}

HEADS = {
    layout: f"{_AROUND[style]['unembed']}.weight"
    for layout, style in {
        "qwen2": "qwen2",
        "llama": "qwen2",
        "llada": "llada",
        FLEX_RELEASE: "qwen2",
        "dultra": "llada",
    }.items()
}
"""Their names of the vocabulary head, which a tied checkpoint may store as well."""

CONFIGS: dict[str, tuple[type, ...]] = {
    "qwen2": (TransformerConfig, ShiftedConfig),
    "llama": (TransformerConfig, ShiftedConfig),
    "llada": (TransformerConfig,),
    FLEX_RELEASE: (FlexConfig,),
    "dultra": (PlannedConfig,),
}
"""The networks that a layout can hold."""

TITLES = {
    "qwen2": "Qwen2's names, as in Dream, DiffuCoder and Dream-Coder where it is a masked model",
    "llama": "Llama's names",
    "llada": "LLaDA's names",
    FLEX_RELEASE: "the FlexMDM release: a Dream backbone, and flexmdm_extras.pt beside it",
    "dultra": "LLaDA's names, with dUltra's planner head",
}
"""The layouts in words, for model cards."""


EXTRAS_FILE = "flexmdm_extras.pt"
NEW_TOKENS = 256
"""Free slots of a canvas unless told otherwise: published models do not say."""
RELEASE_LENGTH = 768
"""FlexMDM's release was trained on rows of this length."""
RELEASE = {
    "convention": "release",
    "coordinate": "raw",
    "insertion_exponent": 1.7,
    "unmasking_exponent": 2.89,
    "gap_offset": False,
    "gap_reads": "left",
}
"""What the FlexMDM release does not store: raw time, exponents a and a b with a = b = 1.7."""


@dataclass(frozen=True)
class Published:
    """What a checkpoint is, before a tensor is read."""

    layout: str
    """Of its tensor names: a key of `LAYOUTS`."""
    family: str
    config: Any
    """The network's configuration."""
    max_length: int | None
    max_new_tokens: int = NEW_TOKENS


@dataclass(frozen=True)
class Folder:
    """What detection looks at."""

    path: Path
    record: Mapping[str, Any]
    """config.json."""
    names: Collection[str]
    """Of the stored tensors."""

    def get(self, key: str, default: Any = None) -> Any:
        value = self.record.get(key, default)
        return default if value is None else value

    def need(self, key: str) -> Any:
        if self.record.get(key) is None:
            raise self.wrong(f"{key} is missing")
        return self.record[key]

    def wrong(self, what: str) -> ValueError:
        return ValueError(f"{self.path / 'config.json'}: {what}: this model cannot be loaded")

    def must_be(self, allowed: Mapping[str, tuple[Any, ...]]) -> None:
        """Refuse settings that our backbone does not compute."""
        for key, values in allowed.items():
            if self.record.get(key, values[0]) not in values:
                known = " or ".join(map(repr, values))
                raise self.wrong(f"{key} is {self.record[key]!r}, and only {known} is computed")


def read_published(folder: Folder, family: str | None = None) -> Published:
    """What a folder holds, as `family` where it leaves a choice."""
    kind = str(folder.get("model_type", "")).lower()
    if kind not in READERS:
        told = folder.get("architectures", [])
        named = " ".join(map(str, told if isinstance(told, list) else [told]))
        raise folder.wrong(
            f"model_type {folder.get('model_type')!r} ({named or 'no architectures'}) is none of "
            f"{', '.join(READERS)}"
        )
    try:
        choices = READERS[kind](folder)
    except (TypeError, AttributeError, ZeroDivisionError) as error:
        raise folder.wrong(f"a setting is of the wrong kind ({error})") from None
    except ValueError as error:
        if str(folder.path) in str(error):
            raise
        raise folder.wrong(str(error)) from None
    found = {each.family: each for each in choices}
    if family is not None and family not in found:
        raise ValueError(
            f"{folder.path} holds a model of family {next(iter(found))!r}, not {family!r}: load it "
            f"as {' or '.join(found)}, or let that family begin with it (`anyorder train --start`)"
        )
    return found[family] if family is not None else choices[0]


def _rope_theta(folder: Folder) -> float:
    """The base of plain rotary positions; scaled ones are refused."""
    scaling = folder.get("rope_scaling") or {}
    parameters = folder.get("rope_parameters") or {}
    for source in (scaling, parameters):
        kind = source.get("rope_type", source.get("type", "default"))
        if kind != "default":
            raise folder.wrong(
                f"rope scaling of type {kind!r} is not computed here (only plain rotary positions)"
            )
        if source.get("partial_rotary_factor", 1.0) != 1.0:
            raise folder.wrong("partial_rotary_factor is not 1")
    return float(parameters.get("rope_theta", folder.get("rope_theta", 10000.0)))


def _qwen_shape(folder: Folder, **given: Any) -> TransformerConfig:
    """The names that Qwen2, Dream and Llama share."""
    folder.must_be(
        {
            "hidden_act": ("silu", "swish"),
            "use_sliding_window": (False, None),
            "mlp_bias": (False, None),
            "partial_rotary_factor": (1.0, None),
            "use_mrope": (False, None),
            "quantization_config": (None,),
        }
    )
    if set(folder.get("layer_types", ())) - {"full_attention"}:
        raise folder.wrong("layer_types holds other attention than full_attention")
    width, heads = folder.need("hidden_size"), folder.need("num_attention_heads")
    shape = {
        "vocab_size": folder.need("vocab_size"),
        "width": width,
        "layers": folder.need("num_hidden_layers"),
        "heads": heads,
        "kv_heads": folder.get("num_key_value_heads", heads),
        "head_width": folder.get("head_dim", width // heads),
        "mlp_width": folder.need("intermediate_size"),
        "rope_theta": _rope_theta(folder),
        "norm_eps": float(folder.get("rms_norm_eps", 1e-6)),
        "tied": bool(folder.get("tie_word_embeddings", False)),
    }
    return TransformerConfig(**shape | given)


def _length(folder: Folder, key: str = "max_position_embeddings") -> int | None:
    length = folder.get(key)
    if length is not None and (type(length) is not int or length < 1):
        raise folder.wrong(f"{key} is {length!r}, which is no length")
    return length


def _causal(layout: str, shape: TransformerConfig, folder: Folder) -> list[Published]:
    bidirectional = replace(shape, causal=False)
    return [
        Published(layout, "ar", replace(shape, causal=True), _length(folder)),
        Published(layout, "mdm", ShiftedConfig(bidirectional), _length(folder)),
    ]


def _qwen2(folder: Folder) -> list[Published]:
    return _causal("qwen2", _qwen_shape(folder, qkv_bias=True), folder)


def _llama(folder: Folder) -> list[Published]:
    biased = bool(folder.get("attention_bias", False))
    return _causal("llama", _qwen_shape(folder, qkv_bias=biased, o_bias=biased), folder)


def _dream(folder: Folder) -> list[Published]:
    shape = _qwen_shape(folder, qkv_bias=True)
    if (folder.path / EXTRAS_FILE).is_file():
        config = FlexConfig(replace(shape, time_modulated=True), **RELEASE)  # type: ignore[arg-type]
        return [Published(FLEX_RELEASE, "flexmdm", config, RELEASE_LENGTH, RELEASE_LENGTH)]
    return [Published("qwen2", "mdm", ShiftedConfig(shape), _length(folder))]


def _llada(folder: Folder) -> list[Published]:
    folder.must_be(
        {
            "activation_type": ("silu",),
            "block_type": ("llama",),
            "layer_norm_type": ("rms",),
            "rope": (True,),
            "alibi": (False, None),
            "attention_layer_norm": (False, None),
            "bias_for_layer_norm": (False, None),
            "layer_norm_with_affine": (True, None),
            "include_bias": (False, None),
            "input_emb_norm": (False, None),
            "scale_logits": (False, None),
            "clip_qkv": (None,),
            "multi_query_attention": (False, None),
            "rope_scaling": (None,),
            "quantization_config": (None,),
        }
    )
    width, heads = folder.need("d_model"), folder.need("n_heads")
    inner = folder.get("mlp_hidden_size", folder.get("mlp_ratio", 4) * width)
    shape = TransformerConfig(
        vocab_size=folder.get("embedding_size", folder.need("vocab_size")),
        width=width,
        layers=folder.need("n_layers"),
        heads=heads,
        kv_heads=folder.get("n_kv_heads", heads),
        head_width=width // heads,
        mlp_width=inner,
        rope_theta=float(folder.get("rope_theta", 10000.0)),
        norm_eps=float(folder.get("rms_norm_eps", 1e-5)),
        qkv_bias=bool(folder.get("include_qkv_bias", False)),
        tied=bool(folder.get("weight_tying", False)),
    )
    length = _length(folder, "max_sequence_length")
    if any(name.startswith(f"{PLANNER_BLOCK}.") for name in folder.names):
        return [Published("dultra", "mdm", PlannedConfig(shape, inner), length)]
    return [Published("llada", "mdm", shape, length)]


READERS: dict[str, Callable[[Folder], list[Published]]] = {
    "dream": _dream,
    "llada": _llada,
    "lladou": _llada,
    "qwen2": _qwen2,
    "llama": _llama,
}
"""By model_type in small letters -> what it can be, the default first."""
