"""A published checkpoint's config.json -> the shape of our network, its family and its layout.

    Dream, DiffuCoder, Dream-Coder   model_type Dream: Qwen2's shape, bidirectional, shifted states
    LLaDA                            model_type llada: Llama's shape, bidirectional, not shifted
    Qwen2, Llama                     left to right; as mdm they begin shifted

What a family adds to one of these (FlexMDM's release, dUltra's planner) its published.py knows: it
registers a variant, which is asked first. Settings that our backbone does not compute (rope
scaling, sliding windows, other activations) are refused by name.

Not here: the way back and the names of tensors (layouts.py), tokenizers (vocab.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anyorder.nets.shapes import ShiftedConfig, TransformerConfig

NEW_TOKENS = 256
"""Free slots of a canvas unless told otherwise: published models do not say."""


@dataclass(frozen=True)
class Published:
    """What a checkpoint is, before a tensor is read."""

    layout: str
    """Of its tensor names: see layouts.py."""
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


Variant = Callable[[TransformerConfig, Folder], Published | None]
"""(backbone, folder) -> what the folder holds beyond the backbone; None: nothing that is known."""
VARIANTS: dict[str, list[Variant]] = {"dream": [], "llada": []}


def register_variant(kind: str, read: Variant) -> None:
    """Add what checkpoints with this kind of backbone may hold besides."""
    VARIANTS[kind].append(read)


def _variant(kind: str, shape: TransformerConfig, folder: Folder) -> Published | None:
    return next((found for read in VARIANTS[kind] if (found := read(shape, folder))), None)


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


def length_of(folder: Folder, key: str = "max_position_embeddings") -> int | None:
    """The longest sequence that config.json names."""
    length = folder.get(key)
    if length is not None and (type(length) is not int or length < 1):
        raise folder.wrong(f"{key} is {length!r}, which is no length")
    return length


def _causal(layout: str, shape: TransformerConfig, folder: Folder) -> list[Published]:
    bidirectional = replace(shape, causal=False)
    return [
        Published(layout, "ar", replace(shape, causal=True), length_of(folder)),
        Published(layout, "mdm", ShiftedConfig(bidirectional), length_of(folder)),
    ]


def _qwen2(folder: Folder) -> list[Published]:
    return _causal("qwen2", _qwen_shape(folder, qkv_bias=True), folder)


def _llama(folder: Folder) -> list[Published]:
    biased = bool(folder.get("attention_bias", False))
    return _causal("llama", _qwen_shape(folder, qkv_bias=biased, o_bias=biased), folder)


def _dream(folder: Folder) -> list[Published]:
    shape = _qwen_shape(folder, qkv_bias=True)
    found = _variant("dream", shape, folder)
    if found is not None:
        return [found]
    return [Published("qwen2", "mdm", ShiftedConfig(shape), length_of(folder))]


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
    length = length_of(folder, "max_sequence_length")
    found = _variant("llada", shape, folder)
    return [found or Published("llada", "mdm", shape, length)]


READERS: dict[str, Callable[[Folder], list[Published]]] = {
    "dream": _dream,
    "llada": _llada,
    "lladou": _llada,
    "qwen2": _qwen2,
    "llama": _llama,
}
"""By model_type in small letters -> what it can be, the default first."""
