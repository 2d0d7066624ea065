"""The clock of insertion decoding: what happens in a step, on a grid of time or event by event.

Time t runs from 0 to 1. Every missing token arrives with hazard a/(1 - t) and every mask is
revealed with hazard b/(1 - t): a and b are the exponents of Gamma(t) = 1 - (1 - t)^a, the insertion
schedule of the sampler, and of its unmasking schedule. With M open masks and E tokens missing:

Steps. Over (t, s], each missing token arrives with probability

    exact      1 - ((1 - s) / (1 - t))^a      (thinning: right for any grid)
    left       a / (1 - t) * (s - t)          (at most 1)
    midpoint   a / (1 - (t + s) / 2) * (s - t)          (at most 1)

and each mask is revealed likewise with b. The step from 1 - 1/N to 1 does all that is left.

Events. Insertions happen at the rate a E(t) / (1 - t), reveals at b M / (1 - t). While nothing
happens M stays, but E falls: tokens that do not come turn out not to be missing. So moments are
proposed at a rate that is too high, and thinned. With a bound K on E, the next one is at

    1 - s = (1 - t) u^(1 / (a K + b M)),   u uniform,

because no proposal falls into (t, s] with probability ((1 - s) / (1 - t))^(a K + b M). The network
is called at s, and of a K + b M parts of chance, b M make a reveal, a E(s) an insertion, and the
rest nothing. One thing at most happens per call, by what the network says at that very moment: no
two draws ignore each other, and there is no grid. This is exact as long as K bounds E. After a call
in which nothing happened, K = E(s) does, since E can only fall. After an event E may rise (a first
insertion says that something was missing after all); K = E(s) + 1 allows for one token more, and
the next call corrects it. (To hold E fixed until the next event would be wrong by as much as
lengths are uncertain: an insertion would come almost surely, however small E is.)

The network is asked at progress tau = Gamma(t): as tau, or as the training time alpha^{-1}(tau) =
1 - (1 - t)^(a / a_train), whichever it was trained on, within the times that training visits.

What is missing and what is open are tokens and masks in flexmdm, segments and open slots in
flexlatent: the clock does not know. Letters: B rows, L positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from anyorder.decode.clock_options import ClockOptions
from anyorder.decode.gaps import INSERTION_COUNTS, Demand, expected_missing, place
from anyorder.decode.growing import Growth
from anyorder.decode.quota import Progress, Quota, find_clocked_quota
from anyorder.process.noise import Stream, uniform
from anyorder.process.schedule import Power, carried

END = 1e-6
"""Time is over when less than this is left."""
ASKED = 1 << 10
"""The event clock asks the network at times that are rounded to 1 - t within a part in so many."""
RISE = 1.0
"""By how much an event is allowed to raise the expected number of missing tokens."""


class Plan(NamedTuple):
    """What one step does with each row."""

    reveals: Tensor  # B, how many open slots become text
    inserts: Tensor  # B L, how many slots are inserted after each position
    left: Tensor  # B, 1 - t after it
    bound: Tensor  # B, of what is missing then; read by the event clock only


class Trained(Protocol):
    """What a clock must know of a network: the schedules it was trained on."""

    @property
    def coordinate(self) -> str: ...
    @property
    def insertion_exponent(self) -> float: ...
    @property
    def unmasking_exponent(self) -> float: ...


class Clock(Protocol):
    """Decides what happens next."""

    def asked(self, left: Tensor) -> Tensor:
        """The time left for which the network is asked, where `left` is left.  # B"""
        ...

    def plan(self, rows: Growth, demand: Demand) -> Plan:
        """One step of rows whose time is not over."""
        ...


def _exact(schedule: Power, t: Tensor, s: Tensor) -> Tensor:
    return schedule.thinning(t, s)


def _left(schedule: Power, t: Tensor, s: Tensor) -> Tensor:
    return schedule.hazard(t) * (s - t)


def _midpoint(schedule: Power, t: Tensor, s: Tensor) -> Tensor:
    return schedule.hazard((t + s) / 2) * (s - t)


HAZARDS: dict[str, Callable[[Power, Tensor, Tensor], Tensor]] = {
    "exact": _exact,
    "left": _left,
    "midpoint": _midpoint,
}


@dataclass(frozen=True)
class Steps:
    """A uniform grid of time."""

    steps: int
    insertion: Power
    unmasking: Power
    quota: Quota
    counts: Callable[[Demand, float], Tensor]
    hazard: Callable[[Power, Tensor, Tensor], Tensor]

    def asked(self, left: Tensor) -> Tensor:
        return left

    def share(self, schedule: Power, step: int) -> float:
        """How likely what waits is to happen in this step; the last one holds all that is left."""
        if step == self.steps:
            return 1.0
        t, s = (torch.tensor(n / self.steps, dtype=torch.float64) for n in (step - 1, step))
        return min(1.0, float(self.hazard(schedule, t, s)))

    def plan(self, rows: Growth, demand: Demand) -> Plan:
        step = demand.step
        progress = Progress(
            step=torch.full_like(rows.row, step - 1),
            steps=torch.full_like(rows.row, self.steps),
            initial=rows.numbered,
            open=rows.open.sum(dim=1),
            chance=torch.full_like(rows.left, self.share(self.unmasking, step)),
            noise=uniform(0, int(Stream.COUNT), rows.key, step),
        )
        return Plan(
            reveals=self.quota.counts(progress, None),
            inserts=self.counts(demand, self.share(self.insertion, step)),
            left=torch.full_like(rows.left, (self.steps - step) / self.steps),
            bound=rows.bound,
        )


@dataclass(frozen=True)
class Events:
    """At most one insertion or reveal a call and row, at its own time."""

    insertion: Power
    unmasking: Power

    def asked(self, left: Tensor) -> Tensor:
        # Times depend on what the network said before, in its last digits too, and networks look
        # at time through fast waves: unrounded, the last digits would grow from call to call.
        mantissa, exponent = torch.frexp(left)
        return torch.ldexp((mantissa * ASKED).round() / ASKED, exponent)

    def plan(self, rows: Growth, demand: Demand) -> Plan:
        masks = rows.open.sum(dim=1)
        noise, wait = (uniform(0, int(Stream.EVENT), rows.key, demand.step, use) for use in (0, 1))
        reveal = self.unmasking.exponent * masks  # B
        part = noise * (reveal + self.insertion.exponent * rows.bound)
        reveals = part < reveal
        insertion = self.insertion.exponent * demand.total.minimum(rows.bound)
        inserts = ~reveals & (part < reveal + insertion)
        bound = demand.total + RISE * (reveals | inserts)
        bound = bound.masked_fill(rows.room - inserts.long() == 0, 0.0)
        masks = masks - reveals.long() + inserts.long()
        rate = self.unmasking.exponent * masks + self.insertion.exponent * bound
        left = rows.left * wait ** (1 / rate)  # with no rate, never: u^inf = 0
        return Plan(
            reveals=reveals.long(),
            inserts=place(demand, inserts.long()),
            left=left.masked_fill(left <= END, 0.0),
            bound=bound,
        )


def build_clock(options: ClockOptions, net: Trained) -> Clock:
    """The clock of resolved options, for a network trained on its own schedules."""
    insertion, unmasking = schedules(options, net)
    if options.clock == "events":
        return Events(insertion, unmasking)
    assert options.steps is not None and options.counts is not None
    assert options.quota is not None and options.hazard is not None
    return Steps(
        steps=options.steps,
        insertion=insertion,
        unmasking=unmasking,
        quota=find_clocked_quota(options.quota),
        counts=INSERTION_COUNTS[options.counts],
        hazard=HAZARDS[options.hazard],
    )


def schedules(options: ClockOptions, net: Trained) -> tuple[Power, Power]:
    """Gamma and the unmasking schedule of the sampler."""
    assert options.insertion_schedule is not None and options.unmasking_schedule is not None
    gamma, trained = Power(options.insertion_schedule), Power(net.unmasking_exponent)
    if isinstance(options.unmasking_schedule, str):
        along = carried(trained, Power(net.insertion_exponent), gamma)
        return gamma, {"kept": trained, "carried": along}[options.unmasking_schedule]
    return gamma, Power(options.unmasking_schedule)


def network_time(left: Tensor, gamma: Power, net: Trained) -> Tensor:
    """When to ask the network, where `left` = 1 - t is left of the sampler's time.  # B"""
    # In powers of 1 - t, which keep their precision near the end, where t itself is all nines;
    # and not beyond the last time that training visits.
    trained = {"raw": net.insertion_exponent, "progress": 1.0}[net.coordinate]
    return 1 - (left ** (gamma.exponent / trained)).clamp(min=END)


class Pace:
    """A clock in use: when to ask the network, and what a step does then."""

    def __init__(self, options: ClockOptions, net: Trained) -> None:
        self.net, self.clock = net, build_clock(options, net)
        self.gamma, _ = schedules(options, net)
        self.temperature = options.insertion_temperature

    def time(self, rows: Growth) -> Tensor:
        """The network's time for each row.  # B"""
        return network_time(self.clock.asked(rows.left), self.gamma, self.net)

    def plan(self, rows: Growth, gaps: Tensor, step: int) -> Plan:
        """What the clock says, given the log of what is missing in every gap (B L).

        Once a row's time is over: all that is still open is revealed, and no slot is inserted.
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
            return Plan(rows.open.sum(dim=1), none, rows.left, rows.bound)
        plan = self.clock.plan(rows, Demand(expected, rows.room, rows.key, rows.slot, step))
        return plan._replace(reveals=torch.where(over, rows.open.sum(dim=1), plan.reveals))


def finished(rows: Growth) -> Tensor:
    """Whether nothing can happen any more.  # B"""
    return ~rows.open.any(dim=1) & ((rows.left <= END) | (rows.room == 0))
