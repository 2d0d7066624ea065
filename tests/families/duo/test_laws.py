"""duo's law: leave-one-out posteriors converge to the data, plain ones do not."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from scipy import stats
from uniform_chain import chain_law, distance, predict_with

from anyorder.decode.canvas import Canvas
from anyorder.families.duo import decode as duo
from anyorder.families.duo.config import DuoOptions
from anyorder.nets.denoiser import States
from anyorder.nets.oracles import UniformOracle
from anyorder.process.noise import key_of
from anyorder.vocab import Vocab

PAIRS = {(0, 0): 0.4, (1, 1): 0.3, (2, 0): 0.2, (2, 1): 0.1}
TRIPLES = {(0, 1, 0): 0.3, (1, 1, 1): 0.3, (1, 0, 0): 0.2, (0, 0, 1): 0.2}


def error(data: dict[tuple[int, ...], float], count: int, steps: int, joint: bool) -> float:
    """Total variation between N exact steps and the data."""
    length = len(next(iter(data)))
    oracle = UniformOracle(data, count, count, joint=joint)
    predict = predict_with(oracle, list(range(count)))
    return distance(chain_law(predict, length, count, steps), data)


@pytest.mark.parametrize(("data", "count"), [(PAIRS, 3), (TRIPLES, 2)])
def test_leave_one_out_posteriors_converge_to_the_data(
    data: dict[tuple[int, ...], float], count: int
) -> None:
    errors = [error(data, count, steps, joint=False) for steps in (10, 40, 160, 640)]
    for coarse, fine in itertools.pairwise(errors):
        assert fine < coarse / 3  # the error falls like 1 / N
    assert errors[-1] < 3e-3


@pytest.mark.parametrize(("data", "count"), [(PAIRS, 3), (TRIPLES, 2)])
def test_plain_posteriors_do_not(data: dict[tuple[int, ...], float], count: int) -> None:
    errors = [error(data, count, steps, joint=True) for steps in (40, 160, 640)]
    assert min(errors) > 0.1
    assert abs(errors[-1] - errors[-2]) < 0.01  # it does converge, to something else


@pytest.mark.long
def test_the_finest_grid_is_nearly_exact() -> None:
    assert error(PAIRS, 3, 1600, joint=False) < 5e-4
    assert error(PAIRS, 3, 1600, joint=True) > 0.1


def test_one_token_needs_no_grid() -> None:
    """Alone, a place's leave-one-out posterior is the data itself: one step is exact."""
    data = {(0,): 0.7, (1,): 0.2, (2,): 0.1}
    for steps in (1, 2, 7):
        # What is left of the text at t = 1, which uniform noise lacks.
        assert error(data, 3, steps, joint=False) < 1e-3


VOCAB = Vocab.words(["a", "b"])  # states: a, b, PAD, EOS
IDS = States.of(VOCAB).ids.tolist()
SAMPLES = 4000


def decoded(oracle: UniformOracle, canvas: Canvas, options: DuoOptions, seed: int) -> Counter[str]:
    keys = [key_of(seed, number) for number in range(SAMPLES)]
    rows = duo.decode(oracle, VOCAB, [canvas] * SAMPLES, keys, options)
    return Counter(" ".join(map(str, row.token_ids)) for row in rows)


def pvalue(seen: Counter[str], law: dict[tuple[int, ...], float]) -> float:
    """Chi-square against a law over ids; rare outcomes are one class.

    0 where a hundredth or more falls outside the law: noise that a finite grid leaves is rarer.
    """
    inside = sum(seen[" ".join(map(str, x))] for x in law)
    if inside <= 0.99 * SAMPLES:
        return 0.0
    kept = {x: p for x, p in law.items() if p * SAMPLES >= 8}
    observed = [seen[" ".join(map(str, x))] for x in kept]
    expected = [p * SAMPLES for p in kept.values()]
    rest = SAMPLES - sum(expected)
    if rest > 8:
        observed, expected = [*observed, SAMPLES - sum(observed)], [*expected, rest]
    scale = sum(observed) / sum(expected)
    return float(stats.chisquare(observed, [each * scale for each in expected]).pvalue)


WORDS = {(0, 0): 0.5, (1, 1): 0.3, (0, 1): 0.15, (1, VOCAB.eos_id): 0.05}


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 6])
def test_the_decoder_has_the_law_of_the_chain(steps: int, joint: bool) -> None:
    oracle = UniformOracle(WORDS, len(IDS), VOCAB.size, joint=joint)
    canvas = Canvas.of([2], VOCAB)
    states = chain_law(predict_with(oracle, IDS), 2, len(IDS), steps)
    law = {tuple(IDS[state] for state in x): p for x, p in states.items()}
    seen = decoded(oracle, canvas, DuoOptions(steps=steps), seed=steps)
    assert pvalue(seen, law) > 1e-4


@pytest.mark.long
def test_the_decoder_converges_to_the_data_and_only_with_the_right_posterior() -> None:
    canvas = Canvas.of([2], VOCAB)
    verdicts = {}
    for joint in (False, True):
        oracle = UniformOracle(WORDS, len(IDS), VOCAB.size, joint=joint)
        seen = decoded(oracle, canvas, DuoOptions(steps=150), seed=5)
        verdicts[joint] = pvalue(seen, dict(WORDS))
    assert verdicts[False] > 1e-4
    assert verdicts[True] < 1e-12


def test_infilling_has_the_law_given_what_is_frozen() -> None:
    """'_ b _': the frozen token is imposed at every step, and the oracle knows that it is."""
    data = {
        (0, 1, 0): 0.3, (1, 1, 1): 0.2, (0, 1, 1): 0.1, (0, 0, 1): 0.4,
    }  # fmt: skip
    oracle = UniformOracle(data, len(IDS), VOCAB.size, frozen=[1])
    seen = decoded(oracle, Canvas.of([1, [1], 1], VOCAB), DuoOptions(steps=60), seed=8)
    law = {x: p / 0.6 for x, p in data.items() if x[1] == 1}
    assert all(key.split()[1] == "1" for key in seen)
    assert pvalue(seen, law) > 1e-4


def test_one_step_is_the_mixture_of_keeping_and_drawing() -> None:
    """N = 1: from alpha = eps to 1; the uniform branch has no weight."""
    prob = {(0,): 0.9, (1,): 0.1}
    oracle = UniformOracle(prob, len(IDS), VOCAB.size)
    seen = decoded(oracle, Canvas.of([1], VOCAB), DuoOptions(steps=1), seed=2)
    assert set(seen) == {"0", "1"}  # PAD and EOS, half of the noise, are never kept
    eps, count = 1e-3, len(IDS)
    law = {}
    for token, p in ((0, 0.9), (1, 0.1)):
        kept = count * eps * p / (count * eps * p + 1 - eps)
        others = sum((1 - eps) / (count * eps * q + 1 - eps) * p for q in (0.9, 0.1, 0.0, 0.0))
        law[(token,)] = (kept + others) / count
    assert sum(law.values()) == pytest.approx(1)
    assert pvalue(seen, law) > 1e-4
