"""The one backbone: a pre-norm transformer of the Qwen2 and Llama shape, causal or bidirectional.

    x <- x + Attention(norm(x)),    x <- x + W_down(silu(W_gate y) * W_up y),  y = norm(x)
    hidden = norm(x),               logits = E hidden

norm is RMSNorm with float32 statistics. Queries and keys are rotated (RoPE): position p turns the
pair (x_j, x_{j + W/2}) by the angle p * theta^(-2j/W). With `time_modulated`, each layer's norms
are followed by a scale and shift of the time (`modulation.py`).

`hidden` and `head` are apart so that callers pay for the vocabulary only where they need it.

Not here: losses, sampling, dropout, learnt positions, and other heads than the vocabulary's.
Letters: B rows, L positions of this call, S keys attended to, H query heads, G key/value heads,
W head width, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyorder.nets.cache import Cache, CacheShape, CacheStep
from anyorder.nets.modulation import Modulation, TimeEmbedding, modulate
from anyorder.nets.rotary import Rotary, Rotation, rotate
from anyorder.nets.start import draw_weights


@dataclass(frozen=True)
class TransformerConfig:
    """The shape of a backbone."""

    vocab_size: int
    """Rows of the embedding table, special tokens included."""
    width: int
    """Width of the residual stream."""
    layers: int
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads: equal to `heads` (MHA) or a divisor of it (GQA)."""
    head_width: int
    """Width of one head; even, because rotary positions turn pairs."""
    mlp_width: int
    """Inner width of the SwiGLU."""
    causal: bool = False
    """Each position sees itself and what stands before it; otherwise everything."""
    rope_theta: float = 10000.0
    """Base of the rotary frequencies."""
    norm_eps: float = 1e-6
    qkv_bias: bool = True
    """Biases on the query, key and value maps (Qwen2 has them, Llama has none)."""
    o_bias: bool = False
    """Bias on the attention's output map."""
    tied: bool = True
    """The head is the embedding table."""
    time_modulated: bool = False
    """Every layer is conditioned on a time given per row."""

    def __post_init__(self) -> None:
        for name in (
            "vocab_size", "width", "layers", "heads", "kv_heads", "head_width", "mlp_width"
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"kv_heads is {self.kv_heads} and does not divide heads = {self.heads}: "
                "every key/value head serves the same number of query heads"
            )
        if self.head_width % 2:
            raise ValueError(f"head_width is {self.head_width}: rotary positions need an even one")
        if self.time_modulated and self.width % 2:
            raise ValueError(f"width is {self.width}: time modulation needs an even one")
        if self.rope_theta <= 0 or self.norm_eps <= 0:
            raise ValueError("rope_theta and norm_eps must be positive")


@dataclass(frozen=True)
class Reach:
    """What the layers of one call share: positions, and who sees whom."""

    rotation: Rotation
    visible: Tensor | None
    """Boolean, broadcastable to B H L S, True = may be seen."""
    causal: bool
    """Use the attention kernel's own causal rule (then `visible` is None)."""
    cache: Cache | None
    step: CacheStep | None


class Attention(nn.Module):
    """Multi-head or grouped-query attention with rotary positions."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_width = config.head_width
        self.grouped = config.kv_heads != config.heads
        inner = config.heads * config.head_width
        kv_inner = config.kv_heads * config.head_width
        self.query = nn.Linear(config.width, inner, bias=config.qkv_bias)
        self.key = nn.Linear(config.width, kv_inner, bias=config.qkv_bias)
        self.value = nn.Linear(config.width, kv_inner, bias=config.qkv_bias)
        self.out = nn.Linear(inner, config.width, bias=config.o_bias)

    def forward(self, x: Tensor, reach: Reach) -> Tensor:
        heads = (-1, self.head_width)
        query = rotate(self.query(x).unflatten(-1, heads), reach.rotation)  # B L H W
        key = rotate(self.key(x).unflatten(-1, heads), reach.rotation)  # B L G W
        value = self.value(x).unflatten(-1, heads)  # B L G W
        if reach.cache is not None and reach.step is not None:
            key, value = reach.cache.write(self.layer, reach.step, key, value)  # B S G W
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=reach.visible,
            is_causal=reach.causal,
            enable_gqa=self.grouped,
        )  # B H L W
        return self.out(mixed.transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    """The gated feed-forward map."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.mlp_width, bias=False)
        self.up = nn.Linear(config.width, config.mlp_width, bias=False)
        self.down = nn.Linear(config.mlp_width, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """One layer."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=config.norm_eps)
        self.attention = Attention(config, layer)
        self.mlp_norm = nn.RMSNorm(config.width, eps=config.norm_eps)
        self.mlp = SwiGLU(config)
        self.modulation = Modulation(config.width) if config.time_modulated else None

    def forward(self, x: Tensor, reach: Reach, condition: Tensor | None) -> Tensor:
        scale_shift = None
        if self.modulation is not None and condition is not None:
            scale_shift = self.modulation(condition)
        x = x + self.attention(modulate(self.attention_norm(x), scale_shift), reach)
        return x + self.mlp(modulate(self.mlp_norm(x), scale_shift))


class Transformer(nn.Module):
    """Token ids (or vectors) -> hidden states -> logits over the vocabulary.

    The weights are a function of (config, seed). On the meta device nothing is initialised: after
    `to_empty`, load weights or call `reset_parameters`.
    """

    def __init__(self, config: TransformerConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.width)
        self.time = TimeEmbedding(config.width) if config.time_modulated else None
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=config.norm_eps)
        self.unembed = (
            None if config.tied else nn.Linear(config.width, config.vocab_size, bias=False)
        )
        self.rotary = Rotary(config.head_width, config.rope_theta)
        self.reset_parameters(seed)

    def hidden(
        self,
        ids: Tensor | None = None,
        *,
        vectors: Tensor | None = None,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        time: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The states after the final norm: B L -> B L D. States at padding mean nothing.

        ids B L, or vectors B L D in their place; mask B L bool, True = a real key (None: all are);
        positions B L, by default 0 .. L - 1 (the causal rule follows the columns, not these);
        time B, needed exactly by time-modulated nets; cache: these are the next tokens of its rows.
        A causal net with padding on the right gives the same real states with or without a mask.
        """
        x = self._stream(ids, vectors)  # B L D
        reach = self._reach(x, mask, positions, cache)
        condition = self._condition(x, time)
        for block in self.blocks:
            x = block(x, reach, condition)
        if cache is not None and reach.step is not None:
            cache.end(reach.step)
        return self.norm(x)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states at any chosen places: (..., D) -> (..., V)."""
        table = self.embed.weight if self.unembed is None else self.unembed.weight
        return F.linear(hidden, table)

    def forward(
        self,
        ids: Tensor | None = None,
        *,
        vectors: Tensor | None = None,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        time: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Logits everywhere: B L -> B L V. The arguments are those of `hidden`."""
        return self.head(
            self.hidden(
                ids, vectors=vectors, mask=mask, positions=positions, time=time, cache=cache
            )
        )

    def new_cache(self, rows: int, capacity: int) -> Cache:
        """An empty cache for `rows` sequences of up to `capacity` tokens."""
        if not self.config.causal:
            raise ValueError("only a causal net can use a cache: make it with causal=True")
        config = self.config
        shape = CacheShape(config.layers, rows, capacity, config.kv_heads, config.head_width)
        table = self.embed.weight
        return Cache(shape, device=table.device, dtype=table.dtype)

    def reset_parameters(self, seed: int = 0) -> None:
        """Draw all weights afresh (`start.py`); on the meta device there are none to draw."""
        if not self.embed.weight.is_meta:
            draw_weights(self, seed)

    def _stream(self, ids: Tensor | None, vectors: Tensor | None) -> Tensor:
        if ids is not None and vectors is None:
            return self.embed(ids)
        if vectors is not None and ids is None:
            return vectors
        raise ValueError("give either ids or vectors")

    def _reach(
        self, x: Tensor, mask: Tensor | None, positions: Tensor | None, cache: Cache | None
    ) -> Reach:
        rows, length, _ = x.shape
        if mask is not None and (mask.dtype != torch.bool or mask.shape != x.shape[:2]):
            raise ValueError(
                f"mask must be boolean, True at real tokens, of shape {(rows, length)}: "
                f"this one is {mask.dtype} of shape {tuple(mask.shape)}"
            )
        if cache is not None:
            if positions is not None:
                raise ValueError("a cache counts positions by itself: give no positions with it")
            step = cache.begin(rows, length, mask)
            rotation = self.rotary.pick(step.positions, step.span)
            return Reach(rotation, step.visible, step.causal, cache, step)
        if positions is None:
            rotation = self.rotary.prefix(length, x.device)
        else:
            rotation = self.rotary.at(positions)
        if mask is None:
            return Reach(rotation, None, self.config.causal, None, None)
        visible = mask[:, None, None, :]  # B 1 1 L
        if self.config.causal:
            visible = visible & torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        return Reach(rotation, visible, False, None, None)

    def _condition(self, x: Tensor, time: Tensor | None) -> Tensor | None:
        if (time is None) != (self.time is None):
            raise ValueError(
                "this net is not time-modulated: give no time, or make it with time_modulated=True"
                if self.time is None
                else "this net is time-modulated: give a time for each row"
            )
        if time is None or self.time is None:
            return None
        if time.shape != x.shape[:1]:
            raise ValueError(f"time has shape {tuple(time.shape)}: one for each of {len(x)} rows")
        return self.time(time)  # B D
