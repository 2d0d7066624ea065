"""The settings of sflm: a flow on the sphere over a fixed canvas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anyorder.families.config import Description, NetConfig, check_choices
from anyorder.nets.shapes import OnBackbone


@dataclass(frozen=True)
class SphereSettings:
    """The choices of a network over unit vectors besides its backbone."""

    architecture: Literal["backbone", "dit"] = "backbone"
    """The one backbone of all families, or the published DiT, which has no attention biases."""


@dataclass(frozen=True)
class SphereNetConfig(SphereSettings, NetConfig):
    """The network of sflm over unit vectors (families/sflm/net.py)."""

    tied: bool = False
    """Whether the head shares the table of token vectors; published, and in the dit: no."""
    delta: float = 0.1
    """The schedule ends where another token is nearer than the clean one with this chance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.architecture == "dit" and (self.o_bias or self.kv_heads is not None):
            raise ValueError("the dit uses neither net.o_bias nor net.kv_heads: leave them out")
        if self.architecture == "dit" and self.tied:
            raise ValueError("the dit has a head of its own: leave net.tied out")


@dataclass(frozen=True, kw_only=True)
class SphereConfig(SphereSettings, OnBackbone):
    """The shape of the network, and the signals that it was trained with."""

    most_signal: float
    """The end of the schedule; the truncation a* of vocabulary and width."""
    least_signal: float = 1e-3
    """Its beginning."""

    def __post_init__(self) -> None:
        check_choices(self, {"architecture": ("backbone", "dit")})
        if self.backbone.causal or not self.backbone.time_modulated:
            raise ValueError("sflm needs a bidirectional network with time_modulated=True")
        if not 0 < self.least_signal < self.most_signal <= 1:
            raise ValueError(
                f"signals from {self.least_signal} to {self.most_signal} are no schedule: "
                "give 0 < least_signal < most_signal <= 1"
            )


@dataclass(frozen=True)
class Velocity:
    """Which tokens a point moves towards."""

    k: int = 0
    """Only the k most likely tokens, as if there were no others; 0: all."""
    drawn: bool = False
    """Towards one token drawn from these, not towards their mean."""


NAMED = {"exact": Velocity(), "top1": Velocity(k=1), "sampled": Velocity(drawn=True)}
"""Velocities without a number."""
USUAL = "top1"
"""With a greedy tail, the main setting of S-FLM's authors."""
NUMBERED = {"top_k": False, "sampled": True}
"""Velocities with a number k -> whether one token is drawn."""


def parse_velocity(text: str) -> Velocity:
    """exact, top1, top_k:8, sampled or sampled:8."""
    if text in NAMED:
        return NAMED[text]
    name, _, number = text.partition(":")
    if name not in NUMBERED or not number.isdecimal() or int(number) < 1:
        raise ValueError(
            f"unknown velocity {text!r}: choose exact, top1, top_k:K, sampled or sampled:K with a "
            "whole number K of at least 1"
        )
    return Velocity(int(number), NUMBERED[name])


@dataclass(frozen=True)
class SflmOptions:
    """How to decode with sflm."""

    velocity: str | None = None
    """The tokens that points move towards: top1 (default), exact (all), top_k:K, sampled or
    sampled:K. Leave it out with a single step, which moves nothing."""
    tail: Literal["greedy", "ancestral"] = "greedy"
    """The last call: take the most likely tokens, or draw from its posterior."""
    steps: int = 16
    """Network calls: each but the last moves the points, the last one reads the tokens."""
    temperature: float = 1.0
    """Divides the logits, for the velocity and for a draw at the end. If both take the most likely
    token, give 0 or 1, which then mean the same."""
    eos: str = "plain"
    """plain, fill (all after the first EOS is EOS) or forbid."""

    @property
    def policy(self) -> str:
        """No order is chosen: what traces and reports write in its place."""
        return "flow"


@dataclass(frozen=True)
class SphereLossConfig:
    """Which positions of an answer are noised."""

    infill: float = 0.0
    """Share of the examples in which only a random span of the answer is noised, so that the
    network also learns to fill gaps; the others, as published, noise all of it."""

    def __post_init__(self) -> None:
        if not 0 <= self.infill <= 1:
            raise ValueError(f"sphere.infill={self.infill}: give a share from 0 to 1")


# Without a likelihood: its cross-entropy is that of a denoiser at noised vectors, no bound.
DESCRIPTION = Description(
    name="sflm",
    title="S-FLM",
    summary="hyperspherical flow: noise moves towards token vectors, all slots at once",
    order="at_once",
    masks=False,
    color=("#3e96ef", "#5050f1"),
    spare_color=6,
    race_points=({"steps": 8}, {"steps": 16}, {"steps": 32}),
    race_several={"velocity": "exact"},
    options=SflmOptions,
)
