"""How many slots a step inserts, and into which gaps.

The network says g_i, the log of the expected number of tokens (flexmdm) or segments (flexlatent)
still missing in gap i. With the insertion temperature T (paper, appendix D),

    n_i = E softmax(g / T)_i  over the gaps that may grow,      E = sum_i e^{g_i},

so T moves insertions between gaps and leaves their expected number alone; T = 1 is n_i = e^{g_i}.
A step in which each missing item arrives with probability `share` inserts share * n_i on average:

    poisson           N ~ Poisson(share E) in all, each placed by itself with probability n_i / E;
                      the same law as an independent Poisson(share n_i) in each gap
    binomial          Binomial(ceil n_i, share n_i / ceil n_i) in gap i
    floor_bernoulli   floor(r) + Bernoulli(r - floor r) in gap i, r = share n_i

A row that may insert only `room` more keeps the first `room` placements, or a random subset of that
size of its new slots: no gap is favoured for standing further left.
Letters: B rows, L gaps (gap i stands after position i).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from anyorder.nets.denoiser import GAP_LIMIT
from anyorder.process import counts
from anyorder.process.noise import Stream, uniform

NEARLY_WHOLE = 1e-4
"""An expected number this little above a whole one counts as whole: it is rounding."""
MOST_IN_A_GAP = 4096
"""One step puts at most so many slots into a gap; only a broken network asks for more."""


@dataclass(frozen=True)
class Demand:
    """What is missing in the gaps of each row, and what may be inserted."""

    expected: Tensor  # B L, float64; 0 where nothing may be inserted
    room: Tensor  # B, slots that may be inserted at most
    key: Tensor  # B
    slot: Tensor  # B L, who stands before each gap to the noise
    step: int

    @cached_property
    def total(self) -> Tensor:
        """E.  # B"""
        return self.expected.sum(dim=1)


def expected_missing(gaps: Tensor, grows: Tensor, temperature: float = 1.0) -> Tensor:
    """n_i; 0 in gaps that do not grow.  # B L, float64"""
    gaps = gaps.double().clamp(max=GAP_LIMIT).masked_fill(~grows, -torch.inf)
    if temperature == 1:
        return gaps.exp()
    total = gaps.logsumexp(dim=1, keepdim=True)
    # A row without a gap that grows is 0/0 here.
    return (total + (gaps / temperature).log_softmax(dim=1)).exp().masked_fill(~grows, 0.0)


def place(demand: Demand, numbers: Tensor) -> Tensor:
    """`numbers` (B) slots, each put into gap i with probability n_i / E.  # B L"""
    result = torch.zeros_like(demand.slot)
    most = int(numbers.max())
    if not most:
        return result
    nth = torch.arange(most, device=numbers.device)
    noise = uniform(0, int(Stream.PLACE), demand.key[:, None], demand.step, nth)  # B most
    cumulative = demand.expected.cumsum(dim=1)
    last = cumulative[:, -1:]
    # Rounding must not carry a target to the very end, where no gap has mass left.
    target = torch.minimum(noise * last, last.nextafter(torch.zeros_like(last)))
    gap = torch.searchsorted(cumulative, target, right=True).clamp(max=result.shape[1] - 1)
    return result.scatter_add(1, gap, (nth < numbers[:, None]).long())


def poisson(demand: Demand, share: float) -> Tensor:
    """So many new slots for each gap.  # B L"""
    noise = uniform(0, int(Stream.INSERT), demand.key, demand.step)
    return place(demand, counts.poisson(share * demand.total, noise).minimum(demand.room))


def binomial(demand: Demand, share: float) -> Tensor:
    """So many new slots for each gap.  # B L"""
    whole = (demand.expected - NEARLY_WHOLE).ceil().clamp(min=1)
    chance = (share * demand.expected / whole).clamp(max=1)
    return _within_room(demand, counts.binomial(whole, chance, _gap_noise(demand)))


def floor_bernoulli(demand: Demand, share: float) -> Tensor:
    """So many new slots for each gap.  # B L"""
    rate = share * demand.expected
    return _within_room(demand, counts.floor_bernoulli(rate, _gap_noise(demand)))


INSERTION_COUNTS: dict[str, Callable[[Demand, float], Tensor]] = {
    "poisson": poisson,
    "binomial": binomial,
    "floor_bernoulli": floor_bernoulli,
}


def _gap_noise(demand: Demand) -> Tensor:
    return uniform(0, int(Stream.INSERT), demand.key[:, None], demand.slot, demand.step)  # B L


def _within_room(demand: Demand, numbers: Tensor) -> Tensor:
    """Where a row's new slots (B L) are too many, a random subset of them as large as its room."""
    numbers = numbers.clamp(max=MOST_IN_A_GAP)
    total = numbers.sum(dim=1)
    most, excess = torch.stack([total.max(), (total - demand.room).max()]).tolist()
    if excess <= 0:
        return numbers
    nth = torch.arange(most, device=numbers.device).expand(len(numbers), most)  # B most
    noise = uniform(0, int(Stream.PLACE), demand.key[:, None], demand.step, nth)
    order = noise.masked_fill(nth >= total[:, None], 2.0).argsort(dim=1)
    rank = torch.empty_like(order).scatter(1, order, nth)
    kept = rank < total.minimum(demand.room)[:, None]
    gap = torch.searchsorted(numbers.cumsum(dim=1), nth.contiguous(), right=True)
    gap = gap.clamp(max=numbers.shape[1] - 1)
    return torch.zeros_like(numbers).scatter_add(1, gap, kept.long())
