"""Uniform-state diffusion (DUO): tokens turn into uniformly drawn ones (arXiv 2506.10892).

A token has K states, numbered from 0 to K - 1 here; callers map them to ids. Forward, each free
token independently, with alpha_t falling from 1 to about 0:

    q(x_t | x_0) = alpha_t [x_t = x_0] + (1 - alpha_t) / K,     alpha_t = 1 - (1 - eps) t

Reverse, from t to s < t, with the network's prediction p of the clean token, i = x_t and
a = alpha_t / alpha_s (Bayes' rule, exact where p is one-hot):

    p(x_s = j | x_t) = [ K alpha_t p_j [j=i] + (a - alpha_t) [j=i] + (alpha_s - alpha_t) p_j
                         + (1 - a) (1 - alpha_s) / K ] / (K alpha_t p_i + 1 - alpha_t)

which is a mixture of three: draw a uniform state, keep x_t, or draw from p (`mixture`).

The bound. -log p(x_0) <= KL(q(x_1 | x_0), uniform) + integral over t of the sum of l_t over tokens,

    l_t = -alpha'_t / (K alpha_t) * sum_j [ r_j ln(r_j / rho_j) - r_j + rho_j ],
    r_j = xbar_j / xbar_i,   xbar = K alpha_t onehot(x_0) + 1 - alpha_t,
    rho_j, xrho: the same of p in place of onehot(x_0).

(There is no reconstruction term: alpha_0 = 1.) Its minimum over p, for several tokens at once, is
not the posterior p(x_0^i | x_t) but p(x_0^i | x_t without place i): x_t^i itself enters by the
formula. The sums over the one-hot are carried out by hand, so that only sum_j ln xrho_j and two
entries are needed (`bound`).

The Gaussian relaxation (DUO's duality and its curriculum; `relax`). Around the one-hot vector of a
token, for a log noise-to-signal ratio gamma,

    w = a onehot(x_0) + s e,    a = sqrt(sigmoid(-gamma)),  s = sqrt(sigmoid(gamma)),  e ~ N(0, 1)

has an argmax that is distributed exactly as uniform-state diffusion with

    alpha = T(gamma) = (K I(gamma) - 1) / (K - 1),   I = integral of phi(z - mu) Phi(z)^(K-1) dz,
    mu = a / s = exp(-gamma / 2),                    dI/dgamma = -mu/2 dI/dmu.

The curriculum shows the network softmax(w / tau) instead of the argmax, with gamma(t) = low + t
(high - low) between the points where alpha is 0.95 and 0.05; the loss is that of the argmax. I and
its derivative are integrals of smooth functions that vanish at both ends, so sums over an even grid
are right to the last digits; nothing is tabulated or fitted.

Not here: networks, vocabularies (`States` in nets/denoiser.py), decoding (families/duo/decode.py).
Letters: B rows, N tokens of a row, M tokens of the whole batch, K states, Z points of the grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise, Stream

FIRST_TIME = 1e-3
"""The smallest training time: below it rare tokens, one in 1 / t, have terms of the size of 1 / t.
This counts [0, FIRST_TIME] too low, by up to FIRST_TIME nats a token."""
LEAST = 1e-6
"""alpha and 1 - alpha are at least this in the bound, so that it is finite everywhere."""
BRANCH, STATE = 0, 1
"""Keys of a place's two draws: which branch it takes, and which state it gets."""


@dataclass(frozen=True)
class LogLinear:
    """alpha_t = 1 - (1 - eps) t, the share of tokens that are not redrawn by t."""

    eps: float = 1e-3

    def __post_init__(self) -> None:
        if not 0 < self.eps < 1:
            raise ValueError(f"eps={self.eps}: what is left of a text at t = 1 is in (0, 1)")

    def value(self, t: Tensor) -> Tensor:
        return 1 - (1 - self.eps) * t

    def derivative(self, t: Tensor) -> Tensor:
        return torch.full_like(t, -(1 - self.eps))


@dataclass(frozen=True)
class Noised:
    """Rows at their times."""

    states: Tensor
    """The state of each place.  # B N"""
    alpha: Tensor  # B, float64
    slope: Tensor
    """d alpha / dt.  # B, float64"""


def corrupt(
    states: Tensor,
    free: Tensor,
    index: Tensor,
    noise: Noise,
    schedule: LogLinear,
    count: int,
    first_time: float = FIRST_TIME,
) -> Noised:
    """The forward process at a random time for each row; places that are not free stay clean.

    `states` (B N) are the clean ones, `count` is K, and `index` (B) names the examples: a place's
    draws belong to its example. A row's time is its level, the share of the way towards noise.
    """
    time = noise.levels(len(states), states.device).clamp(min=first_time)
    alpha = schedule.value(time)
    keys = (index[:, None], torch.arange(states.shape[1], device=states.device))
    redrawn = free & (noise.uniform(Stream.UNIFORM, *keys, BRANCH) >= alpha[:, None])
    drawn = any_state(noise.uniform(Stream.UNIFORM, *keys, STATE), count)
    return Noised(torch.where(redrawn, drawn, states), alpha, schedule.derivative(time))


def any_state(uniform: Tensor, count: int) -> Tensor:
    """One of `count` equally likely states, from a uniform number in (0, 1)."""
    return (uniform * count).long().clamp(max=count - 1)


def bound(log_prob: Tensor, noisy: Tensor, clean: Tensor, alpha: Tensor, slope: Tensor) -> Tensor:
    """l_t of each token, from the network's log-probabilities (M K).  # M

    With c = (1 - alpha) / (K alpha + 1 - alpha), S = sum_j ln xrho_j, i = noisy, o = clean:

        T1 = K (1 / xbar_i - 1 / xrho_i)
        T2 = -c (S - K ln xrho_i) + (K - 1) c ln c                                   where o = i
        T2 = -(S - K ln xrho_i) - K alpha / (1 - alpha) (ln xrho_o - ln xrho_i) - ln c / c   else
        l  = alpha' / (K alpha) (T1 - T2)

    All in logarithms, at least float32: a probability that underflows does no harm.
    """
    log_prob = log_prob.to(torch.promote_types(log_prob.dtype, torch.float32))
    count = log_prob.shape[-1]
    alpha = alpha.double().clamp(LEAST, 1 - LEAST)
    rest, full = 1 - alpha, count * alpha + 1 - alpha
    signal, floor = (count * alpha).log().to(log_prob), rest.log().to(log_prob)
    log_mix = torch.logaddexp(log_prob + signal[:, None], floor[:, None])  # M K, ln xrho
    at_noisy = log_mix.gather(1, noisy[:, None])  # M 1
    beyond = (log_mix.gather(1, clean[:, None]) - at_noisy)[:, 0]  # ln xrho_o - ln xrho_i
    spread = (log_mix - at_noisy).sum(dim=1)  # S - K ln xrho_i
    same = noisy == clean
    ratio = rest / full  # c
    here = torch.where(same, full, rest)  # xbar_i
    first = (count / here).to(log_prob) - count * (-at_noisy[:, 0]).exp()
    factor = torch.where(same, ratio, 1.0).to(log_prob)
    # One formula serves both cases: `beyond` is 0 where clean and noisy are the same state.
    second = -factor * spread - (count * alpha / rest).to(log_prob) * beyond
    constant = torch.where(same, (count - 1) * ratio, -1 / ratio) * ratio.log()
    return (slope / (count * alpha)).to(log_prob) * (first - second - constant.to(log_prob))


def prior_nats(count: int, schedule: LogLinear) -> float:
    """KL(q(x_1 | x_0), uniform) of one token: the bound's term besides the integral."""
    rest = 1 - schedule.eps
    kept = count * schedule.eps + rest  # K q(x_0)
    return (kept * math.log(kept) + (count - 1) * rest * math.log(rest)) / count


class Mixture(NamedTuple):
    """The probabilities of a reverse step's three branches."""

    uniform: Tensor
    keep: Tensor
    clean: Tensor


def mixture(prob_here: Tensor, alpha_t: Tensor, alpha_s: Tensor, count: int) -> Mixture:
    """The branches of a token between t and s, given p_i, the probability of its present state."""
    kept = alpha_t / alpha_s
    weight = count * alpha_t * prob_here
    total = weight + 1 - alpha_t
    return Mixture(
        uniform=(1 - kept) * (1 - alpha_s) / total,
        keep=(weight + kept - alpha_t) / total,
        clean=(alpha_s - alpha_t) / total,
    )


def mean_over_tokens(nats: Tensor, cross_entropy: Tensor) -> LossParts:
    """The bound per token of the batch, from each token's l_t and its -log p(clean).  # M

    The parts' `nats` are those of the bound: averaged over times, and with `prior_nats` added, they
    bound -log p of the text. The cross-entropy is only logged.
    """
    return LossParts(
        loss=nats.mean() if len(nats) else nats.sum(),
        nats=nats.detach().sum(),
        tokens=torch.tensor(len(nats), device=nats.device),
        extras={"cross_entropy": cross_entropy.detach().sum()},
    )


HALF_WIDTH, POINTS = 10.0, 2001
"""The grid: its reach to both sides of mu, and its number of points."""
CLEAREST, NOISIEST = 0.95, 0.05
"""alpha at both ends of the curriculum."""
RELAXED = 2
"""Keeps the normal numbers independent of the draws BRANCH and STATE."""


def discrete_alpha(gamma: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """T and dT/dgamma.  # any shape, float64"""
    gamma = gamma.double()[..., None]
    mu = (-gamma / 2).exp()
    offset = torch.linspace(
        -HALF_WIDTH, HALF_WIDTH, POINTS, dtype=torch.float64, device=gamma.device
    )  # Z
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
    """w of tokens, from the clean state, example, place and gamma of each (M).  # M K"""
    gamma = gamma.double()
    state = torch.arange(count, device=states.device)
    keys = (index[:, None], place[:, None], RELAXED, state)
    normal = torch.special.ndtri(noise.uniform(Stream.UNIFORM, *keys))  # M K
    signal, spread = torch.sigmoid(-gamma).sqrt(), torch.sigmoid(gamma).sqrt()
    return (spread[:, None] * normal).scatter_add_(1, states[:, None], signal[:, None])
