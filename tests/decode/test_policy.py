"""Scores, ties, quotas and windows on hand-made numbers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anyorder.decode.draw import Draw, Posterior, filtered
from anyorder.decode.policy import (
    SCORES,
    SEGMENT_SCORES,
    Items,
    Policy,
    Ranking,
    Written,
    find_score,
    find_segment_score,
    near_ties_as_ties,
    take,
    tie_noise,
)
from anyorder.decode.quota import (
    Dream,
    EntropyBound,
    Even,
    Quota,
    Threshold,
    WindowProgress,
    block_of_slots,
    parse_quota,
    steps_per_block,
)


def ranked(name: str, logits: torch.Tensor, tokens: torch.Tensor | None = None) -> list[int]:
    count = len(logits)
    items = Items(torch.arange(count), torch.full((count,), 7), Posterior(logits), tokens)
    return SCORES[name].rank(items).argsort(descending=True).tolist()


def test_scores_rank_as_defined() -> None:
    """Three slots on which the largest probability, the margin and the entropy disagree."""
    p = torch.tensor(
        [[0.50, 0.49, 0.005, 0.005], [0.45, 0.1834, 0.1833, 0.1833], [0.48, 0.40, 0.06, 0.06]]
    )
    assert ranked("confidence", p.log()) == [0, 2, 1]
    assert ranked("margin", p.log()) == [1, 2, 0]
    assert ranked("entropy", p.log()) == [0, 2, 1]
    assert ranked("sampled", p.log(), torch.tensor([2, 0, 1])) == [1, 2, 0]
    assert ranked("left_to_right", p.log()) == [0, 1, 2]
    assert ranked("right_to_left", p.log()) == [2, 1, 0]


def test_entropy_prefers_the_certain_slot() -> None:
    assert ranked("entropy", torch.tensor([[0.0, 0.0, 0.0], [5.0, 0.0, 0.0]])) == [1, 0]


def test_random_score_is_keyed_by_row_and_position() -> None:
    rank = SCORES["random"].rank
    position = torch.arange(6)
    first = rank(Items(position, torch.full((6,), 1)))
    assert torch.equal(first, rank(Items(position, torch.full((6,), 1))))
    assert not torch.equal(first, rank(Items(position, torch.full((6,), 2))))
    assert torch.equal(first[2:], rank(Items(position[2:], torch.full((4,), 1))))


slots = st.tuples(st.integers(0, 2), st.booleans(), st.booleans())
"""(score, waits, eligible) of one slot."""


@given(st.lists(slots, min_size=1, max_size=10), st.integers(0, 12), st.integers(0, 99))
def test_take_takes_the_best_and_counts_ties(
    row: list[tuple[int, bool, bool]], count: int, step: int
) -> None:
    scores, waits, eligible = (torch.tensor([column]) for column in zip(*row, strict=True))
    noise = tie_noise(Policy(), torch.tensor([5]), step, len(row))
    ranking = Ranking(scores.double(), eligible, waits, noise)
    taken, ties = take(ranking, torch.tensor([count]))
    value = {i: (not w, s) for i, (s, w, e) in enumerate(row) if e}
    kept = [value[i] for i in taken[0].nonzero()[:, 0].tolist()]  # fails if not eligible
    left = [value[i] for i in value if not taken[0, i]]
    assert len(kept) == min(count, len(value))
    assert not kept or not left or min(kept) >= max(left)
    assert int(ties) == (kept.count(max(left)) if left else 0)


@given(st.floats(-1e6, -1e-300), st.floats(-3e-5, 3e-5))
def test_near_ties_become_ties_and_others_stay_apart(score: float, drift: float) -> None:
    scores = torch.tensor([score, score * (1 + drift), score * 1.01], dtype=torch.float64)
    pair = near_ties_as_ties(scores)
    assert float(pair[0]) == pytest.approx(score, rel=2.5e-4)
    assert abs(float(pair[0] - pair[1])) <= abs(score) * 5e-4
    assert pair[0] != pair[2]
    assert near_ties_as_ties(torch.tensor([-torch.inf])).item() == -torch.inf


def test_not_a_number_cannot_stop_the_taking() -> None:
    """A broken network must end in an error, not in a loop that never takes anything."""
    none = torch.zeros(1, 3, dtype=torch.bool)
    scores = torch.full((1, 3), torch.nan, dtype=torch.float64)
    taken, _ = take(Ranking(scores, ~none, none, scores.nan_to_num()), torch.tensor([2]))
    assert int(taken.sum()) == 2


def test_waiting_keeps_the_order_of_nearly_equal_scores() -> None:
    scores = -torch.logspace(-14, -11, 6, dtype=torch.float64)[None]
    every = torch.ones(1, 6, dtype=torch.bool)
    ranking = Ranking(scores, every, every, torch.zeros(1, 6, dtype=torch.float64))
    assert ranking.order().tolist() == [[0, 1, 2, 3, 4, 5]]


def test_leftmost_ties_go_left_and_random_ties_do_not() -> None:
    scores = torch.zeros(300, 4, dtype=torch.float64)
    every = torch.ones(300, 4, dtype=torch.bool)
    keys, ones = torch.arange(300), torch.ones(300, dtype=torch.int64)

    def taken_with(policy: Policy) -> tuple[torch.Tensor, torch.Tensor]:
        return take(Ranking(scores, every, ~every, tie_noise(policy, keys, 1, 4)), ones)

    left, _ = taken_with(Policy(ties="leftmost"))
    assert left[:, 0].all()
    spread, ties = taken_with(Policy())
    assert (spread.sum(dim=0) > 40).all()
    assert ties.tolist() == [1] * 300


def run_quota(quota: Quota, slots: int, steps: int) -> list[int]:
    """The counts of a whole decoding, one row, one window."""
    open_now, counts = slots, []
    for step in range(steps):
        progress = WindowProgress(*(torch.tensor([x]) for x in (step, steps, slots, open_now)))
        counts.append(int(quota.counts(progress, None)))
        open_now -= counts[-1]
    return counts


def test_even_counts() -> None:
    assert run_quota(Even(), 10, 4) == [3, 3, 2, 2]
    assert run_quota(Even(), 3, 5) == [1, 1, 1, 0, 0]


def test_dream_counts_match_the_published_sampler() -> None:
    for size in (256, 512, 768):
        counts = run_quota(Dream(), size, size)
        assert counts[0] == 0 and counts[-1] == 2 and set(counts[1:-1]) == {1}
    assert run_quota(Dream(), 1024, 1024)[:2] == [0, 0] and run_quota(Dream(), 1024, 1024)[-1] == 3
    assert run_quota(Dream(), 256, 128) == [1] + [2] * 126 + [3]
    assert run_quota(Dream(), 512, 128) == [3] + [4] * 126 + [5]


@given(st.sampled_from([Even(), Dream()]), st.integers(1, 300), st.integers(1, 300))
def test_every_plan_reveals_everything(quota: Quota, slots: int, steps: int) -> None:
    counts = run_quota(quota, slots, steps)
    assert sum(counts) == slots and min(counts) >= 0


def test_threshold_takes_the_best_and_all_that_are_sure() -> None:
    progress = WindowProgress(*(torch.tensor([x, x]) for x in (0, 9, 4, 4)))
    scores = torch.tensor([[0.95, 0.91, 0.5, 0.1], [0.4, 0.3, 0.2, 0.1]]).double().log()
    assert Threshold(0.9).counts(progress, scores).tolist() == [2, 1]


def accepted(entropy: list[float], bound: float) -> set[int]:
    """The places that an entropy bound takes."""
    scores = -torch.tensor([entropy], dtype=torch.float64)
    progress = WindowProgress(*(torch.tensor([len(entropy)]) for _ in range(4)))
    counts = EntropyBound(bound).counts(progress, scores)
    return set(scores.argsort(dim=1, descending=True)[0, : int(counts)].tolist())


def test_an_entropy_bound_adds_up_what_comes_before_each() -> None:
    """Not what comes up to it: then place 2 would wait."""
    assert accepted([0.02, 0.5, 0.09, 0.01], 0.1) == {3, 0, 2}


@pytest.mark.parametrize(
    ("temperature", "entropy", "taken"),
    [
        (
            0.8,
            [0.119079, 1.198097, 0.014082, 0.551169],
            {0.1: {0, 2}, 0.5: {0, 2, 3}, 1.0: {0, 1, 2, 3}},
        ),
        (0.408333, [0.001803, 0.734458, 0.000020, 0.277694], {0.1: {0, 2, 3}}),
    ],
)
def test_entropy_bounds_of_tempered_posteriors(
    temperature: float, entropy: list[float], taken: dict[float, set[int]]
) -> None:
    logits = torch.tensor([[4.0, 0, 0, 0], [1, 0, 0, 0], [6, 0, 0, 0], [5, 4, 0, 0]]).double()
    place = torch.arange(4)
    read = Posterior(filtered(logits, Draw(temperature=temperature)))
    found = -SCORES["entropy"].rank(Items(place, place, posterior=read))
    assert found.tolist() == pytest.approx(entropy, abs=2e-6)
    assert {bound: accepted(found.tolist(), bound) for bound in taken} == taken


def test_the_ends_of_an_entropy_bound() -> None:
    """A large one takes all; a tiny one the best, and with it what costs nothing."""
    assert accepted([0.3, 0.2, 0.7], 1e9) == {0, 1, 2}
    assert accepted([0.3, 0.2, 0.7], 1e-12) == accepted([0.3, 0.2, 0.7], 0.0) == {1}
    assert accepted([0.3, 0.0, 0.0, 0.7], 1e-12) == {0, 1, 2}


def test_an_entropy_bound_needs_entropies() -> None:
    assert parse_quota("entropy_bound:0.2") == EntropyBound(0.2)
    with pytest.raises(ValueError, match="use the policy 'entropy'"):
        Policy(score=SCORES["confidence"], quota=EntropyBound())
    with pytest.raises(ValueError, match="0 or a positive number"):
        parse_quota("entropy_bound:-1")


def test_blocks_count_free_slots_from_the_left() -> None:
    free = torch.tensor([[False, True, True, False, True, True, True]])
    assert block_of_slots(free, 2).tolist() == [[-1, 0, 0, -1, 1, 1, 2]]
    assert block_of_slots(free, None).tolist() == [[-1, 0, 0, -1, 0, 0, 0]]


def test_steps_are_shared_equally_among_blocks() -> None:
    assert steps_per_block(12, 16, 4) == 3
    assert steps_per_block(12, 16, None) == 12
    assert steps_per_block(None, 10, 4) == 0  # each block as many as it has slots
    with pytest.raises(ValueError, match="multiple of 4"):
        steps_per_block(10, 16, 4)


def test_names_are_parsed_and_wrong_ones_listed() -> None:
    assert parse_quota("threshold:0.8") == Threshold(0.8)
    assert parse_quota("dream:0.01") == Dream(0.01)
    for wrong in (
        "evn",
        "even:3",
        "threshold:2",
        "dream:x",
        "dream:",
        "dream:5",
        "dream:-1",
        "dream:nan",
    ):
        with pytest.raises(ValueError, match="quota"):
            parse_quota(wrong)
    with pytest.raises(ValueError, match="left_to_right"):
        find_score("l2r")


def test_threshold_needs_a_score_that_is_a_probability() -> None:
    with pytest.raises(ValueError, match="confidence"):
        Policy(score=SCORES["entropy"], quota=Threshold())


def segment_scores(name: str, log_prob: list[list[float]], length: list[int]) -> list[float]:
    written = Written(torch.tensor(log_prob, dtype=torch.float64), torch.tensor(length))
    count = torch.arange(len(length))
    return SEGMENT_SCORES[name].rank(Items(count, count, written=written)).tolist()


def test_segment_scores_rank_as_defined() -> None:
    """What stands beyond a candidate's length means nothing."""
    log_prob, length = [[-1.0, -3.0, -9.0], [-2.0, 9.0, 9.0], [-1.5, -1.5, -3.0]], [2, 1, 3]
    assert segment_scores("average", log_prob, length) == [-2.0, -2.0, -2.0]
    assert segment_scores("minimum", log_prob, length) == [-3.0, -2.0, -3.0]
    assert segment_scores("first", log_prob, length) == [-1.0, -2.0, -1.5]
    assert segment_scores("left_to_right", log_prob, length) == [0.0, -1.0, -2.0]
    assert segment_scores("right_to_left", log_prob, length) == [0.0, 1.0, 2.0]
    assert SEGMENT_SCORES["random"] is SCORES["random"]


@settings(max_examples=25)
@given(st.lists(st.floats(-20, 0), min_size=1, max_size=6), st.integers(0, 4))
def test_no_segment_exceeds_its_bound(values: list[float], room: int) -> None:
    """However it goes on: by these tokens, or by certain ones up to the last place."""
    most = len(values) + room
    for name in ("average", "minimum"):
        bound = SEGMENT_SCORES[name].bound
        assert bound is not None
        for end in range(1, len(values) + 1):
            begun = torch.tensor([values[:end] + [9.0] * (most - end)], dtype=torch.float64)
            limit = float(bound(Written(begun, torch.tensor([end]))))
            for whole in (values, values + [0.0] * room, values[:end] + [0.0] * (most - end)):
                padded = [whole + [9.0] * (most - len(whole))]
                assert segment_scores(name, padded, [len(whole)])[0] <= limit + 1e-12
    # Tight: certain tokens to the last place reach it.
    certain = [values + [0.0] * room]
    whole_bound = SEGMENT_SCORES["average"].bound
    assert whole_bound is not None
    reached = segment_scores("average", certain, [most])[0]
    begun = torch.tensor(certain, dtype=torch.float64)
    assert reached == pytest.approx(float(whole_bound(Written(begun, torch.tensor([len(values)])))))


def test_tokens_and_segments_have_scores_of_their_own() -> None:
    with pytest.raises(ValueError, match="ranks segments: choose one of confidence"):
        find_score("average")
    with pytest.raises(ValueError, match="ranks tokens: choose one of average"):
        find_segment_score("margin")
    for find in (find_score, find_segment_score):
        assert find("random").reads == find("left_to_right").reads == "nothing"
        with pytest.raises(ValueError, match="unknown policy 'best'"):
            find("best")
