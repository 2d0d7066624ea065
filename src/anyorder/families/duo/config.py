"""The settings of duo: uniform-state diffusion over a fixed canvas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anyorder.families.config import Description


@dataclass(frozen=True)
class DuoOptions:
    """How to decode with duo."""

    steps: int | None = None
    """Steps, and network calls, in all; unset: one for each free slot."""
    tail: Literal["ancestral", "greedy"] = "ancestral"
    """The last step: draw from the posterior at alpha = 1, or take the likeliest clean token."""
    temperature: float = 1.0
    """Of the predicted clean tokens; 0 takes the likeliest one for certain."""
    top_p: float = 1.0
    """Predictions keep the smallest set of best tokens with more than this mass."""
    top_k: int = 0
    """Predictions keep this many best tokens; 0 keeps all."""
    eos: str = "plain"
    """plain, fill (after the last step all slots right of an EOS become EOS) or forbid."""

    @property
    def policy(self) -> str:
        """Nothing is chosen: every slot is drawn again in every step."""
        return "ancestral"


@dataclass(frozen=True)
class UniformConfig:
    """What duo's training corrupts, and its curriculum."""

    infill: float = 0.0
    """Share of the examples in which only a random span of the answer is corrupted."""
    curriculum: int = 0
    """Show soft tokens in this many first batches (steps times accumulate); 0: in none."""
    tau: float = 1e-3
    """curriculum: the temperature of soft tokens; small ones are nearly one token."""

    def __post_init__(self) -> None:
        if not 0 <= self.infill <= 1:
            raise ValueError(f"uniform.infill={self.infill}: give a share from 0 to 1")
        if self.curriculum < 0:
            raise ValueError(f"uniform.curriculum={self.curriculum}: give 0 (off) or a count")
        if not 0 < self.tau < float("inf"):
            raise ValueError(f"uniform.tau={self.tau}: give a positive temperature")
        if not self.curriculum and self.tau != UniformConfig.tau:
            raise ValueError("uniform.tau has no effect without a curriculum: leave it out")


DESCRIPTION = Description(
    name="duo",
    title="DUO",
    summary="uniform-state diffusion: any token of a fixed canvas may change at every step",
    order="at_once",
    masks=False,
    color=("#4f1503", "#a05a2c"),
    spare_color=5,
    race_points=({"steps": 8}, {"steps": 16}, {"steps": 32}),
    logit_bytes=28.0,  # measured: tests/apps/test_dry_run.py
    likelihood="uniform-state bound",
    options=DuoOptions,
)
