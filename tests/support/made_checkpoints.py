"""Small random checkpoints in published formats, written from their descriptions.

Tensor names are spelled out here as the formats have them, so that a test of our name tables does
not read them. A tokenizer of 260 pieces of text and five special tokens lies beside each.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from anyorder.vocab.codecs import BYTE_OF, QWEN2_SPLIT

MERGES = [("a", "b"), ("c", "d"), ("e", "f"), ("ab", "cd")]
END, START, CLOSE, BEGIN, MASK = 260, 261, 262, 263, 264
ADDED = {
    "<|endoftext|>": END,
    "<|im_start|>": START,
    "<|im_end|>": CLOSE,
    "<|beginoftext|>": BEGIN,
    "<|mask|>": MASK,
}
ROWS = 272
WIDTH, LAYERS, HEADS, KV_HEADS, INNER = 32, 2, 4, 2, 48
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
ROLES = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "bos_token": "<|beginoftext|>"}


def pieces() -> dict[str, int]:
    table = {character: id for id, character in enumerate(sorted(BYTE_OF))}
    return table | {a + b: 256 + id for id, (a, b) in enumerate(MERGES)}


def write_tokenizer(folder: Path, *, merges: bool = False, **settings: Any) -> None:
    """tokenizer.json, or with `merges` the two files of Qwen2's slow tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    added = [{"id": id, "content": name, "special": True, **FLAGS} for name, id in ADDED.items()]
    config: dict[str, Any] = {**ROLES, **settings}
    if merges:
        (folder / "vocab.json").write_text(json.dumps(pieces()))
        lines = ["#version: 0.2", *(f"{a} {b}" for a, b in MERGES)]
        (folder / "merges.txt").write_text("\n".join(lines) + "\n")
        decoder = {str(each["id"]): {k: v for k, v in each.items() if k != "id"} for each in added}
        config = {"tokenizer_class": "DreamTokenizer", "added_tokens_decoder": decoder} | config
    else:
        split = {"type": "Split", "pattern": {"Regex": QWEN2_SPLIT}, "behavior": "Isolated"}
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
        level["use_regex"] = False
        spec = {
            "version": "1.0",
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{**split, "invert": False}, level],
            },
            "decoder": level,
            "model": {"type": "BPE", "vocab": pieces(), "merges": [list(m) for m in MERGES]},
        }
        (folder / "tokenizer.json").write_text(json.dumps(spec))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_dream_tokenizer(folder: Path, data_file: Callable[[str], Path], *, merges: bool) -> None:
    """Dream's tokenizer: Qwen2's files, and two more tokens in tokenizer_config.json."""
    settings = json.loads(data_file("tokenizer/qwen2.5_tokenizer_config.json").read_text())
    flags = settings["added_tokens_decoder"]["151643"]
    for id, name in ((151665, "<|beginoftext|>"), (151666, "<|mask|>")):
        settings["added_tokens_decoder"][str(id)] = {**flags, "content": name}
    settings |= {"bos_token": "<|beginoftext|>", "eos_token": "<|endoftext|>"}
    settings |= {"mask_token": "<|mask|>", "tokenizer_class": "DreamTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    names = {"vocab.json": "vocab.json.gz", "merges.txt": "merges.txt.gz"}
    if not merges:
        names = {"tokenizer.json": "qwen2.5_tokenizer.json.gz"}
    for name, source in names.items():
        data = gzip.decompress(data_file(f"tokenizer/{source}").read_bytes())
        (folder / name).write_bytes(data)


def drawn(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Tensor]:
    """Weights of a size at which every part of a network matters."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, shape in shapes.items():
        value = torch.randn(shape, generator=generator) * 0.3
        found[name] = value + 1 if len(shape) == 1 and name.endswith("norm.weight") else value
    return found


def qwen_shapes(
    layers: int = LAYERS, rows: int = ROWS, width: int = WIDTH
) -> dict[str, tuple[int, ...]]:
    inner = width // HEADS * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (rows, width)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        shapes[f"{at}.self_attn.q_proj.weight"] = (width, width)
        shapes[f"{at}.self_attn.q_proj.bias"] = (width,)
        for name in ("k_proj", "v_proj"):
            shapes[f"{at}.self_attn.{name}.weight"] = (inner, width)
            shapes[f"{at}.self_attn.{name}.bias"] = (inner,)
        shapes[f"{at}.self_attn.o_proj.weight"] = (width, width)
        shapes[f"{at}.mlp.gate_proj.weight"] = shapes[f"{at}.mlp.up_proj.weight"] = (INNER, width)
        shapes[f"{at}.mlp.down_proj.weight"] = (width, INNER)
        shapes[f"{at}.input_layernorm.weight"] = (width,)
        shapes[f"{at}.post_attention_layernorm.weight"] = (width,)
    return shapes | {"model.norm.weight": (width,), "lm_head.weight": (rows, width)}


def sdar_shapes(
    layers: int = LAYERS, rows: int = ROWS, width: int = WIDTH, head: int = 2 * WIDTH // HEADS
) -> dict[str, tuple[int, ...]]:
    """Qwen3's tensors: no biases, a width of its own for heads, norms of queries and keys."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (rows, width)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        shapes[f"{at}.self_attn.q_proj.weight"] = (HEADS * head, width)
        shapes[f"{at}.self_attn.k_proj.weight"] = (KV_HEADS * head, width)
        shapes[f"{at}.self_attn.v_proj.weight"] = (KV_HEADS * head, width)
        shapes[f"{at}.self_attn.o_proj.weight"] = (width, HEADS * head)
        shapes[f"{at}.self_attn.q_norm.weight"] = shapes[f"{at}.self_attn.k_norm.weight"] = (head,)
        shapes[f"{at}.mlp.gate_proj.weight"] = shapes[f"{at}.mlp.up_proj.weight"] = (INNER, width)
        shapes[f"{at}.mlp.down_proj.weight"] = (width, INNER)
        shapes[f"{at}.input_layernorm.weight"] = (width,)
        shapes[f"{at}.post_attention_layernorm.weight"] = (width,)
    return shapes | {"model.norm.weight": (width,), "lm_head.weight": (rows, width)}


def sdar_config(**changes: Any) -> dict[str, Any]:
    own = {
        "architectures": ["SDARForCausalLM"],
        "model_type": "sdar",
        "attention_bias": False,
        "attn_implementation": "flex_attention",
        "auto_map": {"AutoModel": "modeling_sdar.SDARModel"},
        "block_size": 4,
        "fuse_cross_entropy": True,
        "head_dim": 2 * WIDTH // HEADS,
        "sliding_window": None,
        "max_window_layers": LAYERS,
    }
    return dream_config(**own | changes)


def sdar(folder: Path, **changes: Any) -> dict[str, Tensor]:
    """An SDAR folder; its tensors."""
    tensors = drawn(sdar_shapes(), 11)
    write_folder(folder, sdar_config(**changes), tensors)
    write_tokenizer(folder)
    return tensors


def fast_dllm(folder: Path, **changes: Any) -> dict[str, Tensor]:
    """A folder of Fast-dLLM v2; its tensors."""
    tensors = drawn(qwen_shapes(), 12)
    own = {"architectures": ["Fast_dLLM_QwenForCausalLM"], "model_type": "Fast_dLLM_Qwen"}
    own_grid: dict[str, Any] = {"bd_size": 4, "auto_map": {"AutoModel": "modeling.Fast_dLLM_Qwen"}}
    write_folder(folder, dream_config(**own | own_grid | changes), tensors)
    write_tokenizer(folder)
    return tensors


def dream_config(**changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["DreamModel"],
        "model_type": "Dream",
        "auto_map": {"AutoModel": "modeling_dream.DreamModel"},
        "hidden_act": "silu",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": LAYERS,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "vocab_size": ROWS,
        "bos_token_id": END,
        "eos_token_id": END,
        "pad_token_id": END,
        "mask_token_id": MASK,
    } | changes


def write_folder(
    folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], *, shards: int = 1
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return
    names, table = list(tensors), {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = names[number::shards]
        save_file({name: tensors[name] for name in part}, folder / file)
        table |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": table}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def dream(folder: Path, *, shards: int = 1, seed: int = 0, **changes: Any) -> dict[str, Tensor]:
    """A Dream folder; its tensors."""
    tensors = drawn(qwen_shapes(), seed)
    write_folder(folder, dream_config(**changes), tensors, shards=shards)
    write_tokenizer(folder, merges=True)
    return tensors


def extra_shapes(layers: int = LAYERS) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "insertion_head.norm.weight": (WIDTH,),
        "insertion_head.norm.bias": (WIDTH,),
        "insertion_head.proj1.weight": (WIDTH, WIDTH),
        "insertion_head.proj1.bias": (WIDTH,),
        "insertion_head.proj2.weight": (1, WIDTH),
        "insertion_head.proj2.bias": (1,),
        "time_mlp.0.weight": (4 * WIDTH, WIDTH),
        "time_mlp.0.bias": (4 * WIDTH,),
        "time_mlp.2.weight": (WIDTH, 4 * WIDTH),
        "time_mlp.2.bias": (WIDTH,),
    }
    for layer in range(layers):
        shapes[f"temb_mods.{layer}.weight"] = (2 * WIDTH, WIDTH)
        shapes[f"temb_mods.{layer}.bias"] = (2 * WIDTH,)
    return shapes


def flexmdm(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A folder like FlexMDM's release; its backbone and its extras."""
    tensors = dream(folder, shards=2)
    extras = drawn(extra_shapes(), 7)
    torch.save(extras, folder / "flexmdm_extras.pt")
    return tensors, extras


def llada_block(at: str) -> dict[str, tuple[int, ...]]:
    return {
        f"{at}.attn_norm.weight": (WIDTH,),
        f"{at}.ff_norm.weight": (WIDTH,),
        f"{at}.q_proj.weight": (WIDTH, WIDTH),
        f"{at}.k_proj.weight": (WIDTH, WIDTH),
        f"{at}.v_proj.weight": (WIDTH, WIDTH),
        f"{at}.attn_out.weight": (WIDTH, WIDTH),
        f"{at}.ff_proj.weight": (INNER, WIDTH),
        f"{at}.up_proj.weight": (INNER, WIDTH),
        f"{at}.ff_out.weight": (WIDTH, INNER),
    }


def llada_config(**changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["LLaDAModelLM"],
        "model_type": "llada",
        "activation_type": "silu",
        "alibi": False,
        "block_group_size": 1,
        "block_type": "llama",
        "d_model": WIDTH,
        "embedding_size": ROWS,
        "include_bias": False,
        "include_qkv_bias": False,
        "input_emb_norm": False,
        "layer_norm_type": "rms",
        "max_sequence_length": 128,
        "mlp_hidden_size": INNER,
        "n_heads": HEADS,
        "n_kv_heads": HEADS,
        "n_layers": LAYERS,
        "rms_norm_eps": 1e-5,
        "rope": True,
        "rope_theta": 500000.0,
        "scale_logits": False,
        "vocab_size": ROWS,
        "weight_tying": False,
        "eos_token_id": END,
        "pad_token_id": END,
        "mask_token_id": MASK,
    } | changes


def llada(folder: Path, *, seed: int = 1, **changes: Any) -> dict[str, Tensor]:
    """A LLaDA folder; its tensors."""
    shapes: dict[str, tuple[int, ...]] = {"model.transformer.wte.weight": (ROWS, WIDTH)}
    for layer in range(LAYERS):
        shapes |= llada_block(f"model.transformer.blocks.{layer}")
    shapes["model.transformer.ln_f.weight"] = (WIDTH,)
    shapes["model.transformer.ff_out.weight"] = (ROWS, WIDTH)
    tensors = drawn(shapes, seed)
    write_folder(folder, llada_config(**changes), tensors)
    write_tokenizer(folder)
    return tensors


def planner_shapes() -> dict[str, tuple[int, ...]]:
    shapes = llada_block("mask_head.0") | {
        "time_embedding.mlp.0.weight": (WIDTH, 256),
        "time_embedding.mlp.0.bias": (WIDTH,),
        "time_embedding.mlp.2.weight": (WIDTH, WIDTH),
        "time_embedding.mlp.2.bias": (WIDTH,),
        "mask_linear.weight": (1, WIDTH),
        "mask_linear.bias": (1,),
        "mask_embedding.weight": (2, WIDTH),
    }
    for number in (1, 2):
        shapes[f"norm_out_{number}.modulation.weight"] = (2 * WIDTH, WIDTH)
        shapes[f"norm_out_{number}.modulation.bias"] = (2 * WIDTH,)
    return shapes


def dultra(folder: Path) -> dict[str, Tensor]:
    """A dUltra folder; its tensors."""
    tensors = llada(folder) | drawn(planner_shapes(), 5)
    write_folder(folder, llada_config(), tensors)
    return tensors


def qwen2(folder: Path, *, tied: bool = False, **changes: Any) -> Any:
    """A Qwen2 folder that `transformers` wrote; its model."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return _saved(Qwen2ForCausalLM(Qwen2Config(**_qwen(tied) | changes)), folder)


def qwen3(folder: Path, *, tied: bool = False, **changes: Any) -> Any:
    """A Qwen3 folder that `transformers` wrote, with heads wider than usual; its model."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shape = _qwen(tied) | {"head_dim": 2 * WIDTH // HEADS} | changes
    return _saved(Qwen3ForCausalLM(Qwen3Config(**shape)), folder)


def _qwen(tied: bool) -> dict[str, Any]:
    return {
        "vocab_size": ROWS,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": 128,
        "tie_word_embeddings": tied,
        "eos_token_id": END,
        "bos_token_id": END,
        "pad_token_id": END,
    }


def llama(folder: Path, **changes: Any) -> Any:
    """A Llama folder that `transformers` wrote; its model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {
        "vocab_size": ROWS,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "eos_token_id": [END, CLOSE],
        "bos_token_id": BEGIN,
    }
    return _saved(LlamaForCausalLM(LlamaConfig(**shape | changes)), folder)


def _saved(model: Any, folder: Path) -> Any:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = torch.randn(parameter.shape, generator=generator) * 0.3
            parameter.copy_(value + 1 if name.endswith("norm.weight") else value)
    model.eval().save_pretrained(folder)
    write_tokenizer(folder)
    return model


FORMATS: dict[str, Any] = {
    "dream": dream,
    "flexmdm": flexmdm,
    "llada": llada,
    "dultra": dultra,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "llama": llama,
    "sdar": sdar,
    "fast_dllm": fast_dllm,
}
BY_TRANSFORMERS = ("qwen2", "qwen3", "llama")
"""Formats that `transformers` writes."""
