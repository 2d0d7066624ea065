"""Settings that several families share: how tokens are drawn, and the clock of insertion.

Each setting is defined once, here or in a family's own config.py, with its help text below it: the
command line, the playground and the run card read it there. Never torch. What fills in and checks
options by the tables of policies and quotas is `resolve` in a family's decode.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self


@dataclass(frozen=True)
class DrawOptions:
    """How a token is drawn from what the network predicts for its place."""

    temperature: float = 0.0
    """0 takes the most likely token."""
    top_p: float = 1.0
    """Keep the smallest set of best tokens with more than this mass; 1 keeps all."""
    top_k: int = 0
    """Keep this many best tokens; 0 keeps all."""

    @property
    def filters(self) -> bool:
        """Whether top_p or top_k may remove tokens."""
        return self.top_p < 1 or self.top_k > 0


@dataclass(frozen=True)
class ClockOptions:
    """When slots are inserted and revealed, and how many."""

    clock: Literal["steps", "events"] = "steps"
    """steps: a grid of time, much in one call; events: at most one insertion or reveal a call."""
    steps: int | None = None
    """Steps of the grid. Exact: 128; compat: 512."""
    quota: Literal["thinned", "poisson"] | None = None
    """How many open slots a step reveals. Exact: thinned; compat: poisson."""
    counts: Literal["binomial", "poisson", "floor_bernoulli"] | None = None
    """How many slots a step inserts. Exact: binomial; compat: poisson."""
    hazard: Literal["exact", "left", "midpoint"] | None = None
    """What share of the waiting events a step holds. Exact: exact; compat: left."""
    insertion_schedule: float | None = None
    """Gamma(t) = 1 - (1 - t)^this is the share inserted by time t. Unset: 2.9, as published."""
    unmasking_schedule: str | float | None = None
    """carried: along with the insertions, B(Gamma(t)), so that the network meets open slots as in
    training; kept: the schedule of training in the sampler's time (published); or an exponent,
    where smaller means later. Exact: carried; compat: kept."""
    insertion_temperature: float = 1.0
    """Where slots are inserted, never how many: below 1 rather where most are missing."""

    def with_schedules(self, unmasking: str) -> Self:
        """With both schedules, `unmasking` unless another was chosen; clock and numbers checked."""
        among("clock", self.clock, ("steps", "events"))
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1, not {self.steps}")
        if not 0 < self.insertion_temperature < math.inf:
            raise ValueError(
                f"insertion_temperature={self.insertion_temperature}: give a positive number"
            )
        insertion = 2.9 if self.insertion_schedule is None else self.insertion_schedule
        return replace(
            self,
            insertion_schedule=_exponent("insertion_schedule", insertion),
            unmasking_schedule=_unmasking(self.unmasking_schedule) or unmasking,
        )

    def with_exact_clock(self) -> Self:
        """With all that the exact clock needs."""
        if self.clock == "events":
            self.refuse_set(
                "with clock='events', which does one thing at a time",
                "steps",
                "quota",
                "counts",
                "hazard",
            )
            return self
        full = replace(
            self,
            steps=128 if self.steps is None else self.steps,
            quota=self.quota or "thinned",
            counts=self.counts or "binomial",
            hazard=self.hazard or "exact",
        )
        among("counts", full.counts, ("binomial", "poisson", "floor_bernoulli"))
        among("hazard", full.hazard, ("exact", "left", "midpoint"))
        return full

    def refuse_set(self, why: str, *names: str) -> None:
        """What is set must have an effect."""
        for name in names:
            if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                raise ValueError(f"{name} has no effect {why}: leave it out")


def among(name: str, value: Any, known: tuple[str, ...], where: str = "") -> None:
    """Refuse a value that is not one of the known ones."""
    if value not in known:
        place = f" {where}" if where else ""
        raise ValueError(f"{name}={value!r}{place}: choose {' or '.join(map(repr, known))}")


def _exponent(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value}: give a positive exponent")
    return float(value)


def _unmasking(value: str | float | None) -> str | float | None:
    """kept, carried or a number, which the command line may hand over as text; None stays."""
    if value is None or value in ("kept", "carried"):
        return value
    try:
        number = float(value)
    except ValueError:
        raise ValueError(
            f"unmasking_schedule={value!r}: choose 'kept', 'carried' or an exponent"
        ) from None
    return _exponent("unmasking_schedule", number)
