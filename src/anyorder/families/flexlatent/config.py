"""The settings of flexlatent: insertion over segments.

Its clock is that of flexmdm, its policies are those of latentmdm. The clock decides how many
segments a step reveals, so there is no k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import tyro

from anyorder.families.config import (
    ClockOptions,
    Description,
    DrawOptions,
    Specials,
    check_exponents,
)
from anyorder.families.flexmdm.config import CorrectOptions, InsertionConfig
from anyorder.families.latentmdm.config import LatentConfig, LatentNetConfig, check_reconstruct
from anyorder.nets.shapes import TransformerConfig


@dataclass(frozen=True)
class FlexLatentSettings:
    """What the networks of flexlatent have besides those of latentmdm: clocks and a gap head."""

    insertion_exponent: float = 1.7
    """alpha(t) = 1 - (1 - t)^this."""
    unmasking_exponent: float = 2.89
    """beta(t) = 1 - (1 - t)^this; smaller reveals later."""
    gap_offset: bool = False  # a prompt mostly decides how many lines there are, at any time
    """Add the known log(1 - alpha) to the gap head's output."""


@dataclass(frozen=True)
class FlexLatentNetConfig(FlexLatentSettings, LatentNetConfig):
    """The networks of flexlatent: those of latentmdm, time, and a gap head."""

    empty: tyro.conf.Fixed[Any] = "none"
    """No segment is ever empty."""


@dataclass(frozen=True)
class OnLatent:
    """The shape of a network that has the networks of latentmdm and more."""

    latent: LatentConfig


@dataclass(frozen=True)
class FlexLatentConfig(FlexLatentSettings, OnLatent):
    """The shape of the networks, and the clocks of their training."""

    def __post_init__(self) -> None:
        if not self.latent.backbone.time_modulated:
            raise ValueError("flexlatent needs a backbone with time_modulated=True")
        if self.latent.empty != "none":
            raise ValueError(
                f"empty={self.latent.empty!r}: flexlatent has no padding segments, give 'none'"
            )
        check_exponents(self)

    @property
    def backbone(self) -> TransformerConfig:
        return self.latent.backbone

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> FlexLatentConfig:
        """From the dictionary that a model's config.json holds."""
        return cls(**record | {"latent": LatentConfig.from_record(record["latent"])})

    def frame(self, vocab: Specials) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids before and after every prompt."""
        return (), (vocab.eos_id if vocab.bos_id is None else vocab.bos_id,)


@dataclass(frozen=True)
class FlexLatentOptions(CorrectOptions, DrawOptions, ClockOptions):
    """How to decode with flexlatent. Unset choices follow `clock` and `policy`."""

    policy: str = "average"
    """Which segments are revealed first: average, minimum, first, left_to_right,
    right_to_left or random."""
    slots: int | None = None
    """The most segments of a text; unset: as many as in training."""
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


DESCRIPTION = Description(
    name="flexlatent",
    title="FlexLatent",
    summary="insertion over segments: opens lines where they are missing, then fills them",
    items="segments",
    inserts=True,
    color=("#8a1a86", "#d63f9a"),
    spare_color=2,
    race_points=({"steps": 8}, {"steps": 16}, {"steps": 32}, {"clock": "events"}),
    predicted="between_clocks",
    likelihood="insertion bound over lines",
    options=FlexLatentOptions,
)
