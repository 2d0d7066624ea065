"""The settings of flexlatent: insertion over segments.

Its clock is that of flexmdm, its policies are those of latentmdm. The clock decides how many
segments a step reveals, so there is no k.

The network's shape, what only its training asks for, and how it is decoded. Never torch: `resolve`
in decode.py fills the options in and checks them. An option that the chosen path would not use is
an error, never ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anyorder.families.config import ClockOptions, DrawOptions
from anyorder.families.flexmdm.config import InsertionConfig
from anyorder.families.latentmdm.config import check_reconstruct


@dataclass(frozen=True)
class FlexLatentOptions(DrawOptions, ClockOptions):
    """How to decode with flexlatent. Unset choices follow `clock` and `policy`."""

    policy: str = "average"
    """average, minimum, first, left_to_right or random: which open segments first."""
    slots: int | None = None
    """At most so many segments; unset: as many as in training."""
    ties: Literal["random", "leftmost"] | None = None
    """Who wins among equal scores. Unset: random."""
    candidates: bool = False
    """Record every candidate of every step, with its score."""


@dataclass(frozen=True)
class SegmentInsertionConfig(InsertionConfig):
    """How flexlatent's loss is weighted, normalised and targeted."""

    reconstruct: float = 0.0
    """Weight of writing the revealed segments too, each from its own condition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reconstruct("insertion", self.reconstruct)
