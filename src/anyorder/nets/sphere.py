"""The network of sflm: unit vectors in, a posterior over tokens out (S-FLM, arXiv 2605.11125).

    e_v    = E_v / |E_v|                       normalised whenever it is read; E itself is free
    states = body(x, time),  x_i in R^D        noised vectors, or the clean e_v of a prompt
    logits = head(states)                      a matrix of its own, zero at first: the loss is ln V;
                                               or E itself (`tied`, the backbone only)

The table E starts at N(0, 1 / D) and learns through the vectors that a caller makes of it. Two
bodies (`architecture`):

    backbone   the one backbone of all families, time-modulated. It reads sqrt(D) x, so that its
               stream begins at the scale of a unit table, and is told how far the signal a is on
               its way: (a - least) / (most - least), from 0 to 1
    dit        the published one (`dit.py`). It reads x as it is, and is told sigma = -ln a

Not here: noising, schedules, losses, sampling. Letters: B rows, L positions, D width, V vocabulary.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyorder.nets.dit import DiT
from anyorder.nets.shapes import SphereConfig
from anyorder.nets.transformer import Transformer

TABLE_SEED = 0x5F1
"""Sets the table's draws apart from the backbone's, which begin with the seed itself."""


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

    def hidden(self, vectors: Tensor, *, mask: Tensor | None = None, signal: Tensor) -> Tensor:
        """The states that the head reads: B L D -> B L D. Those at padding mean nothing.

        mask: B L bool, True = a real token; signal: B, of the rows' noised positions.
        """
        if isinstance(self.backbone, DiT):
            sigma = -signal.double().log()
            return self.backbone.hidden(vectors=vectors, mask=mask, time=sigma.float())
        way = (signal.double() - self.least_signal) / (self.most_signal - self.least_signal)
        scale = math.sqrt(self.config.backbone.width)
        return self.backbone.hidden(vectors=vectors * scale, mask=mask, time=way.float())

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of chosen states: (..., D) -> (..., V)."""
        return self.backbone.head(hidden)

    @torch.no_grad()
    def _begin(self, seed: int) -> None:
        """Token vectors in directions of their own, and a head, if any, that knows nothing."""
        table, head = self.backbone.embed.weight, self.backbone.unembed
        generator = torch.Generator(table.device).manual_seed(seed ^ TABLE_SEED)
        nn.init.normal_(table, std=self.config.backbone.width**-0.5, generator=generator)
        if head is not None:
            nn.init.zeros_(head.weight)


BODIES: dict[str, type[Transformer] | type[DiT]] = {"backbone": Transformer, "dit": DiT}
