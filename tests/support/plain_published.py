"""Published networks written down plainly from their descriptions: one row, one head at a time.

Dream and FlexMDM: Qwen2's layers, bidirectional, predictions one place to the left, AdaLN of raw
time. LLaDA: Llama's layers, bidirectional, no shift. dUltra: a planner head on LLaDA.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Shape:
    heads: int
    kv_heads: int
    theta: float
    eps: float


@dataclass(frozen=True)
class Layer:
    """The maps of one layer by their part."""

    norm1: Tensor
    norm2: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor
    biases: tuple[Tensor | None, Tensor | None, Tensor | None] = (None, None, None)


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight


def turned(x: Tensor, theta: float) -> Tensor:
    """Rotary positions of one head: L W."""
    length, width = x.shape
    half = width // 2
    out = torch.empty_like(x)
    for p in range(length):
        for j in range(half):
            angle = p * theta ** (-2 * j / width)
            c, s = math.cos(angle), math.sin(angle)
            out[p, j] = x[p, j] * c - x[p, j + half] * s
            out[p, j + half] = x[p, j + half] * c + x[p, j] * s
    return out


def block(
    x: Tensor, layer: Layer, shape: Shape, adapt: Callable[[Tensor], Tensor] = lambda y: y
) -> Tensor:
    y = adapt(rms(x, layer.norm1, shape.eps))
    width = layer.q.shape[0] // shape.heads
    q, k, v = (
        F.linear(y, weight, bias)
        for weight, bias in zip((layer.q, layer.k, layer.v), layer.biases, strict=True)
    )
    heads = []
    for head in range(shape.heads):
        other = head // (shape.heads // shape.kv_heads)
        mine = slice(head * width, (head + 1) * width)
        theirs = slice(other * width, (other + 1) * width)
        scores = turned(q[:, mine], shape.theta) @ turned(k[:, theirs], shape.theta).T
        heads.append((scores / math.sqrt(width)).softmax(dim=-1) @ v[:, theirs])
    x = x + torch.cat(heads, dim=-1) @ layer.o.T
    y = adapt(rms(x, layer.norm2, shape.eps))
    return x + (F.silu(y @ layer.gate.T) * (y @ layer.up.T)) @ layer.down.T


def qwen_layer(w: Weights, number: int) -> Layer:
    at = f"model.layers.{number}"
    attention = [w[f"{at}.self_attn.{name}_proj.weight"] for name in "qkvo"]
    mlp = [w[f"{at}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down")]
    norms = (w[f"{at}.input_layernorm.weight"], w[f"{at}.post_attention_layernorm.weight"])
    q, k, v = (w[f"{at}.self_attn.{name}_proj.bias"] for name in "qkv")
    return Layer(*norms, *attention, *mlp, biases=(q, k, v))


def llada_layer(w: Weights, at: str) -> Layer:
    names = ("q_proj", "k_proj", "v_proj", "attn_out", "ff_proj", "up_proj", "ff_out")
    maps = [w[f"{at}.{name}.weight"] for name in names]
    return Layer(w[f"{at}.attn_norm.weight"], w[f"{at}.ff_norm.weight"], *maps)


def shifted(logits: Tensor) -> Tensor:
    """Prediction for position i stands at i - 1; position 0 keeps its own."""
    return torch.stack([logits[max(0, i - 1)] for i in range(len(logits))])


def dream(w: Weights, ids: Tensor, shape: Shape, layers: int) -> Tensor:
    """Predictions for each position: L V."""
    x = w["model.embed_tokens.weight"][ids]
    for number in range(layers):
        x = block(x, qwen_layer(w, number), shape)
    return shifted(rms(x, w["model.norm.weight"], shape.eps) @ w["lm_head.weight"].T)


def waves(t: float, width: int, scale: float) -> Tensor:
    """[cos | sin], in float32 as published: at 1000 t the rounding of the angle counts."""
    half = width // 2
    frequency = torch.exp(-math.log(10000) * torch.arange(half) / half)
    angle = scale * torch.tensor(t) * frequency
    return torch.cat([torch.cos(angle), torch.sin(angle)])


def flexmdm(
    w: Weights, extras: Weights, ids: Tensor, t: float, shape: Shape, layers: int
) -> tuple[Tensor, Tensor]:
    """Predictions for each position (L V), and the log length of the gap after each token (L)."""
    e = extras
    x = w["model.embed_tokens.weight"][ids]
    hidden = F.silu(waves(t, x.shape[-1], 1000.0) @ e["time_mlp.0.weight"].T + e["time_mlp.0.bias"])
    told = hidden @ e["time_mlp.2.weight"].T + e["time_mlp.2.bias"]
    for number in range(layers):
        both = told @ e[f"temb_mods.{number}.weight"].T + e[f"temb_mods.{number}.bias"]
        scale, shift = both[: len(both) // 2], both[len(both) // 2 :]
        x = block(x, qwen_layer(w, number), shape, lambda y, a=scale, b=shift: (1 + a) * y + b)
    x = rms(x, w["model.norm.weight"], shape.eps)
    at = "insertion_head"
    y = F.layer_norm(x, x.shape[-1:], e[f"{at}.norm.weight"], e[f"{at}.norm.bias"], eps=1e-5)
    y = F.gelu(y @ e[f"{at}.proj1.weight"].T + e[f"{at}.proj1.bias"])
    gaps = (y @ e[f"{at}.proj2.weight"].T + e[f"{at}.proj2.bias"])[:, 0].clamp(-15, 15)
    return shifted(x @ w["lm_head.weight"].T), gaps


def llada_states(w: Weights, ids: Tensor, shape: Shape, layers: int) -> Tensor:
    x = w["model.transformer.wte.weight"][ids]
    for number in range(layers):
        x = block(x, llada_layer(w, f"model.transformer.blocks.{number}"), shape)
    return rms(x, w["model.transformer.ln_f.weight"], shape.eps)


def llada(w: Weights, ids: Tensor, shape: Shape, layers: int) -> Tensor:
    """Predictions for each position: L V."""
    return llada_states(w, ids, shape, layers) @ w["model.transformer.ff_out.weight"].T


def planner(w: Weights, states: Tensor, masked: Tensor, eligible: Tensor, shape: Shape) -> Tensor:
    """dUltra's log-odds of revealing each position now: L."""
    tau = 1 - int(masked.sum()) / len(masked)
    hidden = F.silu(
        waves(tau, 256, 1.0) @ w["time_embedding.mlp.0.weight"].T + w["time_embedding.mlp.0.bias"]
    )
    time = hidden @ w["time_embedding.mlp.2.weight"].T + w["time_embedding.mlp.2.bias"]
    told = time + w["mask_embedding.weight"][eligible.long()]

    def adapted(x: Tensor, number: int) -> Tensor:
        at = f"norm_out_{number}.modulation"
        scale, shift = (told @ w[f"{at}.weight"].T + w[f"{at}.bias"]).chunk(2, dim=-1)
        return F.layer_norm(x, x.shape[-1:], eps=1e-4) * (1 + scale) + shift

    x = block(adapted(states, 1), llada_layer(w, "mask_head.0"), shape)
    return (adapted(x, 2) @ w["mask_linear.weight"].T + w["mask_linear.bias"])[:, 0]
