"""UniformConfig: the choices of duo's loss. Torch-free, like config.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UniformConfig:
    """What duo's training corrupts, and its curriculum."""

    infill: float = 0.0
    """Share of the examples in which only a random span of the answer is corrupted."""
    curriculum: int = 0
    """The first so many batches (steps times accumulate) show soft tokens; 0: none do."""
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
