"""Hyperspherical flow (S-FLM, arXiv 2605.11125): tokens as unit vectors, noise on the same sphere.

Every token v is a point e_v with |e_v| = 1 in R^D, and noise is uniform on the sphere. With the
signal a in [0, 1] the noised point lies on the geodesic from noise z to clean e (SLERP):

    x_a = [sin(a w) e + sin((1 - a) w) z] / sin w,      w = angle(e, z).

Training is plain cross-entropy of p(v | x_a), so a network learns a posterior only. A point moves
along the mean of the directions towards the tokens (the marginal velocity),

    Log_x(e) = w / sin w (e - x cos w),                  Exp_x(u) = x cos|u| + u/|u| sin|u|
    V(x)     = sum_v p(v | x) Log_x(e_v) = sum_v q_v e_v - x sum_v q_v cos w_v,  q = p w / sin w
    dx/da    = V(x) / (1 - a),    x <- Exp_x( (a' - a) / (1 - a) V(x) )      (an Euler step)

With a posterior of one token this step is exact: it stays on the geodesic, however long it is.

Most of the geodesic teaches nothing: of V random tokens the clean one is the nearest to x_a with
probability 1 - delta as soon as

    a >= a*(V, D, delta) = (2 / pi) asin sqrt(2 ln(2 (V - 1) / delta) / D),

so the schedule is truncated there: a(t) = least + (a* - least) (1 - t), with t = 1 at the noise.

All geometry is in float64. Not here: networks, tables of vectors, how tokens are drawn, and the
published time-warp that follows the training loss.
Letters: B rows, M points, K tokens a point may move to, V vocabulary, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.process.noise import Noise, Stream, uniform
from anyorder.process.schedule import LAST_TIME

EPS = 1e-6
"""Angles keep this distance from 0 and pi in SLERP, and cosines from 1 and -1 in the velocity."""
LEAST_SIGNAL = 1e-3
"""Published: the schedule begins at this signal, not at 0."""
FIRST_TIME = 1e-3
"""The smallest training time."""


def unit(vectors: Tensor) -> Tensor:
    """The same directions at length 1.  # ... D"""
    return vectors / torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp(min=1e-30)


def angle(first: Tensor, second: Tensor) -> Tensor:
    """The angle between unit vectors.  # ... D -> ..."""
    # Not arccos of the product, which loses half of the digits near 0 and pi.
    apart = torch.linalg.vector_norm(first - second, dim=-1)
    together = torch.linalg.vector_norm(first + second, dim=-1)
    return 2 * torch.atan2(apart, together)


def slerp(noise: Tensor, clean: Tensor, signal: Tensor) -> Tensor:
    """The point with this signal on the geodesic from noise to clean.  # M D, M -> M D

    Between opposite points the geodesic is not unique; the result is finite.
    """
    w = angle(noise, clean).clamp(EPS, math.pi - EPS)
    near, far = torch.sin(signal * w) / torch.sin(w), torch.sin((1 - signal) * w) / torch.sin(w)
    return near[..., None] * clean + far[..., None] * noise


def log_map(x: Tensor, target: Tensor) -> Tensor:
    """Log_x(e): the tangent at x towards e, as long as the angle between them.  # ... D"""
    cosine = (x * target).sum(dim=-1, keepdim=True)
    return _stretch(cosine) * (target - x * cosine)


def exp_map(x: Tensor, tangent: Tensor) -> Tensor:
    """Exp_x(u): the end of the geodesic from x along u.  # ... D"""
    length = torch.linalg.vector_norm(tangent, dim=-1, keepdim=True)
    # torch.sinc(y) is sin(pi y) / (pi y), and 1 at y = 0, where a division would give NaN.
    return x * length.cos() + tangent * torch.sinc(length / math.pi)


def velocity(x: Tensor, probability: Tensor, table: Tensor) -> Tensor:
    """V(x), the mean of the log maps to all tokens, by two products of matrices.  # M D"""
    cosine = x @ table.T  # M V
    weight = probability * _stretch(cosine)
    return weight @ table - x * (weight * cosine).sum(dim=-1, keepdim=True)


def velocity_to(x: Tensor, probability: Tensor, targets: Tensor) -> Tensor:
    """The same, for each point towards its own few tokens.  # M D, M K, M K D"""
    return (probability[..., None] * log_map(x[:, None, :], targets)).sum(dim=1)


def euler_step(x: Tensor, velocity: Tensor, signal: Tensor, following: Tensor) -> Tensor:
    """From one signal to the following one along the velocity.  # M D, M D, scalars -> M D"""
    return exp_map(x, (following - signal) / (1 - signal).clamp(min=EPS) * velocity)


def _stretch(cosine: Tensor) -> Tensor:
    """w / sin w: stretches a tangent of length sin w to length w."""
    w = torch.arccos(cosine.clamp(-1 + EPS, 1 - EPS))
    return w / torch.sin(w)


def enough_signal(vocab_size: int, width: int, delta: float) -> float:
    """a*(V, D, delta): from here on the clean token is the nearest, with probability 1 - delta.

    1, the whole way, if V is so large for D that the bound promises nothing.
    """
    if vocab_size < 2 or width < 1 or not 0 < delta < 1:
        raise ValueError(
            f"a vocabulary of {vocab_size}, width {width} and delta={delta} have no truncation: "
            "give two tokens or more, and a delta between 0 and 1"
        )
    sine = math.sqrt(2 * math.log(2 * (vocab_size - 1) / delta) / width)
    return 2 / math.pi * math.asin(min(sine, 1.0))


@dataclass(frozen=True)
class Truncated:
    """a(t) = least + (most - least) (1 - t): little signal at t = 1, just enough at t = 0."""

    most: float
    least: float = LEAST_SIGNAL

    def __post_init__(self) -> None:
        if not 0 < self.least < self.most <= 1:
            raise ValueError(
                f"signals from {self.least} to {self.most} are no schedule: "
                "give 0 < least < most <= 1"
            )

    def value(self, t: Tensor) -> Tensor:
        return self.least + (self.most - self.least) * (1 - t)


def training_times(noise: Noise, rows: int, device: torch.device | str = "cpu") -> Tensor:
    """Stratified times in (FIRST_TIME, 1); a level is the time itself.  # B"""
    return FIRST_TIME + (1 - FIRST_TIME) * noise.levels(rows, device)


def grid(steps: int) -> Tensor:
    """The N + 1 times of N steps; the network is called at all but the last.  # N+1"""
    return torch.linspace(1.0, LAST_TIME, steps + 1, dtype=torch.float64)


def training_noise(noise: Noise, index: Tensor, position: Tensor, width: int) -> Tensor:
    """Uniform points on the sphere, one for each (example, position).  # M -> M D"""
    return _points(lambda *number: noise.uniform(Stream.SPHERE, *number), index, position, width)


def sampling_noise(key: Tensor, position: Tensor, width: int) -> Tensor:
    """The same for the rows of a decoder: one for each (row key, position).  # M -> M D"""
    return _points(lambda *number: uniform(0, int(Stream.SPHERE), *number), key, position, width)


def _points(draw: Callable[..., Tensor], key: Tensor, position: Tensor, width: int) -> Tensor:
    """Directions of normal vectors (Box-Muller, two numbers from two uniforms)."""
    pair = torch.arange((width + 1) // 2, device=key.device)  # an odd width leaves one unused
    keys = key[:, None], position[:, None]
    radius = torch.sqrt(-2 * draw(*keys, 2 * pair).log())  # M D/2
    turn = 2 * math.pi * draw(*keys, 2 * pair + 1)
    return unit(torch.cat([radius * turn.cos(), radius * turn.sin()], dim=1)[:, :width])
