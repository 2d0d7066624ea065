"""The options of mdm decoding: what a user may choose, what is filled in, what is refused.

An option that the chosen path would not use is an error, never ignored. The loop is mdm.py.

The choices of the planner's two trainings: imitation, tuning. Torch-free, like config.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import tyro

from anyorder.decode.draw import Draw, Stopping, find_stopping
from anyorder.decode.policy import Policy, find_score
from anyorder.decode.quota import parse_quota
from anyorder.families.mdm.remasking import parse_remasking
from anyorder.process.remasking import Remasking


@dataclass(frozen=True)
class MdmOptions:
    """How to decode with mdm. Unset choices follow `mode`."""

    policy: str | None = None
    """confidence, sampled, margin, entropy, left_to_right or random; planner, of models that have
    one. Exact: confidence; compat: sampled."""
    quota: str | None = None
    """even, dream[:eps], threshold[:p] or factor[:f]. Exact: even; compat: dream. Of the planner
    also bernoulli, its default, or expected."""
    posterior: Literal["untempered", "filtered"] | None = None
    """What scores read. Exact: untempered; compat: filtered."""
    ties: Literal["random", "leftmost"] | None = None
    """Who wins among equal scores. Exact: random; compat: leftmost."""
    block: int | None = None
    """Semi-autoregressive blocks of so many slots; unset: the whole canvas."""
    steps: int | None = None
    """Steps in all; unset: one for each free slot."""
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    eos: str = "plain"
    """plain, last, fill or forbid (see Stopping)."""
    remask: str | None = None
    """Mask revealed tokens again: cap:ETA, rescale:ETA or loop:ETA (ReMDM), or the heuristic
    confidence[:ETA]. Needs steps; how many are revealed follows, in random order unless a policy
    is chosen. Unset: what is revealed stays."""
    planner_temperature: float | None = None
    """planner: slots are revealed with the chance sigmoid(z / this). Unset: 1."""
    cache: Literal["none", "prefix", "block"] | None = None
    """Compute fewer columns, approximately: prefix keeps the prompt and the closed blocks as the
    current block found them, block keeps what is right of it too. Unset, or none: all is exact."""
    cache_refresh: int | None = None
    """With a cache: compute all columns anew every so many network calls. Unset: at the start of
    each block only."""
    mode: Literal["exact", "compat"] = "exact"
    """compat: the choices of the published Dream sampler."""

    def resolved(self) -> MdmOptions:
        """The same options with every unset choice filled in that has an effect; checked."""
        if self.mode not in ("exact", "compat"):
            raise ValueError(f"mode must be 'exact' or 'compat', not {self.mode!r}")
        if self.cache == "none":
            return replace(self, cache=None).resolved()
        compat = self.mode == "compat"
        if self.remask is not None:
            self._refuse_with_remasking()
            full = replace(self, policy=self.policy or "random")
        else:
            full = replace(
                self,
                policy=self.policy or ("sampled" if compat else "confidence"),
                quota=self.quota or self._usual_quota(),
            )
        score = full.build_policy().score
        if score.reads_vocabulary:
            # Without temperature and filters the two posteriors are one.
            apart = compat and (self.temperature > 0 or self._filters())
            full = replace(
                full, posterior=self.posterior or ("filtered" if apart else "untempered")
            )
        if score.reads != "nothing":
            leftmost = compat or score.reads == "plan"
            full = replace(full, ties=self.ties or ("leftmost" if leftmost else "random"))
        full._refuse_unused()
        return full

    def _usual_quota(self) -> str:
        if find_score(self.policy or "confidence").reads == "plan":
            return "bernoulli"
        return "dream" if self.mode == "compat" else "even"

    def _filters(self) -> bool:
        return self.top_p < 1 or self.top_k > 0

    def _refuse_with_remasking(self) -> None:
        """What the schedule decides is nobody else's to choose."""
        remasking = self.remasking()
        if self.steps is None:
            raise ValueError("remasking follows a schedule over a number of steps: give --steps")
        if self.quota is not None:
            raise ValueError("remasking decides how many are revealed: leave --quota out")
        if self.block is not None:
            raise ValueError("remasking's schedule runs over the whole canvas: leave --block out")
        if self.mode == "compat":
            raise ValueError("the published sampler masks nothing again: leave --mode compat out")
        if self.stopping().fills:
            raise ValueError(
                f"eos={self.eos!r} fills after an end that may be masked again: choose plain, last "
                "or forbid"
            )
        if remasking is not None and self.steps >= 1:
            remasking.grid(self.steps)

    def _refuse_unused(self) -> None:
        """What is set must have an effect."""
        policy, draw, stopping = self.build_policy(), self.draw(), self.stopping()
        name, reads_nothing = policy.score.name, policy.score.reads == "nothing"
        self._refuse_around_the_planner(policy, stopping)
        self._refuse_around_the_cache()
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1, not {self.steps}")
        if self.steps is not None and policy.quota.reads_scores:
            raise ValueError(
                f"the quota {self.quota} decides its own steps: leave --steps out, or choose "
                "another --policy or --quota"
            )
        if reads_nothing and stopping.waits:
            raise ValueError(f"eos={self.eos!r} has no effect on the policy {name!r}: leave it out")
        if not policy.score.reads_vocabulary and self.posterior is not None:
            raise ValueError(f"posterior has no effect on the policy {name!r}: leave it out")
        if reads_nothing and self.ties is not None:
            raise ValueError(f"the policy {name!r} has no ties: leave --ties out")
        if self.posterior == "filtered" and draw.temperature == 0 and not self._filters():
            raise ValueError(
                "posterior='filtered' is the untempered one at temperature 0 without top_p or "
                "top_k: leave it out, or set one of them"
            )
        if self.posterior != "filtered":
            draw.refuse_idle_filters()

    def _refuse_around_the_planner(self, policy: Policy, stopping: Stopping) -> None:
        """What only a planner uses, and what would undo its choice."""
        plans = policy.score.reads == "plan"
        if self.planner_temperature is not None and not plans:
            raise ValueError(
                f"planner_temperature has no effect on the policy {policy.score.name!r}: "
                "leave it out"
            )
        if self.planner_temperature is not None and not 0 < self.planner_temperature < math.inf:
            raise ValueError(
                f"planner_temperature must be positive, not {self.planner_temperature}"
            )
        if self.planner_temperature is not None and policy.quota.reads_scores != "log_odds":
            raise ValueError(
                "planner_temperature has no effect where the planner only ranks (remask, or a "
                "quota other than bernoulli and expected): leave it out"
            )
        if plans and self.mode == "compat":
            raise ValueError("mode='compat' is Dream's sampler, which has no planner: leave it out")
        if policy.quota.reads_scores == "log_odds" and stopping.waits:
            raise ValueError(
                f"eos={self.eos!r} would undo the planner's choice: leave it out, or choose "
                "--quota even"
            )

    def _refuse_around_the_cache(self) -> None:
        if self.cache == "block" and self.block is None:
            raise ValueError(
                "cache='block' keeps what is right of the current block, and the whole canvas is "
                "one block: give --block, or choose --cache prefix"
                if self.remask is None
                else "cache='block' needs --block, which remasking refuses: choose --cache prefix"
            )
        if self.cache_refresh is not None and self.cache is None:
            raise ValueError("cache_refresh has no effect without a cache: leave it out")
        if self.cache_refresh is not None and self.cache_refresh < 1:
            raise ValueError(f"cache_refresh must be at least 1, not {self.cache_refresh}")

    def refuse_idle_cache(self, free: Sequence[Sequence[bool]]) -> None:
        """Refuse a cache that has nothing to keep on any of these canvases, given by free slots."""
        several = any(self.block is not None and sum(each) > self.block for each in free)
        left = any(each.index(True) for each in free)
        right = self.cache == "block" and not all(each[-1] for each in free)
        if not (several or left or right):
            raise ValueError(
                "there is nothing to cache: no prompt, and one block; leave --cache out, or give "
                "a smaller --block"
            )
        if self.cache == "block" and not (several or right):
            raise ValueError(
                f"blocks of {self.block} slots leave nothing to the right: choose --cache prefix, "
                "or give a smaller --block"
            )

    def draw(self) -> Draw:
        return Draw(self.temperature, self.top_p, self.top_k)

    def stopping(self) -> Stopping:
        return find_stopping(self.eos)

    def remasking(self) -> Remasking | None:
        return None if self.remask is None else parse_remasking(self.remask)

    def build_policy(self) -> Policy:
        return Policy(
            score=find_score(self.policy or "confidence"),
            quota=parse_quota(self.quota or "even"),
            posterior=self.posterior or "untempered",
            ties=self.ties or "random",
            block=self.block,
        )


@dataclass(frozen=True)
class ImitationConfig:
    """How the planner learns to reveal what the factor rule would reveal (docs/planner.md)."""

    factor: float = 1.0
    """The rule's factor: larger reveals more at once."""
    least_block: int = 16
    """The shortest block that is shown; the longest is the whole canvas."""
    balanced: bool = True
    """Weigh the slots to reveal by (others) / (them), as published."""

    def __post_init__(self) -> None:
        if not 0 <= self.factor < float("inf"):
            raise ValueError(f"imitation.factor={self.factor}: give 0 or a positive number")
        if self.least_block < 1:
            raise ValueError(f"imitation.least_block={self.least_block}: give at least 1")


@dataclass(frozen=True)
class TuningConfig:
    """How the planner is tuned by the rewards of what it decodes (docs/planner.md)."""

    group: int = 8
    """Samples of each problem, which are compared with each other."""
    correct: float = 1.0
    """Reward of a program that passes all checks."""
    step_penalty: float = 0.01
    """Taken from the reward for each step (published: 0.002 where a program gives 3)."""
    least_advantage: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")] = (
        None
    )
    """Advantages below this count as 0; 0, as published, learns from the better half only. Unset:
    all count."""
    temperature: float = 0.0
    """Of the tokens; 0 takes the most likely ones, so that chance is in the planner only."""
    block: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Blocks of so many slots; unset: the whole canvas."""
    joint: bool = False
    """Train the backbone as well, through its tokens' probabilities."""
    workers: int = 1
    """Processes that run programs."""

    def __post_init__(self) -> None:
        for name, least in (("group", 2), ("workers", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"tuning.{name}={getattr(self, name)}: give at least {least}")
        for name in ("correct", "step_penalty", "temperature"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"tuning.{name}={getattr(self, name)}: give 0 or more")
        if self.block is not None and self.block < 1:
            raise ValueError(f"tuning.block={self.block}: a block has at least one slot")
