"""The options of duo decoding: what a user may choose, what is filled in, what is refused.

An option that the chosen path would not use is an error, never ignored. The loop is duo.py.

UniformConfig: the choices of duo's loss. Torch-free, like config.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anyorder.decode.draw import Draw, Stopping, find_stopping


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
        """Nothing is chosen: every slot is drawn anew in every step."""
        return "ancestral"

    def resolved(self) -> DuoOptions:
        """The same options, checked."""
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1, not {self.steps}")
        if self.tail not in ("ancestral", "greedy"):
            raise ValueError(f"tail must be 'ancestral' or 'greedy', not {self.tail!r}")
        if self.stopping().waits:
            raise ValueError(
                "eos='last' ranks the slots of masked models, and duo ranks nothing: choose plain, "
                "fill or forbid"
            )
        self.draw().refuse_idle_filters()
        if self.tail == "greedy" and self.steps == 1 and self.draw() != DuoOptions().draw():
            raise ValueError(
                "temperature, top_p and top_k have no effect on a single greedy step: leave them "
                "out, or give more steps"
            )
        return self

    def draw(self) -> Draw:
        return Draw(self.temperature, self.top_p, self.top_k)

    def stopping(self) -> Stopping:
        return find_stopping(self.eos)


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
