"""The settings of a run without a network: problems, dials and canvas. Quick to import.

model_free.py decodes such a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anyorder.data.corpora.stories import StoriesConfig

CANVAS = 64
"""Slots, as many as the trained models have."""


@dataclass(frozen=True)
class FreeSetting:
    """What is decoded, and how."""

    layout: float = 0.0
    wording: float = 0.0
    align: str = "left"
    """Where the program stands on its canvas."""
    ties: Literal["random", "leftmost"] = "random"
    """Who wins among equal confidences."""
    draws: int = 4096
    """Renderings of each problem."""
    problems: int = 100
    seed: int = 0

    @property
    def config(self) -> StoriesConfig:
        """The corpus."""
        return StoriesConfig(split="heldout", layout=self.layout, wording=self.wording)
