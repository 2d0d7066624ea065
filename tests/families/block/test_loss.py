"""block's losses and its likelihood: exact posteriors give exact nats; ar and mdm are the ends."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from anyorder.data.batches import Batch, BatchConfig, Example
from anyorder.families.ar.loss import causal_mean
from anyorder.families.block.config import BlockConfig, BlockLossConfig
from anyorder.families.block.loss import BlockRows, counted_mean, drawn_size, timed_bound
from anyorder.families.block.net import BlockNet
from anyorder.families.estimate import Scorer
from anyorder.families.family import find_family
from anyorder.families.likelihood import BLOCKS, TOKENS, causal_nats, likelihood_of
from anyorder.families.mdm.loss import masked_bound, masked_mean
from anyorder.nets.denoiser import ShiftedNet
from anyorder.nets.oracles import Oracle
from anyorder.nets.shapes import ShiftedConfig, TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.noise import Noise, Stream, bits
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c"])
DATA = {
    word: 1.0 + (5 * word[0] + 3 * word[1] * word[3] + 2 * word[2]) % 7
    for word in itertools.product(range(3), repeat=4)
    if word[0] != word[2] or word[1] == word[3]
}
TOTAL = sum(DATA.values())


def shape(**changes: Any) -> TransformerConfig:
    usual: dict[str, Any] = {
        "vocab_size": VOCAB.size, "width": 16, "layers": 2, "heads": 2, "kv_heads": 1,
        "head_width": 8, "mlp_width": 24,
    }  # fmt: skip
    return TransformerConfig(**usual | changes)


def net_of(size: int = 2, *, shift: bool = False, origin: Any = "absolute") -> BlockNet:
    return BlockNet(BlockConfig(shape(), size, origin, shift=shift), seed=2).double()


class TwoStreamOracle(nn.Module):
    """Exact posteriors of each block, given its own canvas and the clean blocks before it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.oracle = Oracle(DATA, VOCAB.mask_id, VOCAB.size)
        self.config = BlockConfig(shape(), size, "absolute")

    def hidden(self, ids: Tensor, *, block: Tensor, mask: Tensor) -> Tensor:
        return self.oracle.hidden(ids)

    def noisy(self, ids: Tensor, clean: Tensor, *, block: Tensor, mask: Tensor) -> Tensor:
        states = torch.zeros(*ids.shape, VOCAB.size, dtype=torch.float64)
        for number in range(int(block.max()) + 1):
            seen = torch.where(block < number, clean, ids)
            found = self.oracle.hidden(seen.masked_fill(block > number, VOCAB.mask_id))
            states = torch.where((block == number)[..., None], found, states)
        return states

    def head(self, states: Tensor) -> Tensor:
        return states


def copies(word: tuple[int, ...], count: int, prompt: int = 0) -> Batch:
    ids = torch.tensor(word).expand(count, -1)
    before, whole = torch.full((count,), prompt), torch.full((count,), len(word))
    return Batch(ids, before, whole, torch.arange(count))


def texts() -> Batch:
    """Three rows of prompts and answers of other lengths."""
    ids = bits(9, torch.arange(3)[:, None], torch.arange(9)) % 3
    return Batch(ids, torch.tensor([2, 4, 3]), torch.tensor([9, 8, 9]), torch.tensor([5, 1, 7]))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_bound_of_exact_posteriors_is_the_nats_of_a_text(size: int) -> None:
    for word in list(DATA)[::17]:
        draws = BLOCKS.draw(TwoStreamOracle(size), VOCAB, copies(word, 4_000), Noise(3, 0))
        exact = -math.log(DATA[word] / TOTAL)
        if size == 1:
            assert torch.allclose(draws.double(), torch.tensor(exact).double(), atol=1e-6)
        error = float(draws.std()) / math.sqrt(len(draws))
        assert float(draws.mean()) == pytest.approx(exact, abs=5 * error + 1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_short_blocks_are_enumerated(size: int) -> None:
    """All sets of masks of a block, for all blocks at a time: no noise is left."""
    likelihood = likelihood_of("block")
    assert likelihood is not None
    net, bare = TwoStreamOracle(size), BatchConfig(ending="none")
    texts = [Example([], list(word), 0) for word in list(DATA)[::11]]
    scorer = Scorer(likelihood, net, VOCAB, bare, torch.device("cpu"), draws=15, batch=7)
    for text, found in zip(texts, scorer.estimates(texts), strict=True):
        exact = -math.log(DATA[tuple(text.answer)] / TOTAL)
        assert (found.nats, found.error) == (pytest.approx(exact, abs=1e-6), 0.0)


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_enumeration_is_the_mean_of_draws(size: int, shift: bool) -> None:
    net = net_of(size, shift=shift)
    word = tuple(texts().ids[0].tolist())
    with torch.no_grad():
        draws = BLOCKS.draw(net, VOCAB, copies(word, 4_000, prompt=2), Noise(5, 0))
        sets = BLOCKS.sets(net, copies(word, 1, prompt=2))
        exact = BLOCKS.enumerated(net, VOCAB, copies(word, sets, prompt=2)).sum()
    assert sets == (1 if size == 1 else 3 if shift else 7)
    error = float(draws.std()) / math.sqrt(len(draws))
    assert float(draws.mean()) == pytest.approx(float(exact), abs=5 * error + 1e-5)


@pytest.mark.parametrize("kind", ["mean", "bound", "sequence", "pairs"])
def test_losses_of_exact_posteriors_are_the_nats_for_each_token(kind: str) -> None:
    word = (0, 1, 1, 2)
    options = {"sequence": {"time": "sequence"}, "pairs": {"pairs": True}}.get(kind, {})
    settings = BlockLossConfig(sizes=(2,), **options)  # type: ignore[arg-type]
    make = counted_mean if kind == "mean" else timed_bound
    parts = make(VOCAB, settings)(TwoStreamOracle(2), copies(word, 40_000), Noise(1, 0))
    # Times from 0 on have heavy tails; their numbers of rows are fixed, and so is the noise.
    wide = 0.02 if kind == "mean" else 0.08
    assert float(parts.loss) == pytest.approx(-math.log(DATA[word] / TOTAL) / 4, rel=wide)
    assert parts.nats_per_token == parts.nats / parts.tokens


def test_without_a_weight_it_is_the_mean_over_masked_tokens() -> None:
    settings = BlockLossConfig(sizes=(2,), weight="none", times=(0.3, 0.8), pairs=True)
    with torch.no_grad():
        parts = timed_bound(VOCAB, settings)(net_of(), texts(), Noise(1, 4))
    assert float(parts.loss) == pytest.approx(float(parts.nats_per_token))
    assert int(parts.tokens) == int(texts().answer.sum())  # a pair predicts each token once


@pytest.mark.parametrize("shift", [False, True])
@torch.no_grad()
def test_one_block_is_mdm(shift: bool) -> None:
    net, batch, noise = net_of(9, shift=shift), texts(), Noise(4, 3)
    if shift:
        plain: Any = ShiftedNet(ShiftedConfig(shape()), seed=2).double()
    else:
        plain = Transformer(shape(), seed=2).double()
    settings = BlockLossConfig(sizes=(9,))
    for make, other in ((counted_mean, masked_mean), (timed_bound, masked_bound)):
        found = make(VOCAB, settings)(net, batch, noise)
        wanted = other(VOCAB)(plain, batch, noise)
        assert float(found.loss) == pytest.approx(float(wanted.loss), rel=1e-9)
        assert (float(found.nats), int(found.tokens)) == pytest.approx(
            (float(wanted.nats), int(wanted.tokens))
        )
    nats = [each.draw(n, VOCAB, batch, noise) for each, n in ((BLOCKS, net), (TOKENS, plain))]
    assert torch.allclose(*nats, atol=1e-5)


@pytest.mark.parametrize("make", [counted_mean, timed_bound])
@torch.no_grad()
def test_shifted_blocks_of_one_are_ar(make: Any) -> None:
    """Each token is predicted from the clean ones before it, whatever the noise."""
    plain = Transformer(shape(causal=True), seed=2).double()
    batch = texts()
    same = Batch(batch.ids, batch.prompt_length * 0 + 3, batch.length * 0 + 9, batch.index)
    parts = make(VOCAB, BlockLossConfig(sizes=(1,)))(net_of(1, shift=True), same, Noise(4, 3))
    wanted = causal_mean(VOCAB)(plain, same, Noise(0, 0))
    assert float(parts.loss) == pytest.approx(float(wanted.loss), abs=1e-6)
    assert float(parts.nats) == pytest.approx(float(wanted.nats), abs=1e-6)
    found = BLOCKS.draw(net_of(1, shift=True), VOCAB, batch, Noise(0, 0))
    exact = causal_nats(plain, VOCAB, batch, Noise(0, 0))
    assert torch.allclose(found, exact.to(found), rtol=0, atol=1e-6)


@pytest.mark.parametrize("origin", ["after_prompt", "left_padded", "absolute"])
@torch.no_grad()
def test_one_stream_is_enough_for_one_block(origin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, batch = net_of(9, origin=origin), texts()
    loss = counted_mean(VOCAB, BlockLossConfig(sizes=(9,)))
    short = loss(net, batch, Noise(4, 3)).loss
    monkeypatch.setattr(BlockRows, "_in_one_block", lambda rows: False)
    assert float(loss(net, batch, Noise(4, 3)).loss) == pytest.approx(float(short), abs=1e-12)


def test_sizes_are_drawn_for_each_batch_alike() -> None:
    sizes = (1, 4, 16, 39)
    drawn = [drawn_size(sizes, Noise(0, step)) for step in range(1_000)]
    assert all(abs(drawn.count(size) / 1_000 - 0.25) < 0.05 for size in sizes)
    assert drawn == [drawn_size(sizes, Noise(0, step)) for step in range(1_000)]


def test_settings_without_effect_are_refused() -> None:
    with pytest.raises(ValueError, match=r"blocks\.pairs has no effect on loss=mean"):
        counted_mean(VOCAB, BlockLossConfig(pairs=True))
    for wrong in ({"sizes": ()}, {"sizes": (0,)}, {"times": (0.5, 0.5)}, {"weight": "t"}):
        with pytest.raises(ValueError, match="blocks"):
            BlockLossConfig(**wrong)  # type: ignore[arg-type]


def test_the_family_has_its_likelihood() -> None:
    found = likelihood_of("block")
    assert found is not None and not found.exact
    assert list(find_family("block").losses) == ["mean", "bound"]


@pytest.mark.long
@pytest.mark.parametrize("shift", [False, True])
def test_one_network_learns_the_law_for_every_block_size(shift: bool) -> None:
    """From draws of the data; its bounds come near the entropy for all of its sizes."""
    words, chances = list(DATA), [p / TOTAL for p in DATA.values()]
    entropy = -sum(p * math.log(p) for p in chances)
    edges = torch.tensor(chances, dtype=torch.float64).cumsum(0)
    config = shape(vocab_size=VOCAB.size, width=48, mlp_width=96)
    net = BlockNet(BlockConfig(config, 1, "absolute", shift=shift), seed=1)
    loss = counted_mean(VOCAB, BlockLossConfig(sizes=(1, 2, 4)))
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3)
    start = [VOCAB.pad_id]  # a prompt of one token
    rows = torch.arange(128)
    for step in range(900):
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * min(1.0, (900 - step) / 300)
        drawn = torch.searchsorted(edges, Noise(1, step).uniform(Stream.TOKEN, rows))
        chosen = [words[number] for number in drawn.clamp(max=len(words) - 1).tolist()]
        ids = torch.tensor([[*start, *word] for word in chosen])
        batch = Batch(ids, torch.ones(128).long(), torch.full((128,), 5), rows + 128 * step)
        optimiser.zero_grad()
        loss(net, batch, Noise(2, step)).loss.backward()
        optimiser.step()
    likelihood = likelihood_of("block")
    assert likelihood is not None
    texts = [Example(start, list(word), 0) for word in words]
    for size in (1, 2, 4):
        net.config = BlockConfig(config, size, "absolute", shift=shift)
        scorer = Scorer(likelihood, net, VOCAB, BatchConfig(ending="none"), torch.device("cpu"))
        nats = [each.nats for each in scorer.estimates(texts)]
        bound = sum(p * each for p, each in zip(chances, nats, strict=True))
        assert entropy - 1e-4 < bound < entropy + 0.1
