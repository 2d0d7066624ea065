"""Nats per answer: exact numbers by hand and by enumeration, and where bounds meet the truth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from anyorder.data.batches import Batch, BatchConfig, Example, collate
from anyorder.data.segments import SegmentConfig
from anyorder.families import likelihood
from anyorder.families.duo import loss as uniform_objective
from anyorder.families.likelihood import LEFT, drawn_times, likelihood_of, nats_per_answer
from anyorder.nets.denoiser import States
from anyorder.nets.oracles import InsertionOracle, Oracle, SegmentInsertionOracle, SegmentOracle
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.noise import Noise
from anyorder.process.uniform import LogLinear, prior_nats
from anyorder.vocab import Vocab

VOCAB = Vocab.words(list("abc"))
A, B, C = range(3)
MASK, END = VOCAB.mask_id, VOCAB.eos_id


def copies(example: Example, config: BatchConfig, count: int) -> Batch:
    rows = [Example(example.prompt, example.answer, n, example.segments) for n in range(count)]
    return collate(rows, VOCAB, config)


def test_ar_is_the_sum_over_the_answer_and_its_end() -> None:
    net = Transformer(TransformerConfig(VOCAB.size, 8, 1, 2, 2, 4, 8, causal=True), seed=3)
    batch = copies(Example([A, B], [C, A], 0), BatchConfig(), 1)
    log_p = net.head(net.hidden(torch.tensor([[A, B, C, A, END]]))).log_softmax(dim=-1)[0]
    by_hand = -float((log_p[1, C] + log_p[2, A] + log_p[3, END]).detach())
    assert nats_per_answer(likelihood_of("ar"), net, VOCAB, batch, Noise(0, 0)) == pytest.approx(
        by_hand, abs=1e-5
    )


def test_ar_probabilities_of_all_answers_sum_to_one() -> None:
    """Ended answers of up to two tokens, and all beginnings of three: a partition."""
    net = Transformer(TransformerConfig(VOCAB.size, 8, 1, 2, 2, 4, 8, causal=True), seed=3)
    tokens = [token for token in range(VOCAB.size) if token != END]
    total = 0.0
    for length in range(3):
        for answer in itertools.product(tokens, repeat=length):
            batch = copies(Example([A], list(answer), 0), BatchConfig(), 1)
            total += math.exp(-nats_per_answer(likelihood_of("ar"), net, VOCAB, batch, Noise(0, 0)))
    open_ended = BatchConfig(ending="none")
    for answer in itertools.product(tokens, repeat=3):
        batch = copies(Example([A], list(answer), 0), open_ended, 1)
        total += math.exp(-nats_per_answer(likelihood_of("ar"), net, VOCAB, batch, Noise(0, 0)))
    assert total == pytest.approx(1.0, abs=1e-4)


CANVASES = {
    (A, B, END, END): 4.0,
    (A, A, B, END): 3.0,
    (B, A, END, END): 2.0,
    (C, END, END, END): 1.0,
}
"""Answers on a canvas of four, and how often."""


class Tilted(Oracle):
    """An oracle whose posteriors are wrong: flattened by a temperature."""

    def __init__(self, temperature: float) -> None:
        rows = {(A, *canvas): weight for canvas, weight in CANVASES.items()}  # behind a prompt
        super().__init__(rows, MASK, VOCAB.size)
        self.temperature = temperature

    def head(self, hidden: Tensor) -> Tensor:
        return (hidden.clamp(min=-9.0) / self.temperature).log_softmax(dim=-1)


def any_order_probability(net: Tilted, canvas: Sequence[int]) -> float:
    """Of the sampler that reveals one slot after another in a random order, by enumeration."""
    orders = list(itertools.permutations(range(1, 5)))
    total = 0.0
    for order in orders:
        shown = torch.tensor([[A, *[MASK] * 4]])
        log_p = 0.0
        for place in order:
            log_p += float(net.head(net.hidden(shown))[0, place, canvas[place - 1]])
            shown[0, place] = canvas[place - 1]
        total += math.exp(log_p) / len(orders)
    return total


def masked_bound(net: Any, canvas: tuple[int, ...], draws: int = 2400) -> float:
    answer = [token for token in canvas if token != END]
    batch = copies(Example([A], answer, 0), BatchConfig(canvas=4), draws)
    assert batch.ids[0].tolist() == [A, *canvas]
    return nats_per_answer(likelihood_of("mdm"), net, VOCAB, batch, Noise(1, 0))


@pytest.mark.parametrize("canvas", CANVASES)
def test_mdm_meets_the_truth_with_exact_posteriors(canvas: tuple[int, ...]) -> None:
    oracle = Oracle({(A, *c): w for c, w in CANVASES.items()}, MASK, VOCAB.size)
    truth = -math.log(CANVASES[canvas] / sum(CANVASES.values()))
    assert masked_bound(oracle, canvas) == pytest.approx(truth, rel=0.03)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize("canvas", CANVASES)
def test_mdm_bounds_the_sampler_of_a_wrong_network(
    canvas: tuple[int, ...], temperature: float
) -> None:
    net = Tilted(temperature)
    truth = -math.log(any_order_probability(net, canvas))
    bound = masked_bound(net, canvas)
    assert truth - 0.02 < bound < truth + 1.5  # Monte Carlo, hence the little room below


ANSWERS = {(): 1.0, (A,): 2.0, (A, B): 3.0, (B, A, A): 2.0, (A, A, A): 2.0}
DRAWS = 12_000


@pytest.mark.parametrize(
    ("answer", "coordinate"), [*((each, "progress") for each in ANSWERS), ((B, A, A), "raw")]
)
def test_flexmdm_meets_the_truth_with_exact_posteriors(
    answer: tuple[int, ...], coordinate: str
) -> None:
    """Repeated tokens leave the alignment open, which the plain loss would pay for."""
    oracle = InsertionOracle(
        ANSWERS, MASK, VOCAB.size, prompt_length=2, coordinate=coordinate, unmasking_exponent=1.7
    )
    config = BatchConfig(ending="none", after=(END,))
    batch = copies(Example([C], list(answer), 0), config, DRAWS)
    found = nats_per_answer(likelihood_of("flexmdm"), oracle, VOCAB, batch, Noise(2, 0))
    truth = -math.log(ANSWERS[answer] / sum(ANSWERS.values()))
    assert found == pytest.approx(truth, abs=0.13)  # four standard errors


SEGMENTS = SegmentConfig(slots=3, segment_length=3)
LINES = {
    ((A,), (B, C), ()): 3.0,
    ((A,), (), ()): 1.0,
    ((A,), (A,), (B,)): 2.0,
    ((B, C), (A,), ()): 2.0,
}
"""Words of three slots, () where a slot is empty."""


class Written(SegmentOracle):
    """With the decoder's states for training, out of its writer."""

    def decode_states(self, conditions: Tensor, ids: Tensor) -> Tensor:
        first = self.write(conditions).first()[:, None]
        return torch.cat([first, self.write(conditions).read(ids)], dim=1)


class WrittenInserter(SegmentInsertionOracle):
    """The same for growing texts."""

    decode_states = Written.decode_states


def cut(lines: tuple[tuple[int, ...], ...]) -> Example:
    kept = [line for line in lines if line]
    return Example([A], list(itertools.chain(*kept)), 0, tuple(map(len, kept)))


@pytest.mark.parametrize("lines", LINES)
def test_latentmdm_meets_the_truth_with_exact_posteriors(
    lines: tuple[tuple[int, ...], ...],
) -> None:
    oracle = Written(LINES, END, VOCAB.size, segment_length=3)
    config = BatchConfig(ending="none", segments=SEGMENTS, pad_slots=True)
    batch = copies(cut(lines), config, 2400)
    found = nats_per_answer(likelihood_of("latentmdm"), oracle, VOCAB, batch, Noise(1, 0))
    assert found == pytest.approx(-math.log(LINES[lines] / sum(LINES.values())), rel=0.03)


@pytest.mark.parametrize("lines", LINES)
def test_flexlatent_meets_the_truth_with_exact_posteriors(
    lines: tuple[tuple[int, ...], ...],
) -> None:
    law = {tuple(line for line in each if line): weight for each, weight in LINES.items()}
    oracle = WrittenInserter(law, END, VOCAB.size, segment_length=3)
    config = BatchConfig(ending="none", after=(END,), segments=SEGMENTS)
    batch = copies(cut(lines), config, DRAWS // 2)
    found = nats_per_answer(likelihood_of("flexlatent"), oracle, VOCAB, batch, Noise(1, 0))
    assert found == pytest.approx(
        -math.log(LINES[lines] / sum(LINES.values())), abs=0.15
    )  # four standard errors


@settings(max_examples=30)
@given(st.integers(1, 400))
def test_times_cover_the_whole_way_and_their_weights_are_bounded(count: int) -> None:
    levels = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    time, weight = drawn_times(levels)
    assert (time[1:] > time[:-1]).all() and time.min() >= 0 and time.max() <= 1 - LEFT
    assert (weight / (1 - time) <= -2 * math.log(LEFT) + 1e-9).all()
    if count > 100:  # the integral of 1, and of a hazard's typical integrand (1 - t)
        assert float(weight.mean()) == pytest.approx(1 - LEFT, rel=0.01)
        assert float((weight * (1 - time)).mean()) == pytest.approx(0.5, rel=0.02)


def test_a_number_that_is_none_is_refused() -> None:
    impossible = Oracle({(A, A, END, END, END): 1.0}, MASK, VOCAB.size)
    batch = copies(Example([A], [B], 0), BatchConfig(canvas=4), 4)
    with pytest.raises(ValueError, match="is the model trained"):
        nats_per_answer(likelihood_of("mdm"), impossible, VOCAB, batch, Noise(0, 0))


class Constant(Transformer):
    """Says the same of every place, whatever it sees: right where tokens are independent."""

    log_law: Tensor
    least_noise = 1.0

    def hidden(self, *args: Any, **inputs: Any) -> Tensor:
        self.least_noise = min(self.least_noise, 1 - float(inputs["time"].max()))
        return super().hidden(*args, **inputs)

    def head(self, hidden: Tensor) -> Tensor:
        return self.log_law.expand(*hidden.shape[:-1], -1)


@pytest.mark.parametrize("eps", [1e-3, 0.6])
def test_duo_meets_the_truth_where_tokens_are_independent(
    eps: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the law of a token is also its posterior without itself, the bound's minimum.

    A sampler starts from uniform noise and not from q(x_1), so the bound of a token x is
    -ln p(x) + sum over y of q(x_1 = y | x) ln(K q(x_1 = y)). With much left of the text at t = 1
    that is far from the integral alone: a missing prior term would be seen.
    """
    schedule = LogLinear(eps)
    for module in (likelihood, uniform_objective):
        monkeypatch.setattr(module, "SCHEDULE", schedule)
    config = TransformerConfig(VOCAB.size, 8, 1, 2, 2, 4, 8, time_modulated=True)
    net = Constant(config, seed=0)
    states = States.of(VOCAB)
    law = torch.full((VOCAB.size,), 1e-9, dtype=torch.float64)
    law[[A, B, C, END]] = torch.tensor([0.5, 0.1, 0.1, 0.3], dtype=torch.float64)
    net.log_law = law.log()
    rest = (1 - eps) / states.count
    last = (states.count * (eps * law + rest)).log()[states.ids]  # ln K q(x_1)
    for answer in ([A, B], [C, C, A]):
        batch = copies(Example([A], answer, 0), BatchConfig(canvas=4), 40_000)
        found = nats_per_answer(likelihood_of("duo"), net, VOCAB, batch, Noise(4, 0))
        canvas = [*answer, END, END, END][:4]
        truth = -float(law[canvas].log().sum())
        truth += sum(float(rest * last.sum() + eps * last[states.number[x]]) for x in canvas)
        assert found == pytest.approx(truth, abs=0.3)  # three standard errors
    assert eps < 0.1 or 4 * prior_nats(states.count, schedule) > 2
    assert net.least_noise < 1e-4  # the first moments are not left out
