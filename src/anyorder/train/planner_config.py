"""The choices of the planner's two trainings: imitation, tuning. Torch-free, like config.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro


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
    """Blocks of so many slots; unset: the whole canvas."""
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
