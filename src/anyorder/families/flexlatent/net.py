"""The network of flexlatent: latentmdm's, with time, and a head that counts missing segments.

    h_0, h_1 .. h_S = latent(E[prompt], E[anchor], z_1 .. z_S; time)      decoder(h_i) as latentmdm
    g_i = GapHead(h_i, h_{i+1}) [+ log(1 - alpha)],   i = 0 .. S          (the anchor's gap is g_0)

exp(g_i) is the expected number of segments missing after item i: insertion over segments, which the
paper leaves to future work. There are no padding segments, and no length is decided first.

The anchor is the prompt's last token (`frame` adds it: BOS, or EOS where the vocabulary has none),
so that a row without segments still has one gap. It is treated as a slot: it has a time, and in a
prefix_lm it sees the slots too. The prompt before it then has no time and is read once. Only the
latent transformer knows the time, which is insertion progress tau = alpha(t).

Not here: schedules, losses, sampling.
Letters: B rows, P prompt positions, S slots, D width.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyorder.families.flexlatent.config import FlexLatentConfig
from anyorder.families.flexmdm.net import GapHead, GapNet, log_remaining
from anyorder.families.latentmdm.net import LatentNet, PromptVectors
from anyorder.nets.denoiser import ReadPrompt, SegmentLook, SegmentWriter
from anyorder.nets.init import ADDED_BY_TIME, take_weights

_ADDED_TO_LATENT = re.compile(rf"latent\.({ADDED_BY_TIME.pattern})")
_EMPTY = re.compile(r"empty$")


@dataclass(frozen=True)
class AnchoredPrompt:
    """A prompt up to its anchor, and the anchor's vector."""

    prompt: PromptVectors
    anchor: Tensor  # B 1 D

    def keep(self, rows: Tensor) -> AnchoredPrompt:
        return AnchoredPrompt(self.prompt.keep(rows), self.anchor[rows])


class FlexLatentNet(GapNet):
    """A `SegmentInserter`: a `LatentNet`, a time and a gap head.

    The weights are a function of (config, seed). The `LatentNet` is a part (`backbone`), not a base
    class: the names of its weights in files, optimiser states and shards begin with `backbone.`.
    """

    config: FlexLatentConfig
    backbone: LatentNet
    coordinate = "progress"
    added = re.compile(rf"gap\.|backbone\.{_ADDED_TO_LATENT.pattern}")

    def __init__(self, config: FlexLatentConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.backbone = LatentNet(config.latent, seed=seed)
        self.gap = GapHead(config.backbone.width, "both", seed=seed)

    @property
    def slots(self) -> int:
        return self.backbone.slots

    @property
    def segment_length(self) -> int:
        return self.backbone.segment_length

    @property
    def mask_vector(self) -> Tensor:
        return self.backbone.mask_vector

    def read(self, ids: Tensor, length: Tensor) -> AnchoredPrompt:
        """Prompts B P of `length` (B) >= 1 tokens, the anchor last, padded on the right."""
        before = length - 1
        anchor = self.backbone.embed(ids.gather(1, before[:, None]))
        # The last column holds only the anchors of the longest rows, so the prompt does without it.
        return AnchoredPrompt(self.backbone.read(ids[:, :-1], before), anchor)

    def look(
        self, prompt: ReadPrompt, latents: Tensor, real: Tensor | None = None, *, time: Tensor
    ) -> SegmentLook:
        """latents B S D (S may be 0), real B S bool (None: all are), time B."""
        assert isinstance(prompt, AnchoredPrompt)
        items = torch.cat([prompt.anchor, latents.to(prompt.anchor.dtype)], dim=1)  # B S+1 D
        if real is not None:
            real = torch.cat([real.new_ones(len(real), 1), real], dim=1)
        states = self.backbone.conditions(prompt.prompt, items, real, time=time)
        gaps = self.gap(states, real).float()
        if self.config.gap_offset:
            # A share 1 - alpha of all segments is missing on average: the head learns the rest.
            gaps = gaps + log_remaining(time)[:, None]
        return SegmentLook(states[:, 1:], gaps)

    def encode(self, ids: Tensor, length: Tensor) -> Tensor:
        """Segments N T of `length` (N) >= 1 tokens, padded on the right, without EOS -> N D."""
        return self.backbone.encode(ids, length)

    def write(self, conditions: Tensor) -> SegmentWriter:
        """Begin N >= 1 segments from their conditions, N D."""
        return self.backbone.write(conditions)

    def decode_states(self, conditions: Tensor, ids: Tensor) -> Tensor:
        """The decoder on known tokens, as `LatentNet` has it."""
        return self.backbone.decode_states(conditions, ids)

    def start_from(self, base: nn.Module) -> None:
        """Take the weights of a trained network of latentmdm, or of another of this kind.

        The time modulation starts at zero, so the conditions are at first exactly those of a
        LatentNet base that gets the anchor as its first slot. The additions keep their own weights.
        """
        if isinstance(base, FlexLatentNet):
            take_weights(self, base)
        else:
            take_weights(self.backbone, base, without=_ADDED_TO_LATENT, unused=_EMPTY)
