"""The settings of latentmdm: masked diffusion over segments.

The network's shape, what only its training asks for, and how it is decoded. Never torch: `resolve`
in decode.py fills the options in and checks them. An option that the chosen path would not use is
an error, never ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anyorder.families.config import DrawOptions


@dataclass(frozen=True)
class Tail:
    """What revealing an empty segment says about the slots after it.

    Texts are shorter than the slots there are, and in training all slots behind a text are empty.
    """

    closes: bool = False
    """Open slots after it become empty at that same step."""
    erases: bool = False
    """So do those that were revealed with content."""


TAILS = {
    "keep": Tail(),
    "stop": Tail(closes=True),
    "erase": Tail(closes=True, erases=True),
}


@dataclass(frozen=True)
class LatentOptions(DrawOptions):
    """How to decode with latentmdm. Unset choices follow `mode`."""

    policy: str = "average"
    """average, minimum, first, left_to_right or random: which segments first."""
    k: int = 1
    """Segments that a step reveals."""
    slots: int | None = None
    """At most so many segments; unset: as many as in training."""
    slot_temperature: float = 0.0
    """0 takes the best segments; above, they are drawn, by exp(score / slot_temperature)."""
    tail: Literal["stop", "keep", "erase"] | None = None
    """After an empty segment: open slots become empty (stop), nothing happens (keep), or all slots
    become empty, also those with content (erase, compat only). Exact: stop; compat: erase."""
    ties: Literal["random", "leftmost"] | None = None
    """Who wins among equal scores. Exact: random; compat: leftmost."""
    candidates: bool = False
    """Record every candidate of every step, with its score."""
    mode: Literal["exact", "compat"] = "exact"
    """compat: the choices of the published sampler; candidates get fresh noise in every step."""


@dataclass(frozen=True)
class SegmentLossConfig:
    """What latentmdm's loss has besides the masked segments."""

    reconstruct: float = 0.0
    """Weight of writing the revealed segments too, each from its own condition (the paper: 0). It
    teaches the decoder to read names out of one vector, which small models hardly learn from
    masked segments alone."""

    def __post_init__(self) -> None:
        check_reconstruct("segment_loss", self.reconstruct)


def check_reconstruct(room: str, weight: float) -> None:
    if not 0 <= weight < float("inf"):
        raise ValueError(f"{room}.reconstruct={weight}: give 0 or a positive weight")
