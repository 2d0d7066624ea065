"""Schedules: how much has happened by time t, for t in [0, 1].

alpha(t) is the probability that an item's event (its reveal, its insertion) has happened by t;
alpha(0) = 0 and alpha(1) = 1. With it come

    derivative  alpha'(t)
    inverse     alpha^{-1}(a)
    hazard      alpha'(t) / (1 - alpha(t)), the rate of events among items still waiting
    thinning    P(event in (t, s] | none by t) = 1 - (1 - alpha(s)) / (1 - alpha(t)), exactly

The power family alpha(t) = 1 - (1 - t)^n has hazard n / (1 - t) and thinning
1 - ((1 - s) / (1 - t))^n; n = 1 is the linear schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

LAST_TIME = 1e-5
"""The end of the sampling grids of DUO and S-FLM, whose t falls from 1; published, and no network
call reaches it."""


class Schedule(Protocol):
    """An increasing map of [0, 1] onto itself."""

    def value(self, t: Tensor) -> Tensor: ...
    def derivative(self, t: Tensor) -> Tensor: ...
    def inverse(self, a: Tensor) -> Tensor: ...
    def hazard(self, t: Tensor) -> Tensor: ...
    def thinning(self, t: Tensor, s: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Power:
    """alpha(t) = 1 - (1 - t)^exponent."""

    exponent: float = 1.0

    def __post_init__(self) -> None:
        if not self.exponent > 0:
            raise ValueError(f"a schedule's exponent must be positive, not {self.exponent}")

    def value(self, t: Tensor) -> Tensor:
        return 1 - (1 - t) ** self.exponent

    def derivative(self, t: Tensor) -> Tensor:
        return self.exponent * (1 - t) ** (self.exponent - 1)

    def inverse(self, a: Tensor) -> Tensor:
        return 1 - (1 - a) ** (1 / self.exponent)

    def hazard(self, t: Tensor) -> Tensor:
        return self.exponent / (1 - t)

    def thinning(self, t: Tensor, s: Tensor) -> Tensor:
        # At t = 1 nothing waits; the ratio 0/0 is read as "everything has happened".
        left = torch.where(t < 1, (1 - s) / (1 - t).clamp(min=torch.finfo(t.dtype).tiny), 0.0)
        return 1 - left**self.exponent


LINEAR = Power(1.0)


def carried(unmasking: Power, insertion: Power, gamma: Power = LINEAR) -> Power:
    """B(Gamma(t)) with B(tau) = beta(alpha^{-1}(tau)): unmasking carried along a new insertion.

    1 - B(tau) = (1 - tau)^(beta / alpha). With the default, B itself: unmasking in insertion
    progress tau, where insertion is the identity.
    """
    return Power(unmasking.exponent / insertion.exponent * gamma.exponent)
