"""How many items a step takes, and from where: quotas and windows.

A quota turns "step i of S, M items open at the start, so many open now" into a count per row:

    even        M // S each, the first M mod S steps one more (LLaDA)
    dream       floor(open * (1 - t_{i+1} / t_i)) on t = linspace(1, eps, S + 1), the rest last
    threshold   the best item, and every other whose probability reaches p (Fast-dLLM)

Where items come and go on a clock (flexmdm), each open item's turn comes in this step with a chance
c that the clock gives, and M counts what is open now:

    thinned     Binomial(M, c): as many as if each item decided for itself
    poisson     Poisson(M c), at most M (the release of FlexMDM); a chance of 1 takes all

A window says which open items may be taken: the whole canvas, or block(n), which closes blocks of n
free slots from left to right (semi-autoregressive); given steps are shared equally among blocks.
Letters: B rows, L canvas positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from anyorder.process import counts


@dataclass(frozen=True)
class Progress:
    """Where each row stands inside its window."""

    step: Tensor
    """Steps already made in this window.  # B"""
    steps: Tensor
    """Steps planned for the window.  # B"""
    initial: Tensor
    """Items open when the window began.  # B"""
    open: Tensor
    """Items open in the window now.  # B"""
    chance: Tensor | None = None
    """On a clock: how likely each open item's turn is to come in this step.  # B"""
    noise: Tensor | None = None
    """On a clock: keyed uniform noise for the count.  # B"""


class Quota(Protocol):
    """How many items to take."""

    reads_scores: bool
    """Whether the scores must be log-probabilities that the quota can compare with a threshold."""

    def counts(self, progress: Progress, scores: Tensor | None) -> Tensor:
        """Items to take in each row; `scores` (B L, -inf where closed) if `reads_scores`.  # B"""
        ...


@dataclass(frozen=True)
class Even:
    """M // S items a step, one more in the first M mod S steps."""

    reads_scores = False

    def counts(self, progress: Progress, scores: Tensor | None) -> Tensor:
        base = progress.initial // progress.steps
        extra = progress.step < progress.initial % progress.steps
        return torch.minimum(base + extra, progress.open)


@dataclass(frozen=True)
class Dream:
    """The Dream family's transfer counts: floor(open * (1 - s/t)), the rest at the last step."""

    eps: float = 1e-3
    """The time at which the grid ends."""
    reads_scores = False

    def __post_init__(self) -> None:
        if not 0 <= self.eps < 1:
            raise ValueError(f"the grid's end must be in [0, 1), not {self.eps}")

    def counts(self, progress: Progress, scores: Tensor | None) -> Tensor:
        spacing = (1 - self.eps) / progress.steps.double()
        now, later = 1 - progress.step * spacing, 1 - (progress.step + 1) * spacing
        counts = (progress.open * (1 - later / now)).floor().to(torch.int64)
        return torch.where(progress.step >= progress.steps - 1, progress.open, counts)


@dataclass(frozen=True)
class Threshold:
    """The best item always, and every item whose probability is at least `probability`."""

    probability: float = 0.9
    reads_scores = True

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ValueError(f"a threshold is a probability in (0, 1], not {self.probability}")

    def counts(self, progress: Progress, scores: Tensor | None) -> Tensor:
        assert scores is not None
        sure = (scores >= math.log(self.probability)).sum(dim=1)
        return torch.minimum(sure.clamp(min=1), progress.open)


@dataclass(frozen=True)
class Thinned:
    """Binomial(open, chance): every open item decides for itself."""

    reads_scores = False

    def counts(self, progress: Progress, scores: Tensor | None) -> Tensor:
        assert progress.chance is not None and progress.noise is not None
        return counts.binomial(progress.open, progress.chance, progress.noise)


@dataclass(frozen=True)
class Poisson:
    """Poisson(open * chance), at most all; a chance of 1 takes all."""

    reads_scores = False

    def counts(self, progress: Progress, scores: Tensor | None) -> Tensor:
        assert progress.chance is not None and progress.noise is not None
        drawn = counts.poisson(progress.open * progress.chance, progress.noise)
        return torch.where(progress.chance < 1, drawn.minimum(progress.open), progress.open)


def parse_quota(text: str) -> Quota:
    """`even`, `dream`, `dream:EPS`, `threshold` or `threshold:P`."""
    name, colon, argument = text.partition(":")
    if name in CLOCKED_QUOTAS:
        raise ValueError(
            f"the quota {name!r} follows the clock of a growing canvas, which a fixed one lacks: "
            "choose even, dream[:eps] or threshold[:p]"
        )
    if name not in QUOTAS or (name == "even" and colon) or (colon and not argument):
        raise ValueError(f"unknown quota {text!r}: choose even, dream[:eps] or threshold[:p]")
    try:
        return QUOTAS[name](*([float(argument)] if argument else []))
    except ValueError as error:
        raise ValueError(f"quota {text!r}: {error}") from None


def find_clocked_quota(name: str) -> Quota:
    """`thinned` or `poisson`."""
    if name not in CLOCKED_QUOTAS:
        raise ValueError(
            f"unknown quota {name!r}: on a growing canvas, choose {' or '.join(CLOCKED_QUOTAS)}"
        )
    return CLOCKED_QUOTAS[name]


QUOTAS: dict[str, Callable[..., Quota]] = {"even": Even, "dream": Dream, "threshold": Threshold}
CLOCKED_QUOTAS: dict[str, Quota] = {"thinned": Thinned(), "poisson": Poisson()}


def block_of_slots(free: Tensor, block: int | None) -> Tensor:
    """The block number of every free position, counted over free slots; -1 elsewhere.  # B L"""
    rank = free.long().cumsum(dim=1) - 1
    numbers = torch.zeros_like(rank) if block is None else rank // block
    return numbers.masked_fill(~free, -1)


def steps_per_block(steps: int | None, slots: int, block: int | None) -> int:
    """The steps that each block gets; 0: as many as it has slots, when no number was given."""
    if steps is None or block is None:
        return steps or 0
    blocks = math.ceil(slots / block)
    if steps % blocks:
        raise ValueError(
            f"{steps} steps cannot be shared equally among {blocks} blocks of {block} slots: "
            f"choose a multiple of {blocks}, or leave --steps out"
        )
    return steps // blocks
