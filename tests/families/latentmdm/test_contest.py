"""The choice among segments: what is written for it, and that giving candidates up changes none."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_mocks import VOCAB, A, B, Belief, C, HashNet, Scripted
from torch import Tensor

from anyorder.decode.draw import Draw
from anyorder.decode.loop import StepView
from anyorder.decode.policy import SEGMENT_SCORES, Items, Policy, Score
from anyorder.families.latentmdm.candidates import Candidates, SegmentChoice, SegmentSelector
from anyorder.nets.denoiser import SegmentCoder
from anyorder.nets.oracles import SegmentOracle
from anyorder.process.noise import uniform

UNRANKED = ("left_to_right", "right_to_left", "random")
"""Policies that look at no candidate."""


def contest(
    net: SegmentCoder, keys: Tensor, slots: int, policy: str, **about: object
) -> SegmentSelector:
    held = Candidates(net, VOCAB, Draw(0.8), keys, slots)
    return SegmentSelector(held, Policy(SEGMENT_SCORES[policy]), **about)  # type: ignore[arg-type]


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(list(SEGMENT_SCORES)),
    st.sampled_from([0.0, 0.3]),
    st.floats(0.0, 9.0),
    st.sampled_from([None, 0.15]),
)
def test_giving_up_changes_no_choice(
    seed: int, policy: str, slot_temperature: float, sharpness: float, leads_above: float | None
) -> None:
    """With and without it, over several steps in which guesses of every kind come about.

    Slots are numbered against their positions, and rows take different numbers of them.
    """
    if policy in UNRANKED:
        slot_temperature = 0.0
    rows, slots, room = 3, 4, 6
    keys, where = torch.arange(rows) + seed, torch.arange(slots).flip(0).expand(rows, slots)
    nets = [HashNet(room, sharpness) for _ in range(2)]
    quick, full = (
        contest(
            net,
            keys,
            slots,
            policy,
            slot_temperature=slot_temperature,
            complete=complete,
            leads_above=leads_above,
        )
        for net, complete in zip(nets, (False, True), strict=True)
    )
    numbers = torch.arange(rows * slots).reshape(rows, slots, 1)
    for step in range(1, 5):
        place = torch.arange(room + 1)
        fixed = uniform(seed, numbers) * room > place  # the beginning stays from step to step
        states = (numbers * 100 + step * (~fixed)).double()  # B L T+1
        eligible = uniform(seed, 1, step, numbers)[:, :, 0] < 0.8
        counts = (uniform(seed, 2, step, torch.arange(rows)) * (slots + 2)).long()
        view = StepView(states, keys, where, step)
        goes_on = ~eligible & (uniform(seed, 3, step, numbers)[:, :, 0] < 0.5)
        one, other = (each.choose(view, eligible, counts, goes_on) for each in (quick, full))
        assert torch.equal(one.taken, other.taken)
        most = torch.minimum(counts, eligible.sum(dim=1))
        assert bool((one.taken.sum(dim=1) <= most).all())
        if leads_above is None:
            assert torch.equal(one.taken.sum(dim=1), most)
        assert torch.equal(one.ties, other.ties)
        row, position = one.taken.nonzero(as_tuple=True)
        at = (row, where[row, position])
        assert bool(quick.candidates.whole(*at).all())
        assert torch.equal(quick.candidates.content(*at)[0], full.candidates.content(*at)[0])
        known = ~one.scores.isnan()
        assert torch.equal(one.scores[known], other.scores[known])
        if policy not in UNRANKED:
            assert bool(known[one.taken].all())
    assert nets[0].heads <= nets[1].heads


def scripted(*beliefs: Belief, room: int) -> tuple[Scripted, StepView]:
    segments = sorted({segment for belief in beliefs for segment in belief})
    net = Scripted(lambda known: beliefs, segments, len(beliefs), room)
    one = torch.ones(1, dtype=torch.int64)
    states = net.conditions(net.read(one[None], one), net.mask_vector.expand(1, len(beliefs), -1))
    return net, StepView(
        states, torch.zeros(1, dtype=torch.int64), torch.arange(len(beliefs))[None], 1
    )


def choose(
    net: Scripted, view: StepView, policy: str, count: int = 1, **about: object
) -> SegmentChoice:
    slots = view.slot.shape[1]
    held = Candidates(net, VOCAB, Draw(), view.key, slots)
    chooser = SegmentSelector(held, Policy(SEGMENT_SCORES[policy], ties="leftmost"), **about)  # type: ignore[arg-type]
    return chooser.choose(view, torch.ones(1, slots, dtype=torch.bool), torch.tensor([count]))


def headed(net: Scripted) -> list[list[int]]:
    """The places of each slot that the head saw in the last step."""
    slots = range(1 + max(slot for _, slot, _, _ in net.headed[-1]))
    return [sorted(place for _, s, place, _ in net.headed[-1] if s == slot) for slot in slots]


LONG = (A, B, A, B, A)
SURE, UNSURE = {(A,): 0.99, (B,): 0.01}, {LONG: 0.2, (B,): 0.1, (C,): 0.1, (): 0.1}


def test_a_candidate_that_cannot_win_is_given_up() -> None:
    """p(first token) = 0.4: its minimum is too low at once, its mean when zeros do not help."""
    for policy, seen in (("minimum", [0, 1]), ("average", [0, 1])):
        net, view = scripted(SURE, UNSURE, room=6)
        choice = choose(net, view, policy)
        assert choice.taken.tolist() == [[True, False]]
        assert headed(net) == [[0, 1], seen]  # until the sure one was finished
        assert choice.scores.isnan().tolist() == [[False, True]]
    # With 300 places the mean could still come close to 0: five tokens and their EOS are read.
    net, view = scripted(SURE, UNSURE, room=300)
    choose(net, view, "average")
    assert headed(net) == [[0, 1], [0, 1, 2, 3, 4, 5]]


def test_the_last_of_k_decides_who_is_given_up() -> None:
    middle = {(B, B): 0.6, (A, A): 0.4}
    for count, seen in ((1, [0, 1]), (2, [0, 1, 2]), (3, [0, 1, 2, 3, 4, 5])):
        net, view = scripted(SURE, UNSURE, middle, room=6)
        assert int(choose(net, view, "minimum", count).taken.sum()) == count
        assert headed(net)[1] == seen


def test_a_score_without_a_bound_waits_for_whole_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it can still reach is not known: nothing is given up, nothing is taken unfinished."""

    def total(items: Items) -> Tensor:
        assert items.written is not None
        return items.written.log_prob.masked_fill(~items.written.present, 0.0).sum(dim=1)

    monkeypatch.setitem(SEGMENT_SCORES, "total", Score("total", total, reads="segment"))
    net, view = scripted(SURE, UNSURE, room=6)
    choice = choose(net, view, "total")
    assert choice.taken.tolist() == [[True, False]]
    assert headed(net) == [[0, 1], [0, 1, 2, 3, 4, 5]]
    assert not choice.scores.isnan().any()


def test_policies_write_what_they_read() -> None:
    """Nothing before the choice, the first tokens, or all; and then what is taken."""
    for policy, places in {
        "left_to_right": [[0, 1], []],
        "right_to_left": [[], [0, 1, 2, 3, 4, 5]],
        "random": [[], [0, 1, 2, 3, 4, 5]],
        "first": [[0, 1], [0]],
    }.items():
        net, view = scripted(SURE, UNSURE, room=6)
        if policy == "random":
            order = SEGMENT_SCORES["random"]
            assert order.reads == "nothing"
            key = next(k for k in range(99) if _second_first(k))
            view = StepView(view.states, torch.tensor([key]), view.slot, 1)
        choose(net, view, policy)
        assert [*headed(net), []][:2] == places, policy


def _second_first(key: int) -> bool:
    net, view = scripted(SURE, UNSURE, room=6)
    view = StepView(view.states, torch.tensor([key]), view.slot, 1)
    return choose(net, view, "random").taken.tolist() == [[False, True]]


@pytest.mark.parametrize("policy", list(SEGMENT_SCORES))
def test_all_candidates_can_be_had(policy: str) -> None:
    net, view = scripted(SURE, UNSURE, room=6)
    choice = choose(net, view, policy, complete=True)
    assert headed(net) == [[0, 1], [0, 1, 2, 3, 4, 5]]
    ranked = policy not in UNRANKED
    assert choice.scores.isnan().tolist() == [[not ranked] * 2]


def test_scores_are_those_of_the_paper() -> None:
    net, view = scripted({(A, B): 0.5, (A, C): 0.3, (B,): 0.2}, SURE, room=6)
    first, second = torch.tensor([0.8, 0.5 / 0.8], dtype=torch.float64).log().tolist()
    expected = {"average": (first + second) / 3, "minimum": second, "first": first}
    for policy, score in expected.items():
        choice = choose(net, view, policy, complete=True)
        net.headed.append([])
        assert float(choice.scores[0, 0]) == pytest.approx(score, abs=1e-6)


def test_nothing_taken_nothing_written() -> None:
    for policy in SEGMENT_SCORES:
        net, view = scripted(SURE, UNSURE, room=6)
        assert not bool(choose(net, view, policy, 0).taken.any())
        assert net.headed[-1] == []


def test_equal_segments_are_ties() -> None:
    for policy in ("average", "minimum", "first"):
        net, view = scripted(SURE, SURE, SURE, room=3)
        choice = choose(net, view, policy, 2)
        assert choice.taken.tolist() == [[True, True, False]] and choice.ties.tolist() == [2]


def test_nearly_equal_segments_are_ties_too() -> None:
    """The last digits of a float32 network must not decide: here the tie rule prefers the left."""
    left, right = {(A,): 0.9, (B,): 0.1}, {(A,): 0.900001, (B,): 0.099999}
    for policy in ("average", "minimum", "first"):
        choice = choose(*scripted(left, right, room=3), policy)
        assert choice.taken.tolist() == [[True, False]] and choice.ties.tolist() == [1]


def test_slot_temperature_draws_by_the_scores() -> None:
    """Of two slots whose best tokens have p = 0.8 and 0.4, at T = 1/2: odds of 4 to 1."""
    chances = [{A: 0.8, B: 0.1, C: 0.1}, {A: 0.3, B: 0.3, C: 0.4}]
    law = {((x,), (y,)): p * q for x, p in chances[0].items() for y, q in chances[1].items()}
    net, rows = SegmentOracle(law, VOCAB.eos_id, VOCAB.size, segment_length=1), 4000
    one = torch.ones(rows, dtype=torch.int64)
    states = net.conditions(net.read(one[:, None], one), net.mask_vector.expand(rows, 2, -1))
    keys, slot = torch.arange(rows), torch.arange(2).expand(rows, 2)
    for policy in ("average", "minimum", "first"):
        held = Candidates(net, VOCAB, Draw(), keys, 2)
        chooser = SegmentSelector(held, Policy(SEGMENT_SCORES[policy]), slot_temperature=0.5)
        taken = [
            chooser.choose(StepView(states, keys, slot, step), slot >= 0, one).taken[:, 0]
            for step in (1, 2)
        ]
        for each in taken:
            assert float(each.double().mean()) == pytest.approx(0.8, abs=0.03)
        both = (taken[0] & taken[1]).double().mean()
        assert float(both) == pytest.approx(0.64, abs=0.03)  # each step draws anew
