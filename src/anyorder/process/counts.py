"""How many: whole numbers with a given mean, each from one uniform number.

    poisson(r)            P(k) = e^{-r} r^k / k!
    binomial(n, p)        P(k) = C(n, k) p^k (1 - p)^(n - k)
    floor_bernoulli(r)    floor(r), and one more with probability r - floor(r)

A draw inverts the cumulative distribution: the smallest k with P(X <= k) > u. So a count is a
function of its own noise and its own law, whatever is drawn beside it. Probabilities are float64,
from logarithms, which keeps them right to about 1e-11 for means of some thousands. They are summed
over a window around the mean; by Bernstein's inequality

    P(|X - m| > c) <= 2 exp(-c^2 / (2 (v + c/3))),      m the mean, v the variance,

what lies outside is less than the spacing of the uniform numbers.
Not here: joint laws, and where the noise comes from. Letters: N draws, W width of the window.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Index = tuple[Tensor, ...]

TAIL = 37.0
"""-log of the probability that a window may miss on a side: below 2^-53."""
WINDOW_BUDGET = 1 << 22
"""Probabilities held at once."""


def poisson(rate: Tensor, u: Tensor) -> Tensor:
    """Poisson counts of the given means, from uniforms of the same shape.  # any shape, int64"""
    rate, u = torch.broadcast_tensors(rate.double(), u.double())

    def log_mass(k: Tensor, some: Index) -> Tensor:
        r = rate[some][:, None]
        return torch.special.xlogy(k, r) - r - torch.lgamma(k + 1)

    return _inverted(u, torch.exp(-rate), rate, rate, log_mass)


def binomial(n: Tensor, p: Tensor, u: Tensor) -> Tensor:
    """Binomial(n, p) counts, from uniforms of the same shape; n >= 0 whole.  # any shape, int64"""
    n, p, u = torch.broadcast_tensors(n.double(), p.double(), u.double())
    # A chance above one half is counted by its failures: this keeps 1 - p exact and windows short.
    flipped = p > 0.5
    q = torch.where(flipped, 1 - p, p)
    v = torch.where(flipped, 1 - u, u)

    def log_mass(k: Tensor, some: Index) -> Tensor:
        m, chance = n[some][:, None], q[some][:, None]
        ways = torch.lgamma(m + 1) - torch.lgamma(k + 1) - torch.lgamma(m - k + 1)
        mass = ways + torch.special.xlogy(k, chance) + torch.special.xlog1py(m - k, -chance)
        return mass.masked_fill(k > m, -torch.inf)

    none = torch.special.xlog1py(n, -q).exp()
    drawn = _inverted(v, none, n * q, n * q * (1 - q), log_mass).minimum(n.long())
    return torch.where(flipped, n.long() - drawn, drawn)


def floor_bernoulli(rate: Tensor, u: Tensor) -> Tensor:
    """The two whole numbers around each mean, in the proportion that keeps it.  # int64"""
    whole = rate.double().floor()
    return (whole + (u < rate.double() - whole)).long()


def _inverted(
    u: Tensor,
    none: Tensor,
    mean: Tensor,
    variance: Tensor,
    log_mass: Callable[[Tensor, Index], Tensor],
) -> Tensor:
    """The smallest k whose cumulative mass exceeds u; `none` is P(0).

    `log_mass(k, some)` gives log P(k) (N W) for k (N W), where `some` indexes the N draws.
    """
    result = torch.zeros(u.shape, dtype=torch.int64, device=u.device)
    busy = (u >= none).nonzero(as_tuple=True)  # most gaps get nothing, which needs no window
    if not len(busy[0]):
        return result
    reach = TAIL / 3 + (TAIL**2 / 9 + 2 * TAIL * variance[busy]).sqrt()  # N
    start = (mean[busy] - reach).floor().clamp(min=0)
    width = int((mean[busy] + reach - start).max()) + 2
    offsets = torch.arange(width, device=u.device, dtype=torch.float64)
    drawn = []
    for piece in torch.arange(len(start), device=u.device).split(max(1, WINDOW_BUDGET // width)):
        some = tuple(index[piece] for index in busy)
        mass = log_mass(start[piece][:, None] + offsets, some).exp()  # N W
        passed = mass.cumsum(dim=1) <= u[some][:, None]
        drawn.append(start[piece].long() + passed.sum(dim=1).clamp(max=width - 1))
    result[busy] = torch.cat(drawn)
    return result
