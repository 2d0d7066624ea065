"""The clocks of flexmdm on hand-set networks: times, hazards, events and their lengths."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from statistics import NormalDist

import pytest
import torch
from flex_mocks import (
    ANCHOR,
    INFILL,
    VOCAB,
    Mock,
    about,
    decode,
    prompt,
)

from anyorder.decode.growing import (
    END,
    HAZARDS,
    INSERTION_COUNTS,
    Events,
    InsertionDemand,
    Steps,
    network_time,
)
from anyorder.decode.quota import Thinned
from anyorder.families.flexmdm import decode as flexmdm
from anyorder.process.schedule import Power


@pytest.mark.parametrize("coordinate", ["progress", "raw"])
def test_the_network_is_asked_at_the_progress_of_the_sampler(coordinate: str) -> None:
    net = Mock(about(4).missing, coordinate=coordinate)
    decode(net, [prompt(0)], steps=8, insertion_schedule=2.9)
    exponent = {"progress": 2.9, "raw": 2.9 / 1.7}[coordinate]
    for j, (time,) in enumerate(net.times[:8]):
        assert 1 - time == pytest.approx((1 - j / 8) ** exponent, rel=1e-12)
    end = network_time(torch.zeros(1, dtype=torch.float64), Power(2.9), net)
    assert float(1 - end) == pytest.approx(END, rel=1e-5)


def test_hazard_choices() -> None:
    clock = Steps(
        8, Power(2.9), Power(1.0), Thinned(), INSERTION_COUNTS["poisson"], HAZARDS["left"]
    )
    exact, mid = replace(clock, hazard=HAZARDS["exact"]), replace(clock, hazard=HAZARDS["midpoint"])
    assert exact.share(Power(2.9), 3) == pytest.approx(1 - (5 / 6) ** 2.9)
    assert clock.share(Power(2.9), 3) == pytest.approx(2.9 / 6)
    assert mid.share(Power(2.9), 3) == pytest.approx(2.9 / 5.5)
    assert [each.share(Power(2.9), 8) for each in (exact, clock, mid)] == [1.0] * 3
    waiting = 1.0
    for step in range(1, 6):
        waiting *= 1 - exact.share(Power(2.9), step)
    assert waiting == pytest.approx((3 / 8) ** 2.9)


def test_an_event_is_one_insertion_or_one_reveal_per_call() -> None:
    net = about(10)
    rows = decode(net, [prompt(0), prompt(1), INFILL], seed=1, clock="events")
    assert len({tuple(row.reveal_step) for row in rows}) == 3
    for row in rows:
        moments = [step for step in row.insert_step + row.reveal_step if step]
        assert len(set(moments)) == len(moments)
        assert row.forwards == row.steps >= len(moments)
    times = list(zip(*net.times[:3], strict=True))
    assert all(a < b for row_times in times for a, b in pairwise(row_times))
    assert len({row_times[1] for row_times in times}) == 3  # each row has its own time


def test_only_the_end_of_time_reveals_many_at_once() -> None:
    """Masks that are hardly ever revealed wait for the last call, which opens no more slots."""
    latest = 1.0
    for seed in range(5):
        net = about(10)
        slow = {"insertion_schedule": 1.0, "unmasking_schedule": 0.01}
        (row,) = decode(net, [prompt(0)], seed, clock="events", **slow)
        before = [step for step in row.insert_step + row.reveal_step if step < row.steps]
        assert len(set(before)) == len(before) >= len(row.token_ids)
        assert row.reveal_step.count(row.steps) > 1 and row.insert_step.count(row.steps) == 0
        left = [1 - time for (time,) in net.times]
        assert len(left) == row.steps and left[-1] == pytest.approx(END, rel=1e-5)
        assert min(left[:-1]) > 1.01 * END
        latest = min(latest, *left[:-1])
    assert latest < 1e-3  # events come until the end


def test_no_slot_opens_once_time_is_over() -> None:
    """Not even where something is always missing, and other rows still have time."""
    net = Mock(lambda ids, mask, left: 2.0 / mask.sum(dim=1, keepdim=True) + 0 * left)
    slow = {"insertion_schedule": 1.0, "unmasking_schedule": 0.01}
    rows = decode(net, [prompt(room=200)] * 6, clock="events", **slow)
    assert len({row.steps for row in rows}) >= 3
    for row in rows:
        assert row.reveal_step.count(row.steps) > 20 and max(row.insert_step) < row.steps
        before = [step for step in row.insert_step + row.reveal_step if step < row.steps]
        assert len(set(before)) == len(before)


@pytest.mark.parametrize("falls", [False, True])
def test_event_lengths_follow_what_is_missing(falls: bool) -> None:
    """One token that is surely missing comes; one that is a Poisson number comes with its law."""
    if falls:  # tokens missing like a Poisson number of mean 1.5: E = 1.5 (1 - tau)
        net = about(1.5)
    else:  # exactly one, until it is there
        net = Mock(lambda ids, mask, left: (ids[:, -1:] == ANCHOR) * 1.0 + 1e-12)
    rows = decode(net, [prompt()] * 4000, clock="events", policy="random")
    lengths = torch.tensor([len(row.token_ids) for row in rows])
    if not falls:
        assert float((lengths == 1).double().mean()) > 0.999
        return
    for k in range(4):
        p = math.exp(-1.5) * 1.5**k / math.factorial(k)
        assert int((lengths == k).sum()) == pytest.approx(4000 * p, abs=4 * (4000 * p) ** 0.5)


def test_step_lengths_are_poisson_where_the_missing_are() -> None:
    rows = decode(about(1.5), [prompt()] * 4000, counts="poisson", policy="random", steps=12)
    lengths = torch.tensor([len(row.token_ids) for row in rows])
    for k in range(4):
        p = math.exp(-1.5) * 1.5**k / math.factorial(k)
        assert int((lengths == k).sum()) == pytest.approx(4000 * p, abs=4 * (4000 * p) ** 0.5)


def test_waiting_times_of_events() -> None:
    """The second call comes at 1 - s = u^(1 / (a E)): a log of it is exponential."""
    net = Mock(lambda ids, mask, left: 2.0 / mask.sum(dim=1, keepdim=True) + 0 * left)
    decode(net, [prompt(room=3)] * 3000, clock="events", insertion_schedule=1.7)
    left = (1 - torch.tensor(net.times[1])) ** (1 / 1.7)
    scaled = -left.log() * 1.7 * 2.0  # exponential of mean 1
    assert float(scaled.mean()) == pytest.approx(1, abs=0.08)
    assert float((scaled > 2).double().mean()) == pytest.approx(math.exp(-2), abs=0.025)


def test_independent_unmasking_does_not_prefer_new_slots() -> None:
    """Random and thinned: of an old and a new mask, each is revealed first half of the time."""
    net = Mock(lambda ids, mask, left: 3.0 * left / mask.sum(dim=1, keepdim=True))
    rows = decode(net, [prompt()] * 6000, policy="random", steps=24, unmasking_schedule=1.0)
    first = []
    for row in rows:
        for pair in pairwise(zip(row.insert_step, row.reveal_step, strict=True)):
            (born, shown), (later, also) = sorted(pair, key=lambda slot: slot[0])
            if born < later < min(shown, also) and shown != also:
                first.append(shown < also)
    share = sum(first) / len(first)
    bound = NormalDist().inv_cdf(0.9999) * 0.5 / len(first) ** 0.5
    assert len(first) > 1500 and abs(share - 0.5) < bound


def test_events_thin_by_what_is_missing_now() -> None:
    """With a bound of 4 and 1 missing, a quarter of the proposals become insertions."""
    rows = flexmdm.GrowingRows.start(
        [prompt(0)] * 8000, list(range(8000)), VOCAB, torch.device("cpu")
    )
    rows.bound = torch.full_like(rows.bound, 4.0)
    demand = InsertionDemand(
        torch.tensor([[0.0, 1.0]]).double().expand(8000, 2), rows.room, rows.key, rows.slot, 1
    )
    plan = Events(Power(2.9), Power(2.89)).plan(rows, demand)
    assert float(plan.inserts.sum(dim=1).double().mean()) == pytest.approx(0.25, abs=0.02)
    assert torch.equal(plan.bound, 1.0 + plan.inserts.sum(dim=1))
