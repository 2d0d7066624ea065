"""The insertion process: closed forms, hazards, gap targets, weights and normalisations."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from torch import Tensor

from anyorder.nets.oracles import InsertionOracle
from anyorder.process import insertion
from anyorder.process.insertion import (
    Clocks,
    InsertionItems,
    InsertionWeights,
    Interpolant,
    align,
    binomial,
    could_be,
    floor_bernoulli,
    poisson,
)
from anyorder.process.noise import Noise, uniform
from anyorder.process.schedule import Power, carried

PUBLISHED = Clocks(Power(1.7), Power(2.89))
TIMES = st.floats(0.0, 0.999)
EXPONENTS = st.floats(0.3, 5.0)


def double(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def items_of(rows: int, answer: int) -> InsertionItems:
    """An anchor and so many free items in every row."""
    free = torch.ones(rows, answer + 1, dtype=torch.bool)
    gaps = free.clone()
    free[:, 0] = False
    return InsertionItems(free, gaps, torch.full((rows,), answer + 1))


# --- the law of the interpolant --------------------------------------------------------------


@pytest.mark.parametrize("coordinate", ["raw", "progress"])
@pytest.mark.parametrize("b", [1.7, 1.0, 0.4])
@pytest.mark.parametrize("t", [0.1, 0.5, 0.9])
def test_shares_are_the_closed_forms(b: float, t: float, coordinate: str) -> None:
    """P(deleted) = (1-t)^a, P(masked) = ((1-t)^a - (1-t)^(ab)) / (b-1), to 3 standard errors."""
    a, rows, count = 1.7, 4000, 6
    clocks, here = Clocks(Power(a), Power(a * b)), t
    if coordinate == "progress":
        clocks, here = clocks.in_progress(), float(Power(a).value(double(t)))
    noise = Noise(11, 0, level=1 - here)
    seen = insertion.corrupt(items_of(rows, count), torch.arange(rows), noise, clocks)
    left = (1 - t) ** a
    masked = -left * math.log(left) if b == 1 else (left - left**b) / (b - 1)
    total = rows * count
    found = (1 - (int(seen.real.sum()) - rows) / total, int(seen.masked.sum()) / total)
    for share, expected in zip(found, (left, masked), strict=True):
        assert abs(share - expected) < 3 * math.sqrt(expected * (1 - expected) / total)
    closed = [float(share) for share in clocks.shares(double(here))]
    assert closed == pytest.approx([left, masked, 1 - left - masked], abs=1e-12)


def test_items_are_independent_and_frozen_ones_untouched() -> None:
    rows, t = 20_000, 0.45
    seen = insertion.corrupt(
        items_of(rows, 2), torch.arange(rows), Noise(3, 7, level=1 - t), PUBLISHED
    )
    state = torch.zeros(rows, 3, dtype=torch.int64)  # 0 deleted, 1 masked, 2 clean
    state.scatter_reduce_(1, seen.origin, (2 - seen.masked.long()) * seen.real, "amax")
    assert (state[:, 0] == 2).all()
    observed = torch.bincount(state[:, 1] * 3 + state[:, 2], minlength=9)
    each = torch.stack(PUBLISHED.shares(double(t)))
    expected = torch.outer(each, each).flatten() * rows
    assert stats.chisquare(observed.numpy(), expected.numpy()).pvalue > 1e-3


def test_an_items_times_belong_to_its_example() -> None:
    items, noise, index = items_of(3, 9), Noise(2, 9, level=0.4), torch.tensor([10, 20, 30])
    forward = insertion.corrupt(items, index, noise, PUBLISHED)
    backward = insertion.corrupt(items, index.flip(0), noise, PUBLISHED)
    for name in ("origin", "real", "masked", "missing"):
        assert torch.equal(getattr(forward, name), getattr(backward, name).flip(0))


@given(st.floats(0.3, 3.0), st.floats(0.3, 3.0), st.floats(0.01, 0.95))
def test_hazards_integrate_to_the_schedules(a: float, c: float, t: float) -> None:
    """The integral of the hazard is -log of what is left, in both coordinates."""
    raw = Clocks(Power(a), Power(c))
    tau = float(raw.insertion.value(double(t)))
    for clocks, end in ((raw, t), (raw.in_progress(), tau)):
        for schedule in (clocks.insertion, clocks.unmasking):
            total = integrate.quad(lambda u, of=schedule: float(of.hazard(double(u))), 0, end)[0]
            left = float(1 - schedule.value(double(end)))
            assert math.exp(-total) == pytest.approx(left, rel=1e-6, abs=1e-12)
    carried_along = carried(raw.unmasking, raw.insertion).value(double(tau))
    assert float(carried_along) == pytest.approx(float(raw.unmasking.value(double(t))), abs=1e-9)


@given(EXPONENTS, EXPONENTS, st.lists(TIMES, min_size=1, max_size=8))
def test_thinning_over_any_grid_gives_the_same_law(a: float, c: float, grid: list[float]) -> None:
    """Walk over the grid: who is inserted in a cell, and who of the masked is revealed in it."""
    clocks = Clocks(Power(a), Power(c))
    deleted, masked, previous = double(1.0), double(0.0), double(0.0)
    waiting = double(1.0)
    for time in sorted(grid):
        here = double(time)
        # The power family begins anew at every time: what happens in (t, s] to an item deleted at
        # t is what happens by 1 - (1-s)/(1-t) to one deleted at 0.
        stay, shown_late, _ = clocks.shares(1 - (1 - here) / (1 - previous))
        masked = masked * (1 - clocks.unmasking.thinning(previous, here)) + deleted * shown_late
        deleted = deleted * (1 - clocks.insertion.thinning(previous, here))
        waiting = waiting * stay
        previous = here
    expected = clocks.shares(previous)
    assert float(deleted) == pytest.approx(float(expected[0]), rel=1e-9, abs=1e-12)
    assert float(waiting) == pytest.approx(float(expected[0]), rel=1e-9, abs=1e-12)
    assert float(masked) == pytest.approx(float(expected[1]), rel=1e-6, abs=1e-9)


ROW = st.lists(st.sampled_from("dmc"), min_size=0, max_size=9)


@given(st.lists(ROW, min_size=1, max_size=4), st.integers(1, 3))
def test_gap_targets_by_hand(fates: list[list[str]], prompt: int) -> None:
    longest = prompt + max(map(len, fates))
    lengths = torch.tensor([prompt + len(fate) for fate in fates])
    place = torch.arange(longest).expand(len(fates), longest)
    inside = place < lengths[:, None]
    items = InsertionItems(inside & (place >= prompt), inside & (place >= prompt - 1), lengths)
    rows = [["c"] * prompt + fate + ["c"] * (longest - prompt - len(fate)) for fate in fates]
    deleted = torch.tensor([[each == "d" for each in row] for row in rows])
    masked = torch.tensor([[each in "dm" for each in row] for row in rows])
    seen = insertion.pack(items, deleted=deleted, masked=masked, time=torch.zeros(len(fates)))
    for row, length in enumerate(lengths.tolist()):
        kept = [j for j in range(length) if rows[row][j] != "d"]
        count = len(kept)
        assert seen.real[row].tolist() == [i < count for i in range(seen.real.shape[1])]
        assert seen.origin[row, :count].tolist() == kept
        assert seen.masked[row, :count].tolist() == [rows[row][j] == "m" for j in kept]
        assert seen.gaps[row, :count].tolist() == [j >= prompt - 1 for j in kept]
        ends = [*kept[1:], length]
        missing = [end - j - 1 if j >= prompt - 1 else 0 for j, end in zip(kept, ends, strict=True)]
        assert seen.missing[row, :count].tolist() == missing
        for table in (seen.masked, seen.gaps, seen.missing):
            assert not table[row, count:].any()


# --- weights and normalisation ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "insert", "ideal_insert", "unmask", "ideal_unmask"),
    [
        (0.5, "3.39", "3.4", "5.74", "5.78"),
        (0.2, "8.37", "8.5", "13.1", "14.5"),
        (0.1, "16.2", "17", "16.3", "28.9"),
        (0.05, "29.2", "34", "8.56", "57.8"),
        (0.01, "48.4", "170", "0.48", "289"),
    ],
)
def test_published_weights_to_their_printed_digits(
    left: float, insert: str, ideal_insert: str, unmask: str, ideal_unmask: str
) -> None:
    time = double(1 - left)
    for schedule, compat, ideal in (
        (PUBLISHED.insertion, insert, ideal_insert),
        (PUBLISHED.unmasking, unmask, ideal_unmask),
    ):
        digits = len(compat.replace(".", "").lstrip("0"))
        found = float(insertion.weights("compat", schedule, time))
        assert float(f"{found:.{digits}g}") == float(compat)
        exact = float(insertion.weights("hazard", schedule, time, math.inf))
        assert float(f"{exact:.3g}") == float(ideal)
        assert float(insertion.weights("hazard", schedule, time, 20.0)) == min(exact, 20.0)


def test_published_weights_have_their_maxima() -> None:
    time = torch.linspace(0, 1, 200_001, dtype=torch.float64)[:-1]
    for schedule, highest in ((PUBLISHED.insertion, 50.2), (PUBLISHED.unmasking, 16.6)):
        assert float(insertion.weights("compat", schedule, time).max()) == pytest.approx(
            highest, abs=0.05
        )
    with pytest.raises(ValueError, match="unknown weighting"):
        insertion.weights("exact", PUBLISHED.insertion, time)  # type: ignore[arg-type]


def test_normalisations() -> None:
    place = torch.arange(6).expand(3, 6)
    lengths = torch.tensor([6, 3, 1])
    items = InsertionItems(
        (place >= 1) & (place < lengths[:, None]), place < lengths[:, None], lengths
    )
    assert insertion.divisor("items", items, 9).tolist() == pytest.approx([7 / 3] * 3)
    assert insertion.divisor("rows", items, 9).tolist() == [1, 1, 1]
    assert insertion.divisor("max_length", items, 9).tolist() == [9, 9, 9]
    with pytest.raises(ValueError, match="unknown normalisation"):
        insertion.divisor("tokens", items, 9)


# The insertion loss by enumeration of every way to corrupt an answer: value, gradient, targets.


ANCHOR, MASK, SIZE = 4, 3, 5


class Everything(NamedTuple):
    """Every way to corrupt one answer, as rows of a batch."""

    ids: Tensor  # B N, with the anchor
    items: InsertionItems
    seen: Interpolant
    fates: Tensor  # B N-1: 0 deleted, 1 masked, 2 clean

    @property
    def canvas(self) -> Tensor:
        shown = self.ids.gather(1, self.seen.origin)
        return shown.masked_fill(self.seen.masked, MASK).masked_fill(~self.seen.real, -1)

    def probability(self, clocks: Clocks, t: Tensor) -> Tensor:
        return torch.stack(clocks.shares(t))[self.fates].prod(dim=1)  # B


def everything(answer: tuple[int, ...], time: Tensor) -> Everything:
    fates = torch.tensor(list(itertools.product(range(3), repeat=len(answer))), dtype=torch.int64)
    fates = fates.reshape(3 ** len(answer), len(answer))
    frozen = torch.zeros(len(fates), 1, dtype=torch.bool)
    free = torch.cat([frozen, fates >= 0], dim=1)
    items = InsertionItems(free, torch.ones_like(free), torch.full((len(fates),), len(answer) + 1))
    deleted, masked = (torch.cat([frozen, fates <= level], dim=1) for level in (0, 1))
    seen = insertion.pack(items, deleted=deleted, masked=masked, time=time.expand(len(fates)))
    return Everything(torch.tensor([ANCHOR, *answer]).expand(len(fates), -1), items, seen, fates)


class Toy:
    """A small model: logits and gaps from a slot, its right neighbour and progress, by tables."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        size = (SIZE + 1, SIZE + 1)  # the last stands for "nothing"
        self.logits = torch.randn(2, *size, 3, dtype=torch.float64, generator=generator)
        self.gaps = torch.randn(2, *size, dtype=torch.float64, generator=generator)

    def __call__(self, canvas: Tensor, progress: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities (B S 3) and log means (B S) of canvases with -1 at padding."""
        right = torch.cat([canvas[:, 1:], torch.full_like(canvas[:, :1], -1)], dim=1)
        logits = self.logits[0][canvas, right] + progress * self.logits[1][canvas, right]
        gaps = self.gaps[0][canvas, right] + progress * self.gaps[1][canvas, right]
        return logits.log_softmax(dim=-1), gaps + torch.log(1 - progress)


def expected_loss(model: Toy, answer: tuple[int, ...], clocks: Clocks, u: float) -> float:
    """The loss at time u of the clocks, averaged over every way to corrupt the answer."""
    time = double(u)
    every = everything(answer, time)
    progress = clocks.insertion.value(time)
    log_prob, gaps = model(every.canvas, progress)
    tokens = every.ids.gather(1, every.seen.origin)[every.seen.masked]
    nats = -log_prob[every.seen.masked].gather(1, tokens[:, None])[:, 0]
    probability = every.probability(clocks, time)
    scale = InsertionWeights(
        probability * insertion.weights("hazard", clocks.unmasking, time, math.inf),
        probability * insertion.weights("hazard", clocks.insertion, time, math.inf),
    )
    return float(insertion.weighted(nats, gaps, every.seen.missing, every.seen, scale).loss)


@pytest.mark.parametrize("answer", [(), (2,), (0, 1, 0)])
def test_both_coordinates_have_the_same_expected_loss(answer: tuple[int, ...]) -> None:
    """The integral over t of the raw loss is that over tau of the loss in insertion progress."""
    model = Toy()
    raw, progress = (
        integrate.quad(lambda u, of=clocks: expected_loss(model, answer, of, u), 0, 1, limit=200)[0]
        for clocks in (PUBLISHED, PUBLISHED.in_progress())
    )
    assert raw == pytest.approx(progress, rel=1e-6)
    # Another unmasking schedule is another loss, so the agreement is no accident.
    other = Clocks(Power(1.7), Power(1.2)).in_progress()
    value = integrate.quad(lambda u: expected_loss(model, answer, other, u), 0, 1, limit=200)[0]
    assert (abs(value - raw) > 1e-3) == bool(answer)


DATA = {x: 1.0 + (5 * len(x) + 3 * sum(x) + x.count(1)) % 7 for n in range(4)
        for x in itertools.product(range(3), repeat=n)}  # fmt: skip


def test_the_gradient_is_prediction_minus_posterior() -> None:
    """With free logits and gaps for every canvas, summed over all x, deletions and masks."""
    t = double(0.4)
    total = sum(DATA.values())
    weight = {
        name: float(insertion.weights("hazard", schedule, t))
        for name, schedule in (("unmask", PUBLISHED.unmasking), ("insert", PUBLISHED.insertion))
    }
    logits: dict[tuple[int, ...], Tensor] = {}
    gaps: dict[tuple[int, ...], Tensor] = {}
    mass: dict[tuple[int, ...], float] = defaultdict(float)
    generator = torch.Generator().manual_seed(0)
    loss = double(0.0)
    for answer, p in DATA.items():
        every = everything(answer, t)
        chance = every.probability(PUBLISHED, t) * (p / total)
        rows = []
        for row, padded in enumerate(every.canvas.tolist()):
            canvas = tuple(token for token in padded if token >= 0)
            mass[canvas] += float(chance[row])
            if canvas not in logits:
                draw = torch.randn(len(canvas), 4, dtype=torch.float64, generator=generator)
                logits[canvas] = draw[:, :3].clone().requires_grad_()
                gaps[canvas] = draw[:, 3].clone().requires_grad_()
            rows.append(canvas)
        wide = every.canvas.shape[1]
        log_prob, log_mean = (
            torch.stack(
                [torch.cat([of[z], of[z].new_zeros(wide - len(z), *of[z].shape[1:])]) for z in rows]
            )
            for of in (logits, gaps)
        )
        tokens = every.ids.gather(1, every.seen.origin)[every.seen.masked]
        nats = torch.nn.functional.cross_entropy(
            log_prob[every.seen.masked], tokens, reduction="none"
        )
        scale = InsertionWeights(chance * weight["unmask"], chance * weight["insert"])
        loss = loss + insertion.weighted(nats, log_mean, every.seen.missing, every.seen, scale).loss
    loss.backward()
    oracle = InsertionOracle(DATA, MASK, SIZE)
    for canvas, probability in mass.items():
        look = oracle.look(torch.tensor([canvas]), time=PUBLISHED.insertion.value(t)[None])
        masked = torch.tensor([token == MASK for token in canvas])[:, None]
        with torch.no_grad():
            token = (logits[canvas].softmax(-1) - look.states[0, :, :3].exp()) * masked
            count = gaps[canvas].exp() - look.gaps[0].exp()
        found = logits[canvas].grad if masked.any() else torch.zeros_like(token)
        assert torch.allclose(found, probability * weight["unmask"] * token, atol=1e-12)
        assert torch.allclose(gaps[canvas].grad, probability * weight["insert"] * count, atol=1e-12)


# --- targets with the alignment integrated out -----------------------------------------------


def integrated(every: Everything) -> tuple[Tensor, Tensor]:
    """P(slot is item) and the expected missing counts of every row."""
    shown = every.ids.gather(1, every.seen.origin)
    possible = could_be(every.seen, every.items, shown[:, :, None] == every.ids[:, None, :])
    posterior = align(possible, every.seen, every.items)
    return posterior.origin, posterior.missing


ANSWERS = [(), (1,), (0, 0), (0, 1, 0), (0, 0, 1, 0), (2, 1, 2, 1)]


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_integrated_targets_are_means_over_alignments(answer: tuple[int, ...]) -> None:
    """All ways to corrupt x that look alike are equally likely, so plain means must come out."""
    every = everything(answer, double(0.5))
    origin, missing = integrated(every)
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for row, canvas in enumerate(every.canvas.tolist()):
        alike[tuple(canvas)].append(row)
    drawn = torch.nn.functional.one_hot(every.seen.origin, len(answer) + 1).double()
    drawn = drawn * every.seen.real[:, :, None]
    assert len(answer) < 2 or max(map(len, alike.values())) > 1
    for rows in alike.values():
        for row in rows:
            assert torch.allclose(origin[row], drawn[rows].mean(dim=0), atol=1e-12)
            expected = every.seen.missing[rows].double().mean(dim=0)
            assert torch.allclose(missing[row], expected, atol=1e-12)


@pytest.mark.parametrize("answer", ANSWERS[2:], ids=str)
def test_integrated_targets_keep_the_mean_and_lower_the_variance(answer: tuple[int, ...]) -> None:
    """Of the loss at one time, over every way to corrupt the answer."""
    t = double(0.5)
    every = everything(answer, t)
    log_prob, gaps = Toy()(every.canvas, PUBLISHED.insertion.value(t))
    each = log_prob.gather(2, every.ids.clamp(max=2)[:, None, :].expand(-1, log_prob.shape[1], -1))
    drawn = torch.nn.functional.one_hot(every.seen.origin, len(answer) + 1).double()
    origin, missing = integrated(every)
    probability = every.probability(PUBLISHED, t)
    moments = []
    for where, count in ((drawn, every.seen.missing), (origin, missing)):
        nats = -((where * each).sum(dim=2) * every.seen.masked).sum(dim=1)
        phi = insertion.poisson_loss(count, gaps) * every.seen.gaps
        loss = nats * 7.2 + phi.sum(dim=1) * 3.4
        mean = float((probability * loss).sum())
        moments.append((mean, float((probability * (loss - mean) ** 2).sum())))
    (mean, variance), (other_mean, other_variance) = moments
    assert other_mean == pytest.approx(mean, abs=1e-12)
    assert other_variance < variance * 0.999


def test_one_loss_for_each_masked_slot() -> None:
    every = everything((0, 1), double(0.5))
    scale, gaps = InsertionWeights(torch.ones(9), torch.ones(9)), torch.zeros(every.seen.real.shape)
    with pytest.raises(ValueError, match="losses for 6 masked slots"):
        insertion.weighted(torch.zeros(2), gaps, every.seen.missing, every.seen, scale)


# Counts against their closed forms: cumulative laws, means, and what the edges must give.


def one(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


def poisson_cdf(k: int, rate: float) -> float:
    return math.fsum(math.exp(j * math.log(rate) - rate - math.lgamma(j + 1)) for j in range(k + 1))


def binomial_cdf(k: int, n: int, p: float) -> float:
    return math.fsum(math.comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(k + 1))


inside = st.floats(1e-12, 1 - 1e-12)


@given(st.floats(1e-6, 400), inside)
def test_poisson_is_the_first_count_whose_cumulative_mass_passes(rate: float, u: float) -> None:
    k = int(poisson(one(rate), one(u)))
    assert poisson_cdf(k, rate) >= u - 1e-11
    assert k == 0 or poisson_cdf(k - 1, rate) <= u + 1e-11


@given(st.integers(0, 60), st.floats(0, 1), inside)
def test_binomial_is_the_first_count_whose_cumulative_mass_passes(
    n: int, p: float, u: float
) -> None:
    k = int(binomial(one(n), one(p), one(u)))
    assert 0 <= k <= n
    assert binomial_cdf(k, n, p) >= u - 1e-11
    assert k == 0 or binomial_cdf(k - 1, n, p) <= u + 1e-11


def test_laws_of_many_draws() -> None:
    """Pearson's statistic over the counts that occur often; 30 is far out for at most 9 of them."""
    draws = 40_000
    u = uniform(3, torch.arange(draws))
    cases = [
        (poisson(torch.full_like(u, 0.7), u), lambda k: poisson_cdf(k, 0.7)),
        (poisson(torch.full_like(u, 3.0), u), lambda k: poisson_cdf(k, 3.0)),
        (binomial(torch.full_like(u, 5), torch.full_like(u, 0.3), u),
         lambda k: binomial_cdf(k, 5, 0.3)),
        (binomial(torch.full_like(u, 6), torch.full_like(u, 0.8), u),
         lambda k: binomial_cdf(k, 6, 0.8)),
    ]  # fmt: skip
    for drawn, cdf in cases:
        statistic = 0.0
        for k in range(9):
            expected = draws * (cdf(k) - (cdf(k - 1) if k else 0.0))
            if expected > 10:
                statistic += (int((drawn == k).sum()) - expected) ** 2 / expected
        assert statistic < 30


@pytest.mark.parametrize("size", [50.0, 1000.0, 5000.0])
def test_large_counts_keep_mean_and_spread(size: float) -> None:
    u = uniform(4, torch.arange(4000))
    for drawn, mean, variance in (
        (poisson(torch.full_like(u, size), u), size, size),
        (binomial(torch.full_like(u, 2 * size), torch.full_like(u, 0.5), u), size, size / 2),
        (binomial(torch.full_like(u, 2 * size), torch.full_like(u, 0.9), u), 1.8 * size,
         0.18 * size),
    ):  # fmt: skip
        error = math.sqrt(variance / len(u))
        assert abs(float(drawn.double().mean()) - mean) < 4 * error
        assert float(drawn.double().var()) == pytest.approx(variance, rel=0.12)


def test_extreme_noise_stays_within_the_law() -> None:
    low, high = one(0.5 / 2**52), one(1 - 0.5 / 2**52)
    assert int(poisson(one(3000.0), low)) > 2000 and int(poisson(one(3000.0), high)) < 4000
    assert int(binomial(one(4000), one(0.25), low)) > 700
    assert int(binomial(one(4000), one(0.25), high)) < 1300


def test_edges() -> None:
    u = uniform(5, torch.arange(500))
    zero = torch.zeros_like(u)
    assert not poisson(zero, u).any()
    assert not binomial(zero, zero + 0.4, u).any()
    assert not binomial(zero + 9, zero, u).any()
    assert (binomial(zero + 9, zero + 1, u) == 9).all()
    assert (floor_bernoulli(zero + 3, u) == 3).all()


@given(st.floats(0, 50), inside)
def test_floor_bernoulli_rounds_up_as_often_as_the_mean_asks(rate: float, u: float) -> None:
    whole = math.floor(rate)
    assert int(floor_bernoulli(one(rate), one(u))) == whole + (u < rate - whole)


def test_a_draw_does_not_depend_on_its_neighbours() -> None:
    rate = torch.tensor([[0.1, 900.0, 2.5], [7.0, 0.0, 40.0]], dtype=torch.float64)
    u = uniform(6, torch.arange(6).view(2, 3))
    together = poisson(rate, u)
    for i in range(2):
        for j in range(3):
            assert together[i, j] == poisson(rate[i : i + 1, j], u[i : i + 1, j])[0]
