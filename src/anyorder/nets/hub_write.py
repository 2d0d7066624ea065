"""The way back: our network's configuration and vocabulary as a published checkpoint spells them.

`layout_of` finds the layout whose config.json can say everything that a network is; a network that
no layout can describe stays in our own format. Under the key `anyorder` the config.json also keeps
what its owners have no word for: family, lengths, and the recipe that trained it.

Not here: reading (hub_config.py), tensors (hub.py), the folder as a whole (apps/exporting.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyorder.nets.hub_config import RELEASE
from anyorder.nets.shapes import FlexConfig, PlannedConfig, ShiftedConfig, TransformerConfig
from anyorder.vocab import Vocab

OUR_KEY = "anyorder"
PLANNER_FEATURES = 256
"""dUltra's format says nothing of the planner's features: it has these."""


def layout_of(config: Any) -> str | None:
    """The layout that can hold this network; None: only our own format can."""
    return next((name for name, fits in FITS.items() if fits(config)), None)


def config_json(layout: str, config: Any, vocab: Vocab, max_length: int | None) -> dict[str, Any]:
    """The config.json of a network in a layout that it fits."""
    shape: TransformerConfig = getattr(config, "backbone", config)
    kind, architecture, write = WRITERS[layout, type(config)]
    ids = {
        "mask_token_id": vocab.mask_id,
        "eos_token_id": vocab.eos_id,
        "pad_token_id": vocab.pad_id,
        "bos_token_id": vocab.bos_id,
    }
    if type(config) is TransformerConfig and config.causal:
        del ids["mask_token_id"]  # such models have none; ours stands in vocabulary.json
    record = {"architectures": [architecture], "model_type": kind}
    return record | write(shape, max_length) | ids


def tokenizer_config(vocab: Vocab) -> dict[str, Any]:
    """What other libraries ask beside tokenizer.json."""
    roles = {"eos": vocab.eos_id, "pad": vocab.pad_id, "bos": vocab.bos_id, "mask": vocab.mask_id}
    named = {role: vocab.token(id) for role, id in roles.items() if id is not None}
    flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {
            str(id): {"content": name, "special": True, **flags}
            for id, name in sorted(vocab.special_names.items())
        },
        **{f"{role}_token": name for role, name in named.items()},
    }


def _qwen_record(shape: TransformerConfig, max_length: int | None) -> dict[str, Any]:
    return {
        "hidden_act": "silu",
        "hidden_size": shape.width,
        "intermediate_size": shape.mlp_width,
        "max_position_embeddings": max_length or 2048,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": shape.norm_eps,
        "rope_scaling": None,
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": shape.tied,
        "use_sliding_window": False,
        "attention_dropout": 0.0,
        "vocab_size": shape.vocab_size,
    }


def _llama_record(shape: TransformerConfig, max_length: int | None) -> dict[str, Any]:
    record = _qwen_record(shape, max_length)
    del record["use_sliding_window"]
    return record | {
        "attention_bias": shape.qkv_bias,
        "head_dim": shape.head_width,
        "mlp_bias": False,
    }


def _llada_record(shape: TransformerConfig, max_length: int | None) -> dict[str, Any]:
    return {
        "activation_type": "silu",
        "alibi": False,
        "attention_layer_norm": False,
        "block_group_size": 1,
        "block_type": "llama",
        "d_model": shape.width,
        "embedding_size": shape.vocab_size,
        "include_bias": False,
        "include_qkv_bias": shape.qkv_bias,
        "input_emb_norm": False,
        "layer_norm_type": "rms",
        "layer_norm_with_affine": True,
        "max_sequence_length": max_length or 4096,
        "mlp_hidden_size": shape.mlp_width,
        "n_heads": shape.heads,
        "n_kv_heads": shape.kv_heads,
        "n_layers": shape.layers,
        "rms_norm_eps": shape.norm_eps,
        "rope": True,
        "rope_full_precision": True,
        "rope_theta": shape.rope_theta,
        "scale_logits": False,
        "vocab_size": shape.vocab_size,
        "weight_tying": shape.tied,
    }


WRITERS: dict[tuple[str, type], tuple[str, str, Callable[..., dict[str, Any]]]] = {
    ("qwen2", TransformerConfig): ("qwen2", "Qwen2ForCausalLM", _qwen_record),
    ("qwen2", ShiftedConfig): ("Dream", "DreamModel", _qwen_record),
    ("llama", TransformerConfig): ("llama", "LlamaForCausalLM", _llama_record),
    ("llada", TransformerConfig): ("llada", "LLaDAModelLM", _llada_record),
    ("flexmdm", FlexConfig): ("Dream", "DreamModel", _qwen_record),
    ("dultra", PlannedConfig): ("llada", "LLaDAModelLM", _llada_record),
}
"""(layout, network) -> model_type, architecture, and the rest of config.json."""


def _plain_heads(shape: TransformerConfig) -> bool:
    return shape.head_width * shape.heads == shape.width


def _qwen_biases(shape: TransformerConfig) -> bool:
    return shape.qkv_bias and not shape.o_bias and _plain_heads(shape)


def _is_release(config: FlexConfig) -> bool:
    told = all(getattr(config, name) == value for name, value in RELEASE.items())
    return told and _qwen_biases(config.backbone)


def _fits_llada(shape: TransformerConfig) -> bool:
    return not shape.o_bias and _plain_heads(shape) and not shape.time_modulated


FITS: dict[str, Callable[[Any], bool]] = {
    "qwen2": lambda config: (
        (isinstance(config, TransformerConfig) and config.causal and _qwen_biases(config))
        or (isinstance(config, ShiftedConfig) and _qwen_biases(config.backbone))
    ),
    "llama": lambda config: (
        isinstance(config, TransformerConfig) and config.causal and config.qkv_bias == config.o_bias
    ),
    "llada": lambda config: (
        isinstance(config, TransformerConfig) and not config.causal and _fits_llada(config)
    ),
    "flexmdm": lambda config: isinstance(config, FlexConfig) and _is_release(config),
    "dultra": lambda config: (
        isinstance(config, PlannedConfig)
        and _fits_llada(config.backbone)
        and config.planner_mlp_width == config.backbone.mlp_width
        and config.planner_features == PLANNER_FEATURES
    ),
}
