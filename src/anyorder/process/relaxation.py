"""Uniform-state diffusion as the shadow of a Gaussian one (DUO's duality and its curriculum).

Around the one-hot vector of a token with K states, for a log noise-to-signal ratio gamma,

    w = a onehot(x_0) + s e,    a = sqrt(sigmoid(-gamma)),  s = sqrt(sigmoid(gamma)),  e ~ N(0, 1)

has an argmax that is distributed exactly as uniform-state diffusion with

    alpha = T(gamma) = (K I(gamma) - 1) / (K - 1),   I = integral of phi(z - mu) Phi(z)^(K-1) dz,
    mu = a / s = exp(-gamma / 2),                    dI/dgamma = -mu/2 dI/dmu.

The curriculum shows the network softmax(w / tau) instead of the argmax, with gamma(t) = low + t
(high - low) between the points where alpha is 0.95 and 0.05; the loss is that of the argmax.

I and its derivative are integrals of smooth functions that vanish at both ends, so sums over an
even grid are right to the last digits; nothing is tabulated or fitted. A soft token needs K normal
numbers. Letters: M tokens of the whole batch, K states, Z points of the grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from anyorder.process.noise import Noise, Stream

REACH, POINTS = 10.0, 2001
"""The grid: so far to both sides of mu, and so many points."""
CLEAREST, NOISIEST = 0.95, 0.05
"""alpha at both ends of the curriculum."""
RELAXED = 2
"""Sets the normal numbers apart from the draws of uniform.py."""


def discrete_alpha(gamma: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """T and dT/dgamma.  # any shape, float64"""
    gamma = gamma.double()[..., None]
    mu = (-gamma / 2).exp()
    offset = torch.linspace(-REACH, REACH, POINTS, dtype=torch.float64, device=gamma.device)  # Z
    log_density = -offset.square() / 2 + (count - 1) * torch.special.log_ndtr(mu + offset)
    density = log_density.exp() * (offset[1] - offset[0]) / math.sqrt(2 * math.pi)  # ... Z
    wins = density.sum(dim=-1)  # I: the clean state has the largest entry
    by_mu = (offset * density).sum(dim=-1)
    scale = count / (count - 1)
    return scale * wins - 1 / (count - 1), scale * by_mu * (-mu[..., 0] / 2)


@lru_cache(maxsize=64)
def gamma_at(alpha: float, count: int) -> float:
    """The gamma at which T is alpha: T falls from 1 to 0, and is bisected."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha={alpha}: give a share between 0 and 1")
    low, high = -20.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        value, _ = discrete_alpha(torch.tensor(middle, dtype=torch.float64), count)
        low, high = (middle, high) if float(value) > alpha else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True)
class GammaLine:
    """gamma(t) = low + t (high - low)."""

    low: float
    high: float

    @classmethod
    def of(cls, count: int) -> GammaLine:
        """The curriculum's line for K states."""
        return cls(gamma_at(CLEAREST, count), gamma_at(NOISIEST, count))

    def value(self, t: Tensor) -> Tensor:
        return self.low + t * (self.high - self.low)

    def alpha(self, t: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """alpha and d alpha / dt at each time."""
        value, slope = discrete_alpha(self.value(t), count)
        return value, slope * (self.high - self.low)


def relax(
    states: Tensor, index: Tensor, place: Tensor, noise: Noise, gamma: Tensor, count: int
) -> Tensor:
    """w of tokens, given of each its clean state, example, place and gamma (M each).  # M K"""
    gamma = gamma.double()
    state = torch.arange(count, device=states.device)
    keys = (index[:, None], place[:, None], RELAXED, state)
    normal = torch.special.ndtri(noise.uniform(Stream.UNIFORM, *keys))  # M K
    signal, spread = torch.sigmoid(-gamma).sqrt(), torch.sigmoid(gamma).sqrt()
    return (spread[:, None] * normal).scatter_add_(1, states[:, None], signal[:, None])
