"""The formats of published checkpoints: config.json and tensor names, in both directions.

Reading (`read_published`): config.json -> the shape of our network, its family and its layout.

    Dream, DiffuCoder, Dream-Coder   model_type Dream: Qwen2's shape, bidirectional, shifted states
    LLaDA                            model_type llada: Llama's shape, bidirectional, not shifted
    Qwen2, Qwen3, Llama              left to right; as mdm they begin shifted

Settings that our backbone does not compute (rope scaling, sliding windows, other activations) are
refused by name.

Layouts: how a network is stored, its tensor names and its config.json.

    qwen2, llama   Qwen2, Dream, DiffuCoder, Dream-Coder; Llama: `model.layers.N.self_attn. ...`
    qwen3          the same, with norms of queries and keys
    llada          `model.transformer.blocks.N. ...`; the head's leaf name, ff_out, is also that of
                   every block's last map

`layout_of` finds a layout whose config.json can describe a network completely; a network that no
layout can describe stays in our own format.

A family that adds to one of these (FlexMDM's release, dUltra's planner) registers a variant, which
is tried first, and a layout, in its published.py; one with a model_type of its own (SDAR,
Fast-dLLM v2) a reader.

Not here: tensors (weights.py), files (files.py), tokenizers (vocab.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anyorder.nets.shapes import ShiftedConfig, TransformerConfig, ends_of
from anyorder.vocab import Vocab

NEW_TOKENS = 256
"""The default number of free slots of a canvas: published models name none."""


@dataclass(frozen=True)
class Published:
    """A checkpoint's network, before a tensor is read."""

    layout: str
    """The name of a `Layout`."""
    family: str
    config: Any
    """The network's configuration."""
    max_length: int | None
    max_new_tokens: int = NEW_TOKENS


@dataclass(frozen=True)
class Folder:
    """The content of a folder that decides its format."""

    path: Path
    record: Mapping[str, Any]
    """config.json."""
    names: Collection[str]
    """Names of the stored tensors."""

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
        for key, values in allowed.items():  # a missing key counts as the first value
            if self.record.get(key, values[0]) not in values:
                known = " or ".join(map(repr, values))
                raise self.wrong(f"{key} is {self.record[key]!r}, and only {known} is computed")


def read_published(folder: Folder, family: str | None = None) -> Published:
    """The network of a folder; `family` chooses where several families can load it."""
    kind = str(folder.get("model_type", "")).lower()
    if kind not in READERS:
        listed = folder.get("architectures", [])
        named = " ".join(map(str, listed if isinstance(listed, list) else [listed]))
        raise folder.wrong(
            f"model_type {folder.get('model_type')!r} ({named or 'no architectures'}) is none of "
            f"{', '.join(READERS)}. Decode it with its own library and record that "
            "(docs/recording.md)"
        )
    try:
        choices = READERS[kind](folder)
    except (TypeError, AttributeError, ZeroDivisionError) as error:
        raise folder.wrong(f"a setting is of the wrong kind ({error})") from None
    except ValueError as error:
        # `Folder.wrong` names the file already; a refused TransformerConfig does not.
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
"""(backbone, folder) -> the network that the folder holds; None: not this variant."""
VARIANTS: dict[str, list[Variant]] = {"dream": [], "llada": []}


def register_variant(kind: str, read: Variant) -> None:
    """Add a reader for checkpoints with this kind of backbone and more."""
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


def qwen_shape(folder: Folder, **given: Any) -> TransformerConfig:
    """The shape, by the entries that Qwen2, Qwen3, Dream and Llama share."""
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
        raise folder.wrong(f"{key} is {length!r}, which is not a length")
    return length


def _causal(layout: str, shape: TransformerConfig, folder: Folder) -> list[Published]:
    bidirectional = replace(shape, causal=False)
    return [
        Published(layout, "ar", replace(shape, causal=True), length_of(folder)),
        Published(layout, "mdm", ShiftedConfig(bidirectional), length_of(folder)),
    ]


def _qwen2(folder: Folder) -> list[Published]:
    return _causal("qwen2", qwen_shape(folder, qkv_bias=True), folder)


def qwen3_shape(folder: Folder) -> TransformerConfig:
    """Qwen3's shape: norms of queries and keys, heads of 128 numbers unless config.json differs."""
    biased = bool(folder.get("attention_bias", False))
    width = folder.get("head_dim", 128)
    return qwen_shape(folder, qkv_bias=biased, o_bias=biased, qk_norm=True, head_width=width)


def _qwen3(folder: Folder) -> list[Published]:
    return _causal("qwen3", qwen3_shape(folder), folder)


def _llama(folder: Folder) -> list[Published]:
    biased = bool(folder.get("attention_bias", False))
    return _causal("llama", qwen_shape(folder, qkv_bias=biased, o_bias=biased), folder)


def _dream(folder: Folder) -> list[Published]:
    shape = qwen_shape(folder, qkv_bias=True)
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
    "qwen3": _qwen3,
    "llama": _llama,
}
"""model_type in lower case -> what the folder can be loaded as, the default first."""


def register_reader(kind: str, read: Callable[[Folder], Published]) -> None:
    """Add a reader for a model_type (in lower case) that one family loads."""
    READERS[kind] = lambda folder: [read(folder)]


TensorNames = dict[str, str]
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
_QKV = ("attention.query", "attention.key", "attention.value")
_QK_NORMS = {"attention.query_norm": "self_attn.q_norm", "attention.key_norm": "self_attn.k_norm"}


@dataclass(frozen=True)
class Layout:
    """One way to store a network."""

    name: str
    title: str
    """In words, for model cards."""
    names: Callable[[Any], TensorNames]
    """Network's shape -> all its tensors, in the order of our parameters' kinds."""
    head: str
    """Their name of the vocabulary head, which a tied checkpoint may store as well."""
    fits: Callable[[Any], bool]
    """Whether config.json can describe a network of this shape completely."""
    kind: Callable[[Any], tuple[str, str]]
    """Network's shape -> model_type and architecture."""
    record: Callable[[TransformerConfig, int | None], dict[str, Any]]
    """(backbone, longest sequence) -> the rest of config.json."""
    more: Callable[[Any], dict[str, Any]] = lambda config: {}
    """Network's shape -> what config.json says of the network besides its backbone."""
    apart: Callable[[Any], TensorNames] = lambda config: {}
    """Network's shape -> the tensors that are stored in a separate file."""
    apart_file: str = ""


LAYOUTS: dict[str, Layout] = {}


def register_layout(layout: Layout) -> None:
    """Add a layout: models in it can be loaded and exported."""
    LAYOUTS[layout.name] = layout


def find_layout(name: str) -> Layout:
    """The layout of that name."""
    if name not in LAYOUTS:
        raise ValueError(f"unknown layout {name!r}: choose one of {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


def layout_of(config: Any) -> str | None:
    """The layout that can hold this network; None: only our own format can."""
    return next((name for name in LAYOUTS if can_hold(name, config)), None)


def can_hold(layout: str, config: Any) -> bool:
    """Whether a layout describes this network completely; none knows prompts by sentence."""
    return not ends_of(config) and find_layout(layout).fits(config)


def config_json(layout: str, config: Any, vocab: Vocab, max_length: int | None) -> dict[str, Any]:
    """The config.json of a network in a layout that it fits."""
    shape: TransformerConfig = getattr(config, "backbone", config)
    found = find_layout(layout)
    kind, architecture = found.kind(config)
    ids = {
        "mask_token_id": vocab.mask_id,
        "eos_token_id": vocab.eos_id,
        "pad_token_id": vocab.pad_id,
        "bos_token_id": vocab.bos_id,
    }
    if type(config) is TransformerConfig and config.causal:
        del ids["mask_token_id"]  # such models have none; ours is in vocabulary.json
    record = {"architectures": [architecture], "model_type": kind}
    return record | found.record(shape, max_length) | found.more(config) | ids


def backbone_names(style: str, config: Any) -> TensorNames:
    """The tensors of a network's backbone."""
    plain = isinstance(config, TransformerConfig)
    shape: TransformerConfig = config if plain else config.backbone
    prefix = "" if plain else "backbone."
    around = _AROUND[style]
    found = {f"{prefix}embed.weight": f"{around['embed']}.weight"}
    for layer in range(shape.layers):
        ours, theirs = f"{prefix}blocks.{layer}", f"{around['blocks']}.{layer}"
        found |= layer_names(style, shape, ours, theirs)
    found[f"{prefix}norm.weight"] = f"{around['norm']}.weight"
    if not shape.tied:
        found[f"{prefix}unembed.weight"] = head_name(style)
    return found


def head_name(style: str) -> str:
    """Their name of the vocabulary head."""
    return f"{_AROUND[style]['unembed']}.weight"


def layer_names(style: str, shape: TransformerConfig, ours: str, theirs: str) -> TensorNames:
    """The tensors of one layer."""
    found = {}
    for mine, name in (_BLOCKS[style] | (_QK_NORMS if shape.qk_norm else {})).items():
        found[f"{ours}.{mine}.weight"] = f"{theirs}.{name}.weight"
        if (shape.qkv_bias and mine in _QKV) or (shape.o_bias and mine == "attention.out"):
            found[f"{ours}.{mine}.bias"] = f"{theirs}.{name}.bias"
    return found


def with_biases(names: TensorNames) -> TensorNames:
    """Weight and bias of each."""
    return {f"{a}.{leaf}": f"{b}.{leaf}" for a, b in names.items() for leaf in ("weight", "bias")}


def tokenizer_config(vocab: Vocab) -> dict[str, Any]:
    """The tokenizer_config.json that other libraries need beside tokenizer.json."""
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


def qwen_record(shape: TransformerConfig, max_length: int | None) -> dict[str, Any]:
    """The entries that Qwen2, Qwen3, Dream and Llama share."""
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
    record = qwen_record(shape, max_length)
    del record["use_sliding_window"]
    return record | {
        "attention_bias": shape.qkv_bias,
        "head_dim": shape.head_width,
        "mlp_bias": False,
    }


def qwen3_record(shape: TransformerConfig, max_length: int | None) -> dict[str, Any]:
    """Qwen3's entries."""
    heads = {"attention_bias": shape.qkv_bias, "head_dim": shape.head_width}
    return qwen_record(shape, max_length) | heads


def llada_record(shape: TransformerConfig, max_length: int | None) -> dict[str, Any]:
    """LLaDA's entries."""
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


def _plain_heads(shape: TransformerConfig) -> bool:
    return shape.head_width * shape.heads == shape.width and not shape.qk_norm


def fits_qwen(shape: TransformerConfig) -> bool:
    """Whether a backbone has the biases and heads of Qwen2."""
    return shape.qkv_bias and not shape.o_bias and _plain_heads(shape)


def fits_qwen3(shape: TransformerConfig) -> bool:
    """Whether a backbone has the norms of Qwen3's queries and keys, and biases that it can have."""
    return shape.qk_norm and shape.qkv_bias == shape.o_bias and not shape.time_modulated


def fits_llada(shape: TransformerConfig) -> bool:
    """Whether a backbone has the biases and heads of LLaDA, and no time."""
    return not shape.o_bias and _plain_heads(shape) and not shape.time_modulated


def _is_qwen(config: Any) -> bool:
    if isinstance(config, ShiftedConfig):
        return fits_qwen(config.backbone)
    return isinstance(config, TransformerConfig) and config.causal and fits_qwen(config)


register_layout(
    Layout(
        name="qwen2",
        title=("Qwen2's names, as in Dream, DiffuCoder and Dream-Coder where it is a masked model"),
        names=lambda config: backbone_names("qwen2", config),
        head=head_name("qwen2"),
        fits=_is_qwen,
        kind=lambda config: (
            ("Dream", "DreamModel")
            if isinstance(config, ShiftedConfig)
            else ("qwen2", "Qwen2ForCausalLM")
        ),
        record=qwen_record,
    )
)
register_layout(
    Layout(
        name="qwen3",
        title="Qwen3's names",
        names=lambda config: backbone_names("qwen2", config),
        head=head_name("qwen2"),
        fits=lambda config: (
            isinstance(config, TransformerConfig) and config.causal and fits_qwen3(config)
        ),
        kind=lambda config: ("qwen3", "Qwen3ForCausalLM"),
        record=qwen3_record,
    )
)
register_layout(
    Layout(
        name="llama",
        title="Llama's names",
        names=lambda config: backbone_names("qwen2", config),
        head=head_name("qwen2"),
        fits=lambda config: (
            isinstance(config, TransformerConfig)
            and config.causal
            and config.qkv_bias == config.o_bias
            and not config.qk_norm
        ),
        kind=lambda config: ("llama", "LlamaForCausalLM"),
        record=_llama_record,
    )
)
register_layout(
    Layout(
        name="llada",
        title="LLaDA's names",
        names=lambda config: backbone_names("llada", config),
        head=head_name("llada"),
        fits=lambda config: (
            isinstance(config, TransformerConfig) and not config.causal and fits_llada(config)
        ),
        kind=lambda config: ("llada", "LLaDAModelLM"),
        record=llada_record,
    )
)
