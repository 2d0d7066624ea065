"""The network of mdm with a planner: the backbone, and a head that chooses slots to reveal.

dUltra's planner head (arXiv 2512.21446), at any width. With H the states under the vocabulary head,
m_j = 1 for the slots that may be revealed, and LN without weights:

    tau = 1 - (masked slots) / (length)                    per row, prompt included
    c_j = W2 silu(W1 s(tau)) + M[m_j]                      s = [cos | sin] of tau, not scaled
    h   = LN(H) (1 + scale_1) + shift_1                    (scale_1, shift_1) = split(A_1 c_j)
    f   = one layer of the backbone's kind, on h
    z_j = w . (LN(f_j) (1 + scale_2) + shift_2) + b        likewise from A_2 c_j

z are log-odds: slot j is revealed with the chance u_j = sigmoid(z_j / temperature) m_j. `plan`
gives z; decode/policy.py and decode/quota.py use it.

Not here: the temperature and sampling (decode.py), losses (loss.py).
Letters: B rows, L positions, D width, F features of tau.
"""

from __future__ import annotations

import re
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyorder.families.mdm.config import PlannedConfig
from anyorder.nets.denoiser import unshifted
from anyorder.nets.init import WeightDraws, matching_names, take_weights
from anyorder.nets.stack import Stack, modulate, sinusoids
from anyorder.nets.transformer import PartialCache, Transformer

NORM_EPS = 1e-4
"""Epsilon of the norms without weights, as published."""
EMBEDDING_STD = 0.02
"""Of the two vectors for closed and open slots, and of the last map, as published."""
PLANNER_SEED = 0x91A
"""Makes the head's draws differ from the backbone's, which use the seed itself."""
PLANNER = re.compile(r"planner\.")
"""The names of the head's parameters."""


class PlannerHead(nn.Module):
    """States -> log-odds of revealing each slot: B L D -> B L."""

    def __init__(self, config: PlannedConfig) -> None:
        super().__init__()
        width = config.backbone.width
        self.features = config.planner_features
        self.inner = nn.Linear(self.features, width)
        self.outer = nn.Linear(width, width)
        self.mark = nn.Embedding(2, width)
        self.before = nn.Linear(width, 2 * width)
        shape = replace(config.backbone, layers=1, mlp_width=config.planner_mlp_width)
        self.layer = Stack(shape, final_norm=False)
        self.after = nn.Linear(width, 2 * width)
        self.odds = nn.Linear(width, 1)

    def forward(
        self, states: Tensor, *, masked: Tensor, eligible: Tensor, mask: Tensor | None
    ) -> Tensor:
        real = torch.ones_like(masked) if mask is None else mask
        tau = 1 - (masked & real).sum(dim=1) / real.sum(dim=1)  # B
        features = sinusoids(tau, self.features, scale=1.0).to(self.inner.weight.dtype)  # B F
        condition = self.outer(F.silu(self.inner(features)))[:, None] + self.mark(eligible.long())
        x = _adapted(states, self.before(condition))  # B L D
        x = self.layer.run(x, self.layer.plain_context(x, mask))
        odds = self.odds(_adapted(x, self.after(condition)))[..., 0]
        # Log-odds are ranked: in bfloat16 many slots would tie.
        return odds.to(torch.promote_types(odds.dtype, torch.float32))

    @torch.no_grad()
    def reset_parameters(self, draws: WeightDraws) -> None:
        """Draw the maps of the layer as in the backbone, the others as published."""
        for name, module in self.layer.named_modules():
            if isinstance(module, nn.Linear):
                writes = name.endswith((".attention.out", ".mlp.down"))
                std = (module.in_features * (2 if writes else 1)) ** -0.5
                generator = draws.of(f"planner.layer.{name}.weight")
                nn.init.normal_(module.weight, std=std, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.RMSNorm):
                nn.init.ones_(module.weight)
        for name in ("inner", "outer", "before", "after"):
            weight = self.get_parameter(f"{name}.weight")
            nn.init.xavier_uniform_(weight, generator=draws.of(f"planner.{name}.weight"))
            nn.init.zeros_(self.get_parameter(f"{name}.bias"))
        for name in ("mark.weight", "odds.weight"):
            generator = draws.of(f"planner.{name}")
            nn.init.normal_(self.get_parameter(name), std=EMBEDDING_STD, generator=generator)
        nn.init.zeros_(self.odds.bias)


def _adapted(x: Tensor, scale_shift: Tensor) -> Tensor:
    """A norm without weights, then the scale and shift of each position."""
    # Scale first, as in the published weights.
    scale, shift = scale_shift.chunk(2, dim=-1)
    return modulate(F.layer_norm(x, x.shape[-1:], eps=NORM_EPS), (scale, shift))


class PlannedNet(nn.Module):
    """A masked model with a planner head. The weights are a function of (config, seed)."""

    def __init__(self, config: PlannedConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.backbone = Transformer(config.backbone, seed=seed)
        self.planner = PlannerHead(config)
        if not self.planner.odds.weight.is_meta:
            device = self.planner.odds.weight.device
            self.planner.reset_parameters(WeightDraws(seed, device, part=PLANNER_SEED))

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        """The backbone's states: B L -> B L D."""
        return self.backbone.hidden(ids, mask=mask, time=time)

    def head(self, states: Tensor) -> Tensor:
        """Logits of chosen states: (..., D) -> (..., V)."""
        return self.backbone.head(states)

    def rereader(self, rows: int, columns: int) -> PartialCache:
        """The backbone's: see `Transformer.rereader`."""
        return self.backbone.rereader(rows, columns)

    def plan(
        self, states: Tensor, *, masked: Tensor, eligible: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """See `Planner`."""
        odds: Tensor = self.planner(states, masked=masked, eligible=eligible, mask=mask)
        return odds

    def start_from(self, base: nn.Module) -> None:
        """Take the weights of a masked model, with a fresh planner, or of another planned model."""
        if isinstance(base, PlannedNet):
            take_weights(self, base)
            return
        remedy = "a planner needs one that predicts it at i, such as LLaDA"
        take_weights(self.backbone, unshifted(base, wanted=False, remedy=remedy))


def planner_names(net: nn.Module) -> set[str]:
    """The names of the parameters that a plain masked model lacks."""
    return matching_names(net, PLANNER)
