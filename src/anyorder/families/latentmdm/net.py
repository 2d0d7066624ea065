"""The networks of latentmdm (paper, Section 4.2 and its appendix): tokens -> segments -> tokens.

    z_i = mean over the tokens of encoder(E[y_i])         a revealed segment (or the mask vector,
                                                          or the empty vector)
    h   = latent(E[prompt], z_1 .. z_S)                   bidirectional; h at the slots
    log p(y_ij | y_i<j, h_i) = log softmax(E s),  s = decoder(h_i, E[y_i1 .. y_i,j-1]), last state

One table E serves the encoder's input, the prompt, the decoder's input and the head. Slot i of a
row has position (prompt length) + i - 1, right after the true end of its prompt; padding is never
attended to. With `attention="prefix_lm"` the prompt does not see the slots: it is read once
and its keys and values serve every later call (another model than the paper's, and a faster one).

Every method but `write` can be differentiated. `decode_states` is the decoder for training.

Not here: losses, which slot holds what, choosing tokens and segments. The caller appends EOS to a
segment for the decoder; the encoder adds its own (`pooling="with_eos"`).
Letters: B rows, P prompt positions, S slots, N segments, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyorder.families.latentmdm.config import LatentConfig
from anyorder.nets.denoiser import ReadPrompt, SegmentWriter
from anyorder.nets.init import (
    WeightDraws,
    draw_layers,
    scale_product,
    start_scales,
    take_weights,
)
from anyorder.nets.prompts import sum_sentences
from anyorder.nets.stack import AttentionContext, Memory, Stack

FEW_ROWS, LARGE_TABLE = 10, 1 << 22
"""With at most FEW_ROWS states and at least LARGE_TABLE weights, table times states is up to twice
as fast on a CPU as states times table: each row of the table is read once."""


@dataclass(frozen=True)
class PromptVectors:
    """Prompts as `conditions` needs them: token vectors, or their keys and values."""

    real: Tensor  # B P
    length: Tensor  # B
    vectors: Tensor | None = None  # B P D, bidirectional
    memory: Memory | None = None  # prefix_lm

    def keep(self, rows: Tensor) -> PromptVectors:
        return PromptVectors(
            self.real[rows],
            self.length[rows],
            None if self.vectors is None else self.vectors[rows],
            None if self.memory is None else self.memory.keep(rows),
        )


class LatentNet(nn.Module):
    """A `SegmentNet`. The weights are a function of (config, seed)."""

    def __init__(self, config: LatentConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        width = config.backbone.width
        self.embed = nn.Embedding(config.backbone.vocab_size, width)
        self.encoder = Stack(
            config.part(config.encoder_layers, causal=False), final_norm=config.encoder_norm
        )
        self.latent = Stack(config.backbone, final_norm=config.latent_norm)
        self.decoder = Stack(
            config.part(config.decoder_layers, causal=True), final_norm=config.decoder_norm
        )
        self.mask_vector = nn.Parameter(torch.empty(width))
        self.empty = nn.Parameter(torch.empty(width)) if config.empty == "learned" else None
        self.reset_parameters(seed)

    @property
    def slots(self) -> int:
        return self.config.slots

    @property
    def segment_length(self) -> int:
        return self.config.segment_length

    @property
    def empty_vector(self) -> Tensor:
        """D: the latent of a slot that is revealed to be empty."""
        if self.empty is not None:
            return self.empty
        if self.config.empty == "none":
            raise ValueError("this network has no empty segments (empty='none')")
        return self.embed.weight[self.config.eos_id]

    def encode(self, ids: Tensor, length: Tensor) -> Tensor:
        """Segments N T of `length` (N) >= 1 tokens, padded on the right, without EOS -> N D."""
        column = torch.arange(ids.shape[1] + 1, device=ids.device)
        if self.config.pooling == "with_eos":
            assert self.config.eos_id is not None
            # A segment that fills all its positions has no room for EOS.
            ids = F.pad(ids, (0, 1)).masked_fill(column == length[:, None], self.config.eos_id)
            length = length + (length < self.config.segment_length)
        real = column[: ids.shape[1]] < length[:, None]  # N T
        x = self.embed(ids)
        states = self.encoder.run(x, self.encoder.plain_context(x, real))  # N T D
        # The mean over real tokens as one product: padding has a share of 0.
        share = real.to(states.dtype) / length[:, None]
        return torch.bmm(share[:, None], states)[:, 0]

    def read(self, ids: Tensor, length: Tensor) -> PromptVectors:
        """Prompts B P of `length` (B) tokens, padded on the right."""
        real = torch.arange(ids.shape[1], device=ids.device) < length[:, None]
        x, ends = self.embed(ids), self.config.backbone.sentence_ends
        if ends:
            x = sum_sentences(x, ids, ends)
        if self.config.attention == "bidirectional":
            return PromptVectors(real, length, vectors=x)
        memory = self.latent.remember(x, self.latent.plain_context(x, real))
        return PromptVectors(real, length, memory=memory)

    def conditions(
        self,
        prompt: ReadPrompt,
        latents: Tensor,
        real: Tensor | None = None,
        *,
        time: Tensor | None = None,
    ) -> Tensor:
        """latents B S D, real B S bool (None: all are) -> B S D; those at padding mean nothing.

        time B: needed exactly by a time-modulated backbone. A prompt of a prefix_lm has no time.
        """
        assert isinstance(prompt, PromptVectors)
        before, slots = prompt.real.shape[1], latents.shape[1]
        if real is None:
            real = prompt.real.new_ones(latents.shape[:2])
        visible = torch.cat([prompt.real, real], dim=1)[:, None, None, :]  # B 1 1 P+S
        column = torch.arange(before + slots, device=latents.device)
        positions = prompt.length[:, None] + column[:slots]  # B S
        if prompt.memory is not None:
            rotation = self.latent.rotary.pick(positions, before + slots)
            return self.latent.run(
                latents, AttentionContext(rotation, visible, join=prompt.memory.precede), time=time
            )
        assert prompt.vectors is not None
        positions = torch.cat([column[:before].expand(len(latents), -1), positions], dim=1)
        rotation = self.latent.rotary.pick(positions, before + slots)
        x = torch.cat([prompt.vectors, latents.to(prompt.vectors.dtype)], dim=1)  # B P+S D
        return self.latent.run(x, AttentionContext(rotation, visible), time=time, skip=before)

    def write(self, conditions: Tensor) -> SegmentWriter:
        """Begin N >= 1 segments from their conditions, N D."""
        return SegmentWriter(self.decoder, self.embed, conditions, self.segment_length)

    def decode_states(self, conditions: Tensor, ids: Tensor) -> Tensor:
        """The decoder on known tokens: N D, N T -> N T+1 D; head(states[n, j]) predicts ids[n, j].

        The last state predicts what follows the last token: leave a closing EOS, which nothing
        follows, out of `ids`. Padding on the right needs no mask in a causal stack.
        """
        x = torch.cat([conditions[:, None], self.embed(ids)], dim=1)
        return self.decoder.run(x, self.decoder.plain_context(x))

    def head(self, states: Tensor) -> Tensor:
        """Logits of the decoder's states: (..., D) -> (..., V)."""
        table = self.embed.weight
        few = states.ndim == 2 and 1 < len(states) <= FEW_ROWS and table.numel() >= LARGE_TABLE
        if few and not torch.is_grad_enabled():
            return (table @ states.T).T.contiguous()
        return F.linear(states, table)

    def start_from(self, base: nn.Module) -> None:
        """Take the weights of another network of this kind."""
        take_weights(self, base)

    def reset_parameters(self, seed: int = 0) -> None:
        """Draw all weights afresh (nets/init.py); on the meta device there are none to draw."""
        if not self.embed.weight.is_meta:
            draw_segment_weights(self, seed)


@torch.no_grad()
def draw_segment_weights(net: LatentNet, seed: int) -> None:
    """Set all weights of a network over segments, in place (the reasons are in nets/init.py)."""
    config = net.config
    table, gain = start_scales(config.backbone)
    if not config.decoder_norm:
        # Each of these layers adds about one more table scale to the states under the head.
        writers = net.latent.config.layers + net.decoder.config.layers
        table = math.sqrt(scale_product(config.backbone) / (1 + writers))
    draws = WeightDraws(seed, net.embed.weight.device)
    stacks = {"encoder.": net.encoder, "latent.": net.latent, "decoder.": net.decoder}
    for prefix, stack in stacks.items():
        draw_layers(stack, stack.config.layers, table, draws, prefix)
        _begin_by_copying(stack, table)
        if stack.norm is not None:
            nn.init.constant_(stack.norm.weight, gain if stack is net.decoder else table)
    vectors = {"embed.weight": net.embed.weight, "mask_vector": net.mask_vector}
    for name, vector in (vectors if net.empty is None else vectors | {"empty": net.empty}).items():
        nn.init.normal_(vector, std=table, generator=draws.of(name))


def _begin_by_copying(net: nn.Module, scale: float) -> None:
    """Add the identity to the value and output maps of attention, where both are square."""
    for name, module in net.named_modules():
        if not name.endswith(".attention"):
            continue
        value, out = module.get_submodule("value").weight, module.get_submodule("out").weight
        if value.shape == out.shape and value.shape[0] == value.shape[1]:
            value.diagonal().add_(1.0)
            out.diagonal().add_(scale)
