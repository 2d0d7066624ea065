"""Candidates that are kept, verified and extended are those that would be written from scratch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_mocks import EOS, VOCAB, A, B, Belief, C, D, HashNet, Scripted, Segment
from torch import Tensor

from anyorder.decode.draw import Draw
from anyorder.families.latentmdm import candidates
from anyorder.families.latentmdm.candidates import Candidates, DraftGoal
from anyorder.nets.denoiser import SegmentCoder
from anyorder.process.noise import uniform
from anyorder.vocab import Vocab

DRAWS = [Draw(), Draw(1.0), Draw(0.7, top_p=0.8), Draw(1.3, top_k=2)]


def places(rows: int, slots: int) -> tuple[Tensor, Tensor]:
    """All slots of all rows."""
    row, slot = torch.ones(rows, slots).nonzero(as_tuple=True)
    return row, slot


def texts(held: Candidates, row: Tensor, slot: Tensor) -> list[list[int]]:
    """The candidates with their closing EOS."""
    pairs = zip(held.tokens[row, slot].tolist(), held.length[row, slot].tolist(), strict=True)
    return [ids[:length] for ids, length in pairs]


def log_probs(held: Candidates, row: Tensor, slot: Tensor) -> list[list[float]]:
    pairs = zip(held.log_prob[row, slot].tolist(), held.checked[row, slot].tolist(), strict=True)
    return [values[:length] for values, length in pairs]


def changed(conditions: Tensor, seed: int) -> Tensor:
    """Conditions of which some changed, from some place on."""
    start = (uniform(seed, torch.arange(len(conditions))) * 2 * conditions.shape[1]).long()
    later = torch.arange(conditions.shape[1]) >= start[:, None]
    return conditions + later * seed


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 7),
    st.sampled_from(DRAWS),
)
def test_refreshing_is_writing_from_scratch(
    seed: int, rows: int, slots: int, room: int, draw: Draw
) -> None:
    """Any succession of conditions, any subset of slots at a time."""
    net, keys = HashNet(room), torch.arange(rows) + seed
    kept = Candidates(net, VOCAB, draw, keys, slots)
    row, slot = places(rows, slots)
    conditions = torch.arange(rows * slots)[:, None].repeat(1, room + 1)
    for step in range(1, 6):
        conditions = changed(conditions, seed + step)
        some = uniform(seed, step, row, slot) < 0.8
        kept.refresh(row[some], slot[some], conditions[some])
        scratch = Candidates(net, VOCAB, draw, keys, slots, reuse=False)
        scratch.refresh(row[some], slot[some], conditions[some])
        at = (row[some], slot[some])
        assert texts(kept, *at) == texts(scratch, *at)
        assert log_probs(kept, *at) == log_probs(scratch, *at)
        assert bool(kept.whole(*at).all())


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.sampled_from(DRAWS))
def test_candidates_left_unfinished_go_on_where_they_stopped(
    seed: int, room: int, draw: Draw
) -> None:
    """Given up in one step, for whatever reason; then continued, or verified under the next."""
    net, keys = HashNet(room), torch.tensor([seed, seed + 1])
    kept = Candidates(net, VOCAB, draw, keys, 3)
    row, slot = places(2, 3)
    conditions = torch.arange(6)[:, None].repeat(1, room + 1)
    for step in range(1, 5):
        conditions = changed(conditions, seed + step)

        def worth(index: Tensor, step: int = step) -> Tensor:
            length = kept.checked[row[index], slot[index]]
            return uniform(seed, step, index, length) < 0.7

        goal = DraftGoal(upto=1 + step % 3, worth=worth if step % 2 else None)
        kept.refresh(row, slot, conditions, goal)
        scratch = Candidates(net, VOCAB, draw, keys, 3, reuse=False)
        scratch.refresh(row, slot, conditions)
        whole = texts(scratch, row, slot)
        checked = kept.checked[row, slot].tolist()
        for ids, right, count in zip(texts(kept, row, slot), whole, checked, strict=True):
            assert 1 <= count <= 1 + step % 3 and ids[:count] == right[:count]
        if step > 2:
            kept.extend(row, slot, conditions)
            assert texts(kept, row, slot) == whole
            assert log_probs(kept, row, slot) == log_probs(scratch, row, slot)


def scripted(*beliefs: Belief, room: int | None = None) -> tuple[Scripted, list[Tensor]]:
    """A network of one slot, and its conditions for one belief after another."""
    segments = sorted({segment for belief in beliefs for segment in belief})
    turn = iter(beliefs)
    net = Scripted(lambda known: [next(turn)], segments, 1, room)
    prompt = net.read(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, dtype=torch.int64))
    return net, [net.conditions(prompt, net.mask_vector[None, None])[0] for _ in beliefs]


def only(segment: Segment) -> Belief:
    return {segment: 1.0}


ONE = torch.zeros(1, dtype=torch.int64)


@pytest.mark.parametrize(
    ("before", "after", "rounds"),
    [
        ((A, B, C), (A, B, C), 1),  # all agree
        ((A, B, C), (A, B), 1),  # ends earlier: the verification sees its EOS
        ((A, B), (A, B, C), 2),  # the EOS was wrong: c, then EOS
        ((A, B, C), (A, C), 2),
        ((A, B, C), (B, B, C), 2),  # one token was wrong, the rest of the guess is right
        ((A, B, C), (B, C, A), 4),  # all were wrong
        ((), (), 1),
        ((), (A,), 2),
        ((A,), (), 1),
        ((A, B, C, D), (A, B, C, D), 1),  # full: there is no EOS
        ((A, B, C, D), (A, B, C, C), 1),
        ((A, B, C), (A, B, C, D), 1),
        ((A, B, C, D), (A, B, C), 1),
    ],
)
def test_work_follows_what_changed(before: Segment, after: Segment, rounds: int) -> None:
    net, (first, second) = scripted(only(before), only(after), room=4)
    held = Candidates(net, VOCAB, Draw(), ONE, 1)
    for segment, condition, expected in ((before, first, None), (after, second, rounds)):
        net.headed.append([])
        net.calls.append(type(net.calls[0])())
        held.refresh(ONE, ONE, condition)
        closed = [*segment, EOS][:4]
        assert texts(held, ONE, ONE) == [closed]
        assert expected in (None, net.calls[-1]["head"])
    same = next((i for i, (x, y) in enumerate(zip(before, after, strict=False)) if x != y), 9)
    asked = {place for _, _, place, _ in net.headed[-1]}
    assert asked >= set(range(len(closed)))
    if same == 9:
        assert asked == set(range(max(len([*before, EOS][:4]), len(closed))))


def test_finished_segments_leave_and_are_not_headed() -> None:
    """Segments of 1, 3 and 4 tokens: 1 + 3 + 4 heads, in four rounds of ever fewer segments."""
    beliefs = [only(()), only((A, B)), only((A, B, C))]
    net = Scripted(lambda known: beliefs, [(), (A, B), (A, B, C)], 3)
    conditions = net.conditions(net.read(ONE[None], ONE), net.mask_vector.expand(1, 3, -1))[0]
    held = Candidates(net, VOCAB, Draw(), ONE, 3)
    held.refresh(*places(1, 3), conditions)
    assert len(net.headed[-1]) == 1 + 3 + 4
    assert net.calls[-1]["head"] == 4 and net.calls[-1]["read"] == 3


def test_only_the_beginning_is_asked_for() -> None:
    net, (first, second) = scripted(only((A, B, C)), only((A, B, D)))
    held = Candidates(net, VOCAB, Draw(), ONE, 1)
    held.refresh(ONE, ONE, first, DraftGoal(upto=1))
    assert [place for _, _, place, _ in net.headed[-1]] == [0]
    held.extend(ONE, ONE, first)  # Scripted refuses to head a place twice
    assert texts(held, ONE, ONE) == [[A, B, C, EOS]]
    net.headed.append([])
    held.refresh(ONE, ONE, second, DraftGoal(upto=1))
    assert texts(held, ONE, ONE) == [[A, B, C, EOS]]  # the rest is a guess now
    assert int(held.checked[0, 0]) == 1 and not bool(held.whole(ONE, ONE))
    held.extend(ONE, ONE, second)
    assert texts(held, ONE, ONE) == [[A, B, D, EOS]]


def test_log_probabilities_are_untempered() -> None:
    belief = {(A,): 0.5, (A, B): 0.25, (): 0.25}
    net, (condition,) = scripted(belief)
    held = Candidates(net, VOCAB, Draw(5.0, top_k=1), ONE, 1)
    held.refresh(ONE, ONE, condition)
    assert texts(held, ONE, ONE) == [[A, EOS]]
    expected = torch.tensor([0.75, 0.5 / 0.75]).log().tolist()
    assert log_probs(held, ONE, ONE)[0] == pytest.approx(expected, abs=1e-6)


class Flat(HashNet):
    """All ids alike, some beyond the vocabulary; or all the same number."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__(3, extra=5)
        self.value = value

    def head(self, states: Tensor) -> Tensor:
        return torch.full((len(states), self.vocab_size), self.value)


def write_many(net: SegmentCoder, vocab: Vocab = VOCAB, **kinds: bool) -> Candidates:
    keys = torch.arange(400)
    held = Candidates(net, vocab, Draw(1.0), keys, 1, **kinds)
    held.refresh(keys, torch.zeros_like(keys), torch.zeros(400, 4))
    return held


@pytest.mark.parametrize("may_be_empty", [True, False])
def test_what_is_never_drawn(may_be_empty: bool) -> None:
    held = write_many(Flat(), may_be_empty=may_be_empty)
    present = torch.arange(3) < held.length[:, 0, None]
    assert set(held.tokens[:, 0][present].tolist()) == {A, B, C, D, EOS}
    assert bool(held.empty.any()) == may_be_empty
    first = held.log_prob[:, 0, 0].exp()
    assert torch.allclose(first, torch.full_like(first, 1 / (4 + may_be_empty)))


def test_padding_that_is_eos_closes_a_segment() -> None:
    vocab = Vocab.words(["a", "b"])
    vocab.pad_id = vocab.eos_id
    held = write_many(Flat(), vocab)
    assert vocab.eos_id in held.tokens[:, 0, 0].tolist()


def test_logits_that_are_not_numbers_are_an_error() -> None:
    for value in (torch.nan, torch.inf):
        with pytest.raises(ValueError, match="not finite"):
            write_many(Flat(value))


def test_a_vocabulary_that_the_network_does_not_have() -> None:
    with pytest.raises(ValueError, match="use the vocabulary"):
        write_many(HashNet(3), Vocab.words([chr(97 + i) for i in range(20)]))


def test_many_places_pass_the_head_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    at = places(3, 4)
    conditions = torch.arange(12)[:, None].repeat(1, 6)
    results = []
    for budget in (1, 5 * VOCAB.size, 1 << 20):
        monkeypatch.setattr(candidates, "HEAD_BUDGET", budget)
        held = Candidates(HashNet(5), VOCAB, Draw(1.0), torch.arange(3), 4)
        held.refresh(*at, conditions)
        held.refresh(*at, changed(conditions, 3))
        results.append((texts(held, *at), log_probs(held, *at)))
    assert results[0] == results[1] == results[2]


def test_rows_leave() -> None:
    """The noise stays the row's and the slot number's own."""
    net, at = HashNet(5), places(3, 2)
    conditions = torch.arange(6)[:, None].repeat(1, 6)
    held = Candidates(net, VOCAB, Draw(1.0), torch.tensor([7, 8, 9]), 2)
    held.refresh(*at, conditions)
    held.keep(torch.tensor([2, 0]))
    at = places(2, 2)
    conditions = torch.arange(4)[:, None].repeat(1, 6)
    held.refresh(*at, conditions)
    fresh = Candidates(net, VOCAB, Draw(1.0), torch.tensor([9, 7]), 2)
    fresh.refresh(*at, conditions)
    assert texts(held, *at) == texts(fresh, *at)


def test_noise_can_be_fresh_in_every_step() -> None:
    net, conditions = HashNet(6, sharpness=0.0), torch.zeros(1, 7)
    held = Candidates(net, VOCAB, Draw(1.0), ONE, 1, reuse=False)
    seen = set()
    for step in range(8):
        held.refresh(ONE, ONE, conditions, DraftGoal(step=step))
        seen.add(tuple(texts(held, ONE, ONE)[0]))
    assert len(seen) > 4


def test_given_segments_stand_like_drawn_ones() -> None:
    held = Candidates(HashNet(3), VOCAB, Draw(), ONE, 3)
    row, slot = places(1, 3)
    ids = torch.tensor([[A, B, C], [A, 99, 99], [99, 99, 99]])
    held.put(row, slot, ids, torch.tensor([3, 1, 0]))
    assert texts(held, row, slot) == [[A, B, C], [A, EOS], [EOS]]
    assert held.empty.tolist() == [[False, False, True]]
    content, length = held.content(row, slot)
    pad = VOCAB.pad_id
    assert content.tolist() == [[A, B, C], [A, pad, pad], [pad, pad, pad]]
    assert length.tolist() == [3, 1, 0] and bool(held.log_prob.isnan().all())


def test_nothing_to_do_is_nothing() -> None:
    held = Candidates(HashNet(3), VOCAB, Draw(), ONE, 1)
    none = torch.zeros(0, dtype=torch.int64)
    held.refresh(none, none, torch.zeros(0, 4))
    assert int(held.length.sum()) == 0
