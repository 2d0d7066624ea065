"""The options of flexmdm decoding: what a user may choose, what is filled in, what is refused.

An option that the chosen path would not use is an error, never ignored. The loops are flexmdm.py
and, for mode compat, flexmdm_compat.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from anyorder.decode.draw import Draw
from anyorder.decode.policy import Policy, find_score
from anyorder.decode.quota import find_clocked_quota
from anyorder.decode.runs import REPLACE_AFTER

COMPAT_POLICIES = ("sampled", "entropy", "random")


@dataclass(frozen=True)
class FlexOptions:
    """How to decode with flexmdm. Unset choices follow `mode` and `clock`."""

    policy: str | None = None
    """confidence, sampled, margin, entropy, left_to_right or random. Exact: confidence; compat:
    sampled, or entropy or random (each mask for itself, the release's `origin`)."""
    clock: Literal["steps", "events"] = "steps"
    """steps: a grid of time, much in one call; events: at most one insertion or reveal a call."""
    steps: int | None = None
    """Steps of the grid. Exact: 128; compat: 512."""
    quota: Literal["thinned", "poisson"] | None = None
    """How many masks a step reveals. Exact: thinned; compat: poisson."""
    counts: Literal["binomial", "poisson", "floor_bernoulli"] | None = None
    """How many slots a step inserts. Exact: binomial; compat: poisson."""
    hazard: Literal["exact", "left", "midpoint"] | None = None
    """What share of the waiting events a step holds. Exact: exact; compat: left."""
    insertion_schedule: float | None = None
    """Gamma(t) = 1 - (1 - t)^this is the share inserted by time t. Unset: 2.9, as published."""
    unmasking_schedule: str | float | None = None
    """carried: along with the insertions, B(Gamma(t)), so that the network meets masks as in
    training; kept: the schedule of training in the sampler's time (published); or an exponent,
    where smaller means later. Exact: carried; compat: kept."""
    insertion_temperature: float = 1.0
    """Where slots are inserted, never how many: below 1 rather where most are missing."""
    posterior: Literal["untempered", "filtered"] | None = None
    """What scores read. Exact: untempered."""
    ties: Literal["random", "leftmost"] | None = None
    """Who wins among equal scores. Exact: random."""
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    force_unmask: bool = False
    """Reveal one more token inside each long run of masks that the step left alone."""
    meaningful_replace: bool = False
    """Give up the least likely reveal of a step for a likely word inside a long run of masks."""
    mode: Literal["exact", "compat"] = "exact"
    """compat: the published sampler, draw for draw."""

    def resolved(self) -> FlexOptions:
        """The same options with every unset choice filled in that has an effect; checked."""
        if self.mode not in ("exact", "compat"):
            raise ValueError(f"mode must be 'exact' or 'compat', not {self.mode!r}")
        if self.clock not in ("steps", "events"):
            raise ValueError(f"clock must be 'steps' or 'events', not {self.clock!r}")
        full = replace(
            self,
            insertion_schedule=_exponent(
                "insertion_schedule",
                2.9 if self.insertion_schedule is None else self.insertion_schedule,
            ),
            unmasking_schedule=_unmasking(self.unmasking_schedule)
            or ("kept" if self.mode == "compat" else "carried"),
        )
        self._check_numbers()
        return full._resolved_compat() if self.mode == "compat" else full._resolved_exact()

    def _resolved_exact(self) -> FlexOptions:
        full = replace(self, policy=self.policy or "confidence")
        if self.clock == "events":
            full._refuse_set(
                "with clock='events', which does one thing at a time",
                "steps",
                "quota",
                "counts",
                "hazard",
                "force_unmask",
                "meaningful_replace",
            )
        else:
            full = replace(
                full,
                steps=128 if self.steps is None else self.steps,
                quota=self.quota or "thinned",
                counts=self.counts or "binomial",
                hazard=self.hazard or "exact",
            )
            _among("counts", full.counts, ("binomial", "poisson", "floor_bernoulli"))
            _among("hazard", full.hazard, ("exact", "left", "midpoint"))
        policy = full.build_policy()
        if policy.score.reads == "nothing":
            full._refuse_set(f"on the policy {full.policy!r}", "posterior", "ties")
        else:
            full = replace(
                full, posterior=self.posterior or "untempered", ties=self.ties or "random"
            )
        full._refuse_idle_filters()
        return full

    def _resolved_compat(self) -> FlexOptions:
        _among("clock", self.clock, ("steps",), "in mode compat")
        full = replace(
            self,
            policy=self.policy or "sampled",
            steps=512 if self.steps is None else self.steps,
            counts=self.counts or "poisson",
            hazard=self.hazard or "left",
        )
        _among("policy", full.policy, COMPAT_POLICIES, "in mode compat")
        _among("counts", full.counts, ("poisson", "floor_bernoulli"), "in mode compat")
        _among("hazard", full.hazard, ("left", "midpoint"), "in mode compat")
        if full.unmasking_schedule == "carried":
            raise ValueError(
                "the published sampler keeps the unmasking schedule: in mode compat choose "
                "unmasking_schedule='kept' or an exponent"
            )
        if full.policy == "random":
            full._refuse_set(
                "on the policy 'random' in mode compat, where each mask decides for itself",
                "quota",
                "force_unmask",
                "meaningful_replace",
            )
        else:
            full = replace(full, quota=self.quota or "poisson")
            _among("quota", full.quota, ("poisson",), "in mode compat")
        full._refuse_set(
            "in mode compat, as in the published sampler", "posterior", "ties", "top_p", "top_k"
        )
        return full

    def _check_numbers(self) -> None:
        self.draw()
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1, not {self.steps}")
        if self.meaningful_replace and self.steps is not None and self.steps <= REPLACE_AFTER:
            raise ValueError(
                f"meaningful_replace begins after step {REPLACE_AFTER}: give more steps, or leave "
                "it out"
            )
        if not 0 < self.insertion_temperature < math.inf:
            raise ValueError(
                f"insertion_temperature={self.insertion_temperature}: give a positive number"
            )

    def _refuse_set(self, why: str, *names: str) -> None:
        """What is set must have an effect."""
        for name in names:
            if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                raise ValueError(f"{name} has no effect {why}: leave it out")

    def _refuse_idle_filters(self) -> None:
        filters = self.top_p < 1 or self.top_k > 0
        if self.posterior == "filtered" and self.temperature == 0 and not filters:
            raise ValueError(
                "posterior='filtered' is the untempered one at temperature 0 without top_p or "
                "top_k: leave it out, or set one of them"
            )
        if self.posterior != "filtered":
            self.draw().refuse_idle_filters()

    def draw(self) -> Draw:
        return Draw(self.temperature, self.top_p, self.top_k)

    def build_policy(self) -> Policy:
        return Policy(
            score=find_score(self.policy or "confidence"),
            quota=find_clocked_quota(self.quota or "thinned"),
            posterior=self.posterior or "untempered",
            ties=self.ties or "random",
        )


def _among(name: str, value: Any, known: tuple[str, ...], where: str = "") -> None:
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
