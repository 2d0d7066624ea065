"""Remasking: masked diffusion whose revealed tokens may be masked again (ReMDM).

Wang, Schiff, Sahoo, Kuleshov (2025), "Remasking Discrete Diffusion Models with Inference-Time
Scaling", arXiv 2503.00307. Let `a` be the share of items that is revealed before a step of the
reverse process and `b >= a` the share after it (their alpha_t and alpha_s). Each item moves alone:

    revealed -> masked      with probability  sigma
    masked   -> revealed    with probability  rho = (b - (1 - sigma) a) / (1 - a)

and what is revealed is x, for which a sampler draws from the network's x_theta(z). For rho <= 1,

    0 <= sigma <= bound(a, b) = min(1, (1 - b) / a).

Marginals are kept. Let every item of x be revealed independently with probability a. After the step
an item is revealed with probability

    a (1 - sigma) + (1 - a) rho = a - a sigma + b - a + a sigma = b,

still independently of the others, and then shows x: the law of z given x is the forward law at b
for every sigma, so a network trained without remasking sees nothing new. Averaged over x, a step
from the forward law of the data with the exact posteriors gives every single item its forward law.
Items that are revealed in the *same* step are drawn independently of each other, as in all
masked diffusion: the joint law is the data's only in the limit in which no two are.

sigma = 0 is ancestral sampling. On the linear grid a = i / S, b = (i + 1) / S of S steps:

    cap       sigma = min(eta, bound)
    rescale   sigma = eta * bound
    loop      a rises to LEVEL, stays there while sigma = min(eta, bound), then rises to 1

The last step has b = 1, so sigma = 0 and rho = 1: no mask is left.

    confidence    HEURISTIC: eta * bound, shared among the revealed items by a softmax of minus the
                  probability that each had when it was revealed; rho as if sigma were 0

There sigma depends on an item's own state, so the proof above does not hold, and it keeps no
marginals: more items are masked than the grid says, and the last step reveals all of them.

Not here: networks, drawing tokens and traces (families/mdm/remasking.py).
Letters: S steps, B rows, N items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

RISEN, LEVEL, LEFT = 0.45, 0.9, 0.95
"""The loop's shape: LEVEL is reached after RISEN of the steps, and left again at LEFT (the paper's
t_on = 0.55, alpha = 0.9 and t_off = 0.05)."""
ROUNDING = 1e-12


def bound(before: Tensor, after: Tensor) -> Tensor:
    """The largest sigma that a step from share `before` to share `after` allows."""
    # With nothing revealed yet there is nothing to mask again: the bound is 1, not a division by 0.
    some = before.clamp(min=torch.finfo(before.dtype).tiny)
    return ((1 - after) / some).clamp(max=1.0)


def reveal_chance(before: Tensor, after: Tensor, sigma: Tensor) -> Tensor:
    """rho: the probability that a masked item is revealed; ValueError if sigma is not allowed."""
    most = bound(before, after)
    if bool(((sigma < 0) | (sigma > most + ROUNDING)).any()):
        raise ValueError(
            f"sigma must be from 0 to {most.min().item():g} where the revealed share goes from "
            f"{before.max().item():g} to {after.max().item():g}: a smaller one keeps the marginals"
        )
    chance = (after - (1 - sigma) * before) / (1 - before)
    return chance.clamp(0.0, 1.0)


@dataclass(frozen=True)
class Grid:
    """The steps of a sampler: the revealed share, and the probability of masking again."""

    share: Tensor
    """Revealed before each step, and after the last; from 0 to 1, float64.  # S + 1"""
    sigma: Tensor
    """Of each step, float64.  # S"""


class Remasking(Protocol):
    """A way to choose sigma."""

    keeps_marginals: ClassVar[bool]
    """False: a heuristic."""

    def grid(self, steps: int) -> Grid:
        """The shares and sigmas of `steps` steps."""
        ...

    def sigmas(self, sigma: Tensor, confidence: Tensor, revealed: Tensor) -> Tensor:
        """The sigma of every item (B N), from that of the step.

        `confidence` (B N) has the probability of each revealed item's token when it was drawn.
        """
        ...


def _linear(steps: int) -> tuple[Tensor, Tensor]:
    """Equal shares a step, and the bound on each step's sigma."""
    if steps < 1:
        raise ValueError(f"steps must be at least 1, not {steps}")
    share = torch.arange(steps + 1, dtype=torch.float64) / steps
    return share, bound(share[:-1], share[1:])


@dataclass(frozen=True)
class _UniformSigma:
    """The same sigma for all items, as the proof needs."""

    eta: float
    keeps_marginals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.eta <= 1:
            raise ValueError(f"eta must be a number from 0 to 1, not {self.eta}")

    def sigmas(self, sigma: Tensor, confidence: Tensor, revealed: Tensor) -> Tensor:
        return sigma.expand(revealed.shape)


@dataclass(frozen=True)
class Cap(_UniformSigma):
    """sigma = min(eta, bound): at most eta in every step."""

    def grid(self, steps: int) -> Grid:
        share, most = _linear(steps)
        return Grid(share, most.clamp(max=self.eta))


@dataclass(frozen=True)
class Rescale(_UniformSigma):
    """sigma = eta * bound: a share of what is possible."""

    def grid(self, steps: int) -> Grid:
        share, most = _linear(steps)
        return Grid(share, self.eta * most)


@dataclass(frozen=True)
class Loop(_UniformSigma):
    """Reveal most, then exchange tokens at a constant share, then reveal the rest."""

    def grid(self, steps: int) -> Grid:
        progress, _ = _linear(steps)
        rising = LEVEL * progress / RISEN
        leaving = 1 - (1 - LEVEL) * (1 - progress) / (1 - LEFT)
        share = torch.where(progress < RISEN, rising, LEVEL)
        share = torch.where(progress > LEFT, leaving, share)
        stands = share[:-1] == share[1:]
        if not bool(stands.any()):
            raise ValueError(f"{steps} steps leave none for the loop: give more, 4 at least")
        sigma = bound(share[:-1], share[1:]).clamp(max=self.eta)
        return Grid(share, torch.where(stands, sigma, 0.0))


@dataclass(frozen=True)
class ConfidenceHeuristic(_UniformSigma):
    """A heuristic: eta * bound, mostly for the tokens of which the network was least sure."""

    eta: float = 1.0
    keeps_marginals: ClassVar[bool] = False

    def grid(self, steps: int) -> Grid:
        return Rescale(self.eta).grid(steps)

    def sigmas(self, sigma: Tensor, confidence: Tensor, revealed: Tensor) -> Tensor:
        """sigma times softmax(-confidence) over the revealed items of a row; 0 at masked ones."""
        weight = (-confidence).exp().masked_fill(~revealed, 0.0)
        total = weight.sum(dim=1, keepdim=True)
        return sigma * weight / total.clamp(min=torch.finfo(weight.dtype).tiny)
