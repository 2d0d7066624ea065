"""Uniform-state diffusion: golden numbers, its law, its bound against enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from uniform_chain import bound_by_ratios, posterior

from anyorder.nets.oracles import UniformOracle
from anyorder.process import uniform
from anyorder.process.noise import Noise
from anyorder.process.uniform import LogLinear

SCHEDULE = LogLinear()
GUESS = [0.1, 0.2, 0.3, 0.4]


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def one(state: int) -> Tensor:
    return torch.tensor([state])


@pytest.mark.parametrize(
    ("guess", "noisy", "clean", "nats"),
    [
        (GUESS, 1, 1, 0.9289763),
        (GUESS, 0, 3, 1.5471592),
        (GUESS, 2, 3, 2.7616045),
        ([0.25] * 4, 2, 2, 0.7232207),
        ([0.25] * 4, 0, 2, 3.1723957),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_golden_bounds(
    guess: list[float], noisy: int, clean: int, nats: float, dtype: torch.dtype
) -> None:
    prob = torch.tensor([guess], dtype=dtype)
    where = (one(noisy), one(clean), column(0.6), column(-0.999))
    assert float(uniform.bound(prob.log(), *where)) == pytest.approx(nats, abs=1e-6)
    assert float(bound_by_ratios(prob.double(), *where)) == pytest.approx(nats, abs=2e-7)


def test_golden_posteriors() -> None:
    prob, noisy = column(*GUESS)[None], one(0)
    here = posterior(prob, noisy, column(0.6), column(0.8))
    assert here[0].tolist() == pytest.approx([0.66015625, 0.08203125, 0.11328125, 0.14453125])
    weights = uniform.mixture(column(0.1), column(0.6), column(0.8), 4)
    assert [float(each) for each in weights] == pytest.approx([0.078125, 0.609375, 0.3125])
    last = posterior(prob, noisy, column(0.6), column(1.0))
    assert last[0].tolist() == pytest.approx([0.4375, 0.125, 0.1875, 0.25])


def posterior_literally(prob: Tensor, i: int, alpha_t: float, alpha_s: float) -> list[float]:
    """The display of the module's docstring, term by term."""
    count, a = len(prob), alpha_t / alpha_s
    total = count * alpha_t * float(prob[i]) + 1 - alpha_t
    return [
        (
            (count * alpha_t * float(prob[j]) + a - alpha_t) * (j == i)
            + (alpha_s - alpha_t) * float(prob[j])
            + (1 - a) * (1 - alpha_s) / count
        )
        / total
        for j in range(count)
    ]


@st.composite
def guesses(draw: st.DrawFn) -> tuple[Tensor, int, int]:
    """A prediction, a noisy and a clean state."""
    count = draw(st.integers(2, 7))
    logits = draw(st.lists(st.floats(-12, 12), min_size=count, max_size=count))
    state = st.integers(0, count - 1)
    return column(*logits).softmax(dim=0), draw(state), draw(state)


shares = st.floats(1e-3, 1 - 1e-3)


@given(guesses(), shares, shares)
def test_posterior_is_the_display_and_sums_to_one(
    guess: tuple[Tensor, int, int], first: float, second: float
) -> None:
    prob, noisy, _ = guess
    alpha_t, alpha_s = min(first, second), max(first, second)
    found = posterior(prob[None], one(noisy), column(alpha_t), column(alpha_s))[0]
    assert float(found.sum()) == pytest.approx(1, abs=1e-12)
    assert found.tolist() == pytest.approx(
        posterior_literally(prob, noisy, alpha_t, alpha_s), abs=1e-12
    )
    weights = uniform.mixture(prob[noisy], column(alpha_t), column(alpha_s), len(prob))
    assert float(sum(weights)) == pytest.approx(1, abs=1e-12)
    assert all(float(each) >= -1e-15 for each in weights)


@given(st.integers(2, 6), shares, shares, st.data())
def test_posterior_of_a_certain_prediction_is_bayes_rule(
    count: int, first: float, second: float, data: st.DataObject
) -> None:
    alpha_t, alpha_s = min(first, second), max(first, second)
    clean, noisy = (data.draw(st.integers(0, count - 1)) for _ in range(2))
    kept = alpha_t / alpha_s
    one_hot = torch.nn.functional.one_hot(one(clean), count).double()
    shown = torch.nn.functional.one_hot(one(noisy), count).double()
    earlier = alpha_s * one_hot[0] + (1 - alpha_s) / count  # q(x_s | x_0)
    step = kept * shown[0] + (1 - kept) / count  # q(x_t | x_s)
    exact = earlier * step / (earlier * step).sum()
    found = posterior(one_hot, one(noisy), column(alpha_t), column(alpha_s))
    assert found[0].tolist() == pytest.approx(exact.tolist(), abs=1e-12)


@given(guesses(), st.floats(1e-3, 1 - 1e-5))
def test_bound_is_the_divergence_of_ratios_and_never_negative(
    guess: tuple[Tensor, int, int], alpha: float
) -> None:
    prob, noisy, clean = guess
    where = (one(noisy), one(clean), column(alpha), column(-0.999))
    safe = float(uniform.bound(prob.log()[None], *where))
    assert safe == pytest.approx(float(bound_by_ratios(prob[None], *where)), rel=1e-7)
    assert safe >= -1e-9
    single = float(uniform.bound(prob.log()[None].float(), *where))
    assert single == pytest.approx(safe, rel=2e-3, abs=2e-3)


@given(st.integers(2, 9), st.floats(0, 1), st.data())
def test_bound_of_a_certain_and_right_prediction_is_zero(
    count: int, alpha: float, data: st.DataObject
) -> None:
    clean, noisy = (data.draw(st.integers(0, count - 1)) for _ in range(2))
    log_prob = torch.nn.functional.one_hot(one(clean), count).double().log()
    nats = uniform.bound(log_prob, one(noisy), one(clean), column(alpha), column(-0.999))
    assert float(nats) == pytest.approx(0, abs=1e-6 / max(alpha, 1e-6))


@pytest.mark.parametrize("alpha", [0.0, 1e-9, 1e-3, 0.5, 1 - 1e-3, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_bound_and_its_gradient_are_numbers_at_the_extremes(
    alpha: float, dtype: torch.dtype
) -> None:
    rows = list(itertools.product((0.0, 80.0, -3e4), (0, 1, 2), (0, 1, 2)))
    logits = torch.zeros(len(rows), 151, dtype=dtype)
    logits[:, 1] = torch.tensor([row[0] for row in rows], dtype=dtype)
    logits.requires_grad_()
    noisy, clean = (torch.tensor([row[place] for row in rows]) for place in (1, 2))
    times = torch.full((len(rows),), alpha, dtype=torch.float64)
    nats = uniform.bound(
        logits.log_softmax(dim=-1), noisy, clean, times, torch.full_like(times, -0.999)
    )
    assert nats.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert bool(nats.isfinite().all())
    nats.sum().backward()
    assert logits.grad is not None and bool(logits.grad.isfinite().all())


def test_noised_tokens_have_the_marginal_and_prompts_stay_clean() -> None:
    rows, count = 40_000, 5
    states = torch.full((rows, 3), 2)
    free = torch.tensor([False, True, True]).expand(rows, 3)
    seen = uniform.corrupt(states, free, torch.arange(rows), Noise(3, 1, 0.7), SCHEDULE, count)
    alpha = 1 - 0.999 * 0.7
    assert seen.alpha.unique().tolist() == pytest.approx([alpha])
    assert seen.slope.unique().tolist() == pytest.approx([-0.999])
    assert bool((seen.states[:, 0] == 2).all())
    expected = [(1 - alpha) / count + alpha * (state == 2) for state in range(count)]
    for place in (1, 2):
        observed = torch.bincount(seen.states[:, place], minlength=count)
        assert stats.chisquare(observed, [rows * p for p in expected]).pvalue > 1e-4
    joint = torch.bincount(seen.states[:, 1] * count + seen.states[:, 2], minlength=count**2)
    pairs = rows * np.outer(expected, expected).ravel()
    assert stats.chisquare(joint, pairs).pvalue > 1e-4  # tokens turn into noise by themselves


def test_noise_belongs_to_the_example_not_to_its_row() -> None:
    states, free = torch.zeros(3, 8, dtype=torch.int64), torch.ones(3, 8, dtype=torch.bool)
    index, noise = torch.tensor([10, 20, 30]), Noise(2, 9, level=0.9)
    forward = uniform.corrupt(states, free, index, noise, SCHEDULE, 7).states
    backward = uniform.corrupt(states, free, index.flip(0), noise, SCHEDULE, 7).states
    assert torch.equal(forward, backward.flip(0))
    assert len(forward.unique()) > 3


DATA = {(0, 0): 4.0, (1, 1): 3.0, (2, 0): 2.0, (2, 1): 1.0}
COUNT = 3


THREE = {(0, 0, 1): 5.0, (0, 1, 0): 1.0, (1, 1, 1): 3.0, (2, 0, 2): 2.0, (2, 1, 0): 4.0}


def canvases_of(oracle: UniformOracle) -> Tensor:
    return torch.tensor(list(itertools.product(range(COUNT), repeat=oracle.sequences.shape[1])))


def expected_nats(oracle: UniformOracle, alpha: float, slope: float) -> Tensor:
    """E of the sum of l_t over tokens and all canvases, for each text: nothing is drawn.  # S"""
    canvases = canvases_of(oracle)
    times = torch.full((len(canvases),), alpha, dtype=torch.float64)
    log_prob = oracle.hidden(canvases, time=times)  # B L K
    slopes, totals = torch.full_like(times, slope), []
    for x in oracle.sequences:
        chance = (alpha * (canvases == x) + (1 - alpha) / COUNT).prod(dim=1)
        nats = [
            uniform.bound(each, canvas, clean.expand(len(canvases)), times, slopes)
            for each, canvas, clean in zip(log_prob.unbind(1), canvases.T, x, strict=True)
        ]
        totals.append((chance * torch.stack(nats)).sum())
    return torch.stack(totals)


def whole_bound(oracle: UniformOracle) -> Tensor:
    """The integral over time and the prior terms, for each text.  # S

    Gauss-Legendre in u with t = u^4: at t = 0 the integrand grows like -ln t.
    """
    nodes, weights = np.polynomial.legendre.leggauss(30)
    points, shares = torch.tensor((nodes + 1) / 2), torch.tensor(weights / 2)
    alphas = SCHEDULE.value(points**4).tolist()
    values = [expected_nats(oracle, alpha, SCHEDULE.eps - 1) for alpha in alphas]
    integral = (shares * 4 * points**3) @ torch.stack(values)
    return integral + oracle.sequences.shape[1] * uniform.prior_nats(COUNT, SCHEDULE)


def last_divergence(oracle: UniformOracle) -> Tensor:
    """sum over y of q(x_1 = y | x) ln(q(x_1 = y) / uniform), for each text x.  # S

    What even the perfect network pays: a sampler begins with uniform noise, not with q(x_1).
    """
    eps, canvases = SCHEDULE.eps, canvases_of(oracle)
    same = (canvases == oracle.sequences[:, None]).double()  # S B L
    fits = (eps * same + (1 - eps) / COUNT).prod(dim=2)  # S B
    return fits @ ((oracle.weights @ fits) * len(canvases)).log()


@pytest.mark.parametrize("data", [DATA, THREE], ids=["two tokens", "three tokens"])
def test_the_bound_is_the_likelihood_of_every_text_at_the_leave_one_out_posterior(
    data: dict[tuple[int, ...], float],
) -> None:
    """Tokens that depend on each other: -ln p is of the whole text, by enumeration."""
    oracle = UniformOracle(data, COUNT, COUNT)
    exact = last_divergence(oracle) - oracle.weights.log()
    assert whole_bound(oracle).tolist() == pytest.approx(exact.tolist(), abs=1e-4)
    assert float(oracle.weights @ exact) == pytest.approx(oracle.entropy(), abs=1e-5)


@pytest.mark.parametrize("data", [DATA, THREE], ids=["two tokens", "three tokens"])
def test_the_posterior_given_the_whole_canvas_is_not_the_minimum(
    data: dict[tuple[int, ...], float],
) -> None:
    joint = UniformOracle(data, COUNT, COUNT, joint=True)
    assert float(joint.weights @ whole_bound(joint)) > joint.entropy() + 0.1


class Alone(UniformOracle):
    """Knows how often each place holds each token, and not what that has to do with others."""

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        one_hot = torch.nn.functional.one_hot(self.sequences, self.vocab_size).double()  # S L V
        law = torch.einsum("s,slv->lv", self.weights, one_hot)
        return law.log().expand(len(ids), -1, -1)


@pytest.mark.parametrize("data", [DATA, THREE], ids=["two tokens", "three tokens"])
def test_who_ignores_what_tokens_have_to_do_with_each_other_pays_for_it(
    data: dict[tuple[int, ...], float],
) -> None:
    """The bound is then of the product of the places' laws: above the entropy by how much the
    places say of each other, and above -ln p of every text that this law finds rarer."""
    alone = Alone(data, COUNT, COUNT)
    law = alone.hidden(alone.sequences[:1])[0]  # L V
    product = -law[torch.arange(law.shape[0]), alone.sequences].sum(dim=1)
    found = whole_bound(alone)
    assert found.tolist() == pytest.approx(product.tolist(), abs=5e-3)  # but for q(x_1)
    shared = float(alone.weights @ product) - alone.entropy()
    assert float(alone.weights @ found) - alone.entropy() == pytest.approx(shared, abs=5e-3)
    assert shared > 0.2
    rarer = product > -alone.weights.log()
    assert rarer.any() and bool((found > -alone.weights.log())[rarer].all())


@pytest.mark.parametrize("count", [3, 165, 50_000])
def test_prior_nats_is_the_divergence_from_uniform(count: int) -> None:
    law = np.full(count, (1 - 1e-3) / count)
    law[0] += 1e-3
    exact = float((law * np.log(law * count)).sum())
    assert uniform.prior_nats(count, SCHEDULE) == pytest.approx(exact, rel=1e-6)


def test_without_its_first_term_the_bound_has_another_minimum() -> None:
    """Why the published low-variance loss, which drops T1, is not offered."""
    count, alpha, slope = 2, column(0.5), column(-0.999)
    grid = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    best = {}
    for whole in (True, False):
        losses = []
        for share in grid.tolist():  # the prediction for state 0, which is what is shown
            prob = column(share, 1 - share)
            total = 0.0
            for clean in range(count):  # both alike: the leave-one-out posterior is (1/2, 1/2)
                chance = float(alpha * (clean == 0) + (1 - alpha) / count)
                nats = uniform.bound(prob.log()[None], one(0), one(clean), alpha, slope)
                true = float(count * alpha * (clean == 0) + 1 - alpha)
                first = count * (1 / true - 1 / float(count * alpha * share + 1 - alpha))
                dropped = 0.0 if whole else float(slope / (count * alpha)) * first
                total += chance * (float(nats) - dropped)
            losses.append(total)
        best[whole] = float(grid[int(np.argmin(losses))])
    assert best[True] == pytest.approx(0.5)
    assert best[False] == pytest.approx(0.05)  # it denies what is shown, as far as it may


def test_the_schedule_refuses_what_is_no_share() -> None:
    with pytest.raises(ValueError, match="eps=0"):
        LogLinear(0.0)


def test_eight_midpoints_are_a_little_below_the_bound() -> None:
    """What validation averages: the integrand grows like -ln t, so the entropy is not reached."""
    count, points = 4, {8: 0.0, 512: 0.0}
    log_prob = torch.full((count * count, count), 1 / count, dtype=torch.float64).log()
    clean, noisy = torch.cartesian_prod(torch.arange(count), torch.arange(count)).T
    for grid in points:
        for time in (torch.arange(grid, dtype=torch.float64) + 0.5) / grid:
            alpha = uniform.LogLinear().value(time).expand(len(clean))
            chance = (alpha * (clean == noisy) + (1 - alpha) / count) / count
            slope = torch.full_like(alpha, -0.999)
            nats = uniform.bound(log_prob, noisy, clean, alpha, slope)
            points[grid] += float((chance * nats).sum()) / grid
    assert 0.02 < math.log(count) - points[8] < 0.05
    assert points[512] == pytest.approx(math.log(count), abs=1e-3)
