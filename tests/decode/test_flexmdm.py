"""flexmdm on hand-set networks: laws of a step, caps, frozen text, clocks, batched equals alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from anyorder.decode import flexmdm
from anyorder.decode.canvas import Decoded, GrowingCanvas
from anyorder.decode.clocks import END, HAZARDS, Events, Steps, network_time
from anyorder.decode.extras import Chosen
from anyorder.decode.flexmdm_options import FlexOptions
from anyorder.decode.gaps import INSERTION_COUNTS, Demand, expected_missing, place
from anyorder.decode.quota import Thinned
from anyorder.nets.flex import FlexConfig, FlexNet, Look
from anyorder.nets.transformer import TransformerConfig
from anyorder.process.noise import key_of
from anyorder.process.schedule import Power
from anyorder.trace.trace import Trace
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c"])
ANCHOR = VOCAB.eos_id


class Mock:
    """Expected gaps and logits by hand: `missing(ids, mask, 1 - tau)` and `logits(place)`."""

    insertion_exponent, unmasking_exponent = 1.7, 2.89

    def __init__(
        self,
        missing: Callable[[Tensor, Tensor, Tensor], Tensor],
        logits: Callable[[Tensor], Tensor] | None = None,
        coordinate: str = "progress",
    ) -> None:
        self.missing, self.logits, self.coordinate = missing, logits, coordinate
        self.times: list[list[float]] = []
        self.masks: list[int] = []
        self.headed: list[int] = []

    def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
        assert mask is not None
        self.times.append(time.tolist())
        self.masks.append(int((ids == VOCAB.mask_id).sum()))
        self.headed.append(0)
        exponent = 1.0 if self.coordinate == "progress" else self.insertion_exponent
        missing = self.missing(ids, mask, (1 - time)[:, None] ** exponent)
        gaps = missing.expand(ids.shape).log()
        # A state is (its place, whether it is masked).
        place = torch.arange(ids.shape[1]).expand(ids.shape)
        return Look(torch.stack([place, ids == VOCAB.mask_id], dim=-1).float(), gaps)

    def head(self, states: Tensor) -> Tensor:
        assert bool((states[:, 1] == 1).all()), "the head ran on a slot that is not open"
        self.headed[-1] += len(states)
        if self.logits is None:
            return torch.zeros(len(states), VOCAB.size)
        return self.logits(states[:, 0])


def about(count: float) -> Mock:
    """Every row expects `count` tokens in all, spread evenly, each missing with chance 1 - tau."""
    return Mock(lambda ids, mask, left: count * left / mask.sum(dim=1, keepdim=True))


def by_place(place: Tensor) -> Tensor:
    """Surer to the right; the token alternates."""
    logits = torch.zeros(len(place), VOCAB.size)
    logits[torch.arange(len(place)), place.long() % 3] = 1 + place / 8
    return logits


def prompt(*ids: int, room: int = 60) -> GrowingCanvas:
    return GrowingCanvas((*ids, ANCHOR), (*[False] * len(ids), True), room)


INFILL = GrowingCanvas((0, 1, 2, 1, ANCHOR), (False, True, False, True, False), 12)


def decode(
    net: object, canvases: list[GrowingCanvas], seed: int = 0, **chosen: object
) -> list[Decoded]:
    options = FlexOptions(**chosen)  # type: ignore[arg-type]
    flexmdm.check(canvases, options)
    keys = [key_of(seed, i) for i in range(len(canvases))]
    return flexmdm.decode(net, VOCAB, canvases, keys, options)  # type: ignore[arg-type]


OPTIONS = [
    FlexOptions(),
    FlexOptions(temperature=0.8, top_p=0.9, counts="poisson", quota="poisson"),
    FlexOptions(policy="random", temperature=1.0, counts="floor_bernoulli", hazard="left"),
    FlexOptions(policy="sampled", temperature=0.7, posterior="filtered", hazard="midpoint"),
    FlexOptions(policy="left_to_right", unmasking_schedule="carried", insertion_temperature=0.5),
    FlexOptions(policy="margin", ties="leftmost", unmasking_schedule=1.0, insertion_schedule=1.7),
    FlexOptions(policy="entropy", steps=5, temperature=1.0, force_unmask=True),
    FlexOptions(clock="events", temperature=0.8),
    FlexOptions(clock="events", policy="random", unmasking_schedule=1.0),
]


def label(options: FlexOptions) -> str:
    changed = {k: v for k, v in asdict(options).items() if v != getattr(FlexOptions(), k)}
    return " ".join(f"{k}={v}" for k, v in changed.items()) or "default"


def shortened(options: FlexOptions) -> FlexOptions:
    events = options.clock == "events" or options.steps is not None
    return options if events else replace(options, steps=20)


def small_net() -> FlexNet:
    backbone = TransformerConfig(
        vocab_size=VOCAB.size, width=32, layers=2, heads=4, kv_heads=2, head_width=8, mlp_width=64,
        time_modulated=True,
    )  # fmt: skip
    net = FlexNet(FlexConfig(backbone), seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():  # far from uniform, so that slots and gaps differ clearly
        for name, parameter in net.named_parameters():
            if parameter.ndim == 2 and "modulation" not in name:
                parameter.mul_(4)
            elif parameter.ndim == 2:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
        net.gap.outer.weight.mul_(60)
        net.gap.outer.bias.fill_(0.7)
    return net


def ragged() -> list[GrowingCanvas]:
    return [prompt(0, 1, room=9), prompt(2), INFILL, prompt(1, 1, 0, 2, 2, 0, room=30), prompt()]


def assert_same(row: Decoded, alone: Decoded) -> None:
    exact = ("token_ids", "insert_step", "reveal_step", "steps", "forwards", "ties")
    for name in exact:
        assert getattr(row, name) == getattr(alone, name), name
    assert row.log_prob == pytest.approx(alone.log_prob, abs=1e-4, nan_ok=True)


@pytest.mark.parametrize("options", OPTIONS, ids=label)
@pytest.mark.parametrize("kind", ["mock", "net"])
def test_batched_equals_alone(options: FlexOptions, kind: str) -> None:
    net = small_net() if kind == "net" else Mock(about(14).missing, by_place)
    canvases, options = ragged(), shortened(options)
    keys = [key_of(0, i) for i in range(len(canvases))]
    together = flexmdm.decode(net, VOCAB, canvases, keys, options)
    assert sum(len(row.token_ids) for row in together) > 15
    for canvas, key, row in zip(canvases, keys, together, strict=True):
        (alone,) = flexmdm.decode(net, VOCAB, [canvas], [key], options)
        assert_same(row, alone)


@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_what_comes_out_is_well_formed(options: FlexOptions) -> None:
    """Frozen text stays, closed gaps stay closed, and traces replay what the network saw."""
    options = shortened(options)
    frozen = list(INFILL.ids[INFILL.prompt_length :])
    specials = {VOCAB.mask_id, VOCAB.pad_id, VOCAB.eos_id, VOCAB.bos_id}
    inserted = 0
    for seed in range(6):
        seen: list[list[int]] = []

        def missing(
            ids: Tensor, mask: Tensor, left: Tensor, seen: list[list[int]] = seen
        ) -> Tensor:
            seen.append(ids[0].tolist())
            return 9 * left / mask.sum(dim=1, keepdim=True)

        net = Mock(missing, by_place)
        (row,) = flexmdm.decode(net, VOCAB, [INFILL], [key_of(seed)], options)
        given = [i for i, p in enumerate(row.log_prob) if math.isnan(p)]
        assert [row.token_ids[i] for i in given] == frozen
        assert all(row.insert_step[i] == row.reveal_step[i] == 0 for i in given)
        assert given[-1] == len(row.token_ids) - 1  # nothing after the last token's closed gap
        assert given[1] == given[0] + 1  # nor between the two in the middle
        new = [i for i in range(len(row.token_ids)) if i not in given]
        assert len(new) <= INFILL.room and not {row.token_ids[i] for i in new} & specials
        assert all(1 <= row.insert_step[i] < row.reveal_step[i] <= row.steps for i in new)
        inserted += len(new)
        assert row.forwards == len(seen) == row.steps
        trace = Trace.from_tokens(
            VOCAB,
            row.token_ids,
            prompt_ids=INFILL.ids[: INFILL.prompt_length],
            insert_step=row.insert_step,
            reveal_step=row.reveal_step,
            steps=row.steps,
        )
        for step, ids in enumerate(seen):  # the canvas that call step + 1 saw
            assert trace.replay(step).ids(VOCAB.mask_id, prompt=True).tolist() == ids
    assert inserted > 6


def test_the_head_runs_on_few_slots() -> None:
    """Ranked ones and taken ones; only taken ones where the score reads nothing."""
    net = Mock(about(30).missing, by_place)
    (row,) = decode(net, [prompt(0)], steps=40)
    assert sum(net.headed) > len(row.token_ids)
    assert all(h <= 2 * m for h, m in zip(net.headed, net.masks, strict=True))
    net = about(30)
    (row,) = decode(net, [prompt(0)], steps=40, policy="random")
    assert sum(net.headed) == len(row.token_ids) > 10


def test_left_to_right_reveals_the_leftmost() -> None:
    (row,) = decode(about(20), [prompt(0)], steps=30, policy="left_to_right")
    order = list(zip(row.insert_step, row.reveal_step, strict=True))
    for i, (_, reveal) in enumerate(order):
        # A slot that was there, masked, to the left of a revealed one must not be passed over.
        assert all(r <= reveal for insert, r in order[:i] if insert < reveal)


def test_slots_left_at_the_end_are_filled_by_one_more_call() -> None:
    """All five tokens come in the last step of one: they are revealed by a second call."""
    net = Mock(lambda ids, mask, left: 5.0 * (ids == ANCHOR).double() + 1e-30, by_place)
    (row,) = decode(net, [prompt(0)], steps=1)
    assert row.insert_step == [1] * 5 and row.reveal_step == [2] * 5
    assert (row.steps, row.forwards) == (2, 2)
    assert net.headed == [0, 5]
    nothing = Mock(lambda ids, mask, left: left * 0 + 1e-30)
    (row,) = decode(nothing, [prompt(0)], steps=7)
    assert row.token_ids == [] and (row.steps, row.forwards) == (7, 7)


def test_a_full_row_without_masks_leaves_early() -> None:
    net = Mock(lambda ids, mask, left: 50.0 + 0 * left)
    (row,) = decode(net, [prompt(0, room=2)], steps=100)
    assert len(row.token_ids) == 2 and row.steps == max(row.reveal_step) < 100


@pytest.mark.parametrize("coordinate", ["progress", "raw"])
def test_the_network_is_asked_at_the_progress_of_the_sampler(coordinate: str) -> None:
    net = Mock(about(4).missing, coordinate=coordinate)
    decode(net, [prompt(0)], steps=8, insertion_schedule=2.9)
    exponent = {"progress": 2.9, "raw": 2.9 / 1.7}[coordinate]
    for j, (time,) in enumerate(net.times[:8]):
        assert 1 - time == pytest.approx((1 - j / 8) ** exponent, rel=1e-12)
    end = network_time(torch.zeros(1, dtype=torch.float64), Power(2.9), net)
    assert float(1 - end) == pytest.approx(END if coordinate == "raw" else END**1.7, rel=1e-5)


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


def demand_of(expected: list[list[float]], room: int, rows: int, step: int = 1) -> Demand:
    missing = torch.tensor(expected, dtype=torch.float64).expand(rows, -1)
    slot = torch.arange(missing.shape[1]).expand(rows, -1)
    return Demand(missing, torch.full((rows,), room), torch.arange(rows), slot, step)


GAPS = [[0.0, 0.3, 1.0, 2.0, 2.6]]


@pytest.mark.parametrize("law", INSERTION_COUNTS)
def test_a_gap_gets_its_share_on_average(law: str) -> None:
    rows, share = 20_000, 0.4
    drawn = INSERTION_COUNTS[law](demand_of(GAPS, 1000, rows), share).double()
    for i, expected in enumerate(GAPS[0]):
        mean, spread = share * expected, float(drawn[:, i].std())
        assert float(drawn[:, i].mean()) == pytest.approx(mean, abs=4 * spread / rows**0.5 + 1e-12)
    variance = {"poisson": 0.8, "binomial": 2 * 0.4 * 0.6, "floor_bernoulli": 0.8 * 0.2}[law]
    assert float(drawn[:, 3].var()) == pytest.approx(variance, rel=0.05)


def test_poisson_in_all_is_poisson_in_each_gap() -> None:
    drawn = INSERTION_COUNTS["poisson"](demand_of(GAPS, 1000, 20_000), 0.5)
    for i, expected in ((2, 1.0), (4, 2.6)):
        for k in range(4):
            p = math.exp(-expected / 2) * (expected / 2) ** k / math.factorial(k)
            assert int((drawn[:, i] == k).sum()) == pytest.approx(2e4 * p, abs=4 * (2e4 * p) ** 0.5)
    pair = torch.stack([drawn[:, 2], drawn[:, 4]]).double()
    assert abs(float(torch.corrcoef(pair)[0, 1])) < 0.03  # a fixed total would tie them together


@pytest.mark.parametrize("law", INSERTION_COUNTS)
def test_a_cap_favours_no_side(law: str) -> None:
    """Five equal gaps and room for three: a cut from left to right starves the last ones."""
    rows = 6000
    drawn = INSERTION_COUNTS[law](demand_of([[2.0] * 5], 3, rows), 0.9)
    assert int(drawn.sum(dim=1).max()) == 3
    share = drawn.double().mean(dim=0)
    assert float(share.sum()) > 2.8
    assert torch.allclose(share, share.mean(), atol=0.05)
    cut = (
        drawn.cumsum(dim=1)
        .clamp(max=1)
        .diff(dim=1, prepend=torch.zeros(rows, 1, dtype=torch.int64))
    )
    assert not torch.allclose(cut.double().mean(dim=0), cut.double().mean(), atol=0.05)


def test_a_cap_keeps_rows_that_have_room_as_they_are() -> None:
    tight, wide = demand_of([[2.0] * 5], 3, 50), demand_of([[2.0] * 5], 100, 50)
    room = torch.where(torch.arange(50) % 2 == 0, 3, 100)
    mixed = INSERTION_COUNTS["binomial"](replace(tight, room=room), 0.9)
    assert torch.equal(mixed[::2], INSERTION_COUNTS["binomial"](tight, 0.9)[::2])
    assert torch.equal(mixed[1::2], INSERTION_COUNTS["binomial"](wide, 0.9)[1::2])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_insertion_temperature_keeps_the_expected_number(temperature: float) -> None:
    gaps = torch.tensor([[-3.0, 0.2, 1.5, 40.0, 0.0], [0.3, 0.3, -60.0, 1.0, 2.0]])
    grows = torch.tensor([[True, True, True, False, True], [False] * 5])
    expected = expected_missing(gaps, grows, temperature)
    plain = gaps.double().exp()[0, [0, 1, 2, 4]]
    assert float(expected[0].sum()) == pytest.approx(float(plain.sum()), rel=1e-12)
    tempered = torch.softmax(gaps[0, [0, 1, 2, 4]].double() / temperature, dim=0)
    assert torch.allclose(expected[0, [0, 1, 2, 4]] / expected[0].sum(), tempered)
    assert expected[0, 3] == 0 and not expected[1].any()


def test_insertion_temperature_one_is_none_bit_for_bit() -> None:
    gaps = torch.tensor([[0.123456, -1.7, 20.0]])
    every = torch.ones(1, 3, dtype=torch.bool)
    assert torch.equal(expected_missing(gaps, every, 1.0), gaps.double().clamp(max=15).exp())
    net = Mock(about(14).missing, by_place)
    plain, one = (
        decode(net, ragged(), steps=20),
        decode(net, ragged(), steps=20, insertion_temperature=1),
    )
    other = decode(net, ragged(), steps=20, insertion_temperature=0.5)
    assert [repr(row) for row in plain] == [repr(row) for row in one]
    uneven = Mock(lambda ids, mask, left: left * (1.0 + torch.arange(ids.shape[1])) / 4, by_place)
    assert decode(uneven, ragged(), steps=20) != decode(
        uneven, ragged(), steps=20, insertion_temperature=0.5
    )
    assert len(other) == len(plain)


def test_an_event_is_one_insertion_or_one_reveal_per_call() -> None:
    net = about(10)
    rows = decode(net, [prompt(0), prompt(1), INFILL], seed=1, clock="events")
    assert len({tuple(row.reveal_step) for row in rows}) == 3
    for row in rows:
        moments = [step for step in row.insert_step + row.reveal_step if step]
        late = [step for step in row.reveal_step if step == row.steps]  # a final fill has many
        others = [step for step in moments if step < row.steps]
        assert len(set(others)) == len(others) and len(late) <= len(row.token_ids)
        assert row.forwards == row.steps >= len(set(moments))
    times = list(zip(*net.times[:3], strict=True))
    assert all(a < b for row_times in times for a, b in pairwise(row_times))
    assert len({row_times[1] for row_times in times}) == 3  # each row has its own time


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


def test_extras_may_change_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def all_at_once(chosen: Chosen) -> Chosen:
        positions, probability = chosen.probabilities(0)
        assert positions.tolist() == chosen.open[0].nonzero()[:, 0].tolist()
        assert torch.allclose(probability.sum(dim=-1), torch.ones(len(positions)))
        assert not probability[:, [VOCAB.mask_id, VOCAB.eos_id]].any()
        seen.append(chosen.step)
        return replace(chosen, taken=chosen.open, tokens=torch.full_like(chosen.tokens, 2))

    monkeypatch.setattr(flexmdm, "extra_of", lambda options, vocab: all_at_once)
    net = Mock(about(9).missing, by_place)
    (row,) = decode(net, [prompt(0)], steps=12)
    assert seen == list(range(1, row.steps + 1))
    assert set(row.token_ids) == {2}
    assert all(r == i + 1 for i, r in zip(row.insert_step, row.reveal_step, strict=True))


def test_force_unmask_breaks_up_long_runs() -> None:
    net = Mock(lambda ids, mask, left: 15.0 * (ids == ANCHOR).double() + 1e-30, by_place)
    slow = {"steps": 30, "unmasking_schedule": 0.01, "insertion_schedule": 60.0}
    (plain,) = decode(net, [prompt(0, room=15)], **slow)
    (forced,) = decode(net, [prompt(0, room=15)], force_unmask=True, **slow)
    assert min(forced.reveal_step) < min(plain.reveal_step)


def test_broken_networks_end_in_an_error() -> None:
    for value in (math.nan, -1.0):  # the log of a negative number is none
        net = Mock(lambda ids, mask, left, value=value: value + 0 * left)
        with pytest.raises(ValueError, match="gaps are not numbers"):
            decode(net, [prompt(0)], steps=4)
    net = Mock(about(5).missing, lambda place: torch.full((len(place), VOCAB.size), math.nan))
    with pytest.raises(ValueError, match="not finite"):
        decode(net, [prompt(0)], steps=4)


def test_canvases_that_cannot_grow_are_refused() -> None:
    with pytest.raises(ValueError, match="no gap"):
        flexmdm.check([GrowingCanvas((0, 1), (False, False), 5)], FlexOptions())
    with pytest.raises(ValueError, match="at least 1"):
        flexmdm.check([prompt(0, room=0)], FlexOptions())
    with pytest.raises(ValueError, match="exact"):
        flexmdm.check([INFILL], FlexOptions(mode="compat"))


def test_a_wide_canvas_passes_the_head_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    net, canvases = Mock(about(14).missing, by_place), ragged()
    whole = decode(net, canvases, steps=20, temperature=0.8)
    monkeypatch.setattr("anyorder.decode.proposals.HEAD_BUDGET", 2 * VOCAB.size)
    pieces = decode(net, canvases, steps=20, temperature=0.8)
    for row, same in zip(pieces, whole, strict=True):
        assert_same(row, same)


def test_placing_is_keyed_and_proportional() -> None:
    demand = demand_of([[0.0, 1.0, 3.0, 0.0]], 9, 8000)
    placed = place(demand, torch.ones(8000, dtype=torch.int64))
    assert placed.sum(dim=0)[[0, 3]].tolist() == [0, 0]
    assert float(placed[:, 2].double().mean()) == pytest.approx(0.75, abs=0.02)
    assert torch.equal(placed, place(demand, torch.ones(8000, dtype=torch.int64)))
    assert not torch.equal(
        placed, place(replace(demand, step=2), torch.ones(8000, dtype=torch.int64))
    )


def test_events_thin_by_what_is_missing_now() -> None:
    """With a bound of 4 and 1 missing, a quarter of the proposals become insertions."""
    rows = flexmdm.Rows.start([prompt(0)] * 8000, list(range(8000)), VOCAB, torch.device("cpu"))
    rows.bound = torch.full_like(rows.bound, 4.0)
    demand = Demand(
        torch.tensor([[0.0, 1.0]]).double().expand(8000, 2), rows.room, rows.key, rows.slot, 1
    )
    plan = Events(Power(2.9), Power(2.89)).plan(rows, demand)
    assert float(plan.inserts.sum(dim=1).double().mean()) == pytest.approx(0.25, abs=0.02)
    assert torch.equal(plan.bound, 1.0 + plan.inserts.sum(dim=1))
