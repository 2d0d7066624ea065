"""latentmdm against the procedure written plainly, the oracle's law, and itself row by row."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace

import plain_latentmdm as plain
import pytest
import torch
from scipy import stats
from segment_mocks import EOS, VOCAB, A, B, Belief, C, D, Scripted, Segment
from segment_nets import small_net, trained_net

from anyorder.decode.canvas import Decoded, SegmentCanvas
from anyorder.decode.policy import SEGMENT_SCORES
from anyorder.families.latentmdm import decode as latentmdm
from anyorder.families.latentmdm.candidates import Candidates, SegmentSelector
from anyorder.families.latentmdm.config import LatentOptions
from anyorder.nets.denoiser import SegmentNet
from anyorder.nets.oracles import SegmentOracle
from anyorder.process.noise import key_of

RANKED = ("average", "minimum", "first")
FREE = None


def canvases(slots: int) -> list[SegmentCanvas]:
    """Prompts of many lengths; all slots free, fewer slots, and texts with gaps."""
    return [
        SegmentCanvas((A, B, C), (FREE,) * slots),
        SegmentCanvas((B,), (FREE,) * slots),
        SegmentCanvas((C, C, A, B, D, A), (FREE,) * 3),
        SegmentCanvas((A,), ((A, B), FREE, FREE, (), FREE, (C, D, A, B, C, D, A))),
        SegmentCanvas((D, A), (FREE, (B,), FREE)),
    ]


def spread(decoded: Decoded, canvas: SegmentCanvas, slots: int) -> list[plain.Slot]:
    """A decoded row slot by slot, as the plain procedure has it; closing EOS are not recorded."""
    first = canvas.segments.index(None)
    found = [plain.Slot([], []) for _ in range(slots)]
    for slot, segment in enumerate(canvas.segments[:first]):
        found[slot].ids = list(segment or ())
    assert decoded.segment is not None and decoded.score is not None
    columns = (decoded.segment, decoded.token_ids, decoded.log_prob)
    for slot, token, log_prob, reveal, score in zip(
        *columns, decoded.reveal_step, decoded.score, strict=True
    ):
        found[slot].ids += [] if token == EOS else [token]
        found[slot].log_prob.append(log_prob)
        found[slot].reveal, found[slot].score = reveal, score
    return found


def agree(decoded: Decoded, right: plain.Plain, canvas: SegmentCanvas, policy: str) -> None:
    slots = spread(decoded, canvas, len(right.slots))
    for number, (mine, its) in enumerate(zip(slots, right.slots, strict=True)):
        assert (mine.ids, mine.reveal) == (its.ids, its.reveal)
        if its.reveal:
            score = its.score if policy in RANKED else float("nan")
            assert mine.score == pytest.approx(score, abs=1e-4, nan_ok=True)
            count = max(1, len(its.ids))
            assert mine.log_prob == pytest.approx(its.log_prob[:count], abs=1e-4, nan_ok=True)
        elif number >= canvas.segments.index(None):
            assert all(value != value for value in mine.log_prob)  # frozen: nothing was drawn
    assert decoded.steps == decoded.forwards == len(right.taken)


def check_against_plain(
    net: SegmentNet, options: LatentOptions, rows: list[SegmentCanvas] | None = None
) -> None:
    rows = rows or canvases(net.slots)
    keys = [key_of(5, number) for number in range(len(rows))]
    for canvas, key, decoded in zip(
        rows, keys, latentmdm.decode(net, VOCAB, rows, keys, options), strict=True
    ):
        agree(decoded, plain.decode(net, VOCAB, canvas, key, options), canvas, options.policy)


WAYS = [
    LatentOptions(),
    LatentOptions(slot_temperature=0.4),
    LatentOptions(temperature=1.0),
    LatentOptions(temperature=0.8, top_p=0.9, slot_temperature=0.4),
    LatentOptions(temperature=1.2, top_k=3, tail="keep"),
    LatentOptions(mode="compat"),
    LatentOptions(mode="compat", temperature=1.0),
    LatentOptions(tail="first", tail_threshold=0.3),
    LatentOptions(tail="first", tail_threshold=0.3, temperature=0.8, slot_temperature=0.4),
]


def suited(options: LatentOptions, policy: str) -> LatentOptions:
    """The same with this policy, which may have no use for a slot temperature."""
    heat = options.slot_temperature if policy in RANKED else 0.0
    return replace(options, policy=policy, slot_temperature=heat)


def label(options: LatentOptions) -> str:
    """The fields that differ from the default."""
    changed = {k: v for k, v in asdict(options).items() if v != getattr(LatentOptions(), k)}
    return " ".join(f"{k}={v}" for k, v in changed.items()) or "default"


@pytest.mark.parametrize("options", WAYS, ids=label)
@pytest.mark.parametrize("shift", [0, 2])
def test_kept_candidates_decode_like_fresh_ones(shift: int, options: LatentOptions) -> None:
    """Tokens, order and scores are those of writing every candidate from scratch, row by row.

    Two policies for each way here, all of them in `test_on_many_weights`.
    """
    policy = list(SEGMENT_SCORES)[(WAYS.index(options) + shift) % len(SEGMENT_SCORES)]
    k = (1, 2, 4)[WAYS.index(options) % 3]
    attention = "prefix_lm" if options.temperature > 0 else "bidirectional"
    check_against_plain(small_net(attention), replace(suited(options, policy), k=k))


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("policy", list(SEGMENT_SCORES))
def test_several_at_a_time(policy: str, k: int) -> None:
    attention = "prefix_lm" if k == 2 else "bidirectional"
    check_against_plain(small_net(attention), LatentOptions(policy=policy, k=k))


@pytest.mark.long
@pytest.mark.parametrize("options", WAYS, ids=label)
@pytest.mark.parametrize("attention", ["bidirectional", "prefix_lm"])
@pytest.mark.parametrize("policy", list(SEGMENT_SCORES))
def test_on_many_weights(policy: str, attention: str, options: LatentOptions) -> None:
    for seed, k in enumerate((1, 2, 4), 1):
        check_against_plain(
            small_net(attention, seed=seed),  # type: ignore[arg-type]
            replace(suited(options, policy), k=k),
        )


@pytest.mark.long
@pytest.mark.parametrize("attention", ["bidirectional", "prefix_lm"])
def test_on_trained_weights(attention: str) -> None:
    net = trained_net(attention)  # type: ignore[arg-type]
    rows = [SegmentCanvas((token,), (FREE,) * net.slots) for token in (A, C)]
    for row in latentmdm.decode(net, VOCAB, rows, [1, 2], LatentOptions()):
        assert 1 <= row.token_ids.count(EOS) < net.slots  # it learnt where texts end
    for policy in SEGMENT_SCORES:
        for number, options in enumerate(WAYS):
            for k in (1, 2, 4) if number == 0 else [(1, 2, 4)[number % 3]]:
                check_against_plain(net, replace(suited(options, policy), k=k), rows)


def test_these_networks_change_their_mind_halfway(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above mean something: guesses are kept, changed inside, and thrown away."""
    kept = Counter[str]()
    refresh = Candidates.refresh

    def watched(self: Candidates, row, slot, conditions, goal) -> None:  # type: ignore[no-untyped-def]
        before, length = self.tokens[row, slot].clone(), self.length[row, slot].clone()
        refresh(self, row, slot, conditions, goal)
        same = (self.tokens[row, slot] == before).long().cumprod(dim=1).sum(dim=1)
        for agreed, of in zip(same.tolist(), length.tolist(), strict=True):
            if of:
                kept["none" if not agreed else "all" if agreed >= of else "some"] += 1

    monkeypatch.setattr(Candidates, "refresh", watched)
    for attention in ("bidirectional", "prefix_lm"):
        check_against_plain(small_net(attention), LatentOptions())
    assert min(kept["none"], kept["some"], kept["all"]) >= 5, kept


LAW = {
    ((A, B), (C,), ()): 0.3,
    ((A, B), (C, C), (A,)): 0.15,
    ((A,), (C,), (A,)): 0.25,
    ((A, B, D), (), ()): 0.1,
    ((A, B, B), (C, C), ()): 0.15,
    ((), (), ()): 0.05,
}
"""Empty segments only at the end."""
SAMPLES = 2_000


def sampled(canvas: SegmentCanvas, options: LatentOptions) -> Counter[tuple[Segment, ...]]:
    net = SegmentOracle(LAW, EOS, VOCAB.size, segment_length=3)  # the longest is full: no EOS
    keys = [key_of(1, str(canvas), number) for number in range(SAMPLES)]
    rows = latentmdm.decode(net, VOCAB, [canvas] * SAMPLES, keys, options)
    return Counter(tuple(tuple(slot.ids) for slot in spread(row, canvas, 3)) for row in rows)


def law_given(canvas: SegmentCanvas) -> dict[tuple[Segment, ...], float]:
    fits = {
        words: p
        for words, p in LAW.items()
        if all(known in (None, word) for known, word in zip(canvas.segments, words, strict=True))
    }
    return {words: p / sum(fits.values()) for words, p in fits.items()}


OPEN = SegmentCanvas((A,), (FREE, FREE, FREE))


FIXED = ("random", "left_to_right", "right_to_left")
"""Policies that do not look at what is written: with them the law is exact."""
LIKELY, POSSIBLE = 0.5, 0.1
"""Thresholds of the tail first. In an open row slot 2 is empty with probability 0.6, slot 1 with
0.15: slot 2 leads at the one, slot 1 at the other."""
GAP = SegmentCanvas((A,), (FREE, (C,), FREE))
CASES = [
    *((OPEN, policy, tail) for policy in FIXED for tail in ("stop", "keep", LIKELY, POSSIBLE)),
    *((GAP, "random", tail) for tail in ("stop", LIKELY)),
    (SegmentCanvas((A,), (FREE, FREE, ())), "random", "keep"),
]


def drawn_by(policy: str, tail: str | float) -> LatentOptions:
    """At temperature 1; a number is the threshold of the tail first."""
    if isinstance(tail, float):
        return LatentOptions(policy=policy, tail="first", tail_threshold=tail, temperature=1.0)
    return LatentOptions(policy=policy, tail=tail, temperature=1.0)  # type: ignore[arg-type]


def follows_the_law(canvas: SegmentCanvas, options: LatentOptions) -> bool:
    law, seen = law_given(canvas), sampled(canvas, options)
    expected = [p * SAMPLES for p in law.values()]
    if not set(seen) <= set(law):
        return False
    return bool(stats.chisquare([seen[words] for words in law], expected).pvalue > 1e-4)


@pytest.mark.parametrize(("canvas", "policy", "tail"), CASES)
def test_the_output_law_is_the_datas(policy: str, tail: str | float, canvas: SegmentCanvas) -> None:
    assert follows_the_law(canvas, drawn_by(policy, tail))


@pytest.mark.parametrize("policy", ["random", "left_to_right"])
def test_a_leader_chosen_by_its_draw_is_not_exact(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tail first must not look at what was drawn: the test above can fail.

    Right to left takes slot 2 first anyway.
    """
    leader = SegmentSelector._leader

    def peeking(self, view, places, goes_on):  # type: ignore[no-untyped-def]
        held, at = self.candidates, (places.row, places.slot)
        held.log_empty[at] = held.log_empty[at].where(held.tokens[at][:, 0] == EOS, -torch.inf)
        return leader(self, view, places, goes_on)

    monkeypatch.setattr(SegmentSelector, "_leader", peeking)
    assert not follows_the_law(OPEN, drawn_by(policy, LIKELY))


def test_all_segments_at_once_are_not_exact() -> None:
    """Drawn together they do not know of each other: the test above can fail."""
    seen = sampled(OPEN, LatentOptions(policy="random", temperature=1.0, k=3))
    assert not set(seen) <= set(LAW)


OPTIONS = [
    *(LatentOptions(policy=policy) for policy in SEGMENT_SCORES),
    LatentOptions(k=2, temperature=0.7, slot_temperature=0.3, candidates=True),
    LatentOptions(policy="first", k=4, tail="keep", ties="leftmost"),
    LatentOptions(policy="minimum", k=3, temperature=1.0, top_p=0.8),
    LatentOptions(mode="compat", k=2, temperature=0.9),
    LatentOptions(policy="random", candidates=True, temperature=1.0),
    LatentOptions(tail="first", tail_threshold=0.3, k=2, candidates=True),
    LatentOptions(tail="first", tail_threshold=0.3, policy="random", temperature=1.0),
]


@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_batched_equals_alone(options: LatentOptions) -> None:
    net, rows = small_net(), canvases(6)
    keys = [key_of(0, number) for number in range(len(rows))]
    together = latentmdm.decode(net, VOCAB, rows, keys, options)
    for canvas, key, row in zip(rows, keys, together, strict=True):
        (alone,) = latentmdm.decode(net, VOCAB, [canvas], [key], options)
        for name in ("token_ids", "segment", "insert_step", "reveal_step", "steps", "forwards"):
            assert getattr(row, name) == getattr(alone, name), name
        assert row.ties == alone.ties
        assert row.log_prob == pytest.approx(alone.log_prob, abs=1e-4, nan_ok=True)
        assert row.score == pytest.approx(alone.score, abs=1e-4, nan_ok=True)
        assert (row.candidates is None) == (not options.candidates)
        if row.candidates is not None and alone.candidates is not None:
            pairs = zip(row.candidates, alone.candidates, strict=True)
            assert all(x._replace(score=0.0) == y._replace(score=0.0) for x, y in pairs)


@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_what_comes_out_is_well_formed(options: LatentOptions) -> None:
    assert latentmdm.resolve(latentmdm.resolve(options)) == latentmdm.resolve(options)
    rows = canvases(6)
    for canvas, row in zip(
        rows, latentmdm.decode(small_net(), VOCAB, rows, range(len(rows)), options), strict=True
    ):
        slots = spread(row, canvas, 6)
        for number, known in enumerate(canvas.segments):
            if known is None:
                assert 1 <= slots[number].reveal <= row.steps
                assert not {VOCAB.mask_id, VOCAB.pad_id, VOCAB.bos_id} & set(slots[number].ids)
            else:
                assert tuple(slots[number].ids) == known and slots[number].reveal == 0
                assert known or not slots[number].log_prob  # a frozen empty slot shows nothing
        assert all(not slot.ids and not slot.log_prob for slot in slots[len(canvas.segments) :])
        content = [token != EOS for token in row.token_ids]
        assert content == sorted(content, reverse=True)  # EOS only at the end
        assert row.insert_step == [0] * len(row.token_ids)


def always(*beliefs: Belief, room: int | None = None, also: tuple[Segment, ...] = ()) -> Scripted:
    """A network that believes the same whatever is revealed."""
    segments = {segment for belief in beliefs for segment in belief} | set(also)
    return Scripted(lambda known: beliefs, sorted(segments), len(beliefs), room)


def run(net: Scripted, canvas: SegmentCanvas | None = None, **options: object) -> Decoded:
    canvas = canvas or SegmentCanvas((A,), (FREE,) * net.slots)
    if options.get("policy") not in FIXED:
        options["ties"] = "leftmost"
    chosen = LatentOptions(**options)  # type: ignore[arg-type]
    return latentmdm.decode(net, VOCAB, [canvas], [3], chosen)[0]


def sure(segment: Segment, chance: float) -> Belief:
    """A belief whose first token has this probability; the other segment has another one."""
    other = (D,) if not segment or segment[0] != D else (C,)
    return {segment: chance, other: 1 - chance}


def test_stop_closes_what_is_open_and_nothing_else() -> None:
    """Revealed in the order of their confidence: c at 3, empty at 1 (which closes 2), then a."""
    net = always(sure((A,), 0.6), sure((), 0.8), sure((B,), 0.7), sure((C,), 0.9))
    row = run(net, tail="stop", policy="first")
    assert (row.token_ids, row.segment) == ([A, C, EOS, EOS], [0, 3, 1, 2])
    assert row.reveal_step == [3, 1, 2, 2] and row.steps == row.forwards == 3
    expected = [torch.tensor(p).log().item() for p in (0.6, 0.9, 0.8)]
    assert row.log_prob[:3] == pytest.approx(expected, abs=1e-5)
    assert row.log_prob[3] != row.log_prob[3]  # closed, not drawn
    assert row.score == pytest.approx([*expected, float("nan")], abs=1e-5, nan_ok=True)


def test_stop_ends_at_a_frozen_segment() -> None:
    """What stands frozen behind an empty slot shows that the text goes on."""
    net = always(sure((), 0.9), sure((A,), 0.5), sure((A,), 0.5), sure((B,), 0.7), sure((C,), 0.6))
    gaps = SegmentCanvas((A,), (FREE, FREE, (D,), FREE, FREE))
    row = run(net, gaps, tail="stop", policy="first")
    assert (row.token_ids, row.segment) == ([D, B, C, EOS, EOS], [2, 3, 4, 0, 1])
    assert row.reveal_step == [0, 2, 3, 1, 1]


SURE = {(): 0.99, (D,): 0.01}
"""A segment that is empty almost certainly."""


@pytest.mark.parametrize("policy", [*RANKED, *FIXED])
def test_first_takes_the_leftmost_sure_end(policy: str) -> None:
    """Slot 2 leads, and closes 3 and 4 with it; slot 1 is likely empty, but not almost certainly.

    After that the order is the policy's: slot 1, once it is taken, closes nothing.
    """
    net = always(sure((A,), 0.95), sure((), 0.9), SURE, {(): 0.999, (B,): 0.001}, SURE)
    row = run(net, tail="first", policy=policy)
    assert (row.token_ids, row.segment) == ([A, *[EOS] * 4], [0, 1, 2, 3, 4])
    assert row.reveal_step[2:] == [1, 1, 1] and row.steps == row.forwards == 3
    drawn = [value == value for value in row.log_prob]
    assert drawn == [True, True, True, False, False]
    assert row.score is not None
    assert [value == value for value in row.score] == (drawn if policy in RANKED else [False] * 5)
    later = run(net, tail="first", policy=policy, tail_threshold=0.995)
    assert (later.reveal_step[3:], later.token_ids) == ([1, 1], row.token_ids)  # slot 3 leads


def test_first_leaves_what_the_leader_decides() -> None:
    """Of two at a time one is the leader; the other is the best that it does not decide."""
    net = always(sure((A,), 0.6), sure((B,), 0.7), SURE, {(): 0.999, (B,): 0.001})
    row = run(net, tail="first", policy="first", k=2)
    assert (row.token_ids, row.reveal_step) == ([A, B, EOS, EOS], [2, 1, 1, 1])
    assert run(net, tail="stop", policy="first", k=2).reveal_step == [2, 2, 1, 1]  # both empty
    gaps = SegmentCanvas((A,), (FREE, (D,), FREE, FREE))
    ahead = always(SURE, sure((D,), 0.9), sure((B,), 0.7), {(): 0.999, (B,): 0.001})
    row = run(ahead, gaps, tail="first", policy="first", k=2)
    # The leader before the frozen text decides nothing behind it.
    assert (row.segment, row.reveal_step) == ([1, 2, 0, 3], [0, 2, 1, 1])


def test_a_leader_may_turn_out_to_have_content() -> None:
    """It is drawn like all others, and then it closes nothing."""
    net = always({(): 0.6, (A,): 0.4}, {(): 0.9, (B,): 0.1})
    rows = [SegmentCanvas((A,), (FREE, FREE))] * 80
    options = LatentOptions(tail="first", tail_threshold=0.5, temperature=1.0, policy="random")
    found = latentmdm.decode(net, VOCAB, rows, range(80), options)
    assert all(row.reveal_step[row.segment.index(0)] == 1 for row in found if row.segment)
    empty = [row for row in found if row.steps == 1]
    assert all(row.token_ids == [EOS, EOS] for row in empty)
    assert all(row.token_ids[0] == A for row in found if row.steps == 2)
    assert 20 < len(empty) < 76


def test_a_leader_saves_the_writing_of_the_others() -> None:
    """Of the others only the first tokens are read in its step, whatever the policy reads."""
    for policy in SEGMENT_SCORES:
        net = always(sure((A, B), 0.9), sure((A, B), 0.8), SURE, SURE)
        row = run(net, policy=policy, tail="first")
        assert row.steps == 3 and len(net.headed[0]) == 4, policy


def test_keep_goes_on_after_an_empty_segment() -> None:
    net = always(sure((A,), 0.6), sure((), 0.8), sure((B,), 0.7), sure((C,), 0.9))
    row = run(net, tail="keep", policy="first")
    assert (row.token_ids, row.segment) == ([A, B, C, EOS], [0, 2, 3, 1])
    assert row.reveal_step == [4, 3, 1, 2]


def test_erase_throws_content_away() -> None:
    """As published: also what was revealed before, or in the same step; frozen text stays."""
    net = always(sure((A,), 0.6), sure((), 0.8), sure((B,), 0.7), sure((C,), 0.9))
    row = run(net, policy="first", mode="compat")
    assert (row.token_ids, row.segment) == ([A, EOS, EOS, EOS], [0, 1, 2, 3])
    assert row.reveal_step == [3, 2, 2, 2]
    assert row.score is not None
    for column in (row.log_prob, row.score):
        assert [value != value for value in column] == [False, False, True, True]
    assert run(net, policy="first", mode="compat", k=2).token_ids == [A, EOS, EOS, EOS]
    frozen = SegmentCanvas((A,), (FREE, FREE, FREE, (C,)))
    row = run(net, frozen, policy="first", mode="compat")
    assert (row.token_ids, row.segment) == ([A, C, EOS, EOS], [0, 3, 1, 2])


def test_an_empty_segment_that_was_drawn_stays_as_it_was() -> None:
    """Two empty ones, the right one first: the left one erases or closes nothing of it."""
    net = always(sure((A,), 0.6), sure((), 0.7), sure((), 0.9))
    for mode in ("exact", "compat"):
        row = run(net, policy="first", mode=mode)
        assert (row.token_ids, row.reveal_step) == ([A, EOS, EOS], [3, 2, 1])
        assert row.log_prob[1:] == pytest.approx([-0.356675, -0.105361], abs=1e-5)


def test_the_law_of_latents_that_the_network_sees() -> None:
    """Open, revealed, empty, frozen, and slots beyond those asked for."""
    seen = []

    def beliefs(known: list[Segment | None]) -> list[Belief]:
        seen.append(list(known))
        return [sure((A, B), 0.6), sure((C,), 0.9), sure((B,), 0.5), {(): 1.0}, {(): 1.0}]

    net = Scripted(beliefs, [(A, B), (B,), (C,), (D,), ()], 5)  # type: ignore[arg-type]
    run(net, SegmentCanvas((A,), (FREE, FREE, (B,), FREE)), policy="first", tail="keep")
    assert seen == [
        [None, None, (B,), None, ()],
        [None, None, (B,), (), ()],
        [None, (C,), (B,), (), ()],
    ]
    assert net.encoded == [(B,), (C,)]  # the last one revealed is never encoded


@pytest.mark.parametrize(("slots", "k", "steps"), [(5, 2, 3), (4, 4, 1), (3, 7, 1), (6, 4, 2)])
def test_k_need_not_divide_the_slots(slots: int, k: int, steps: int) -> None:
    net = always(*(sure((A,), 0.5 + slot / 20) for slot in range(slots)))
    for policy in SEGMENT_SCORES:
        row = run(net, policy=policy, k=k)
        assert row.steps == row.forwards == steps and len(row.token_ids) == slots
        counts = Counter(row.reveal_step)
        assert [counts[step + 1] for step in range(steps)] == [
            min(k, slots - step * k) for step in range(steps)
        ]


def test_rows_that_are_finished_leave() -> None:
    net = always(*(sure((A,), 0.9) for _ in range(4)))
    rows = [SegmentCanvas((A,) * n, (FREE,) * n) for n in (1, 4, 2, 4)]
    latentmdm.decode(net, VOCAB, rows, range(4), LatentOptions())
    assert net.rows == [4, 3, 2, 2]


def test_policies_write_only_what_they_need() -> None:
    """Four segments `ab`: three tokens each with EOS; the head sees places, not candidates."""
    heads = {
        "left_to_right": [3, 3, 3, 3],  # what is committed
        "random": [3, 3, 3, 3],
        "first": [4 + 2, 3 + 2, 2 + 2, 1 + 2],  # first tokens of all, the rest of one
    }
    for policy, expected in heads.items():
        net = always(*(sure((A, B), 0.9) for _ in range(4)))
        run(net, policy=policy)
        assert [len(step) for step in net.headed] == expected, policy
        written = [step["written"] for step in net.calls]
        assert written == ([1] * 4 if policy != "first" else [5, 4, 3, 2])
    for policy in ("average", "minimum"):
        net = always(*(sure((A, B), 0.9) for _ in range(4)))
        run(net, policy=policy)
        rounds = [step["head"] for step in net.calls]
        assert rounds == [3, 1, 1, 1]  # later steps only verify


def test_full_segments_have_no_eos() -> None:
    net = always(sure((A, B, C), 0.9), sure((B,), 0.8), room=3)
    row = run(net)
    assert row.token_ids == [A, B, C, B]
    assert [len(step) for step in net.headed] == [3 + 2, 2]


def test_fewer_slots_than_in_training() -> None:
    net = always(*(sure((A,), 0.9) for _ in range(4)))
    row = run(net, SegmentCanvas((A,), (FREE, FREE)), slots=2)
    assert row.segment == [0, 1] and row.token_ids == [A, A]  # nothing of the others
    with pytest.raises(ValueError, match="slots=2 allows fewer"):
        run(net, SegmentCanvas((A,), (FREE, FREE, FREE)), slots=2)


@pytest.mark.parametrize("options", [LatentOptions(k=2), LatentOptions(policy="random")], ids=label)
def test_candidates_are_recorded(options: LatentOptions) -> None:
    """Every open slot at every step with its score, and the committed ones marked."""
    net, rows = small_net(), canvases(6)
    options = replace(options, candidates=True, temperature=1.0)
    found = latentmdm.decode(net, VOCAB, rows, range(len(rows)), options)
    bare = latentmdm.decode(net, VOCAB, rows, range(len(rows)), replace(options, candidates=False))
    for number, (canvas, row, other) in enumerate(zip(rows, found, bare, strict=True)):
        assert row.token_ids == other.token_ids and row.reveal_step == other.reveal_step
        right = plain.decode(net, VOCAB, canvas, number, options)
        assert row.candidates is not None and other.candidates is None
        expected = [
            (step, slot, proposed.ids, slot in taken)
            for step, (slots, taken) in enumerate(zip(right.proposed, right.taken, strict=True), 1)
            for slot, proposed in slots.items()
        ]
        assert [(c.step, c.segment, c.token_ids, c.taken) for c in row.candidates] == expected
        scores = [slot.score for slots in right.proposed for slot in slots.values()]
        if options.policy == "random":
            assert all(c.score != c.score for c in row.candidates)  # nothing was ranked
        else:
            assert [c.score for c in row.candidates] == pytest.approx(scores, abs=1e-4)


def test_ties_are_counted_and_told_apart() -> None:
    net = always(*[sure((A,), 0.9)] * 4)
    rows = [SegmentCanvas((A,), (FREE,) * 4)] * 40
    left = latentmdm.decode(net, VOCAB, rows[:1], [1], LatentOptions(ties="leftmost"))[0]
    assert left.reveal_step == [1, 2, 3, 4] and left.ties == 3
    spread_out = latentmdm.decode(net, VOCAB, rows, range(40), LatentOptions())
    assert len({tuple(row.reveal_step) for row in spread_out}) > 8
    assert run(net, policy="left_to_right").ties == 0


def test_a_watcher_sees_every_step() -> None:
    seen: list[list[Decoded]] = []
    net = always(sure((A, B), 0.6), sure((), 0.8), sure((B,), 0.7))
    rows = [SegmentCanvas((A,), (FREE,) * 3), SegmentCanvas((A,), ((A, B), FREE))]
    options = LatentOptions(policy="first", tail="keep")
    found = latentmdm.decode(
        net, VOCAB, rows, [1, 2], options, watch=lambda each: seen.append(list(each))
    )
    mask = VOCAB.mask_id
    assert [[(one.row, one.step, one.token_ids) for one in step] for step in seen] == [
        [(0, 1, [mask, mask, EOS]), (1, 1, [EOS])],
        [(0, 2, [mask, B, EOS])],
        [(0, 3, [A, B, B, EOS])],
    ]
    last = seen[-1][0]
    assert (last.token_ids, last.reveal_step) == (found[0].token_ids, found[0].reveal_step)
    assert seen[0][0].reveal_step == [0, 0, 1]


def test_broken_weights_are_an_error() -> None:
    net = small_net()
    with torch.no_grad():
        net.embed.weight.fill_(torch.nan)
    for policy in SEGMENT_SCORES:
        with pytest.raises(ValueError, match="not finite"):
            latentmdm.decode(net, VOCAB, canvases(6)[:2], [1, 2], LatentOptions(policy=policy))


@pytest.mark.parametrize(
    ("canvas", "message"),
    [
        (SegmentCanvas((A,), ((A,), ())), "nothing to fill"),
        (SegmentCanvas((A,), (FREE,) * 9), "trained with 4 slots"),
        (SegmentCanvas((A,), (FREE, (A, B, C, D, A))), "at most 2"),
        (SegmentCanvas((A,), (FREE, (VOCAB.mask_id,))), "mask id"),
        (SegmentCanvas((A, 99), (FREE,)), "99"),
    ],
)
def test_canvases_that_do_not_fit(canvas: SegmentCanvas, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(always(*[sure((A,), 0.9)] * 4), canvas)
