"""The settings of mdm: masked diffusion over a fixed canvas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

from anyorder.families.config import Description, DrawOptions, NetConfig
from anyorder.nets.shapes import OnBackbone


@dataclass(frozen=True)
class PlannerSettings:
    """What a planner head has besides its backbone (planner.py)."""

    planner_mlp_width: int = 128
    """Inner width of the head's feed-forward map."""
    planner_features: int = 64
    """Sinusoids that tell the head how much is masked (published: 256)."""


@dataclass(frozen=True)
class PlannedNetConfig(PlannerSettings, NetConfig):
    """The network of a planned mdm: the backbone and a planner head (families/mdm/planner.py)."""


@dataclass(frozen=True)
class PlannedConfig(PlannerSettings, OnBackbone):
    """The shape of a backbone and of its planner head."""

    planner_mlp_width: int = field()  # a file without it is damaged
    planner_features: int = 256

    def __post_init__(self) -> None:
        if self.backbone.causal or self.backbone.time_modulated:
            raise ValueError("a planner needs a bidirectional backbone without time modulation")
        if self.planner_mlp_width < 1:
            raise ValueError(f"planner_mlp_width={self.planner_mlp_width}: give at least 1")
        if self.planner_features < 2 or self.planner_features % 2:
            raise ValueError(
                f"planner_features={self.planner_features}: give an even number from 2 on"
            )


@dataclass(frozen=True)
class MdmOptions(DrawOptions):
    """How to decode with mdm. Unset choices follow `mode`."""

    policy: str | None = None
    """Which slots are revealed first: confidence, sampled, margin, entropy,
    left_to_right, right_to_left or random; planner, for models that have one. Exact: confidence;
    compat: sampled."""
    quota: str | None = None
    """How many slots a step reveals: even, dream[:eps], threshold[:p] or factor[:f]. Exact: even;
    compat: dream. With the policy entropy also entropy_bound[:nats]; with the planner also
    bernoulli, its default, or expected."""
    posterior: Literal["untempered", "filtered"] | None = None
    """The distribution that scores read: before temperature, top_p and top_k (untempered) or after
    them (filtered). Exact: untempered; compat: filtered."""
    ties: Literal["random", "leftmost"] | None = None
    """Who wins among equal scores. Exact: random; compat: leftmost."""
    block: int | None = None
    """Fill blocks of this many slots from left to right; unset: the whole canvas at once."""
    steps: int | None = None
    """Steps in all; unset: one for each free slot."""
    eos: str = "plain"
    """What happens to EOS: plain (a token like any other), last (revealed after all others), fill
    (all open slots to the right of one become EOS) or forbid (it is never written)."""
    remask: str | None = None
    """Mask revealed tokens again: cap:ETA, rescale:ETA or loop:ETA (ReMDM), or the heuristic
    confidence[:ETA]. Needs steps, and decides how many slots each of them reveals; the order is
    random unless you choose a policy. Unset: revealed tokens stay."""
    planner_temperature: float | None = None
    """With the policy planner: divides the log-odds of revealing a slot. Unset: 1."""
    cache: Literal["none", "prefix", "block"] | None = None
    """Compute fewer columns, approximately (docs/fast_decoding.md): prefix keeps the prompt and the
    closed blocks from the start of the current block, block also what is right of it. Unset, or
    none: compute all columns."""
    cache_refresh: int | None = None
    """With a cache: compute all columns again after this many network calls. Unset: only at the
    start of each block (docs/fast_decoding.md)."""
    mode: Literal["exact", "compat"] = "exact"
    """compat: the choices of the published Dream sampler."""


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
    """Blocks of this many slots; unset: the whole canvas."""
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


DESCRIPTION = Description(
    name="mdm",
    title="MDM",
    summary="masked diffusion: any masked token of a fixed canvas",
    color=("#2f66d6", "#6a93f0"),
    spare_color=3,
    race_points=({"steps": 8}, {"steps": 16}, {"steps": 32}, {"steps": 64}),
    predicted="half",
    likelihood="any-order bound over tokens",
    options=MdmOptions,
)
