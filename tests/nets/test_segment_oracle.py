"""The segment oracles against sums over the data, and their writer against the trie."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
from torch import Tensor

from anyorder.nets.denoiser import SegmentInserter, SegmentNet
from anyorder.nets.oracles import (
    InsertionOracle,
    Law,
    Segment,
    SegmentInsertionOracle,
    SegmentOracle,
)

EOS, MASK, SIZE = 4, 5, 6
FIXED: Law = {
    ((0, 1), (2,), ()): 0.3,
    ((0, 1), (2, 2), (0,)): 0.15,
    ((0,), (2,), (0,)): 0.25,
    ((0, 1, 3), (), ()): 0.1,
    ((0, 1, 1), (2, 2), ()): 0.2,
}
GROWING: Law = {
    (): 0.1,
    ((0, 1),): 0.2,
    ((0,), (0, 1)): 0.3,
    ((2, 2), (0, 1), (2,)): 0.25,
    ((2,), (2,)): 0.15,
}


def fixed() -> SegmentOracle:
    return SegmentOracle(FIXED, EOS, SIZE)


def growing() -> SegmentInsertionOracle:
    return SegmentInsertionOracle(GROWING, EOS, SIZE)


def latent(net: SegmentOracle | SegmentInsertionOracle, segment: Segment | None) -> Tensor:
    """What stands in a slot: None is open, () empty."""
    if segment is None:
        return net.mask_vector
    if not segment:
        assert isinstance(net, SegmentOracle)
        return net.empty_vector
    return net.encode(torch.tensor([segment]), torch.tensor([len(segment)]))[0]


def row(net: SegmentOracle | SegmentInsertionOracle, *slots: Segment | None) -> Tensor:
    return torch.stack([latent(net, each) for each in slots])[None]  # 1 S D


def read(net: SegmentOracle | SegmentInsertionOracle, rows: int = 1):  # type: ignore[no-untyped-def]
    return net.read(torch.zeros(rows, 2, dtype=torch.int64), torch.full((rows,), 2))


def law_of(net: SegmentOracle | SegmentInsertionOracle, condition: Tensor) -> dict[Segment, float]:
    """The law of the segment that is written from a condition, by walking the trie."""
    found: dict[Segment, float] = {}
    waiting: list[tuple[Segment, float]] = [((), 1.0)]
    while waiting:
        prefix, chance = waiting.pop()
        writer = net.write(condition[None])
        state = writer.first()[0]
        if prefix:
            state = writer.read(torch.tensor([prefix]))[0, -1]
        for token, p in enumerate(net.head(state).exp().tolist()):
            if p and token == EOS:
                found[prefix] = chance * p
            elif p:
                waiting.append(((*prefix, token), chance * p))
    return found


def test_they_are_what_decoders_ask_for() -> None:
    net: SegmentNet = fixed()
    inserter: SegmentInserter = growing()
    assert (net.slots, net.segment_length) == (3, 4)  # three tokens and their EOS
    assert (inserter.slots, inserter.segment_length) == (3, 3)


@pytest.mark.parametrize("shown", list(itertools.product([False, True], repeat=3)))
def test_written_segments_have_the_posterior(shown: tuple[bool, ...]) -> None:
    """For every canvas that the data explain, against the sum over the data."""
    net = fixed()
    for canvas in {tuple(s if x else None for s, x in zip(z, shown, strict=True)) for z in FIXED}:
        agreeing = {
            z: p
            for z, p in FIXED.items()
            if all(mine in (None, theirs) for mine, theirs in zip(canvas, z, strict=True))
        }
        conditions = net.conditions(read(net), row(net, *canvas))[0]
        for slot in range(3):
            expected: Counter[Segment] = Counter()
            for z, p in agreeing.items():
                expected[z[slot]] += p / sum(agreeing.values())
            assert law_of(net, conditions[slot]) == pytest.approx(dict(expected), abs=1e-12)


@pytest.mark.parametrize("time", [0.0, 0.4, 0.99, 1.0])
def test_with_gaps_they_are_those_of_the_insertion_oracle(time: float) -> None:
    """Over letters in another order than the net's own: a, b, ... as they come in the data."""
    letters: dict[Segment, int] = {}
    for word in GROWING:
        for segment in word:
            letters.setdefault(segment, len(letters))
    words = {tuple(letters[s] for s in word): p for word, p in GROWING.items()}
    plain, net = InsertionOracle(words, mask_id=9, vocab_size=10), growing()
    canvases: list[tuple[Segment | None, ...]] = [(None,), ((2,), None), (None, (0, 1)), ((0, 1),)]
    when = torch.tensor([time], dtype=torch.float64)
    for canvas in canvases:
        look = net.look(read(net), row(net, *canvas), time=when)
        ids = torch.tensor([[8, *(9 if each is None else letters[each] for each in canvas)]])
        expected = plain.look(ids, time=when)
        assert torch.allclose(look.gaps, expected.gaps, atol=1e-12)
        for slot, state in enumerate(look.states[0]):
            posterior = expected.states[0, 1 + slot].exp()
            law = {each: float(posterior[number]) for each, number in letters.items()}
            assert law_of(net, state) == pytest.approx({k: p for k, p in law.items() if p})


def test_no_segments_yet_and_padding() -> None:
    net, time = growing(), torch.tensor([0.0, 0.5, 0.5])
    empty = net.look(read(net, 3), torch.zeros(3, 0, net.width), time=time)
    assert empty.states.shape[:2] == (3, 0)
    mean = sum(len(word) * p for word, p in GROWING.items())
    assert float(empty.gaps[0, 0].exp()) == pytest.approx(mean)
    # Padding may hold anything, and changes nothing.
    latents = torch.full((3, 2, net.width), 7.0, dtype=torch.float64)
    latents[0], latents[1, 0] = row(net, (2,), (2,))[0], net.mask_vector
    real = torch.tensor([[True, True], [True, False], [False, False]])
    together = net.look(read(net, 3), latents, real, time=time)
    alone = net.look(read(net), latents[1:2, :1], time=time[1:2])
    assert torch.equal(together.states[1, 0], alone.states[0, 0])
    assert torch.equal(together.gaps[1, :2], alone.gaps[0])
    assert torch.equal(together.gaps[2, 0], empty.gaps[2, 0])


def test_a_writer_reads_cuts_and_keeps() -> None:
    net = fixed()
    conditions = net.conditions(read(net), row(net, None, None, None))[0]
    writer = net.write(conditions[[0, 0, 1]])
    ids = torch.tensor([[0, 1, 3], [0, 1, 0], [2, 2, 0]])
    real = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]).bool()
    states = net.head(writer.read(ids, real)).exp()
    assert states[0, 0, [1, EOS]].tolist() == pytest.approx([0.75, 0.25])
    assert states[0, 1, [1, 3, EOS]].tolist() == pytest.approx([0.2 / 0.75, 0.1 / 0.75, 0.6])
    assert states[0, 2, EOS] == 1
    assert states[2, 0, [2, EOS]].tolist() == pytest.approx([0.35 / 0.9, 0.55 / 0.9])
    # Segment by segment: the last, then the first twice, one of which goes on differently.
    writer.cut(torch.tensor([2, 0, 1]))
    chosen = writer.keep(torch.tensor([2, 0, 0]))
    further = net.head(chosen.read(torch.tensor([[2], [1], [3]]))).exp()[:, 0]
    assert further[:, EOS].tolist() == [1, 1, 1]
    assert net.head(writer.first()).exp()[2, 2] == pytest.approx(0.9)
    assert net.head(writer.read(torch.tensor([[1], [0], [2]]))).exp()[1, 0, 1] == pytest.approx(
        0.75
    )
    with pytest.raises(AssertionError, match="cut"):
        writer.cut(torch.tensor([9, 0, 0]))


def test_what_follows_the_impossible_is_uniform() -> None:
    """As a verifying pass needs it, which reads on behind the first token that is refused."""
    net = fixed()
    writer = net.write(net.conditions(read(net), row(net, (0,), None, None))[0, 1:2])
    states = net.head(writer.read(torch.tensor([[2, EOS, 0, 1]]))).exp()
    assert states[0, 0, EOS] == 1
    assert states[0, 1:].tolist() == [[pytest.approx(1 / SIZE)] * SIZE] * 3
    with pytest.raises(AssertionError, match="more than 5"):
        net.write(net.mask_vector[None]).read(torch.zeros(1, 6, dtype=torch.int64))


def test_a_full_segment_needs_no_end() -> None:
    net = SegmentOracle({((0, 1),): 0.5, ((0,),): 0.5}, EOS, SIZE, segment_length=2)
    writer = net.write(net.conditions(read(net), row(net, None))[0])
    assert net.head(writer.read(torch.tensor([[0]]))).exp()[0, 0, [1, EOS]].tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="segment_length"):
        SegmentOracle({((0, 1, 2),): 1.0}, EOS, SIZE, segment_length=2)


def test_what_the_data_do_not_have_is_refused() -> None:
    net, inserter = fixed(), growing()
    for segment in ([2, 2, 2], [3]):
        with pytest.raises(ValueError, match="no segment"):
            net.encode(torch.tensor([segment]), torch.tensor([len(segment)]))
    with pytest.raises(ValueError, match="no segment"):
        net.encode(torch.tensor([[0]]), torch.tensor([0]))
    with pytest.raises(ValueError, match="no sequence of the data"):
        net.conditions(read(net), row(net, (0,), (), None))
    with pytest.raises(ValueError, match="rows of 3 slots"):
        net.conditions(read(net), row(net, (0,)))
    with pytest.raises(ValueError, match="no vector of the oracle"):
        net.conditions(read(net), 0.5 * row(net, None, None, None))
    with pytest.raises(ValueError, match="none is empty"):
        SegmentInsertionOracle({((0,), ()): 1.0}, EOS, SIZE)
    with pytest.raises(ValueError, match="no sequence of the data"):
        inserter.look(read(inserter), row(inserter, *[None] * 4), time=torch.tensor([0.5]))
    with pytest.raises(AssertionError, match="other rows"):
        net.conditions(read(net, 2).keep(torch.tensor([1, 0])), row(net, None, None, None))
