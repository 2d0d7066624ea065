"""flexlatent's loss: its value by hand, its minimum under exact posteriors, and its targets."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from scipy import optimize
from torch import Tensor

from anyorder.data.batches import Batch, BatchConfig, Example, collate
from anyorder.data.segments import SegmentConfig
from anyorder.families.flexlatent import loss as segment_insertion_objective
from anyorder.families.flexlatent.config import FlexLatentConfig, SegmentInsertionConfig
from anyorder.families.flexlatent.loss import TARGETS, segment_insertion_bound, segment_items
from anyorder.families.flexlatent.net import FlexLatentNet
from anyorder.families.flexmdm.loss import clocks_of
from anyorder.families.latentmdm.config import LatentConfig
from anyorder.families.latentmdm.loss import Segments
from anyorder.nets.denoiser import SegmentLook
from anyorder.nets.oracles import SegmentInsertionOracle
from anyorder.nets.shapes import TransformerConfig
from anyorder.process import insertion
from anyorder.process.noise import Noise
from anyorder.vocab import Vocab

VOCAB = Vocab.words(list("abcd"))
A, B, C, D = range(4)
LENGTH = 4
Word = tuple[tuple[int, ...], ...]
CONFIG = BatchConfig(
    ending="none", after=(VOCAB.eos_id,), segments=SegmentConfig(slots=6, segment_length=LENGTH)
)


def batch(words: list[Word], prompts: list[list[int]] | None = None) -> Batch:
    prompts = [[A]] * len(words) if prompts is None else prompts
    rows = [
        Example(prompt, list(itertools.chain(*word)), index, tuple(map(len, word)))
        for index, (prompt, word) in enumerate(zip(prompts, words, strict=True))
    ]
    return collate(rows, VOCAB, CONFIG)


WORDS: list[Word] = [
    ((A, B, C, D), (B,), (C, C), (B,), (A, B)),  # the first is full, and one is there twice
    (),
    ((D, A, B), (A,), (A,)),
]


def mixed() -> Batch:
    return batch(WORDS, [[A, B], [C], [D, D, D]])


def net() -> FlexLatentNet:
    backbone = TransformerConfig(VOCAB.size, 16, 2, 2, 1, 8, 24, time_modulated=True)
    latent = LatentConfig(
        backbone, encoder_layers=1, decoder_layers=1, slots=6, segment_length=LENGTH, empty="none"
    )
    return FlexLatentNet(FlexLatentConfig(latent), seed=2)


def one_row(
    model: FlexLatentNet, prompt: Tensor, word: list[list[int]], masked: list[bool], time: float
) -> SegmentLook:
    """What the network says of one row's visible segments."""
    vectors = [
        model.mask_vector if hidden else model.encode(torch.tensor([text]), size(text))[0]
        for text, hidden in zip(word, masked, strict=True)
    ]
    latents = torch.stack(vectors)[None] if vectors else torch.zeros(1, 0, 16)
    return model.look(model.read(prompt[None], size(prompt)), latents, time=torch.tensor([time]))


def size(ids: list[int] | Tensor) -> Tensor:
    return torch.tensor([len(ids)])


def plain_nats(model: FlexLatentNet, condition: Tensor, text: list[int]) -> Tensor:
    """The decoder on one whole segment and its EOS, logits everywhere."""
    closed = (text + [VOCAB.eos_id] * LENGTH)[:LENGTH]
    states = model.decode_states(condition[None], torch.tensor([closed]))[0]
    log_prob = model.head(states).log_softmax(dim=-1)
    return -sum(log_prob[place, closed[place]] for place in range(min(len(text) + 1, LENGTH)))


def by_hand(
    model: FlexLatentNet, rows: Batch, noise: Noise, config: SegmentInsertionConfig
) -> Tensor:
    """One row and one segment at a time, from the interpolant that the objective saw."""
    clocks = clocks_of(model)
    seen = insertion.corrupt(segment_items(rows, noise, config.infill), rows.index, noise, clocks)
    total = torch.zeros(())
    for row, word in enumerate(WORDS):
        t, visible = float(seen.time[row]), int(seen.real[row].sum())
        origin = seen.origin[row, :visible].tolist()
        masked = seen.masked[row, 1:visible].tolist()
        texts = [list(word[item - 1]) for item in origin[1:]]
        look = one_row(model, rows.ids[row, : rows.prompt_length[row]], texts, masked, t)
        divide = {"items": 8 / 3, "rows": 1, "max_length": 11}[config.normalise]

        def weight(n: float, t: float = t) -> float:
            if config.weighting == "hazard":
                return min(n / (1 - t), 100.0)
            return n * (1 - t) ** (n - 1) / ((1 - t) ** n + 1e-3)

        for slot, text in enumerate(texts):
            if masked[slot]:
                nats = plain_nats(model, look.states[0, slot], text)
                total = total + weight(clocks.unmasking.exponent) * nats / divide / 3
        for slot, (item, following) in enumerate(itertools.pairwise([*origin, len(word) + 1])):
            g = look.gaps[0, slot]
            phi = g.exp() - (following - item - 1) * g
            total = total + weight(clocks.insertion.exponent) * phi / divide / 3
    return total


@pytest.mark.parametrize("weighting", ["hazard", "compat"])
@pytest.mark.parametrize("normalise", ["items", "rows", "max_length"])
def test_the_loss_and_its_gradient_by_hand(weighting: Any, normalise: Any) -> None:
    config = SegmentInsertionConfig(weighting=weighting, normalise=normalise)
    rows, model = mixed(), net()
    for step in (1, 2, 3):
        noise = Noise(5, step)
        parts = segment_insertion_bound(VOCAB, config, 11)(model, rows, noise)
        parts.loss.backward()
        found = {name: value.grad for name, value in model.named_parameters()}
        model.zero_grad(set_to_none=True)
        total = by_hand(model, rows, noise, config)
        total.backward()
        assert parts.loss.item() == pytest.approx(total.item(), rel=1e-5)
        for name, parameter in model.named_parameters():
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            grad = torch.zeros_like(parameter) if found[name] is None else found[name]
            scale = max(1.0, float(expected.abs().max()))
            torch.testing.assert_close(grad / scale, expected / scale, atol=1e-5, rtol=1e-4)
        model.zero_grad(set_to_none=True)


def test_reconstruction_adds_the_mean_cost_of_what_is_shown() -> None:
    """loss + w * mean of nats over visible segments that are not masked, one at a time by hand."""
    rows, model = mixed(), net()
    clocks = clocks_of(model)

    def corrupted(step: int) -> insertion.Interpolant:
        noise = Noise(5, step)
        return insertion.corrupt(segment_items(rows, noise, 0.0), rows.index, noise, clocks)

    def mixes(seen: insertion.Interpolant) -> bool:
        inner = seen.real[:, 1:]
        return bool((seen.masked[:, 1:] & inner).any() and (~seen.masked[:, 1:] & inner).sum() > 2)

    step = next(step for step in range(50) if mixes(corrupted(step)))
    seen, noise = corrupted(step), Noise(5, step)
    plain = segment_insertion_bound(VOCAB, SegmentInsertionConfig(), 11)(model, rows, noise)
    config = SegmentInsertionConfig(reconstruct=0.5)
    both = segment_insertion_bound(VOCAB, config, 11)(model, rows, noise)
    costs = []
    for row, word in enumerate(WORDS):
        visible = int(seen.real[row].sum())
        masked = seen.masked[row, 1:visible].tolist()
        texts = [list(word[item - 1]) for item in seen.origin[row, 1:visible].tolist()]
        prompt = rows.ids[row, : rows.prompt_length[row]]
        look = one_row(model, prompt, texts, masked, float(seen.time[row]))
        costs += [
            plain_nats(model, look.states[0, slot], text).item()
            for slot, text in enumerate(texts)
            if not masked[slot]
        ]
    assert len(costs) > 2
    assert (both.loss - plain.loss).item() == pytest.approx(0.5 * sum(costs) / len(costs), rel=1e-4)
    assert (both.nats, both.tokens) == (plain.nats, plain.tokens)


def test_rows_without_segments_still_teach_their_one_gap() -> None:
    for words in ([()], [(), ((A,),)]):
        model = net()
        parts = segment_insertion_bound(VOCAB, SegmentInsertionConfig(), 11)(
            model, batch(words), Noise(0, 0, level=1 - 1e-6)
        )
        parts.loss.backward()
        assert float(model.gap.outer.bias.grad) != 0
        assert int(parts.tokens) == 0


def test_tokens_are_those_of_masked_segments() -> None:
    model, rows, noise = net(), mixed(), Noise(5, 1, level=0.4)
    parts = segment_insertion_bound(VOCAB, SegmentInsertionConfig(), 11)(model, rows, noise)
    seen = insertion.corrupt(segment_items(rows, noise, 0.0), rows.index, noise, clocks_of(model))
    row, slot = seen.masked.nonzero(as_tuple=True)
    texts = [WORDS[r][seen.origin[r, s] - 1] for r, s in zip(row, slot, strict=True)]
    assert texts and int(parts.tokens) == sum(min(len(text) + 1, LENGTH) for text in texts)


def test_infilling_corrupts_one_span_of_segments() -> None:
    rows = batch([((B,),) * 5] * 200)
    items = segment_items(rows, Noise(1, 2), 1.0)
    spans = set()
    for free, gaps in zip(items.free.tolist(), items.gaps.tolist(), strict=True):
        first, last = gaps.index(True), len(gaps) - gaps[::-1].index(True)
        assert free == [first < i < last for i in range(6)]  # never the anchor
        assert gaps == [first <= i < last for i in range(6)]
        spans.add((first, last))
    assert len(spans) == 21  # all pairs of cuts
    plain = segment_items(rows, Noise(1, 2), 0.0)
    assert plain.free.tolist() == [[False] + [True] * 5] * 200 and bool(plain.gaps.all())


LAW: dict[Word, float] = {
    ((A,),): 3,
    ((A, B), (A,)): 2,
    ((A,), (A, B), (D,)): 4,
    ((D,), (A,), (A,), (A, B)): 3,
}


class Tilted(SegmentInsertionOracle):
    """The oracle with gaps moved by `gap`, and posteriors sharpened by `posterior`."""

    gap = posterior = 0.0

    def look(
        self, prompt: Any, latents: Tensor, real: Tensor | None = None, *, time: Tensor
    ) -> SegmentLook:
        assert real is not None
        look = super().look(prompt, latents, real, time=time)
        states = ((1 + self.posterior) * look.states).log_softmax(dim=2)
        return SegmentLook(states, look.gaps + self.gap)

    def decode_states(self, conditions: Tensor, ids: Tensor) -> Tensor:
        first = self.write(conditions).first()[:, None]
        return torch.cat([first, self.write(conditions).read(ids)], dim=1)


def every_interpolant(progress: float) -> tuple[Batch, insertion.Interpolant, Tensor]:
    """All that can be seen of all sequences of the law at one time, and how likely each is."""
    clocks = insertion.Clocks().in_progress()
    shares = [float(share) for share in clocks.shares(torch.tensor(progress).double())]
    words, fates, weights = [], [], []
    for word, weight in LAW.items():
        for fate in itertools.product(range(3), repeat=len(word)):
            words.append(word)
            fates.append([2, *fate, *[2] * (4 - len(word))])  # the anchor stays
            weights.append(weight * math.prod(shares[each] for each in fate))
    rows, table = batch(words), torch.tensor(fates)
    items = segment_items(rows, Noise(0, 0), 0.0)
    time = torch.full((len(words),), progress).double()
    deleted, masked = items.free & (table == 0), items.free & (table == 1)
    seen = insertion.pack(items, deleted=deleted, masked=masked, time=time)
    return rows, seen, torch.tensor(weights).double() / sum(LAW.values())


@pytest.mark.parametrize("part", ["gap", "posterior"])
@pytest.mark.parametrize("progress", [0.2, 0.7])
@pytest.mark.parametrize("targets", ["sampled", "integrated"])
def test_the_minimum_is_at_the_exact_posterior(
    part: str, progress: float, targets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expected loss at one time, over everything that can be seen: nothing is drawn."""
    rows, seen, weights = every_interpolant(progress)
    assert float(weights.sum()) == pytest.approx(1)
    scale = insertion.InsertionWeights(weights, weights)
    monkeypatch.setattr(insertion, "corrupt", lambda *_: seen)
    monkeypatch.setattr(segment_insertion_objective, "row_weights", lambda *_: scale)
    objective = segment_insertion_bound(VOCAB, SegmentInsertionConfig(targets=targets), 11)
    model = Tilted(LAW, VOCAB.eos_id, VOCAB.size, segment_length=LENGTH)

    def loss(tilt: float) -> float:
        setattr(model, part, tilt)
        return float(objective(model, rows, Noise(0, 0)).loss)  # type: ignore[arg-type]

    assert (loss(1e-3) - loss(-1e-3)) / 2e-3 == pytest.approx(0.0, abs=1e-6)
    assert loss(0.2) > loss(0.0) < loss(-0.2)


@pytest.mark.parametrize("progress", [1e-6, 0.3])
@pytest.mark.parametrize("normalise", ["items", "rows", "max_length"])
def test_the_best_gap_is_the_mean_number_of_segments(normalise: Any, progress: float) -> None:
    """1 or 3 segments, half and half, as test_insertion_minimum.py has it for tokens."""

    class Bare(Tilted):
        def look(
            self, prompt: Any, latents: Tensor, real: Tensor | None = None, *, time: Tensor
        ) -> SegmentLook:
            assert real is not None
            look = super().look(prompt, latents, real, time=time)
            bare = (~real.any(dim=1))[:, None] & (torch.arange(look.gaps.shape[1]) == 0)
            return SegmentLook(look.states, torch.where(bare, self.gap, 0.0))

    law: dict[Word, float] = {((A,),): 1, ((A,), (B,), (C,)): 1}
    rows = batch(list(law) * 600)
    model = Bare(law, VOCAB.eos_id, VOCAB.size, segment_length=LENGTH)
    objective = segment_insertion_bound(VOCAB, SegmentInsertionConfig(normalise=normalise), 11)

    def loss(g: float) -> float:
        model.gap = g
        return float(objective(model, rows, Noise(3, 1, level=1 - progress)).loss)  # type: ignore[arg-type]

    left = [(1 - progress) ** count for count in (1, 3)]
    mean = (left[0] + 3 * left[1]) / sum(left)
    found = optimize.minimize_scalar(loss, bounds=(-2.0, 3.0), method="bounded")
    assert math.exp(found.x) == pytest.approx(mean, rel=0.001 if progress < 0.1 else 0.05)


@pytest.mark.parametrize("step", range(6))
def test_integrated_targets_are_means_over_all_alignments(step: int) -> None:
    """Every order-preserving way to place what is visible on the clean row counts alike."""
    word: Word = ((A,), (B, C), (A,), (B, C), (D,), (A,))
    rows, noise = batch([word]), Noise(7, step, level=0.5)
    items = segment_items(rows, noise, 0.6)
    seen = insertion.corrupt(items, rows.index, noise, insertion.Clocks().in_progress())
    origin, masked = seen.origin[0].tolist(), seen.masked[0].tolist()
    free = items.free[0].tolist()
    ways = []
    for places in itertools.combinations(range(len(word) + 1), len(origin)):
        fits = all(
            place == item
            if not free[item]
            else free[place] and (hidden or word[place - 1] == word[item - 1])
            for place, item, hidden in zip(places, origin, masked, strict=True)
        )
        if fits:
            ways.append(places)
    targets = TARGETS["integrated"](Segments.of(rows, VOCAB), seen, items)
    expected: dict[tuple[int, int], float] = {}
    slots = [slot for slot, hidden in enumerate(masked) if hidden]
    for places in ways:
        for number, slot in enumerate(slots):
            key = (number, places[slot])
            expected[key] = expected.get(key, 0.0) + 1 / len(ways)
    pairs = zip(targets.slot.tolist(), targets.item.tolist(), strict=True)
    found = dict(zip(pairs, targets.probability.tolist(), strict=True))
    assert found == pytest.approx(expected)
    for slot, may in enumerate(seen.gaps[0].tolist()):
        counts = [[*way, len(word) + 1][slot + 1] - way[slot] - 1 for way in ways]
        mean = sum(counts) / len(ways) if may else 0.0
        assert float(targets.missing[0, slot]) == pytest.approx(mean)


def test_integrated_nats_are_means_over_the_pairs() -> None:
    model, noise = net(), Noise(2, 3, level=0.45)
    words: list[Word] = [((A,), (B, C), (A,), (B, C), (D,), (A,))] * 3
    rows = batch(words)
    config = SegmentInsertionConfig(normalise="rows", targets="integrated")
    parts = segment_insertion_bound(VOCAB, config, 11)(model, rows, noise)
    items = segment_items(rows, noise, 0.0)
    seen = insertion.corrupt(items, rows.index, noise, clocks_of(model))
    targets = TARGETS["integrated"](Segments.of(rows, VOCAB), seen, items)
    places = seen.masked.nonzero().tolist()
    total = tokens = 0.0
    for slot, item, p in zip(targets.slot, targets.item, targets.probability, strict=True):
        row, place = places[slot]
        visible = int(seen.real[row].sum())
        texts = [list(words[row][each - 1]) for each in seen.origin[row, 1:visible].tolist()]
        hidden = seen.masked[row, 1:visible].tolist()
        prompt = rows.ids[row, : rows.prompt_length[row]]
        look = one_row(model, prompt, texts, hidden, float(seen.time[row]))
        text = list(words[row][item - 1])
        total += float(p) * plain_nats(model, look.states[0, place - 1], text).item()
        tokens += float(p) * min(len(text) + 1, LENGTH)
    assert len(targets.slot) > len(places)
    assert float(parts.nats) == pytest.approx(total, rel=1e-5)
    assert float(parts.tokens) == pytest.approx(tokens)
