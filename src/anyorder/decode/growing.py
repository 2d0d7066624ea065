"""Insertion decoding: rows that grow, and the clock that says what a step reveals and inserts.

Shared by flexmdm (items are tokens) and flexlatent (items are segments); nothing here depends on
which. Rows are left-packed: an insertion moves everything to its right. So a slot is known by its
number, in order of creation (frozen slots first), never by its position. New slots are open, and
further slots may be inserted after them. Nothing is ever removed.

Times. Time t runs from 0 to 1. Every missing item arrives with hazard a/(1 - t) and every mask is
revealed with hazard b/(1 - t): a and b are the exponents of Gamma(t) = 1 - (1 - t)^a, the insertion
schedule of the sampler, and of its unmasking schedule. With M open masks and E items missing:

Steps. Over (t, s], each missing item arrives with probability

    exact      1 - ((1 - s) / (1 - t))^a      (thinning: right for any grid)
    left       a / (1 - t) * (s - t)          (at most 1)
    midpoint   a / (1 - (t + s) / 2) * (s - t)          (at most 1)

and each mask is revealed likewise with b. The step from 1 - 1/N to 1 does all that is left.

Events. Insertions happen at the rate a E(t) / (1 - t), reveals at b M / (1 - t). While nothing
happens M stays, but E falls: tokens that do not come turn out not to be missing. So moments are
proposed at a rate that is too high, and thinned. With a bound K on E, the next one is at

    1 - s = (1 - t) u^(1 / (a K + b M)),   u uniform,

because no proposal falls into (t, s] with probability ((1 - s) / (1 - t))^(a K + b M). The network
is called at s. Of the total rate a K + b M, the part b M is a reveal, a E(s) an insertion, and the
rest nothing. So at most one event happens per call, by the network's answer at that moment, and
there is no grid. This is exact as long as K bounds E. After a call without an event, K = E(s) does,
since E can only fall. After an event E may rise (a first insertion shows that something was
missing); K = E(s) + 1 allows for one more item, and the next call corrects it. (Holding E fixed
until the next event would be wrong: an insertion would then come almost surely, however small E.)

The network is called at progress tau = Gamma(t): as tau, or as the training time alpha^{-1}(tau) =
1 - (1 - t)^(a / a_train), whichever it was trained on, within the times that training visits.

Gaps. The network gives g_i, the log of the expected number of items missing in gap i. With the
insertion temperature T (paper, appendix D),

    n_i = E softmax(g / T)_i  over the gaps that may grow,      E = sum_i e^{g_i},

so T moves insertions between gaps and keeps their expected number; T = 1 is n_i = e^{g_i}.
A step in which each missing item arrives with probability `share` inserts share * n_i on average:

    poisson           N ~ Poisson(share E) in all, each placed independently with probability
                      n_i / E; the same law as an independent Poisson(share n_i) in each gap
    binomial          Binomial(ceil n_i, share n_i / ceil n_i) in gap i
    floor_bernoulli   floor(r) + Bernoulli(r - floor r) in gap i, r = share n_i

A row that may insert only `room` more keeps the first `room` placements, or a random subset of that
size of its new slots, so that gaps further left have no advantage.

Not here: which open items are revealed (policy.py).
Letters: B rows, L positions and gaps (gap i follows position i).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingCanvas, padded
from anyorder.decode.loop import keep_rows
from anyorder.decode.quota import Quota, WindowProgress, find_clocked_quota
from anyorder.nets.denoiser import GAP_LIMIT, TrainedSchedules
from anyorder.process import insertion as counts
from anyorder.process.noise import Stream, uniform
from anyorder.process.schedule import Power, carried
from anyorder.vocab import Vocab


class FrozenRow(NamedTuple):
    """How one row begins: all its slots are frozen."""

    grows: Sequence[bool]
    """Whether slots may be inserted right after each."""
    room: int
    """The most slots that may be inserted."""
    key: int


class ShiftedPositions(NamedTuple):
    """How an insertion moved the positions."""

    move: Callable[[Tensor, float], Tensor]
    """(values of the old slots B L, value elsewhere) -> the values at the new positions."""
    fresh: Tensor  # B L, the new slots


@dataclass
class Growth:
    """Slots of the rows still being decoded; every tensor has one entry (or one line) per row."""

    row: Tensor  # B, the row's number in the request
    key: Tensor  # B
    length: Tensor  # B
    room: Tensor  # B, slots that may still be inserted
    numbered: Tensor  # B, the number of the next slot
    left: Tensor  # B, 1 - t: the time that is left, float64
    bound: Tensor  # B, the event clock's bound K on E; 0 before the first call
    forwards: Tensor  # B
    ties: Tensor  # B
    slot: Tensor  # B L, the slot's number; -1 in padding
    open: Tensor  # B L, not yet revealed
    grows: Tensor  # B L, whether slots may be inserted right after this one
    insert: Tensor  # B L
    reveal: Tensor  # B L

    @classmethod
    def begin(cls, rows: Sequence[FrozenRow], device: torch.device, **more: Tensor) -> Self:
        """Rows of frozen slots; `more` are the fields that a subclass adds."""
        flags, length = padded([row.grows for row in rows], False)
        grows = flags.bool()
        position = torch.arange(grows.shape[1]).expand_as(grows)
        zeros = torch.zeros(len(rows), dtype=torch.int64)
        given: dict[str, Tensor] = {
            "row": torch.arange(len(rows)),
            "key": torch.tensor([row.key for row in rows], dtype=torch.int64),
            "length": length,
            "room": torch.tensor([row.room for row in rows]),
            "numbered": length.clone(),
            "left": torch.ones(len(rows), dtype=torch.float64),
            "bound": torch.zeros(len(rows), dtype=torch.float64),
            "forwards": zeros,
            "ties": zeros.clone(),
            "slot": torch.where(position < length[:, None], position, -1),
            "open": torch.zeros_like(grows),
            "grows": grows,
            "insert": torch.zeros_like(position),
            "reveal": torch.zeros_like(position),
        }
        on_device: dict[str, Any] = {n: value.to(device) for n, value in (given | more).items()}
        return cls(**on_device)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def real(self) -> Tensor:
        """Where there is a slot, not padding.  # B L"""
        return torch.arange(self.slot.shape[1], device=self.slot.device) < self.length[:, None]

    def open_slots(self, counts: Tensor, step: int) -> ShiftedPositions | None:
        """Insert `counts` (B L) open slots after each position; None: nothing to insert."""
        new = counts.sum(dim=1)
        length = self.length + new
        # Stacked, so that the step waits for the device once, not twice.
        most, longest = torch.stack([new.max(), length.max()]).tolist()
        if not most:
            return None
        place = torch.arange(self.slot.shape[1] + most, device=self.slot.device)
        # An old slot moves by what is inserted before it; padding moves behind the row's new end.
        target = place[: self.slot.shape[1]] + counts.cumsum(dim=1) - counts  # B L

        def move(old: Tensor, elsewhere: float) -> Tensor:
            wider = old.new_full((len(old), len(place)), elsewhere)
            return wider.scatter_(1, target, old)[:, :longest]

        taken = move(torch.ones_like(self.open), False)
        fresh = ~taken & (place[:longest] < length[:, None])
        number = self.numbered[:, None] + fresh.long().cumsum(dim=1) - 1
        self.slot = torch.where(fresh, number, move(self.slot, -1))
        self.open = move(self.open, False) | fresh
        self.grows = move(self.grows, False) | fresh
        self.insert = move(self.insert, 0).masked_fill_(fresh, step)
        self.reveal = move(self.reveal, 0)
        self.length, self.numbered, self.room = length, self.numbered + new, self.room - new
        return ShiftedPositions(move, fresh)

    def keep(self, rows: Tensor) -> None:
        """Drop the other rows, and the columns that only they needed."""
        keep_rows(self, rows, "length")


@dataclass
class GrowingRows(Growth):
    """Rows whose every slot holds one token, the mask while it is open."""

    ids: Tensor  # B L
    log_prob: Tensor  # B L

    @classmethod
    def start(
        cls,
        canvases: Sequence[GrowingCanvas],
        keys: Sequence[int],
        vocab: Vocab,
        device: torch.device,
    ) -> GrowingRows:
        ids, _ = padded([canvas.ids for canvas in canvases], vocab.pad_id)
        beginnings = [
            FrozenRow(canvas.grows, canvas.room, key)
            for canvas, key in zip(canvases, keys, strict=True)
        ]
        log_prob = torch.full(ids.shape, torch.nan, dtype=torch.float64)
        return cls.begin(beginnings, device, ids=ids, log_prob=log_prob)

    def grow(self, counts: Tensor, step: int, vocab: Vocab) -> None:
        """Insert `counts` (B L) masked slots after each position."""
        moved = self.open_slots(counts, step)
        if moved is not None:
            self.ids = moved.move(self.ids, vocab.pad_id).masked_fill_(moved.fresh, vocab.mask_id)
            self.log_prob = moved.move(self.log_prob, torch.nan)

    def collect(self, index: int, canvas: GrowingCanvas, step: int, times: list[float]) -> Decoded:
        """The result of one row after `step` steps, which called the network at these times."""
        span = slice(canvas.prompt_length, int(self.length[index]))
        return Decoded(
            token_ids=self.ids[index, span].tolist(),
            insert_step=self.insert[index, span].tolist(),
            reveal_step=self.reveal[index, span].tolist(),
            log_prob=self.log_prob[index, span].tolist(),
            steps=step,
            forwards=int(self.forwards[index]),
            ties=int(self.ties[index]),
            times=times,
        )


NEARLY_WHOLE = 1e-4
"""An expected number this close above a whole one counts as whole: the excess is rounding."""
MOST_IN_A_GAP = 4096
"""The most slots that one step puts into a gap; only a broken network gives more."""


@dataclass(frozen=True)
class InsertionDemand:
    """What is missing in the gaps of each row, and what may be inserted."""

    expected: Tensor  # B L, float64; 0 where nothing may be inserted
    room: Tensor  # B, slots that may be inserted at most
    key: Tensor  # B
    slot: Tensor  # B L, the slot before each gap: it keys the noise
    step: int

    @cached_property
    def total(self) -> Tensor:
        """E.  # B"""
        return self.expected.sum(dim=1)


def expected_missing(gaps: Tensor, grows: Tensor, temperature: float = 1.0) -> Tensor:
    """n_i; 0 in gaps that do not grow.  # B L, float64"""
    # Our heads clamp already; other networks may not, and exp must stay finite.
    gaps = gaps.double().clamp(max=GAP_LIMIT).masked_fill(~grows, -torch.inf)
    if temperature == 1:
        return gaps.exp()
    total = gaps.logsumexp(dim=1, keepdim=True)
    # A row without a gap that grows is 0/0 here.
    return (total + (gaps / temperature).log_softmax(dim=1)).exp().masked_fill(~grows, 0.0)


def place(demand: InsertionDemand, numbers: Tensor) -> Tensor:
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


def poisson(demand: InsertionDemand, share: float) -> Tensor:
    """New slots of each gap.  # B L"""
    noise = uniform(0, int(Stream.INSERT), demand.key, demand.step)
    return place(demand, counts.poisson(share * demand.total, noise).minimum(demand.room))


def binomial(demand: InsertionDemand, share: float) -> Tensor:
    """New slots of each gap.  # B L"""
    whole = (demand.expected - NEARLY_WHOLE).ceil().clamp(min=1)
    chance = (share * demand.expected / whole).clamp(max=1)
    return _within_room(demand, counts.binomial(whole, chance, _gap_noise(demand)))


def floor_bernoulli(demand: InsertionDemand, share: float) -> Tensor:
    """New slots of each gap.  # B L"""
    rate = share * demand.expected
    return _within_room(demand, counts.floor_bernoulli(rate, _gap_noise(demand)))


INSERTION_COUNTS: dict[str, Callable[[InsertionDemand, float], Tensor]] = {
    "poisson": poisson,
    "binomial": binomial,
    "floor_bernoulli": floor_bernoulli,
}


def _gap_noise(demand: InsertionDemand) -> Tensor:
    return uniform(0, int(Stream.INSERT), demand.key[:, None], demand.slot, demand.step)  # B L


def _within_room(demand: InsertionDemand, numbers: Tensor) -> Tensor:
    """At most `room` of a row's new slots (B L): a random subset where there are more."""
    numbers = numbers.clamp(max=MOST_IN_A_GAP)
    total = numbers.sum(dim=1)
    most, excess = torch.stack([total.max(), (total - demand.room).max()]).tolist()
    if excess <= 0:
        return numbers
    nth = torch.arange(most, device=numbers.device).expand(len(numbers), most)  # B most
    noise = uniform(0, int(Stream.PLACE), demand.key[:, None], demand.step, nth)
    # Noise is below 1: 2 sorts the places beyond the row's total last.
    order = noise.masked_fill(nth >= total[:, None], 2.0).argsort(dim=1)
    rank = torch.empty_like(order).scatter(1, order, nth)
    kept = rank < total.minimum(demand.room)[:, None]
    gap = torch.searchsorted(numbers.cumsum(dim=1), nth.contiguous(), right=True)
    gap = gap.clamp(max=numbers.shape[1] - 1)
    return torch.zeros_like(numbers).scatter_add(1, gap, kept.long())


Clocked = Any
"""The options that a clock reads (`ClockOptions` of families/config.py), resolved."""

END = 1e-6
"""Time is over when less than this is left."""
ROUNDED = 1 << 10
"""The event clock rounds 1 - t to one part in this many before it calls the network."""
RISE = 1.0
"""How much an event may raise the expected number of missing items."""


class StepPlan(NamedTuple):
    """What one step does with each row."""

    reveals: Tensor  # B, how many open slots become text
    inserts: Tensor  # B L, how many slots are inserted after each position
    left: Tensor  # B, 1 - t after it
    bound: Tensor  # B, on what is missing then; read by the event clock only


class Clock(Protocol):
    """Decides what happens next."""

    def network_left(self, left: Tensor) -> Tensor:
        """The time left that the network is given, when `left` is left.  # B"""
        ...

    def plan(self, rows: Growth, demand: InsertionDemand) -> StepPlan:
        """One step of rows whose time is not over."""
        ...


HAZARDS: dict[str, Callable[[Power, Tensor, Tensor], Tensor]] = {
    "exact": lambda schedule, t, s: schedule.thinning(t, s),
    "left": lambda schedule, t, s: schedule.hazard(t) * (s - t),
    "midpoint": lambda schedule, t, s: schedule.hazard((t + s) / 2) * (s - t),
}
"""(schedule, t, s) -> the probability that a waiting item arrives in (t, s]."""


@dataclass(frozen=True)
class Steps:
    """A uniform grid of time."""

    steps: int
    insertion: Power
    unmasking: Power
    quota: Quota
    counts: Callable[[InsertionDemand, float], Tensor]
    hazard: Callable[[Power, Tensor, Tensor], Tensor]

    def network_left(self, left: Tensor) -> Tensor:
        return left

    def share(self, schedule: Power, step: int) -> float:
        """The probability that a waiting item happens in this step; 1 in the last step."""
        if step == self.steps:
            return 1.0
        t, s = (torch.tensor(n / self.steps, dtype=torch.float64) for n in (step - 1, step))
        return min(1.0, float(self.hazard(schedule, t, s)))

    def plan(self, rows: Growth, demand: InsertionDemand) -> StepPlan:
        step = demand.step
        progress = WindowProgress(
            step=torch.full_like(rows.row, step - 1),
            steps=torch.full_like(rows.row, self.steps),
            initial=rows.numbered,
            open=rows.open.sum(dim=1),
            chance=torch.full_like(rows.left, self.share(self.unmasking, step)),
            noise=uniform(0, int(Stream.COUNT), rows.key, step),
        )
        return StepPlan(
            reveals=self.quota.counts(progress, None),
            inserts=self.counts(demand, self.share(self.insertion, step)),
            left=torch.full_like(rows.left, (self.steps - step) / self.steps),
            bound=rows.bound,
        )


@dataclass(frozen=True)
class Events:
    """At most one insertion or reveal per call and row, at its own time."""

    insertion: Power
    unmasking: Power

    def network_left(self, left: Tensor) -> Tensor:
        # Times depend on the last digits of earlier network outputs, and networks embed time in
        # fast waves: without rounding, float noise would grow from call to call.
        mantissa, exponent = torch.frexp(left)
        return torch.ldexp((mantissa * ROUNDED).round() / ROUNDED, exponent)

    def plan(self, rows: Growth, demand: InsertionDemand) -> StepPlan:
        masks = rows.open.sum(dim=1)
        noise, wait = (uniform(0, int(Stream.EVENT), rows.key, demand.step, use) for use in (0, 1))
        reveal = self.unmasking.exponent * masks  # B
        part = noise * (reveal + self.insertion.exponent * rows.bound)
        reveals = part < reveal
        # E above its bound K is cut: no thinning probability exceeds 1.
        insertion = self.insertion.exponent * demand.total.minimum(rows.bound)
        inserts = ~reveals & (part < reveal + insertion)
        bound = demand.total + RISE * (reveals | inserts)
        # A full row inserts nothing more: a positive bound would only cost empty calls.
        bound = bound.masked_fill(rows.room - inserts.long() == 0, 0.0)
        masks = masks - reveals.long() + inserts.long()
        rate = self.unmasking.exponent * masks + self.insertion.exponent * bound
        left = rows.left * wait ** (1 / rate)  # a rate of 0 ends the time: u^inf = 0
        return StepPlan(
            reveals=reveals.long(),
            inserts=place(demand, inserts.long()),
            left=left.masked_fill(left <= END, 0.0),
            bound=bound,
        )


def build_clock(options: Clocked, net: TrainedSchedules) -> Clock:
    """The clock of resolved options, for a network trained on its own schedules."""
    insertion, unmasking = schedules(options, net)
    if options.clock == "events":
        return Events(insertion, unmasking)
    return Steps(
        steps=options.steps,
        insertion=insertion,
        unmasking=unmasking,
        quota=find_clocked_quota(options.quota),
        counts=INSERTION_COUNTS[options.counts],
        hazard=HAZARDS[options.hazard],
    )


def schedules(options: Clocked, net: TrainedSchedules) -> tuple[Power, Power]:
    """Gamma and the unmasking schedule of the sampler."""
    gamma, trained = Power(options.insertion_schedule), Power(net.unmasking_exponent)
    if isinstance(options.unmasking_schedule, str):
        along = carried(trained, Power(net.insertion_exponent), gamma)
        return gamma, {"kept": trained, "carried": along}[options.unmasking_schedule]
    return gamma, Power(options.unmasking_schedule)


def network_time(left: Tensor, gamma: Power, net: TrainedSchedules) -> Tensor:
    """The network's time, when `left` = 1 - t is left of the sampler's time.  # B"""
    # Powers of 1 - t keep their precision near the end, where t itself is all nines. The clamp
    # stays within the times that training visits.
    trained = {"raw": net.insertion_exponent, "progress": 1.0}[net.coordinate]
    return 1 - (left ** (gamma.exponent / trained)).clamp(min=END)


class RunningClock:
    """A clock in use: the network's time, and the plan of each step."""

    def __init__(self, options: Clocked, net: TrainedSchedules) -> None:
        self.net, self.clock = net, build_clock(options, net)
        self.gamma, _ = schedules(options, net)
        self.temperature = options.insertion_temperature

    def time(self, rows: Growth) -> Tensor:
        """The network's time for each row.  # B"""
        return network_time(self.clock.network_left(rows.left), self.gamma, self.net)

    def plan(self, rows: Growth, gaps: Tensor, step: int) -> StepPlan:
        """The plan of one step, given the log of what is missing in every gap (B L).

        Once a row's time is over, all open slots are revealed, and none is inserted.
        """
        over = rows.left <= END
        grows = rows.grows & ((rows.room > 0) & ~over)[:, None]
        expected = expected_missing(gaps, grows, self.temperature)
        if bool(expected.isnan().any()):
            raise ValueError(
                f"at step {step} the network's gaps are not numbers: check its weights"
            )
        if bool(over.all()):
            none = torch.zeros_like(rows.slot)
            return StepPlan(rows.open.sum(dim=1), none, rows.left, rows.bound)
        plan = self.clock.plan(
            rows, InsertionDemand(expected, rows.room, rows.key, rows.slot, step)
        )
        return plan._replace(reveals=torch.where(over, rows.open.sum(dim=1), plan.reveals))


class CallTimes:
    """The network's times in all calls so far, for the rows of a request."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._calls: list[Tensor] = []  # each: one time per row of the request; NaN if it has left
        self._lists: list[list[float]] = []

    def add(self, row: Tensor, time: Tensor) -> None:
        """The next call was made for these rows at these times (B each)."""
        # On the device: nothing waits for it until a row is collected.
        call = time.new_full((self.rows,), torch.nan)
        self._calls.append(call.index_copy(0, row, time))

    def of(self, row: int) -> list[float]:
        """The times of a row that has been in every call."""
        if not self._calls:
            return []
        if not self._lists or len(self._lists[0]) != len(self._calls):
            self._lists = torch.stack(self._calls, dim=1).tolist()
        return self._lists[row]


def finished(rows: Growth) -> Tensor:
    """Whether nothing can happen any more.  # B"""
    return ~rows.open.any(dim=1) & ((rows.left <= END) | (rows.room == 0))
