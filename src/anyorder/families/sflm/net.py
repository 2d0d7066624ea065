"""The network of sflm: unit vectors in, a posterior over tokens out (S-FLM, arXiv 2605.11125).

    e_v    = E_v / |E_v|                       normalised whenever it is read; E itself is free
    states = body(x, time),  x_i in R^D        noised vectors, or the clean e_v of a prompt
    logits = head(states)                      a separate matrix, zero at first: the loss is ln V;
                                               or E itself (`tied`, the backbone only)

The table E starts at N(0, 1 / D) and learns through the vectors that the loss makes of it. There
are two bodies (`architecture`):

    backbone   the one backbone of all families, time-modulated. It reads sqrt(D) x, so that its
               stream begins at the scale of a unit table. Its time is the progress of the signal a
               from 0 to 1, (a - least) / (most - least)
    dit        the published diffusion transformer over vectors ("sphere-dit"). It reads x
               unscaled, and its time is sigma = -ln a

The dit:

    c  = silu(W2 silu(W1 s(time))),    s = [cos(time f) | sin(time f)],  f_k = 10000^(-k / 128)
    (shift, scale, gate of attention; shift, scale, gate of the map) = W_layer c
    x <- x + gate * Attention(norm(x) (1 + scale) + shift)
    x <- x + gate * W_out gelu(W_in (norm(x) (1 + scale) + shift))
    states = norm(x) (1 + scale) + shift,    logits = W_head states + b_head

norm is LayerNorm with a weight and no bias; attention has no biases and turns its heads (RoPE), the
feed-forward map has biases and the tanh form of GELU. W_layer, the final modulation and the head
start at zero: at first the layers are the identity and all tokens are equally likely. The condition
is 128 wide at every width; with 768 x 12 and 49,153 tokens there are 167.93M parameters. Unlike the
published one, it has no dropout (there: 0.1), and padding can be masked (there it is read as text).

Not here: noising, schedules, losses, sampling.
Letters: B rows, L positions, H heads, W head width, D width, V vocabulary.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyorder.families.sflm.config import SphereConfig
from anyorder.nets.init import TABLE, WeightDraws
from anyorder.nets.prompts import ReadColumns, pool_sentences
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.stack import Rotary, Rotation, rotate, sinusoids
from anyorder.nets.transformer import Transformer

CONDITION = 128
"""Width of the condition that every layer reads."""
FEATURES = 256
"""Sinusoids of the time, cosines and sines together."""


class TimeCondition(nn.Module):
    """Time -> condition: B -> B CONDITION. Here the time is not scaled by 1000."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(FEATURES, CONDITION)
        self.outer = nn.Linear(CONDITION, CONDITION)

    def forward(self, time: Tensor) -> Tensor:
        features = sinusoids(time, FEATURES, scale=1.0).to(self.inner.weight.dtype)
        return F.silu(self.outer(F.silu(self.inner(features))))


class DiTBlock(nn.Module):
    """One layer; its shifts, scales and gates are read from the condition."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width = config.width
        self.head_width = config.head_width
        self.attention_norm = _norm(config)
        self.qkv = nn.Linear(width, 3 * config.heads * config.head_width, bias=False)
        self.out = nn.Linear(config.heads * config.head_width, width, bias=False)
        self.mlp_norm = _norm(config)
        self.mlp_in = nn.Linear(width, config.mlp_width)
        self.mlp_out = nn.Linear(config.mlp_width, width)
        self.modulation = nn.Linear(CONDITION, 6 * width)

    def forward(
        self, x: Tensor, rotation: Rotation, visible: Tensor | None, condition: Tensor
    ) -> Tensor:
        changes = self.modulation(condition)[:, None, :].chunk(6, dim=-1)
        shift, scale, gate = changes[:3]
        normed = torch.addcmul(shift, self.attention_norm(x), 1 + scale)
        x = x + gate * self._attend(normed, rotation, visible)
        shift, scale, gate = changes[3:]
        normed = torch.addcmul(shift, self.mlp_norm(x), 1 + scale)
        return x + gate * self.mlp_out(F.gelu(self.mlp_in(normed), approximate="tanh"))

    def _attend(self, x: Tensor, rotation: Rotation, visible: Tensor | None) -> Tensor:
        query, key, value = (
            each.unflatten(-1, (-1, self.head_width)) for each in self.qkv(x).chunk(3, dim=-1)
        )  # B L H W each
        mixed = F.scaled_dot_product_attention(
            rotate(query, rotation).transpose(1, 2),
            rotate(key, rotation).transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=visible,
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class DiT(nn.Module):
    """Vectors and time -> states -> logits. The weights are a function of (config, seed).

    `embed`, the table of token vectors, is for callers: `hidden` does not read it.
    """

    def __init__(self, config: TransformerConfig, *, seed: int = 0) -> None:
        super().__init__()
        _check(config)
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.width)
        self.time = TimeCondition()
        self.blocks = nn.ModuleList(DiTBlock(config) for _ in range(config.layers))
        self.norm = _norm(config)
        self.modulation = nn.Linear(CONDITION, 2 * config.width)
        self.unembed = nn.Linear(config.width, config.vocab_size)
        self.rotary = Rotary(config.head_width, config.rope_theta)
        self.reset_parameters(seed)

    def hidden(self, *, vectors: Tensor, mask: Tensor | None = None, time: Tensor) -> Tensor:
        """B L D -> B L D. mask: B L bool, True = a real key; time: B."""
        condition = self.time(time)
        rotation = self.rotary.prefix(vectors.shape[1], vectors.device)
        visible = None if mask is None else mask[:, None, None, :]  # B 1 1 L
        x = vectors
        for block in self.blocks:
            x = block(x, rotation, visible, condition)
        shift, scale = self.modulation(condition)[:, None, :].chunk(2, dim=-1)
        return torch.addcmul(shift, self.norm(x), 1 + scale)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states at any chosen places: (..., D) -> (..., V)."""
        logits: Tensor = self.unembed(hidden)
        return logits

    @torch.no_grad()
    def reset_parameters(self, seed: int = 0) -> None:
        """Draw all weights afresh; on the meta device there are none to draw."""
        if self.embed.weight.is_meta:
            return
        draws = WeightDraws(seed, self.embed.weight.device)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                std = module.in_features**-0.5
                nn.init.normal_(module.weight, std=std, generator=draws.of(f"{name}.weight"))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        # Drawn like the others, then zeroed: the other draws do not depend on which ones are zero.
        for zero in (self.unembed, self.modulation, *(each.modulation for each in self.blocks)):
            assert isinstance(zero, nn.Linear)
            nn.init.zeros_(zero.weight)
        nn.init.normal_(self.embed.weight, std=self.config.width**-0.5, generator=draws.of(TABLE))


def _norm(config: TransformerConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.width, bias=False)


def _check(config: TransformerConfig) -> None:
    """Refuse settings that this network does not have."""
    fixed: dict[str, int] = {"causal": False, "qkv_bias": False, "o_bias": False, "tied": False}
    fixed |= {"time_modulated": True, "kv_heads": config.heads, "qk_norm": False}
    for name, needed in fixed.items():
        if getattr(config, name) != needed:
            raise ValueError(f"the dit has {name}={needed}, not {getattr(config, name)}")


TABLE_SEED = 0x5F1
"""Separates the table's draws from the backbone's, which begin with the seed itself."""


class SphereNet(nn.Module):
    """Vectors and signal -> states -> logits. The weights are a function of (config, seed)."""

    def __init__(self, config: SphereConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.backbone = BODIES[config.architecture](config.backbone, seed=seed)
        if not self.backbone.embed.weight.is_meta:
            self._begin(seed)

    @property
    def least_signal(self) -> float:
        return self.config.least_signal

    @property
    def most_signal(self) -> float:
        return self.config.most_signal

    def unit_table(self) -> Tensor:
        """The vectors of all tokens, of length 1.  # V D"""
        return F.normalize(self.backbone.embed.weight, dim=-1)

    def vectors(self, ids: Tensor) -> Tensor:
        """The clean vectors of tokens: B L -> B L D."""
        return F.normalize(self.backbone.embed(ids), dim=-1)

    def hidden(
        self,
        vectors: Tensor,
        *,
        ids: Tensor | None = None,
        mask: Tensor | None = None,
        signal: Tensor,
    ) -> Tensor:
        """The states that the head reads: B L D -> B L D. Those at padding mean nothing.

        ids: B L, to pool prompts, so that noised ones do not matter (None: nothing is pooled);
        mask: B L bool, True = a real token; signal: B, of the rows' noised positions.
        """
        columns = ReadColumns(vectors, mask)
        if ids is not None:
            columns = pool_sentences(vectors, ids, self.config.backbone.sentence_ends, mask)
        if isinstance(self.backbone, DiT):
            time, scale = -signal.double().log(), 1.0
        else:
            time = (signal.double() - self.least_signal) / (self.most_signal - self.least_signal)
            scale = math.sqrt(self.config.backbone.width)
        return columns.states_of_tokens(
            self.backbone.hidden(vectors=columns.x * scale, mask=columns.mask, time=time.float())
        )

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of chosen states: (..., D) -> (..., V)."""
        return self.backbone.head(hidden)

    @torch.no_grad()
    def _begin(self, seed: int) -> None:
        """Draw the token vectors, and set the head, if there is one, to zero."""
        table, head = self.backbone.embed.weight, self.backbone.unembed
        generator = WeightDraws(seed, table.device, part=TABLE_SEED).of(TABLE)
        nn.init.normal_(table, std=self.config.backbone.width**-0.5, generator=generator)
        if head is not None:
            nn.init.zeros_(head.weight)


BODIES: dict[str, type[Transformer] | type[DiT]] = {"backbone": Transformer, "dit": DiT}
