"""What remasking keeps: laws by enumeration, and the real decoder against them.

With exact posteriors and any grid: the law given the text, the law of the masks, and in each step
the law of every slot alone. As sigma and the steps become small together: the whole law.
"""

from __future__ import annotations

import itertools
from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from remasking_chain import Chain, Data, Law, distance
from scipy import stats

from anyorder.decode.canvas import Canvas
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.config import MdmOptions
from anyorder.families.mdm.remasking import parse_remasking
from anyorder.nets.oracles import Oracle
from anyorder.process.noise import key_of
from anyorder.process.remasking import bound, reveal_chance
from anyorder.vocab import Vocab

TOKENS, SLOTS = 2, 3
DATA: Data = {
    (0, 0, 0): 8.0, (0, 0, 1): 1.0, (0, 1, 0): 1.0, (0, 1, 1): 2.0,
    (1, 0, 0): 1.0, (1, 0, 1): 3.0, (1, 1, 0): 1.0, (1, 1, 1): 6.0,
}  # fmt: skip
CHAIN = Chain(DATA, TOKENS)
VOCAB = Vocab.words(["a", "b"])
ORACLE = Oracle(DATA, VOCAB.mask_id, VOCAB.size)
SAMPLES = 6_000
SCHEDULES = ["cap:0", "cap:0.05", "cap:0.4", "rescale:0.1", "rescale:1", "loop:0.1"]
schedules = pytest.mark.parametrize("remask", SCHEDULES)


def chances(remask: str, steps: int) -> tuple[list[float], list[float], list[float]]:
    """Shares after each step, sigmas and rhos."""
    grid = parse_remasking(remask).grid(steps)
    rho = reveal_chance(grid.share[:-1], grid.share[1:], grid.sigma)
    return grid.share[1:].tolist(), grid.sigma.tolist(), rho.tolist()


@schedules
@pytest.mark.parametrize("steps", [4, 5, 17])
def test_given_the_text_the_whole_law_is_kept(remask: str, steps: int) -> None:
    chain = Chain({(1, 0, 1): 1.0}, TOKENS)
    shares, sigmas, rhos = chances(remask, steps)
    for share, law in zip(shares, chain.laws(sigmas, rhos), strict=True):
        assert law == pytest.approx(chain.forward(share), abs=1e-12)


@schedules
@pytest.mark.parametrize("steps", [4, 5, 17])
def test_the_law_of_the_masks_is_kept_on_any_grid(remask: str, steps: int) -> None:
    shares, sigmas, rhos = chances(remask, steps)
    for share, law in zip(shares, CHAIN.laws(sigmas, rhos), strict=True):
        expected = CHAIN.mask_law(CHAIN.forward(share))
        assert CHAIN.mask_law(law) == pytest.approx(expected, abs=1e-12)


@st.composite
def texts(draw: st.DrawFn) -> Data:
    weight = st.floats(0.01, 1)
    return {x: draw(weight) for x in itertools.product(range(TOKENS), repeat=SLOTS)}


@settings(deadline=None)
@given(texts(), st.floats(0, 0.98), st.floats(0, 1), st.floats(0, 1))
def test_a_step_of_any_size_keeps_the_law_of_every_slot(
    data: Data, before: float, rise: float, part: float
) -> None:
    """And with the uncompensated chance it would not, as soon as something is masked again."""
    chain = Chain(data, TOKENS)
    after = before + rise * (1 - before)
    shares = [torch.tensor(each, dtype=torch.float64) for each in (before, after)]
    sigma = part * bound(*shares)
    rho = reveal_chance(*shares, sigma)
    law = chain.forward(before) @ chain.step(float(sigma), float(rho))
    expected = chain.slot_laws(chain.forward(after))
    assert chain.slot_laws(law) == pytest.approx(expected, abs=1e-9)
    plain = float((shares[1] - shares[0]) / (1 - shares[0]))
    wrong = chain.slot_laws(chain.forward(before) @ chain.step(float(sigma), plain))
    lost = before * float(sigma)
    assert wrong[:, chain.mask] == pytest.approx(expected[:, chain.mask] + lost, abs=1e-9)


def uncompensated(steps: int, eta: float) -> list[Law]:
    shares, sigmas, _ = chances(f"cap:{eta}", steps)
    plain = [(b - a) / (1 - a) for a, b in itertools.pairwise([0.0, *shares])]
    return CHAIN.laws(sigmas, plain)


def test_without_the_compensation_the_masks_are_too_many() -> None:
    """The test of the masks above would notice."""
    shares, _, _ = chances("cap:0.05", 17)
    laws = uncompensated(17, 0.05)
    worst = max(
        distance(CHAIN.mask_law(law), CHAIN.mask_law(CHAIN.forward(share)))
        for share, law in zip(shares, laws, strict=True)
    )
    assert worst > 0.1


def worst_distance(remask: str, steps: int) -> float:
    """Between the chain and the forward law of the data, over all times."""
    shares, sigmas, rhos = chances(remask, steps)
    laws = CHAIN.laws(sigmas, rhos)
    return max(distance(law, CHAIN.forward(share)) for share, law in zip(shares, laws, strict=True))


@pytest.mark.parametrize("way", ["cap", "rescale", "loop"])
def test_the_whole_law_is_the_datas_in_the_limit(way: str) -> None:
    """With eta = 2 / steps the distance halves when the steps double."""
    far = [worst_distance(f"{way}:{2 / steps}", steps) for steps in (32, 64, 128, 256)]
    assert far[0] < 0.08 and far[-1] < 0.01
    for coarse, fine in itertools.pairwise(far):
        assert fine / coarse == pytest.approx(0.5, abs=0.07)


def test_an_eta_that_stays_leaves_a_distance_of_its_size() -> None:
    """Tokens revealed side by side are drawn apart, however fine the grid is."""
    fixed = [worst_distance("cap:0.2", steps) for steps in (64, 128, 256)]
    assert fixed[-1] > 0.9 * fixed[0] and fixed[-1] > 0.01
    smaller = worst_distance("cap:0.05", 256)
    assert smaller < 0.5 * fixed[-1]


def test_exchanging_tokens_mends_a_coarse_grid() -> None:
    """What slots got wrong that were drawn side by side, steps at a standing share draw again."""
    idle, exchanged = (CHAIN.laws(*chances(f"loop:{eta}", 8)[1:])[-1] for eta in (0, 0.1))
    data = CHAIN.forward(1.0)
    assert distance(exchanged, data) < 0.75 * distance(idle, data)


def decoded(remask: str, steps: int, samples: int, seed: int) -> Counter[tuple[int, ...]]:
    options = MdmOptions(remask=remask, steps=steps, temperature=1.0)
    canvas = Canvas.of([SLOTS], VOCAB)
    keys = [key_of(seed, remask, i) for i in range(samples)]
    rows = mdm.decode(ORACLE, VOCAB, [canvas] * samples, keys, options)
    return Counter(tuple(row.token_ids) for row in rows)


def agrees(seen: Counter[tuple[int, ...]], law: Data) -> float:
    """The p-value of a chi-square test."""
    total = sum(seen.values())
    return float(stats.chisquare([seen[x] for x in law], [p * total for p in law.values()]).pvalue)


@pytest.mark.parametrize("remask", ["cap:0", "cap:0.4", "rescale:1", "loop:0.3"])
def test_the_decoder_has_the_law_of_the_chain(remask: str) -> None:
    """On a coarse grid, where that law is not the data's: the oracle is the chain, not the text."""
    _, sigmas, rhos = chances(remask, 5)
    seen = decoded(remask, 5, SAMPLES, seed=1)
    assert agrees(seen, CHAIN.texts(CHAIN.laws(sigmas, rhos)[-1])) > 1e-4
    assert agrees(seen, CHAIN.texts(CHAIN.forward(1.0))) < 1e-6


def test_with_many_steps_the_decoder_has_the_law_of_the_data() -> None:
    law = CHAIN.texts(CHAIN.forward(1.0))
    assert agrees(decoded("cap:0.02", 60, 4_000, seed=3), law) > 1e-4
    assert agrees(decoded("cap:0", 2, 4_000, seed=3), law) < 1e-6  # two steps are too few


@pytest.mark.long
@pytest.mark.parametrize("remask", ["cap:0.02", "rescale:0.02", "loop:0.02"])
def test_with_many_steps_every_schedule_has_the_law_of_the_data(remask: str) -> None:
    law = CHAIN.texts(CHAIN.forward(1.0))
    assert agrees(decoded(remask, 200, 10_000, seed=4), law) > 1e-4


def test_no_remasking_is_ancestral_sampling() -> None:
    """Every slot alone, at a step drawn evenly from all; and never again."""
    options = MdmOptions(remask="cap:0", steps=5, temperature=1.0)
    canvas = Canvas.of([SLOTS], VOCAB)
    keys = [key_of(5, i) for i in range(SAMPLES)]
    rows = mdm.decode(ORACLE, VOCAB, [canvas] * len(keys), keys, options)
    same = mdm.decode(
        ORACLE, VOCAB, [canvas] * len(keys), keys,
        MdmOptions(remask="rescale:0", steps=5, temperature=1.0),
    )  # fmt: skip
    assert rows == same and not any(row.changes for row in rows)
    steps = np.array([row.reveal_step for row in rows])
    table = np.zeros((5, 5, 5))
    np.add.at(table, tuple((steps - 1).T), 1)
    assert stats.chisquare(table.ravel()).pvalue > 1e-4
    assert agrees(Counter(tuple(row.token_ids) for row in rows), CHAIN.texts(
        CHAIN.laws(*chances("cap:0", 5)[1:])[-1]
    )) > 1e-4  # fmt: skip
