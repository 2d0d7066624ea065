"""How many items a step takes, and from where: quotas and windows.

A quota turns "step i of S, M items open at the start, m open now" into a count per row:

    even        M // S each, the first M mod S steps one more (LLaDA)
    dream       floor(open * (1 - t_{i+1} / t_i)) on t = linspace(1, eps, S + 1), the rest last
    threshold   the best item, and every other whose probability reaches p (Fast-dLLM)
    factor      the n surest items, each of probability 1 - f / (n + 1) (process/masking.py)
    entropy_bound   the surest items, as long as the entropies before each add up to at most b nats:
                the best one always, and a second only if the first was nearly certain

With a planner's chances u (docs/planner.md), always at least the best item:

    bernoulli   every item independently, with its chance
    expected    the floor(sum of u) items with the largest chances

On a clock (flexmdm), each open item is revealed in this step with a chance c that the clock gives,
and M counts the items open now:

    thinned     Binomial(M, c): the law of independent items
    poisson     Poisson(M c), at most M (the release of FlexMDM); a chance of 1 takes all

A window says which open items may be taken: the whole canvas, or block(n), which closes blocks of n
free slots from left to right (semi-autoregressive); given steps are shared equally among blocks.
Letters: B rows, L canvas positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from anyorder.process import insertion as counts
from anyorder.process.masking import factor_counts

Scale = Literal["log_probability", "log_odds", "negative_entropy"]
"""The scores that a quota can compare: logs of probabilities, a planner's log-odds, or minus the
entropies in nats."""


@dataclass(frozen=True)
class WindowProgress:
    """The progress of each row inside its window."""

    step: Tensor
    """Steps already made in this window.  # B"""
    steps: Tensor
    """Steps planned for the window.  # B"""
    initial: Tensor
    """Items open when the window began.  # B"""
    open: Tensor
    """Items open in the window now.  # B"""
    chance: Tensor | None = None
    """On a clock: the probability that an open item is revealed in this step.  # B"""
    noise: Tensor | None = None
    """On a clock: keyed uniform noise for the count.  # B"""


class Quota(Protocol):
    """How many items to take."""

    @property
    def reads_scores(self) -> Scale | None:
        """The kind of scores that the quota reads; None: it reads none."""

    def counts(self, progress: WindowProgress, scores: Tensor | None) -> Tensor:
        """Items to take in each row; `scores` (B L, -inf where closed) if `reads_scores`.  # B"""
        ...


@runtime_checkable
class ItemwiseQuota(Protocol):
    """A quota under which every item is drawn independently."""

    def lift(self, scores: Tensor, lots: Tensor) -> Tensor:
        """The scores (B L), with +inf for items that won; `lots` (B L) are uniform."""
        ...


@dataclass(frozen=True)
class Even:
    """M // S items a step, one more in the first M mod S steps."""

    reads_scores: ClassVar[Scale | None] = None

    def counts(self, progress: WindowProgress, scores: Tensor | None) -> Tensor:
        base = progress.initial // progress.steps
        extra = progress.step < progress.initial % progress.steps
        # A stopping rule may have closed slots besides, so fewer can be open than planned.
        return torch.minimum(base + extra, progress.open)


@dataclass(frozen=True)
class Dream:
    """The Dream family's transfer counts: floor(open * (1 - s/t)), the rest at the last step."""

    eps: float = 1e-3
    """The time at which the grid ends."""
    reads_scores: ClassVar[Scale | None] = None

    def __post_init__(self) -> None:
        if not 0 <= self.eps < 1:
            raise ValueError(f"the grid's end must be in [0, 1), not {self.eps}")

    def counts(self, progress: WindowProgress, scores: Tensor | None) -> Tensor:
        # float64: the floor below would turn a rounding error into another count.
        spacing = (1 - self.eps) / progress.steps.double()
        now, later = 1 - progress.step * spacing, 1 - (progress.step + 1) * spacing
        counts = (progress.open * (1 - later / now)).floor().to(torch.int64)
        # The grid ends at eps, not at 0, so the floor would leave items open.
        return torch.where(progress.step >= progress.steps - 1, progress.open, counts)


@dataclass(frozen=True)
class Threshold:
    """The best item always, and every item whose probability is at least `probability`."""

    probability: float = 0.9
    reads_scores: ClassVar[Scale | None] = "log_probability"

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ValueError(f"a threshold is a probability in (0, 1], not {self.probability}")

    def counts(self, progress: WindowProgress, scores: Tensor | None) -> Tensor:
        assert scores is not None
        sure = (scores >= math.log(self.probability)).sum(dim=1)
        # At least one, else a row that is never sure would never end.
        return torch.minimum(sure.clamp(min=1), progress.open)


@dataclass(frozen=True)
class Factor:
    """The surest items, as long as n together are sure enough: 1 - factor / (n + 1) each."""

    factor: float = 1.0
    reads_scores: ClassVar[Scale | None] = "log_probability"

    def __post_init__(self) -> None:
        if not 0 <= self.factor < math.inf:
            raise ValueError(f"a factor is 0 or a positive number, not {self.factor}")

    def counts(self, progress: WindowProgress, scores: Tensor | None) -> Tensor:
        assert scores is not None
        return factor_counts(scores, self.factor).clamp(min=1).minimum(progress.open)


@dataclass(frozen=True)
class EntropyBound:
    """The items of lowest entropy, while the sum of those before is at most `nats`."""

    nats: float = 0.1
    reads_scores: ClassVar[Scale | None] = "negative_entropy"

    def __post_init__(self) -> None:
        if not 0 <= self.nats < math.inf:
            raise ValueError(f"a bound on entropies is 0 or a positive number, not {self.nats}")

    def counts(self, progress: WindowProgress, scores: Tensor | None) -> Tensor:
        assert scores is not None
        ordered = scores.sort(dim=1, descending=True).values  # B L
        there = ordered > -torch.inf
        entropy = -ordered.masked_fill(~there, 0.0)
        before = entropy.cumsum(dim=1) - entropy
        within = (there & (before <= self.nats)).sum(dim=1)
        # At least one, though all may wait: see `_comparable` of families/mdm/decode.py.
        return within.clamp(min=1).minimum(progress.open)


@dataclass(frozen=True)
class Bernoulli:
    """Every item with its own chance; the best one if none wins."""

    reads_scores: ClassVar[Scale | None] = "log_odds"

    def lift(self, scores: Tensor, lots: Tensor) -> Tensor:
        # Infinite scores rank first, so exactly the winners are taken.
        return scores.masked_fill(lots < scores.sigmoid(), torch.inf)

    def counts(self, progress: WindowProgress, scores: Tensor | None) -> Tensor:
        assert scores is not None
        # At least one, else a row whose chances are small would hardly ever end.
        return (scores == torch.inf).sum(dim=1).clamp(min=1).minimum(progress.open)


@dataclass(frozen=True)
class Expected:
    """As many as the chances add up to, rounded down; one at least."""

    reads_scores: ClassVar[Scale | None] = "log_odds"

    def counts(self, progress: WindowProgress, scores: Tensor | None) -> Tensor:
        assert scores is not None
        expected = scores.sigmoid().sum(dim=1).floor().long()
        return expected.clamp(min=1).minimum(progress.open)


@dataclass(frozen=True)
class Thinned:
    """Binomial(open, chance): open items are revealed independently."""

    reads_scores: ClassVar[Scale | None] = None

    def counts(self, progress: WindowProgress, scores: Tensor | None) -> Tensor:
        assert progress.chance is not None and progress.noise is not None
        return counts.binomial(progress.open, progress.chance, progress.noise)


@dataclass(frozen=True)
class Poisson:
    """Poisson(open * chance), at most all open items; a chance of 1 takes all."""

    reads_scores: ClassVar[Scale | None] = None

    def counts(self, progress: WindowProgress, scores: Tensor | None) -> Tensor:
        assert progress.chance is not None and progress.noise is not None
        drawn = counts.poisson(progress.open * progress.chance, progress.noise)
        # At chance 1 the clock has run out: what is not taken now would stay masked.
        return torch.where(progress.chance < 1, drawn.minimum(progress.open), progress.open)


QUOTA_NAMES = (
    "even, dream[:eps], threshold[:p] or factor[:f], with the policy entropy entropy_bound[:nats], "
    "with a planner bernoulli or expected"
)


def parse_quota(text: str) -> Quota:
    """A quota of a fixed canvas by its name, and its number after a colon: `threshold:0.9`."""
    name, colon, argument = text.partition(":")
    if name in CLOCKED_QUOTAS:
        raise ValueError(
            f"the quota {name!r} follows the clock of a growing canvas, which a fixed one lacks: "
            f"choose {QUOTA_NAMES}"
        )
    # A quota without fields takes no number.
    if name not in QUOTAS or (colon and not (argument and fields(QUOTAS[name]))):
        raise ValueError(f"unknown quota {text!r}: choose {QUOTA_NAMES}")
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


QUOTAS: dict[str, Any] = {
    "even": Even,
    "dream": Dream,
    "threshold": Threshold,
    "factor": Factor,
    "entropy_bound": EntropyBound,
    "bernoulli": Bernoulli,
    "expected": Expected,
}
CLOCKED_QUOTAS: dict[str, Quota] = {"thinned": Thinned(), "poisson": Poisson()}


def block_of_slots(free: Tensor, block: int | None) -> Tensor:
    """The block number of every free position, counted over free slots; -1 elsewhere.  # B L"""
    rank = free.long().cumsum(dim=1) - 1
    numbers = torch.zeros_like(rank) if block is None else rank // block
    return numbers.masked_fill(~free, -1)


def steps_per_block(steps: int | None, slots: int, block: int | None) -> int:
    """The steps that each block gets; 0: one for each slot, if no number is given."""
    if steps is None or block is None:
        return steps or 0
    blocks = math.ceil(slots / block)
    if steps % blocks:
        raise ValueError(
            f"{steps} steps cannot be shared equally among {blocks} blocks of {block} slots: "
            f"choose a multiple of {blocks}, or leave --steps out"
        )
    return steps // blocks
