"""The insertion loss by enumeration of every way to corrupt an answer: value, gradient, targets."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import NamedTuple

import pytest
import torch
from scipy import integrate
from torch import Tensor

from anyorder.nets.oracles import InsertionOracle
from anyorder.process import insertion
from anyorder.process.insertion import (
    Clocks,
    InsertionItems,
    InsertionWeights,
    Interpolant,
    align,
    could_be,
)
from anyorder.process.schedule import Power

ANCHOR, MASK, SIZE = 4, 3, 5
PUBLISHED = Clocks(Power(1.7), Power(2.89))


def double(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


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
