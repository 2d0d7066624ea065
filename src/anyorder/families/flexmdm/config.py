"""The options of flexmdm decoding: what a user may choose, what is filled in, what is refused.

An option that the chosen path would not use is an error, never ignored. The loops are flexmdm.py
and, for mode compat, flexmdm_compat.py.

InsertionConfig: the choices of flexmdm's loss. Torch-free, like config.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from anyorder.decode.clocks import ClockOptions, among
from anyorder.decode.draw import Draw
from anyorder.decode.policy import Policy, find_unplanned_score
from anyorder.decode.quota import find_clocked_quota
from anyorder.families.flexmdm.runs import REPLACE_AFTER

COMPAT_POLICIES = ("sampled", "entropy", "random")


@dataclass(frozen=True)
class FlexOptions(ClockOptions):
    """How to decode with flexmdm. Unset choices follow `mode` and `clock`."""

    policy: str | None = None
    """confidence, sampled, margin, entropy, left_to_right or random. Exact: confidence; compat:
    sampled, or entropy or random (each mask for itself, the release's `origin`)."""
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
        full = self._with_schedules("kept" if self.mode == "compat" else "carried")
        self.draw()
        if self.meaningful_replace and self.steps is not None and self.steps <= REPLACE_AFTER:
            raise ValueError(
                f"meaningful_replace begins after step {REPLACE_AFTER}: give more steps, or leave "
                "it out"
            )
        return full._resolved_compat() if self.mode == "compat" else full._resolved_exact()

    def _resolved_exact(self) -> FlexOptions:
        full = replace(self._with_exact_clock(), policy=self.policy or "confidence")
        if self.clock == "events":
            full._refuse_set(
                "with clock='events', which does one thing at a time",
                "force_unmask",
                "meaningful_replace",
            )
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
        among("clock", self.clock, ("steps",), "in mode compat")
        full = replace(
            self,
            policy=self.policy or "sampled",
            steps=512 if self.steps is None else self.steps,
            counts=self.counts or "poisson",
            hazard=self.hazard or "left",
        )
        among("policy", full.policy, COMPAT_POLICIES, "in mode compat")
        among("counts", full.counts, ("poisson", "floor_bernoulli"), "in mode compat")
        among("hazard", full.hazard, ("left", "midpoint"), "in mode compat")
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
            among("quota", full.quota, ("poisson",), "in mode compat")
        full._refuse_set(
            "in mode compat, as in the published sampler", "posterior", "ties", "top_p", "top_k"
        )
        return full

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
            score=find_unplanned_score(self.policy or "confidence"),
            quota=find_clocked_quota(self.quota or "thinned"),
            posterior=self.posterior or "untempered",
            ties=self.ties or "random",
        )


@dataclass(frozen=True)
class InsertionConfig:
    """How the two terms of flexmdm's loss are weighted, normalised and targeted."""

    weighting: Literal["hazard", "compat"] = "hazard"
    """hazard: the exact 1 / (1 - t) weights, capped; compat: the published ones."""
    cap: float = 100.0
    """hazard: weights stay level above this."""
    normalise: Literal["max_length", "items", "rows"] = "max_length"
    """Divide the batch's mean by data.max_length (published), by its mean number of free tokens
    (a tilt of order 1 / batch towards short answers), or by nothing."""
    targets: Literal["sampled", "integrated"] = "sampled"
    """sampled: the one alignment that was drawn; integrated: all alignments, exactly (less
    variance, somewhat slower)."""
    infill: float = 0.0
    """Share of the examples in which only a random span of the answer is corrupted."""

    def __post_init__(self) -> None:
        if not self.cap > 0:
            raise ValueError(f"insertion.cap={self.cap}: give a positive weight")
        if not 0 <= self.infill <= 1:
            raise ValueError(f"insertion.infill={self.infill}: give a share from 0 to 1")
        if self.weighting == "compat" and self.cap != InsertionConfig.cap:
            raise ValueError("insertion.cap has no effect on compat weights: leave it out")
