"""flexmdm with the perfect network: its exact law tends to the data's, and the sampler has it.

Laws are pushed through the kernel (insertion_laws.py, insertion_event_laws.py), not sampled, so
total variations here are numbers without noise. The real sampler is then held against the law at
the same number of steps, which is far from the data's, so that agreement means something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from insertion_event_laws import EventLaw
from insertion_laws import Rule, distance, output_law, tempered, total_variation
from insertion_space import Array, Asker, Space, generic_data
from scipy import stats
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingCanvas
from anyorder.decode.growing import END, RISE, schedules
from anyorder.families.flexmdm import decode as flexmdm
from anyorder.families.flexmdm.config import FlexOptions
from anyorder.nets.denoiser import Look
from anyorder.nets.oracles import InsertionOracle
from anyorder.process.noise import key_of
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c"])
LONGEST = 3
DATA = generic_data(3, LONGEST)
SPACE = Space(3, LONGEST)
CARRIED = 2.89 / 1.7 * 2.9  # B(Gamma(t)) with Gamma's exponent 2.9


def asker(coordinate: str = "progress") -> Asker:
    oracle = InsertionOracle(DATA, VOCAB.mask_id, VOCAB.size, coordinate=coordinate)
    return Asker(oracle, SPACE)


# --- the exact law, step-wise ----------------------------------------------------------------

EXACT = {
    "training schedule": Rule(),
    "poisson counts": Rule(counts="poisson"),
    "left-endpoint hazard": Rule(counts="poisson", hazard="left"),
    "midpoint hazard": Rule(counts="poisson", hazard="midpoint"),
    "beta kept": Rule(insertion=2.9),
    "beta carried along": Rule(insertion=2.9, unmasking=CARRIED),
    "late unmasking": Rule(insertion=2.9, unmasking=1.0),
    "largest probability": Rule(policy="confidence"),
    "largest probability, poisson quota": Rule(policy="confidence", quota="poisson"),
    "largest probability, beta kept": Rule(policy="confidence", insertion=2.9),
}


@pytest.mark.parametrize("rule", EXACT.values(), ids=EXACT)
def test_the_law_tends_to_the_datas_like_one_over_the_steps(rule: Rule) -> None:
    coarse, fine = (distance(replace(rule, steps=n), asker(), DATA) for n in (16, 64))
    assert fine < 0.035
    assert 3.2 < coarse / fine < 4.6


@pytest.mark.parametrize("name", ["training schedule", "beta kept", "beta carried along"])
def test_the_networks_coordinate_makes_no_difference(name: str) -> None:
    rule = replace(EXACT[name], steps=12)
    in_progress, in_time = (output_law(rule, asker(c)) for c in ("progress", "raw"))
    assert total_variation(in_progress, in_time) < 1e-12


@pytest.mark.parametrize(
    ("insertion", "bias"), [pytest.param(1.7, 0.07, marks=pytest.mark.long), (2.9, 0.1)]
)
def test_the_published_score_stays_biased(insertion: float, bias: float) -> None:
    """Ranking by the drawn token's probability prefers likely tokens, however fine the steps."""
    rule = Rule(steps=256, insertion=insertion, policy="sampled", counts="poisson")
    assert distance(rule, asker(), DATA) > bias
    assert distance(replace(rule, policy="confidence"), asker(), DATA) < 0.005


def test_asking_at_the_wrong_time_stays_wrong() -> None:
    for steps in (16, 128):
        rule = Rule(steps=steps, insertion=2.9, wrong_time=True)
        assert distance(rule, asker(), DATA) > 0.25


def test_an_insertion_temperature_is_no_longer_exact() -> None:
    """It keeps the number of insertions, and moves them: a choice, not a better sampler."""
    missing = np.array([[0.5, 0.01, 2.0], [0.0, 0.0, 0.0]])
    for temperature in (0.5, 1.0, 2.0):
        moved = tempered(missing, temperature)
        assert moved.sum(axis=1) == pytest.approx(missing.sum(axis=1))
        assert np.allclose(moved, missing) == (temperature == 1.0)
    assert distance(Rule(steps=128, insertion_temperature=0.5), asker(), DATA) > 0.02


# --- the exact law, event by event -----------------------------------------------------------


@pytest.mark.parametrize("unmasking", [2.89, CARRIED, 1.0])
def test_events_need_fewer_calls_than_steps(unmasking: float) -> None:
    """One thing at a time: almost no error left at calls where steps are far off."""
    ask, rule = asker(), Rule(insertion=2.9, unmasking=unmasking, policy="confidence")
    events = EventLaw(ask, rule, cells=150, rise=RISE, end=END)
    assert total_variation(events.law, SPACE.vector(DATA)) < 0.002
    assert events.mean_calls < 8.5
    assert distance(replace(rule, steps=9), ask, DATA) > 0.04  # 10 calls


def test_a_bound_that_is_too_low_shows_in_the_law_of_events() -> None:
    rule = Rule(insertion=2.9, policy="confidence")
    low, high = (EventLaw(asker(), rule, cells=100, rise=rise) for rise in (0.0, 1.0))
    target = SPACE.vector(DATA)
    assert total_variation(low.law, target) > 4 * total_variation(high.law, target)


# --- the real sampler ------------------------------------------------------------------------

SAMPLES = 2500


def decoded(net: Any, options: FlexOptions, seed: int = 3) -> list[Decoded]:
    canvas = GrowingCanvas(ids=(VOCAB.bos_id or 0,), grows=(True,), room=LONGEST)
    keys = [key_of(seed, i) for i in range(SAMPLES)]
    return flexmdm.decode(net, VOCAB, [canvas] * SAMPLES, keys, options)


def p_value(rows: Sequence[Decoded], law: Array) -> float:
    """Chi-square of the outputs against a law; the rarest strings count as one."""
    seen = Counter(tuple(row.token_ids) for row in rows)
    observed = np.array([seen[z] for z in SPACE.strings], dtype=float)
    assert observed.sum() == len(rows)  # nothing is longer than its room, or still masked
    assert observed[law == 0].sum() == 0
    order = np.argsort(law)
    observed, expected = observed[order], law[order] * len(rows)
    rare = int(np.searchsorted(expected, 5.0))
    rare = max(rare, int(np.searchsorted(expected.cumsum(), 5.0)) + 1)
    pooled = [np.append(each[rare:], each[:rare].sum()) for each in (observed, expected)]
    return float(stats.chisquare(*pooled).pvalue)


SAMPLERS: dict[str, tuple[dict[str, Any], Rule]] = {
    "independent, binomial": (
        {"policy": "random", "insertion_schedule": 1.7},
        Rule(),
    ),
    "independent, poisson": (
        {"policy": "random", "insertion_schedule": 1.7, "counts": "poisson"},
        Rule(counts="poisson"),
    ),
    "independent, floor": (
        {"policy": "random", "insertion_schedule": 1.7, "counts": "floor_bernoulli"},
        Rule(counts="floor_bernoulli"),
    ),
    "confidence, kept": (
        {"policy": "confidence"},
        Rule(insertion=2.9, policy="confidence"),
    ),
    "confidence, kept, poisson": (
        {"policy": "confidence", "counts": "poisson", "insertion_temperature": 1.0},
        Rule(insertion=2.9, policy="confidence", counts="poisson"),
    ),
    "confidence, carried": (
        {"policy": "confidence", "unmasking_schedule": "carried"},
        Rule(insertion=2.9, unmasking=CARRIED, policy="confidence"),
    ),
    "confidence, poisson quota": (
        {"policy": "confidence", "quota": "poisson"},
        Rule(insertion=2.9, policy="confidence", quota="poisson"),
    ),
    "sampled": (
        {"policy": "sampled"},
        Rule(insertion=2.9, policy="sampled"),
    ),
    "left": (
        {"policy": "random", "hazard": "left", "counts": "poisson"},
        Rule(insertion=2.9, hazard="left", counts="poisson"),
    ),
    "midpoint": (
        {"policy": "random", "hazard": "midpoint"},
        Rule(insertion=2.9, hazard="midpoint"),
    ),
    "insertion temperature": (
        {"policy": "confidence", "insertion_temperature": 0.5},
        Rule(insertion=2.9, policy="confidence", insertion_temperature=0.5),
    ),
}


@pytest.mark.parametrize(("options", "rule"), SAMPLERS.values(), ids=SAMPLERS)
def test_the_sampler_has_the_law_of_its_kernel(options: dict[str, Any], rule: Rule) -> None:
    ask, steps = asker(), 5
    law = output_law(replace(rule, steps=steps), ask)
    options = {"unmasking_schedule": "kept"} | options
    rows = decoded(ask.net, FlexOptions(temperature=1.0, steps=steps, **options))
    assert p_value(rows, law) > 1e-3
    assert p_value(rows, SPACE.vector(DATA)) < 1e-9  # five steps are not enough, and it shows


@pytest.mark.parametrize(
    ("schedule", "exponent"), [("kept", 2.89), ("carried", CARRIED), (1.5, 1.5)]
)
def test_the_unmasking_schedule_is_the_one_that_was_chosen(schedule: Any, exponent: float) -> None:
    """Final texts hardly tell these apart; carried is B(Gamma(t))."""
    net = asker().net
    options = flexmdm.resolve(FlexOptions(unmasking_schedule=schedule, insertion_schedule=2.9))
    gamma, delta = schedules(options, net)
    assert (gamma.exponent, delta.exponent) == (2.9, pytest.approx(exponent))
    t = torch.linspace(0, 0.99, 50, dtype=torch.float64)
    along = 1 - (1 - gamma.value(t)) ** (net.unmasking_exponent / net.insertion_exponent)
    assert torch.allclose(delta.value(t), along) == (schedule == "carried")


def test_the_sampler_asks_in_the_networks_own_coordinate() -> None:
    options = FlexOptions(temperature=1.0, steps=5, unmasking_schedule="kept")
    in_progress, in_time = (decoded(asker(c).net, options) for c in ("progress", "raw"))
    assert [row.token_ids for row in in_progress] == [row.token_ids for row in in_time]


@pytest.mark.parametrize("policy", ["confidence", "random"])
def test_the_event_sampler_has_its_law_and_the_datas(policy: str) -> None:
    ask = asker()
    rule = Rule(insertion=2.9, policy=policy)
    law = EventLaw(ask, rule, cells=150, rise=RISE, end=END)
    options = FlexOptions(policy=policy, clock="events", temperature=1.0, unmasking_schedule="kept")
    rows = decoded(ask.net, options)
    assert p_value(rows, law.law) > 1e-3
    assert p_value(rows, SPACE.vector(DATA)) > 1e-3
    calls = np.array([row.forwards for row in rows])
    assert abs(calls.mean() - law.mean_calls) < 4 * calls.std() / SAMPLES**0.5 + 0.01


# --- the insertion temperature keeps counts --------------------------------------------------


class Still:
    """A network that always says the same: so much is missing after each of the first tokens."""

    coordinate, insertion_exponent, unmasking_exponent = "progress", 1.7, 2.89

    def __init__(self, missing: Sequence[float]) -> None:
        self.gaps = torch.tensor(missing, dtype=torch.float64).log()

    def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
        gaps = torch.full(ids.shape, -60.0, dtype=torch.float64)
        gaps[:, : len(self.gaps)] = self.gaps
        return Look(torch.zeros(*ids.shape, VOCAB.size), gaps)

    def head(self, states: Tensor) -> Tensor:
        return states


@pytest.mark.parametrize("counts", ["binomial", "poisson", "floor_bernoulli"])
def test_the_temperature_moves_insertions_and_keeps_their_number(counts: Any) -> None:
    missing = (0.4, 1.7, 0.9)
    canvas = GrowingCanvas(ids=(0, 1, 2), grows=(True, True, True), room=40)
    keys = [key_of(8, i) for i in range(SAMPLES)]
    first = {}
    for temperature in (0.5, 1.0, 2.0):
        options = FlexOptions(steps=1, counts=counts, insertion_temperature=temperature)
        rows = flexmdm.decode(Still(missing), VOCAB, [canvas] * SAMPLES, keys, options)
        inserted = np.array([sum(step > 0 for step in row.insert_step) for row in rows])
        assert abs(inserted.mean() - sum(missing)) < 4 * inserted.std() / SAMPLES**0.5 + 1e-9
        before = [row.insert_step.index(0) for row in rows]  # new slots before the frozen "b"
        first[temperature] = np.mean(before)
    assert first[0.5] < first[1.0] - 0.05 < first[2.0] - 0.1
    assert abs(first[1.0] - missing[0]) < 0.04


# --- lengths up to 5 -------------------------------------------------------------------------


@pytest.mark.long
def test_the_laws_at_lengths_up_to_five() -> None:
    data, space = generic_data(3, 5), Space(3, 5)
    ask = Asker(InsertionOracle(data, VOCAB.mask_id, VOCAB.size), space)
    for rule in EXACT.values():
        coarse, fine = (distance(replace(rule, steps=n), ask, data) for n in (12, 48))
        assert fine < 0.05 and 3 < coarse / fine < 4.8
    sampled = Rule(steps=48, insertion=2.9, policy="sampled")
    assert distance(sampled, ask, data) > 0.12
    assert distance(Rule(steps=48, insertion=2.9, wrong_time=True), ask, data) > 0.3
    events = EventLaw(ask, Rule(insertion=2.9, policy="confidence"), 100, RISE, END)
    assert total_variation(events.law, space.vector(data)) < 0.01  # that of the grid
    assert events.mean_calls < 14
