"""Posteriors keep their precision near certainty; draws follow the filtered distribution."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from anyorder.decode.draw import Draw, Posterior, filtered, pick, pick_from

logit_rows = st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=8)


@given(logit_rows)
def test_posterior_agrees_with_softmax_in_float64(row: list[float]) -> None:
    logits = torch.tensor([row])
    p = logits.double().softmax(dim=-1)[0]
    best, second = p.topk(2).values.tolist()
    posterior = Posterior(logits)
    assert float(posterior.log_confidence()) == pytest.approx(math.log(best), rel=1e-4, abs=1e-7)
    assert float(posterior.margin_below_one()) == pytest.approx(best - second - 1, abs=1e-5)
    assert float(posterior.negative_entropy()) == pytest.approx(
        float((p * p.log()).sum()), rel=1e-4, abs=1e-6
    )
    tokens = torch.tensor([len(row) - 1])
    assert float(posterior.log_prob(tokens)) == pytest.approx(float(p[-1].log()), abs=1e-4)


def test_near_certain_slots_are_still_ranked() -> None:
    """In a float32 softmax both slots have confidence exactly 1."""
    posterior = Posterior(torch.tensor([[40.0, 0.0, 0.0], [30.0, 0.0, 0.0]]))
    for score in (
        posterior.log_confidence(),
        posterior.margin_below_one(),
        posterior.negative_entropy(),
    ):
        assert score[0] > score[1]
    assert torch.equal(
        torch.tensor([[40.0, 0.0, 0.0], [30.0, 0.0, 0.0]]).softmax(-1)[:, 0], torch.ones(2)
    )


def test_impossible_tokens_change_nothing() -> None:
    plain, barred = torch.tensor([[1.0, 0.5]]), torch.tensor([[1.0, 0.5, -torch.inf]])
    for name in ("log_confidence", "margin_below_one", "negative_entropy"):
        assert torch.equal(getattr(Posterior(plain), name)(), getattr(Posterior(barred), name)())


@pytest.mark.parametrize(
    ("row", "probabilities", "margin", "negative_entropy"),
    [
        ((2.0, 1.0, 0.0, -1.0), (1.0, 0.0, 0.0, 0.0), 1.0, 0.0),
        ((1.0, 0.9, 0.8, 0.0), (0.506480, 0.307196, 0.186324, 0.0), 0.199285, -1.020191),
        ((1.0, 0.4, 0.0, 0.0), (0.952574, 0.047426, 0.0, 0.0), 0.905148, -0.190865),
    ],
)
def test_filter_matches_published_values(
    row: tuple[float, ...],
    probabilities: tuple[float, ...],
    margin: float,
    negative_entropy: float,
) -> None:
    """Temperature 0.2 and top-p 0.95, in that order, as the Dream family filters."""
    logits = filtered(torch.tensor([row]), Draw(temperature=0.2, top_p=0.95))
    assert logits.softmax(-1)[0].tolist() == pytest.approx(probabilities, abs=1e-6)
    posterior = Posterior(logits)
    assert 1 + float(posterior.margin_below_one()) == pytest.approx(margin, abs=1e-6)
    assert float(posterior.negative_entropy()) == pytest.approx(negative_entropy, abs=1e-6)


def test_top_p_keeps_the_token_that_crosses_the_line() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    kept = filtered(logits, Draw(temperature=1.0, top_p=0.6)) > -torch.inf
    assert kept.tolist() == [[True, True, False]]


@given(st.integers(2, 3000), st.floats(0.01, 0.999), st.floats(0.05, 4.0))
def test_top_p_equals_a_full_sort(size: int, top_p: float, spread: float) -> None:
    generator = torch.Generator().manual_seed(size)
    logits = torch.randn(3, size, generator=generator) * spread
    ordered, order = logits.sort(dim=-1, descending=True)
    probability = ordered.softmax(-1, dtype=torch.float64)
    before = probability.cumsum(-1) - probability
    kept = filtered(logits, Draw(temperature=1.0, top_p=top_p)) > -torch.inf
    clear = (before - top_p).abs() > 1e-6  # away from the line, where rounding decides
    assert torch.equal(kept.gather(-1, order)[clear], (before <= top_p)[clear])


def test_top_k_comes_after_top_p() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    kept = filtered(logits, Draw(temperature=1.0, top_p=0.8, top_k=2)) > -torch.inf
    assert kept.tolist() == [[True, True, False, False]]


@given(logit_rows, st.floats(0.1, 3.0), st.floats(0.05, 1.0))
def test_draws_stay_inside_the_filter(row: list[float], temperature: float, top_p: float) -> None:
    draw = Draw(temperature=temperature, top_p=top_p)
    logits = torch.tensor([row]).expand(50, -1)
    noise = torch.linspace(1e-12, 1 - 1e-12, 50, dtype=torch.float64)
    tokens = pick(logits, draw, noise)
    assert (filtered(logits, draw).gather(1, tokens[:, None]) > -torch.inf).all()


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([2.0, 1.0, -torch.inf, 0.0, 0.5])
    noise = torch.rand(40000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tokens = pick_from(logits.expand(40000, -1), noise)
    observed = torch.bincount(tokens, minlength=5)
    assert observed[2] == 0
    kept = [0, 1, 3, 4]
    expected = logits.softmax(-1)[kept].double() * 40000
    p = stats.chisquare(observed[kept].numpy(), (expected / expected.sum() * 40000).numpy()).pvalue
    assert p > 1e-4


def test_a_noise_of_almost_one_still_draws_a_possible_token() -> None:
    logits = torch.tensor([[1.0, 0.3, -torch.inf, -torch.inf]])
    noise = torch.tensor([1 - 2**-53], dtype=torch.float64)
    assert pick_from(logits, noise).tolist() == [1]


def test_temperature_zero_takes_the_best_token() -> None:
    assert pick(torch.tensor([[0.0, 3.0, 1.0]]), Draw(), torch.tensor([0.99])).tolist() == [1]


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.5}, {"top_k": -1}]
)
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"temperature|top_p|top_k"):
        Draw(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [3, 511, 512, 513, 1700])
def test_a_draw_inverts_the_cumulative_distribution_across_blocks(size: int) -> None:
    """Token by token in float64, for vocabularies around the size of a block."""
    generator = torch.Generator().manual_seed(size)
    logits = 3 * torch.randn(64, size, generator=generator)
    logits[:, ::7] = -torch.inf
    cumulative = logits.double().softmax(dim=-1).cumsum(dim=-1)
    noise = torch.rand(64, generator=generator, dtype=torch.float64)
    noise[:2] = torch.tensor([1e-17, 1 - 1e-16], dtype=torch.float64)
    drawn = pick_from(logits, noise)
    chance = logits.softmax(dim=-1).gather(1, drawn[:, None])[:, 0]
    assert (chance > 0).all()
    after = cumulative.gather(1, drawn[:, None])[:, 0]
    assert (after >= noise - 1e-6).all()
    assert (after - chance <= noise + 1e-6).all()
