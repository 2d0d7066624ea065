"""The network of flexmdm: the backbone with time, and a second head that counts what is missing.

    states = backbone(x, time)                      head(states_i) ~ log p(token i | x)
    g_i    = clamp(W2 gelu(W1 norm(states_i) + b1) + b2, -15, 15)  [+ log(1 - alpha)]

exp(g_i) is the expected number of tokens missing in the gap after token i. With `gap_offset` the
known factor 1 - alpha (each token is missing with that probability) is added in log space, so that
the head learns a number that hardly depends on time; small models need it. With `gap_reads="both"`
the head reads the states on both sides of the gap, otherwise the left one, as in the release.

Sequence conventions (`convention`):

    plain      prompt, anchor, answer;  the state at i predicts token i.  The anchor is BOS (EOS
               where the vocabulary has none), so that an empty answer still has one gap
    release    BOS, prompt, PAD, answer;  the state at i - 1 predicts token i (the Dream family)

`time` is what `coordinate` says: insertion progress tau = alpha(t), or raw time t.

Not here: schedules, losses, sampling. Letters: B rows, L positions, D width.
"""

from __future__ import annotations

import re
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyorder.families.flexmdm.config import FlexConfig
from anyorder.nets.denoiser import GAP_LIMIT, Look, unshifted
from anyorder.nets.init import ADDED_BY_TIME, WeightDraws, matching_names, take_weights
from anyorder.nets.transformer import Transformer, shift_states

GAP_SEED = 0x6A9
"""Makes the head's draws differ from the backbone's, which use the seed itself."""
LEAST_REMAINING = 1e-30
"""The floor of 1 - alpha before its logarithm."""


class GapHead(nn.Module):
    """States next to each gap -> log of the expected count, before any offset: B L D -> B L.

    The weights are a function of (width, reads, seed); on the meta device none are drawn.
    """

    def __init__(self, width: int, reads: str, *, seed: int = 0) -> None:
        super().__init__()
        self.both = reads == "both"
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(2 * width if self.both else width, width)
        self.outer = nn.Linear(width, 1)
        if not self.outer.weight.is_meta:
            self.reset_parameters(WeightDraws(seed, self.outer.weight.device, part=GAP_SEED))

    def forward(self, states: Tensor, real: Tensor | None) -> Tensor:
        x = self.norm(states)
        if self.both:
            following = x if real is None else x * real[:, :, None]
            # The last token has no right neighbour: its place is the zero vector.
            x = torch.cat([x, F.pad(following[:, 1:], (0, 0, 0, 1))], dim=-1)
        return self.outer(F.gelu(self.inner(x)))[..., 0].clamp(-GAP_LIMIT, GAP_LIMIT)

    @torch.no_grad()
    def reset_parameters(self, draws: WeightDraws) -> None:
        self.norm.reset_parameters()
        inner, outer = draws.of("gap.inner.weight"), draws.of("gap.outer.weight")
        nn.init.normal_(self.inner.weight, std=self.inner.in_features**-0.5, generator=inner)
        nn.init.zeros_(self.inner.bias)
        # Nearly the same small count in every gap at first: exp(-1).
        nn.init.normal_(self.outer.weight, std=1e-3, generator=outer)
        nn.init.constant_(self.outer.bias, -1.0)


def log_remaining(time: Tensor) -> Tensor:
    """log(1 - t), in float64, because 1 - t near 1 has no digits left in float32.  # B"""
    return (1 - time.double()).clamp(min=LEAST_REMAINING).log().float()


class GapNet(nn.Module):
    """A network with a gap head (`gap`) beside its `backbone`, and the clocks of its training."""

    config: Any
    backbone: Any
    added: re.Pattern[str]
    """The names of the parameters that the network to start from lacks."""

    @property
    def insertion_exponent(self) -> float:
        return float(self.config.insertion_exponent)

    @property
    def unmasking_exponent(self) -> float:
        return float(self.config.unmasking_exponent)

    def head(self, states: Tensor) -> Tensor:
        """Logits of chosen states: (..., D) -> (..., V)."""
        logits: Tensor = self.backbone.head(states)
        return logits

    def additions(self) -> set[str]:
        """The names of the parameters that the network to start from lacks."""
        return matching_names(self, self.added)


class FlexNet(GapNet):
    """Canvas and time -> token states and gaps. The weights are a function of (config, seed)."""

    config: FlexConfig
    backbone: Transformer
    added = re.compile(rf"gap\.|backbone\.({ADDED_BY_TIME.pattern})")

    def __init__(self, config: FlexConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.backbone = Transformer(config.backbone, seed=seed)
        self.gap = GapHead(config.backbone.width, config.gap_reads, seed=seed)

    @property
    def coordinate(self) -> str:
        return self.config.coordinate

    def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
        """Token states and gaps of every position; those at padding are undefined."""
        states = self.backbone.hidden(ids, mask=mask, time=time)  # B L D
        gaps = self.gap(states, mask).float()  # B L
        if self.config.gap_offset:
            exponent = 1.0 if self.coordinate == "progress" else self.insertion_exponent
            gaps = gaps + exponent * log_remaining(time)[:, None]
        if self.config.convention == "release":
            # Only token predictions move: gap i is read from the states beside token i.
            states = shift_states(states)
        return Look(states, gaps)

    def start_from(self, base: nn.Module) -> None:
        """Take the weights of a pretrained masked model, or of another network of this kind.

        The time modulation starts at zero, so the first token predictions are exactly those of a
        masked base model; the additions keep their own initial values.
        """
        if isinstance(base, FlexNet):
            take_weights(self, base)
            return
        shifts = self.config.convention == "release"
        base = unshifted(base, wanted=shifts, remedy="give the recipe net.convention=release")
        take_weights(self.backbone, base, without=ADDED_BY_TIME)
