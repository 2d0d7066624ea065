"""latentmdm's losses: the entropy under exact posteriors, and packed work against plain work."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from anyorder.data.batches import Batch, BatchConfig, Example, collate
from anyorder.data.segments import SegmentConfig
from anyorder.families.latentmdm import loss as segment_parts
from anyorder.families.latentmdm.config import LatentConfig, SegmentLossConfig
from anyorder.families.latentmdm.loss import (
    SegmentNats,
    Segments,
    alike,
    masked_conditions,
    segment_mean,
    segment_nats,
    segment_tokens,
)
from anyorder.families.latentmdm.net import LatentNet
from anyorder.nets.oracles import SegmentOracle
from anyorder.nets.shapes import TransformerConfig
from anyorder.process import masking
from anyorder.process.noise import Noise
from anyorder.vocab import Vocab

VOCAB = Vocab.words(list("abcd"))
A, B, C, D = range(4)
SLOTS, LENGTH = 4, 5
CONFIG = BatchConfig(
    ending="none", segments=SegmentConfig(slots=SLOTS, segment_length=LENGTH), pad_slots=True
)


def example(prompt: list[int], segments: list[list[int]], index: int) -> Example:
    return Example(prompt, list(itertools.chain(*segments)), index, tuple(map(len, segments)))


def batch() -> Batch:
    """A full segment, segments of many lengths, a row with no segment and one with all slots."""
    rows = [
        example([A, B, C], [[A, B, C, D, A], [B], [C, C, A]], 0),
        example([D], [], 1),
        example([B, B], [[A], [A, A], [B, C, D, A], [D]], 2),
    ]
    return collate(rows, VOCAB, CONFIG)


def net(**changes: Any) -> LatentNet:
    backbone = TransformerConfig(VOCAB.size, 16, 2, 2, 1, 8, 24)
    settings = {"slots": SLOTS, "segment_length": LENGTH, "encoder_layers": 1, "decoder_layers": 2}
    return LatentNet(LatentConfig(backbone, **settings | changes), seed=4)


def masked_nats(model: Any, rows: Batch, masked: Tensor, vocab: Vocab) -> SegmentNats:
    """What the objectives weigh: the cost of the masked slots."""
    segments = Segments.of(rows, vocab)
    conditions = masked_conditions(model, rows, segments, masked, vocab)
    return segment_nats(model, conditions[masked], segments[masked])


def test_slots_of_a_batch_are_closed_by_eos() -> None:
    segments, end = Segments.of(batch(), VOCAB), VOCAB.eos_id
    assert segments.length.tolist() == [[5, 1, 3, 0], [0] * 4, [1, 2, 4, 1]]
    assert segments.tokens[0, 0].tolist() == [A, B, C, D, A, end]
    assert segments.tokens[2, 2].tolist() == [B, C, D, A, end, end]
    assert segments.tokens[1].unique().tolist() == [end]


def test_groups_hold_every_segment_once_and_pad_less_than_twice() -> None:
    length = torch.tensor([1, 9, 4, 2, 3, 16, 1, 5, 8, 31, 17, 2])
    found = list(alike(length))
    assert sorted(torch.cat([chosen for chosen, _ in found]).tolist()) == list(range(len(length)))
    for chosen, longest in found:
        assert longest == int(length[chosen].max()) < 2 * int(length[chosen].min())


class Plain:
    """The same loss, plainly: everything is encoded, all segments are written, all logits made."""

    def __init__(self, model: LatentNet, rows: Batch, masked: Tensor) -> None:
        self.model, self.rows, self.masked = model, rows, masked

    def nats(self) -> Iterator[tuple[int, list[Tensor]]]:
        """Row, and the nats of each target of each of its masked segments."""
        model, rows = self.model, self.rows
        for row in range(len(rows.ids)):
            prompt = rows.ids[row, : rows.prompt_length[row]]
            texts = self.texts(row)
            vectors = [
                model.encode(torch.tensor([text]), torch.tensor([len(text)]))[0]
                if text
                else model.empty_vector
                for text in texts
            ]
            for slot in range(SLOTS):
                if self.masked[row, slot]:
                    vectors[slot] = model.mask_vector
            read = model.read(prompt[None], torch.tensor([len(prompt)]))
            real = torch.ones(1, SLOTS, dtype=torch.bool)
            conditions = model.conditions(read, torch.stack(vectors)[None], real)[0]
            for slot, text in enumerate(texts):
                if self.masked[row, slot]:
                    yield row, list(self.of_one(conditions[slot], text))

    def texts(self, row: int) -> list[list[int]]:
        start, found = int(self.rows.prompt_length[row]), []
        for count in self.rows.segment_length[row].tolist():
            found.append(self.rows.ids[row, start : start + count].tolist())
            start += count
        return found

    def of_one(self, condition: Tensor, text: list[int]) -> Iterator[Tensor]:
        padded = (text + [VOCAB.eos_id] * LENGTH)[:LENGTH]
        states = self.model.decode_states(condition[None], torch.tensor([padded]))[0]
        log_prob = self.model.head(states).log_softmax(dim=-1)
        for place, token in enumerate(padded):
            if place <= len(text):
                yield -log_prob[place, token]

    def mean(self) -> Tensor:
        counts = self.masked.sum(dim=1)
        return sum(sum(each) / counts[row] for row, each in self.nats()) / len(counts)

    def tokens(self) -> Tensor:
        return torch.stack([nat for _, each in self.nats() for nat in each]).mean()


LOSSES = {"mean": (segment_mean, Plain.mean), "tokens": (segment_tokens, Plain.tokens)}
NETS = {
    "default": {},
    "release": {"pooling": "with_eos", "empty": "eos", "eos_id": VOCAB.eos_id},
    "prefix_lm": {"attention": "prefix_lm"},
}


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("name", LOSSES)
def test_packed_work_is_the_plain_loss(name: str, kind: str) -> None:
    loss, plain = LOSSES[name]
    rows = batch()
    for step in range(2):
        noise, model = Noise(3, step), net(**NETS[kind])
        masked = masking.corrupt(torch.ones(3, SLOTS, dtype=torch.bool), rows.index, noise)
        parts = loss(VOCAB)(model, rows, noise)
        parts.loss.backward()
        found = {name: value.grad for name, value in model.named_parameters()}
        model.zero_grad(set_to_none=True)
        reference = Plain(model, rows, masked)
        value = plain(reference)
        value.backward()
        assert parts.loss.item() == pytest.approx(value.item(), abs=1e-5)
        each = [nat.item() for _, nats in reference.nats() for nat in nats]
        assert parts.nats.item() == pytest.approx(sum(each), abs=1e-4)
        assert int(parts.tokens) == len(each)
        assert found["decoder.blocks.0.mlp.up.weight"].abs().max() > 1e-4
        for name, parameter in model.named_parameters():
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            grad = torch.zeros_like(parameter) if found[name] is None else found[name]
            torch.testing.assert_close(grad, expected, atol=1e-5, rtol=1e-4)


def test_work_is_done_only_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = net(), batch()
    counts = {"encode": 0, "decode_states": 0, "linear_nats": 0}

    def counting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Tensor, *rest: Any) -> Any:
            counts[name] += len(first)
            return real(first, *rest)

        return call

    for name in counts:
        where = segment_parts if name == "linear_nats" else model
        monkeypatch.setattr(where, name, counting(name, getattr(where, name)))
    masked = torch.zeros(3, SLOTS, dtype=torch.bool)
    masked[0, [0, 3]] = masked[1, 2] = masked[2, 1] = True  # 5 tokens, two empty, 2 tokens and eos
    found = masked_nats(model, rows, masked, VOCAB)
    assert counts == {"encode": 2 + 3, "decode_states": 4, "linear_nats": 5 + 1 + 1 + 3}
    assert found.per_segment().shape == (4,) and len(found.nats) == 10
    assert torch.bincount(found.segment).tolist() == [5, 1, 1, 3]


LAW = {
    ((A,), (), ()): 4,
    ((A, B), (A,), ()): 2,
    ((A, B), (A, C), (D,)): 6,
    ((A, B, C), (A,), ()): 3,
    ((), (A,), (A,)): 1,  # no text has this, a law may
    ((D,), (A, C), ()): 4,
}


def slots_of(words: list[tuple[tuple[int, ...], ...]]) -> Batch:
    """A batch of these sequences of segments."""
    flat = [[A, *itertools.chain.from_iterable(word)] for word in words]
    table = torch.tensor([[len(segment) for segment in word] for word in words])
    longest = max(map(len, flat))
    return Batch(
        torch.tensor([row + [VOCAB.pad_id] * (longest - len(row)) for row in flat]),
        torch.ones(len(words), dtype=torch.int64),
        torch.tensor(list(map(len, flat))),
        torch.arange(len(words)),
        table,
        (table > 0).sum(dim=1),
    )


class WrittenOracle(SegmentOracle):
    """The oracle with the decoder's states for training, out of its writer."""

    def decode_states(self, conditions: Tensor, ids: Tensor) -> Tensor:
        first = self.write(conditions).first()[:, None]
        return torch.cat([first, self.write(conditions).read(ids)], dim=1)


def oracle() -> WrittenOracle:
    return WrittenOracle(LAW, VOCAB.eos_id, VOCAB.size, segment_length=3)


def test_the_papers_loss_times_slots_is_the_entropy_under_exact_posteriors() -> None:
    """L_s E[(1/n) sum of nats] = H, over all sequences, counts and subsets: nothing is sampled."""
    slots, total = 3, 0.0
    subsets = [
        subset
        for count in range(1, slots + 1)
        for subset in itertools.combinations(range(slots), count)
    ]
    masked = torch.tensor([[slot in subset for slot in range(slots)] for subset in subsets])
    for word, weight in LAW.items():
        nats = masked_nats(oracle(), slots_of([word] * len(subsets)), masked, VOCAB).per_segment()
        row = masked.nonzero()[:, 0]
        for number, subset in enumerate(subsets):
            one = masking.mean_over_masked(nats[row == number], masked[number : number + 1])
            share = 1 / slots / math.comb(slots, len(subset))
            total += weight / sum(LAW.values()) * share * float(one.loss)
    assert total * slots == pytest.approx(oracle().oracle.entropy(), abs=1e-9)


def test_drawn_batches_have_that_mean() -> None:
    words = list(itertools.chain.from_iterable([word] * count for word, count in LAW.items()))
    parts = segment_mean(VOCAB)(oracle(), slots_of(words * 150), Noise(1, 2))  # type: ignore[arg-type]
    assert float(parts.loss) * 3 == pytest.approx(oracle().oracle.entropy(), rel=0.03)


def test_one_condition_can_write_several_segments() -> None:
    model, segments = net(), Segments.of(batch(), VOCAB)
    chosen = segments[torch.tensor([0, 2, 2, 1]), torch.tensor([2, 2, 0, 0])]
    conditions = torch.randn(2, 16, generator=torch.Generator().manual_seed(1))
    which = torch.tensor([1, 1, 0, 0])
    together = segment_nats(model, conditions, chosen, which).per_segment()
    alone = segment_nats(model, conditions[which], chosen).per_segment()
    torch.testing.assert_close(together, alone)


def test_what_cannot_be_trained_on() -> None:
    bare = collate([Example([A], [B], 0)], VOCAB, BatchConfig())
    with pytest.raises(ValueError, match="needs segments"):
        segment_tokens(VOCAB)(net(), bare, Noise(0, 0))
    with pytest.raises(ValueError, match="4 slots for a network of 6"):
        segment_mean(VOCAB)(net(slots=6), batch(), Noise(0, 0))


def test_reconstruction_adds_the_mean_cost_of_what_is_shown() -> None:
    """loss + w * mean over revealed content of nats, from the same conditions; nats stay plain."""
    model, rows, noise = net(), batch(), Noise(3, 1, 0.4)
    plain = segment_mean(VOCAB)(model, rows, noise)
    both = segment_mean(VOCAB, SegmentLossConfig(reconstruct=0.5))(model, rows, noise)
    segments = Segments.of(rows, VOCAB)
    masked = masking.corrupt(torch.ones(3, SLOTS, dtype=torch.bool), rows.index, noise)
    conditions = masked_conditions(model, rows, segments, masked, VOCAB)
    shown = ~masked & (segments.length > 0)
    assert 0 < int(shown.sum()) < int((segments.length > 0).sum())
    costs = segment_nats(model, conditions[shown], segments[shown]).per_segment()
    assert (both.loss - plain.loss).item() == pytest.approx(0.5 * costs.mean().item(), rel=1e-5)
    assert (both.nats, both.tokens) == (plain.nats, plain.tokens)
    everything = segment_mean(VOCAB, SegmentLossConfig(1.0))(model, rows, Noise(3, 1, 1.0 - 1e-9))
    assert everything.loss.item() == pytest.approx(
        segment_mean(VOCAB)(model, rows, Noise(3, 1, 1.0 - 1e-9)).loss.item()
    )


def test_a_negative_weight_of_reconstruction_is_refused() -> None:
    with pytest.raises(ValueError, match="reconstruct"):
        SegmentLossConfig(reconstruct=-1.0)
