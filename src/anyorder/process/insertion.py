"""Insertion-based masked diffusion over generic items (paper, Section 4.1 and appendix D).

Every free item has two times, its insertion and then its reveal:

    T1 ~ alpha,    T2 ~ beta given T2 >= T1:   1 - beta(T2) = (1 - beta(T1)) u

At time t an item is deleted (t < T1), masked (T1 <= t < T2) or clean. The survivors move together;
`origin` remembers which clean item each visible slot is. With alpha = 1 - (1 - t)^a, beta =
1 - (1 - t)^c and c = a b:

    P(deleted) = (1 - t)^a,    P(masked) = ((1 - t)^a - (1 - t)^c) / (b - 1)

A network predicts f_i(v), the token behind a masked slot, and g_i, the log of the number of items
missing in the gap after slot i. The loss at time t, with phi(x, g) = e^g - x g,

    w_beta(t) * sum over masked i of -log f_i(x_i)  +  w_alpha(t) * sum over gaps i of phi(x_i, g_i)

has its minimum at the exact posterior and at the exact conditional mean, for any weights that
depend on time alone. The weights of the likelihood bound are the hazards beta'/(1 - beta) and
alpha'/(1 - alpha). (The paper's first display has a stray minus before the second term; its display
in tau is right.)

Two coordinates: raw time t with (alpha, beta), and insertion progress tau = alpha(t), where
insertion is the identity and unmasking is B(tau) = beta(alpha^{-1}(tau)): `Clocks.in_progress`.
Every function below serves both, by the clocks that it is given.

Alignment (`align`). Given a clean row x and its visible part z, every order-preserving way to place
the slots of z on items of x that agree with them has the same probability, since all of them delete
the same number of items. So the posterior of an alignment is uniform over these embeddings, and

    P(s_i = j | x, z),   E[s_{i+1} - s_i - 1 | x, z]   (missing in the gap after slot i)

come from counting embeddings, forward and backward. As targets they have the mean of the one
alignment that was drawn, and a smaller variance (Rao-Blackwell). Counts are kept as logarithms:
they grow like binomial coefficients.

Counts (`poisson`, `binomial`, `floor_bernoulli`), each drawn from one uniform number u:

    poisson(r)            P(k) = e^{-r} r^k / k!
    binomial(n, p)        P(k) = C(n, k) p^k (1 - p)^(n - k)
    floor_bernoulli(r)    floor(r), and one more with probability r - floor(r)

The first two invert the cumulative distribution: the smallest k with P(X <= k) > u. So a count
depends on its own noise and its own law only. Probabilities are float64, from logarithms, and right
to about 1e-11 for means of some thousands. They are summed over a window around the mean; by
Bernstein's inequality, with m the mean and v the variance,

    P(|X - m| > c) <= 2 exp(-c^2 / (2 (v + c/3))),

the probability outside is less than the spacing of the uniform numbers.

Items are as in masking.py, at the left of their row: a token for flexmdm, a segment for flexlatent.
Not here: networks, and the decoder's clock (decode/growing.py).
Letters: B rows, N clean items (or draws), S visible slots, M masked slots of the whole batch, W
width of the window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise, Stream
from anyorder.process.schedule import LINEAR, Power, carried

PUBLISHED_INSERTION, PUBLISHED_UNMASKING = Power(1.7), Power(1.7 * 1.7)
HAZARD_CAP = 100.0
"""Exact weights grow like 1 / (1 - t); above this they stay level: in insertion progress for the
last 1 % of the items, in raw time at a = 1.7 for the last 0.1 % of them."""
COMPAT_EPS = 1e-3
"""Added to the denominators of the published weights."""
LAST_TIME = 1 - 1e-6

Weighting = Literal["hazard", "compat"]


@dataclass(frozen=True)
class Clocks:
    """When items are inserted, and when they are revealed."""

    insertion: Power = PUBLISHED_INSERTION
    unmasking: Power = PUBLISHED_UNMASKING

    def in_progress(self) -> Clocks:
        """The same process in insertion progress tau = alpha(t)."""
        return Clocks(LINEAR, carried(self.unmasking, self.insertion))

    def times(self, inserted: Tensor, revealed: Tensor) -> tuple[Tensor, Tensor]:
        """T1 and T2 from two uniforms of equal shape."""
        first = self.insertion.inverse(inserted)
        waited = (1 - self.unmasking.value(first)) * revealed  # 1 - beta(T2)
        return first, self.unmasking.inverse(1 - waited)

    def shares(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """P(deleted), P(masked), P(clean) of an item at time t; the schedule figure's curves."""
        a, c = self.insertion.exponent, self.unmasking.exponent
        deleted = (1 - t) ** a
        log_left = torch.log((1 - t).clamp(min=torch.finfo(t.dtype).tiny))
        # The difference of the two powers, in a form that stays exact for nearly equal exponents.
        per_exponent = -torch.expm1((c - a) * log_left) / (c - a) if a != c else -log_left
        masked = torch.where(t < 1, a * deleted * per_exponent, 0.0)
        return deleted, masked, 1 - deleted - masked


@dataclass(frozen=True)
class InsertionItems:
    """The clean rows."""

    free: Tensor
    """Items that may be deleted and masked.  # B N"""
    gaps: Tensor
    """Whether items may be missing right after each item.  # B N"""
    length: Tensor
    """Items of each row, frozen ones included.  # B"""


@dataclass(frozen=True)
class Interpolant:
    """The visible slots of each row at its time, packed to the left."""

    time: Tensor  # B, float64
    origin: Tensor
    """The clean item that each slot is; 0 at padding.  # B S"""
    real: Tensor
    """False at padding.  # B S"""
    masked: Tensor  # B S
    gaps: Tensor
    """The gaps that the loss counts.  # B S"""
    missing: Tensor
    """How many items are missing in the gap after each slot.  # B S"""


def answer_items(
    first: Tensor, last: Tensor, count: int, index: Tensor, noise: Noise, infill: float
) -> InsertionItems:
    """Rows of up to `count` items whose answers are the items [first, last).

    The answer is free; gaps follow the item before it and each of its items. For a share `infill`
    of the examples only a span between two random cuts of the answer is free, and only its gaps
    count: the rest is text around a gap to fill.
    """
    length = last
    if infill:
        cuts = noise.uniform(Stream.SPAN, index[:, None], torch.arange(2, device=index.device))
        places = first[:, None] + (cuts * (last - first + 1)[:, None]).floor().long()  # B 2
        chosen = noise.uniform(Stream.SPAN, index, 2) < infill
        first = torch.where(chosen, places.amin(dim=1), first)
        last = torch.where(chosen, places.amax(dim=1), last)
    item = torch.arange(count, device=index.device)
    free = (item >= first[:, None]) & (item < last[:, None])
    gaps = (item >= first[:, None] - 1) & (item < last[:, None])
    return InsertionItems(free=free, gaps=gaps, length=length)


def corrupt(items: InsertionItems, index: Tensor, noise: Noise, clocks: Clocks) -> Interpolant:
    """The interpolant at a random time for each row; a level is the share of time still to come.

    `index` (B) names the examples: an item's two times belong to its example.
    """
    free = items.free
    time = (1 - noise.levels(len(free), free.device)).clamp(max=LAST_TIME)
    item = torch.arange(free.shape[1], device=free.device)
    keys = (index[:, None], item[None, :])
    first, second = clocks.times(
        noise.uniform(Stream.PLACE, *keys), noise.uniform(Stream.REVEAL, *keys)
    )
    here = time[:, None]
    return pack(items, deleted=free & (here < first), masked=free & (here < second), time=time)


def pack(items: InsertionItems, *, deleted: Tensor, masked: Tensor, time: Tensor) -> Interpolant:
    """Pack the surviving items to the left, and count the missing ones.  # B N -> B S"""
    item = torch.arange(deleted.shape[1], device=deleted.device)
    visible = (item < items.length[:, None]) & ~deleted  # B N
    slots = int(visible.sum(dim=1).max())
    origin = (~visible).to(torch.int8).argsort(dim=1, stable=True)[:, :slots]  # B S
    real = visible.gather(1, origin)
    origin = origin.masked_fill(~real, 0)
    # Item 0 never follows another, so 0 marks the end of a row.
    following = torch.cat([origin[:, 1:], torch.zeros_like(origin[:, :1])], dim=1)
    is_last = real & (following == 0)
    following = torch.where(is_last, items.length[:, None], following)
    gaps = items.gaps.gather(1, origin) & real
    return Interpolant(
        time=time,
        origin=origin,
        real=real,
        masked=masked.gather(1, origin) & real,
        gaps=gaps,
        missing=(following - origin - 1).masked_fill(~gaps, 0),
    )


def weights(kind: Weighting, schedule: Power, time: Tensor, cap: float = HAZARD_CAP) -> Tensor:
    """The weight of one term at each row's time.  # B

    `hazard`: n / (1 - t), at most `cap`. `compat`: alpha' / (1 - alpha + 1e-3), the published one,
    which falls towards 0 at late times.
    """
    if kind == "hazard":
        return schedule.hazard(time).clamp(max=cap)
    if kind == "compat":
        return schedule.derivative(time) / (1 - schedule.value(time) + COMPAT_EPS)
    raise ValueError(f"unknown weighting {kind!r}: choose 'hazard' or 'compat'")


def poisson_loss(missing: Tensor, log_mean: Tensor) -> Tensor:
    """phi(x, g) = e^g - x g: the Poisson likelihood without its constant."""
    return log_mean.exp() - missing * log_mean


@dataclass(frozen=True)
class InsertionWeights:
    """The factors of each row's two sums."""

    unmask: Tensor  # B
    insert: Tensor  # B


def weighted(
    nats: Tensor, log_mean: Tensor, missing: Tensor, seen: Interpolant, scale: InsertionWeights
) -> LossParts:
    """The loss from the masked slots' nats (M, in row-major order) and the gaps' log means (B S).

    `missing` (B S) are the counts to predict: those of `seen`, or their conditional means.
    """
    row = seen.masked.nonzero()[:, 0]
    if len(nats) != len(row):
        raise ValueError(f"{len(nats)} losses for {len(row)} masked slots: pass one for each")
    phi = poisson_loss(missing, log_mean) * seen.gaps  # B S
    unmask = (nats * scale.unmask.to(nats.dtype)[row]).sum()
    insert = (phi.sum(dim=1) * scale.insert.to(phi.dtype)).sum()
    return LossParts(
        loss=unmask + insert,
        nats=nats.detach().sum(),
        tokens=torch.tensor(nats.shape[0], device=nats.device),
        extras={"gap_loss": phi.detach().sum()},
    )


def divisor(kind: str, items: InsertionItems, max_length: int) -> Tensor:
    """The divisor of each row's loss, besides the number of rows.  # B

    `rows`: 1, the paper's own form. `max_length`: a fixed number, the published choice.
    `items`: the mean number of free items in the batch, the usual token mean. It is one number for
    all rows of a batch: dividing each row by its own length would favour short rows wherever the
    visible slots leave the length open, and move the minimum away from the posterior. The remaining
    bias falls like 1 / rows; the other two have none.
    """
    if kind == "items":
        return (items.free.sum() / len(items.free)).clamp(min=1).expand(len(items.free))
    if kind == "rows":
        return torch.ones_like(items.length)
    if kind == "max_length":
        return torch.full_like(items.length, max_length)
    raise ValueError(f"unknown normalisation {kind!r}: choose items, rows or max_length")


@dataclass(frozen=True)
class Alignment:
    """The posterior marginals."""

    origin: Tensor
    """P(slot i is item j); rows of padding are 0.  # B S N"""
    missing: Tensor
    """Expected number of items missing in the gap after each slot; 0 where none may be.  # B S"""


def could_be(seen: Interpolant, items: InsertionItems, shown: Tensor) -> Tensor:
    """Which item each slot could be.  # B S N

    `shown` (B S N): whether a clean slot shows the content of an item. Frozen items are never
    deleted, so a frozen slot is itself and a free slot is a free item.
    """
    item = torch.arange(items.free.shape[1], device=seen.origin.device)
    itself = item == seen.origin[:, :, None]
    is_free = items.free.gather(1, seen.origin)[:, :, None]
    alike = items.free[:, None, :] & (shown | seen.masked[:, :, None])
    return torch.where(is_free, alike, itself) & seen.real[:, :, None]


def align(possible: Tensor, seen: Interpolant, items: InsertionItems) -> Alignment:
    """The posterior over embeddings of the slots into the items they could be (B S N)."""
    # Before the first gap nothing is missing: slots there are the items of the same number, and a
    # long prompt need not enter the sums below.
    certain = int(items.gaps.long().argmax(dim=1).min())
    origin = possible.to(torch.float64)
    open_part = (slice(None), slice(certain, None), slice(certain, None))
    origin[open_part] = _marginals(possible[open_part], seen.real[:, certain:])
    item = torch.arange(origin.shape[2], dtype=origin.dtype, device=origin.device)
    place = origin @ item  # B S, the expected item
    following = torch.cat([place[:, 1:], torch.zeros_like(place[:, :1])], dim=1)
    has_next = torch.cat([seen.real[:, 1:], torch.zeros_like(seen.real[:, :1])], dim=1)
    following = torch.where(has_next, following, items.length[:, None].to(place.dtype))
    missing = (following - place - 1).clamp(min=0)
    return Alignment(origin, missing.masked_fill(~seen.gaps, 0))


def _marginals(possible: Tensor, real: Tensor) -> Tensor:
    """P(slot i is item j) under the uniform law over embeddings; 0 at padding.  # B S N"""
    allowed = torch.where(possible, 0.0, -torch.inf).to(torch.float64)
    joint = _ways_before(allowed) + _ways_after(allowed, real)
    total = joint.logsumexp(dim=2, keepdim=True)  # the same for every slot of a row
    return torch.where(real[:, :, None], (joint - total).exp(), 0.0)


def _strictly_before(ways: Tensor) -> Tensor:
    """log of the sum over all items left of each one.  # B N"""
    return torch.nn.functional.pad(ways.logcumsumexp(dim=1)[:, :-1], (1, 0), value=-torch.inf)


def _ways_before(allowed: Tensor) -> Tensor:
    """log of the number of ways to place slots 0..i with slot i on item j.  # B S N"""
    ways = [allowed[:, 0]]
    for slot in range(1, allowed.shape[1]):
        ways.append(allowed[:, slot] + _strictly_before(ways[-1]))
    return torch.stack(ways, dim=1)


def _ways_after(allowed: Tensor, real: Tensor) -> Tensor:
    """log of the number of ways to place slots i+1.. of the row right of item j.  # B S N"""
    ways = [torch.zeros_like(allowed[:, 0])]
    for slot in range(allowed.shape[1] - 1, 0, -1):
        after = _strictly_before((allowed[:, slot] + ways[-1]).flip(1)).flip(1)
        ways.append(torch.where(real[:, slot, None], after, 0.0))
    return torch.stack(ways[::-1], dim=1)


Index = tuple[Tensor, ...]

TAIL = 37.0
"""-log of the probability that a window may miss on each side: below 2^-53."""
WINDOW_BUDGET = 1 << 22
"""Probabilities held at once."""


def poisson(rate: Tensor, u: Tensor) -> Tensor:
    """Poisson counts of the given means, from uniforms of the same shape.  # any shape, int64"""
    rate, u = torch.broadcast_tensors(rate.double(), u.double())

    def log_mass(k: Tensor, some: Index) -> Tensor:
        r = rate[some][:, None]
        return torch.special.xlogy(k, r) - r - torch.lgamma(k + 1)

    return _inverted(u, torch.exp(-rate), rate, rate, log_mass)


def binomial(n: Tensor, p: Tensor, u: Tensor) -> Tensor:
    """Binomial(n, p) counts, from uniforms of the same shape; n >= 0 whole.  # any shape, int64"""
    n, p, u = torch.broadcast_tensors(n.double(), p.double(), u.double())
    # A chance above one half is counted by its failures: this keeps 1 - p exact and windows short.
    flipped = p > 0.5
    q = torch.where(flipped, 1 - p, p)
    v = torch.where(flipped, 1 - u, u)

    def log_mass(k: Tensor, some: Index) -> Tensor:
        m, chance = n[some][:, None], q[some][:, None]
        ways = torch.lgamma(m + 1) - torch.lgamma(k + 1) - torch.lgamma(m - k + 1)
        mass = ways + torch.special.xlogy(k, chance) + torch.special.xlog1py(m - k, -chance)
        return mass.masked_fill(k > m, -torch.inf)

    none = torch.special.xlog1py(n, -q).exp()
    drawn = _inverted(v, none, n * q, n * q * (1 - q), log_mass).minimum(n.long())
    return torch.where(flipped, n.long() - drawn, drawn)


def floor_bernoulli(rate: Tensor, u: Tensor) -> Tensor:
    """The two whole numbers around each mean, in the proportion that keeps it.  # int64"""
    whole = rate.double().floor()
    return (whole + (u < rate.double() - whole)).long()


def _inverted(
    u: Tensor,
    none: Tensor,
    mean: Tensor,
    variance: Tensor,
    log_mass: Callable[[Tensor, Index], Tensor],
) -> Tensor:
    """The smallest k whose cumulative mass exceeds u; `none` is P(0).

    `log_mass(k, some)` gives log P(k) (N W) for k (N W), where `some` indexes the N draws.
    """
    result = torch.zeros(u.shape, dtype=torch.int64, device=u.device)
    busy = (u >= none).nonzero(as_tuple=True)  # most gaps draw 0, which needs no window
    if not len(busy[0]):
        return result
    # Bernstein's inequality, solved for the c at which its exponent is TAIL.
    reach = TAIL / 3 + (TAIL**2 / 9 + 2 * TAIL * variance[busy]).sqrt()  # N
    start = (mean[busy] - reach).floor().clamp(min=0)
    width = int((mean[busy] + reach - start).max()) + 2
    offsets = torch.arange(width, device=u.device, dtype=torch.float64)
    drawn = []
    for piece in torch.arange(len(start), device=u.device).split(max(1, WINDOW_BUDGET // width)):
        some = tuple(index[piece] for index in busy)
        mass = log_mass(start[piece][:, None] + offsets, some).exp()  # N W
        passed = mass.cumsum(dim=1) <= u[some][:, None]
        drawn.append(start[piece].long() + passed.sum(dim=1).clamp(max=width - 1))
    result[busy] = torch.cat(drawn)
    return result
