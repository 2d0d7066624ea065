"""duo's loss: its expectation by enumeration, what is corrupted, and the curriculum."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from uniform_chain import bound_by_ratios

from anyorder.data.batches import Batch
from anyorder.families.duo import loss as uniform_objective
from anyorder.families.duo.config import UniformConfig
from anyorder.families.duo.loss import uniform_bound
from anyorder.families.family import find_family
from anyorder.nets.denoiser import States
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process import uniform
from anyorder.process.noise import Noise
from anyorder.process.uniform import GammaLine
from anyorder.recipes import find_recipe, override
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b"])  # states: a, b, PAD, EOS
STATES = States.of(VOCAB)


class Spy(Transformer):
    """A small time-modulated network that remembers its inputs."""

    def __init__(self, seed: int = 0, tied: bool = True) -> None:
        shape = (VOCAB.size, 8, 1, 2, 2, 4, 16)
        super().__init__(TransformerConfig(*shape, time_modulated=True, tied=tied), seed=seed)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for value in self.parameters():  # far from the start, where all predictions are alike
                value.add_(0.5 * torch.randn(value.shape, generator=generator))
        self.vectors: list[Tensor] = []
        self.times: list[Tensor] = []

    def hidden(self, *args: object, **inputs: Tensor) -> Tensor:  # type: ignore[override]
        self.vectors.append(inputs["vectors"].detach())
        self.times.append(inputs["time"])
        return super().hidden(*args, **inputs)  # type: ignore[arg-type]

    def shown(self) -> Tensor:
        """The ids whose embeddings the last call was given; each must be one.  # B L"""
        near = torch.cdist(self.vectors[-1], self.embed.weight.detach()[None])
        assert bool((near.amin(dim=-1) < 1e-4).all()), "an input is no embedding of one token"
        return near.argmin(dim=-1)


def rows(text: list[int], prompt: int, count: int) -> Batch:
    """The same row so many times, as different examples."""
    ids = torch.tensor(text).expand(count, -1)
    length = torch.full((count,), len(text))
    return Batch(ids, torch.full((count,), prompt), length, torch.arange(count))


def test_expectation_is_the_enumerated_one() -> None:
    """All canvases of a two-token answer, weighted by the forward law: nothing is drawn."""
    net, level = Spy(1), 0.6
    answer = [0, VOCAB.eos_id]
    alpha = 1 - (1 - 1e-3) * level
    canvases = torch.tensor(list(itertools.product(STATES.ids.tolist(), repeat=2)))
    prompt = torch.full((len(canvases), 1), 1)
    times = torch.full((len(canvases),), alpha, dtype=torch.float64)
    chance = torch.ones(len(canvases), dtype=torch.float64)
    exact = 0.0
    with torch.no_grad():
        states = net.hidden(
            vectors=net.embed(torch.cat([prompt, canvases], dim=1)), time=times.float()
        )
        log_prob = STATES.logits(net.head(states[:, 1:])).double().log_softmax(dim=-1)  # C 2 K
        for place, clean in enumerate(answer):
            chance *= alpha * (canvases[:, place] == clean) + (1 - alpha) / STATES.count
        for place, clean in enumerate(answer):
            number = STATES.number[torch.full((len(canvases),), clean)]
            nats = bound_by_ratios(
                log_prob[:, place].exp(),
                STATES.number[canvases[:, place]],
                number,
                times,
                torch.full_like(times, -(1 - 1e-3)),
            )
            exact += float((chance * nats).sum())
        parts = uniform_bound(VOCAB, UniformConfig(), 0)(
            net, rows([1, *answer], 1, 60_000), Noise(0, 0, level)
        )
    assert int(parts.tokens) == 120_000
    assert float(parts.nats) / 60_000 == pytest.approx(exact, rel=0.02)
    assert float(parts.loss) == pytest.approx(float(parts.nats) / 120_000, rel=1e-5)


def test_prompts_stay_clean_and_noise_is_what_a_text_may_hold() -> None:
    net = Spy()
    assert VOCAB.bos_id is not None
    batch = rows([VOCAB.bos_id, 1, 0, 0, VOCAB.eos_id], 2, 400)
    uniform_bound(VOCAB, UniformConfig(), 0)(net, batch, Noise(0, 0))
    shown = net.shown()
    assert torch.equal(shown[:, :2], batch.ids[:, :2])
    assert set(shown[:, 2:].unique().tolist()) == set(STATES.ids.tolist())
    # The time is alpha, and stratified: even over the rows.
    assert net.times[-1].sort().values.tolist() == pytest.approx(
        torch.linspace(1e-3, 1, 400).tolist(), abs=3e-3
    )


def test_infilling_corrupts_spans_in_training_only() -> None:
    net, batch = Spy(), rows([1, 0, 0, 0, 0, 0, 0], 1, 300)
    objective = uniform_bound(VOCAB, UniformConfig(infill=1.0), 0)
    trained = objective(net, batch, Noise(0, 0))
    assert 300 < int(trained.tokens) < 300 * 4
    validated = objective(net, batch, Noise(0, 0, 0.9))
    assert int(validated.tokens) == 300 * 6


def test_soft_tokens_at_a_small_temperature_are_the_likeliest_ones() -> None:
    """tau -> 0: what the network reads is the embedding of argmax w, and the loss is the same."""
    net, batch = Spy(2), rows([1, 0, 1, VOCAB.eos_id], 1, 200)
    config = UniformConfig(curriculum=5, tau=1e-7)
    parts = uniform_bound(VOCAB, config, 0)(net, batch, Noise(0, 4))
    shown, alpha = net.shown(), net.times[-1]
    assert torch.equal(shown[:, 0], batch.ids[:, 0])
    assert float(alpha.max()) == pytest.approx(0.95, abs=0.01)
    assert float(alpha.min()) == pytest.approx(0.05, abs=0.01)
    # The loss of these tokens, at these times, by hand.
    line = GammaLine.of(STATES.count)
    _, slope = line.alpha(Noise(0, 4).levels(200), STATES.count)
    with torch.no_grad():
        states = net.hidden(vectors=net.embed(shown), time=alpha)[:, 1:]
        log_prob = STATES.logits(net.head(states)).log_softmax(dim=-1).flatten(0, 1)
        nats = uniform.bound(
            log_prob,
            STATES.number[shown[:, 1:]].flatten(),
            STATES.number[batch.ids[:, 1:]].flatten(),
            alpha.repeat_interleave(3),
            slope.repeat_interleave(3),
        )
    assert parts.loss.item() == pytest.approx(float(nats.mean()), rel=1e-4)


def test_the_curriculum_ends_and_validation_never_sees_it() -> None:
    net, batch = Spy(), rows([1, 0, 1, VOCAB.eos_id], 1, 50)
    objective = uniform_bound(VOCAB, UniformConfig(curriculum=5, tau=0.5), 0)
    objective(net, batch, Noise(0, 4))
    with pytest.raises(AssertionError, match="no embedding of one token"):
        net.shown()
    for noise in (Noise(0, 5), Noise(0, 4, level=0.5)):
        objective(net, batch, noise)
        net.shown()


def test_gradients_reach_the_embeddings_through_soft_tokens() -> None:
    net, batch = Spy(tied=False), rows([1, 0, 1, VOCAB.eos_id], 1, 20)
    parts = uniform_bound(VOCAB, UniformConfig(curriculum=5, tau=0.5), 0)(net, batch, Noise(0, 0))
    parts.loss.backward()
    assert net.embed.weight.grad is not None
    moved = net.embed.weight.grad.abs().sum(dim=1) > 0
    assert moved[STATES.ids].all() and not moved[VOCAB.mask_id]


def test_an_answer_that_is_no_text_is_our_mistake() -> None:
    batch = rows([1, VOCAB.mask_id], 1, 2)
    with pytest.raises(AssertionError, match="no state"):
        uniform_bound(VOCAB, UniformConfig(), 0)(Spy(), batch, Noise(0, 0))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("infill", 1.5, "a share from 0 to 1"),
        ("curriculum", -1, "give 0"),
        ("tau", 0.0, "positive temperature"),
        ("tau", 0.1, "no effect without a curriculum"),
    ],
)
def test_bad_settings_are_refused(field: str, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        override(find_recipe("tiny/duo"), {f"uniform.{field}": value})


def test_duo_begins_with_an_mdm() -> None:
    """A plain network's predictions at all times, until the time has learnt something."""
    config = TransformerConfig(VOCAB.size, 8, 1, 2, 2, 4, 16)
    base = Transformer(config, seed=4)
    network = find_family("duo").network
    net = network.build(network.complete(config, find_recipe("tiny/duo"), 0), seed=5)
    network.start(net, base)
    ids = torch.tensor([[0, 1, 3]])
    for alpha in (0.1, 0.9):
        assert torch.allclose(net.hidden(ids, time=torch.tensor([alpha])), base.hidden(ids))
    other = network.build(network.complete(config, find_recipe("tiny/duo"), 0), seed=6)
    network.start(other, net)  # and with one of its own kind, time included
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))
    assert network.additions(net) == {
        name
        for name, _ in net.named_parameters()
        if name.startswith("time") or "modulation" in name
    }


def test_the_schedule_is_the_decoders() -> None:
    from anyorder.families.duo import decode as duo

    assert duo.SCHEDULE == uniform_objective.SCHEDULE
