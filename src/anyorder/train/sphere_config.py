"""SphereLossConfig: the choices of sflm's loss. Torch-free, like config.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SphereLossConfig:
    """Which positions of an answer are noised."""

    infill: float = 0.0
    """Share of the examples in which only a random span of the answer is noised, so that the
    network also learns to fill gaps; the others, as published, noise all of it."""

    def __post_init__(self) -> None:
        if not 0 <= self.infill <= 1:
            raise ValueError(f"sphere.infill={self.infill}: give a share from 0 to 1")
