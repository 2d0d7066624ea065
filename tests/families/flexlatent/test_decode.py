"""flexlatent on hand-set networks: policies, ends, records, refusals, batched equals alone."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from flexlatent_mocks import (
    EARLY,
    EOS,
    INFILL,
    OPEN,
    VOCAB,
    Mock,
    about,
    at_once,
    code,
    decode,
    prompt,
    ragged,
    segments_of,
)

from anyorder.decode.canvas import Decoded, GrowingSegments
from anyorder.families.flexlatent import decode as flexlatent
from anyorder.families.flexlatent.config import FlexLatentConfig, FlexLatentOptions
from anyorder.families.flexlatent.net import FlexLatentNet
from anyorder.families.latentmdm.config import LatentConfig
from anyorder.nets.shapes import TransformerConfig
from anyorder.process.noise import key_of
from anyorder.trace.trace import Trace

SCRIPTS = [
    [(0, 0.9), (1, 0.55), (EOS, 0.95)],  # a good beginning, a doubtful middle
    [(1, 0.6), (EOS, 0.99)],
    [(2, 0.8), (0, 0.8), (0, 0.8), (EOS, 0.8)],  # equal throughout
    [(0, 0.5), (1, 0.99), (2, 0.99), (1, 0.99), (EOS, 0.99)],  # a doubtful beginning
]
SCORES: dict[str, Any] = {
    "average": lambda place, logs: sum(logs) / len(logs),
    "minimum": lambda place, logs: min(logs),
    "first": lambda place, logs: logs[0],
    "left_to_right": lambda place, logs: -place,
}
ORDERS = {
    "average": [3, 2, 0, 1],
    "minimum": [2, 1, 0, 3],
    "first": [0, 2, 1, 3],
    "left_to_right": [0, 1, 2, 3],
}

OPTIONS = [
    FlexLatentOptions(steps=12),
    FlexLatentOptions(policy="minimum", temperature=0.8, top_p=0.9, counts="poisson", steps=9),
    FlexLatentOptions(policy="first", temperature=0.7, hazard="left", quota="poisson", steps=9),
    FlexLatentOptions(policy="random", temperature=1.0, counts="floor_bernoulli", steps=12),
    FlexLatentOptions(policy="left_to_right", insertion_temperature=0.5, steps=12),
    FlexLatentOptions(ties="leftmost", unmasking_schedule=1.0, candidates=True, steps=8),
    FlexLatentOptions(clock="events", temperature=0.8),
    FlexLatentOptions(clock="events", policy="random", unmasking_schedule=1.0, temperature=1.0),
]


def label(options: FlexLatentOptions) -> str:
    changed = {k: v for k, v in asdict(options).items() if v != getattr(FlexLatentOptions(), k)}
    return " ".join(f"{k}={v}" for k, v in changed.items())


def small_net(attention: Any) -> FlexLatentNet:
    backbone = TransformerConfig(
        vocab_size=VOCAB.size, width=32, layers=2, heads=4, kv_heads=2, head_width=8, mlp_width=48,
        time_modulated=True,
    )  # fmt: skip
    latent = LatentConfig(
        backbone, 1, 1, slots=8, segment_length=5, empty="none", attention=attention
    )
    net = FlexLatentNet(FlexLatentConfig(latent), seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():  # far from uniform, so that segments and gaps differ clearly
        for name, parameter in net.named_parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
            if name == "backbone.embed.weight":
                parameter *= 4
        net.gap.outer.bias.fill_(1.5)
    return net


def assert_same(row: Decoded, alone: Decoded) -> None:
    exact = ("token_ids", "segment", "insert_step", "reveal_step", "steps", "forwards", "ties")
    for name in exact:
        assert getattr(row, name) == getattr(alone, name), name
    assert row.log_prob == pytest.approx(alone.log_prob, abs=1e-4, nan_ok=True)
    assert row.score == pytest.approx(alone.score, abs=1e-4, nan_ok=True)
    assert (row.candidates is None) == (alone.candidates is None)
    for mine, other in zip(row.candidates or [], alone.candidates or [], strict=True):
        assert mine.score == pytest.approx(other.score, abs=1e-4, nan_ok=True)
        assert mine._replace(score=0.0) == other._replace(score=0.0)


# --- rows ------------------------------------------------------------------------------------


def check_batched(options: FlexLatentOptions, net: Any) -> None:
    """Every row is what it is when it is decoded alone."""
    canvases = ragged()
    keys = [key_of(0, i) for i in range(len(canvases))]
    together = flexlatent.decode(net, VOCAB, canvases, keys, options)
    assert sum(len(segments_of(row)) for row in together) > 8
    for canvas, key, row in zip(canvases, keys, together, strict=True):
        (alone,) = flexlatent.decode(net, VOCAB, [canvas], [key], options)
        assert_same(row, alone)


@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_batched_equals_alone(options: FlexLatentOptions) -> None:
    """With a mock, and with a real network of one of the two kinds in turn."""
    check_batched(options, about(5, SCRIPTS))
    check_batched(options, small_net(("bidirectional", "prefix_lm")[OPTIONS.index(options) % 2]))


@pytest.mark.long
@pytest.mark.parametrize("options", OPTIONS, ids=label)
@pytest.mark.parametrize("kind", ["bidirectional", "prefix_lm"])
def test_batched_equals_alone_in_networks_of_both_kinds(
    options: FlexLatentOptions, kind: str
) -> None:
    check_batched(options, small_net(kind))


@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_what_comes_out_is_what_the_network_saw(options: FlexLatentOptions) -> None:
    """Frozen segments stay, closed gaps stay closed, and watchers and traces see every step."""
    inserted = 0
    for seed in range(5):
        net, shown = about(4, SCRIPTS), list[Decoded]()
        keys = [key_of(seed)]
        (row,) = flexlatent.decode(
            net, VOCAB, [INFILL], keys, options, watch=lambda rows, shown=shown: shown.extend(rows)
        )
        found = segments_of(row)
        texts = {n: tuple(row.token_ids[i] for i in at) for n, at in found.items()}
        given = [n for n, at in found.items() if row.insert_step[at[0]] == 0]
        assert list(found) == list(range(1, 1 + len(found)))  # segment 0 is frozen before any gap
        assert [texts[n] for n in given] == list(INFILL.segments[1:])
        assert given[1] == given[0] + 1 and given[-1] == list(found)[-1]
        new = [n for n in found if n not in given]
        inserted += len(new)
        assert len(new) <= INFILL.room and row.forwards == len(net.seen) == row.steps
        for n, at in found.items():
            assert len({(row.insert_step[i], row.reveal_step[i]) for i in at}) == 1
            assert all(math.isnan(row.log_prob[i]) == (n in given) for i in at)
            assert n in given or 1 <= row.insert_step[at[0]] < row.reveal_step[at[0]] <= row.steps
        assert [each.step for each in shown] == list(range(1, row.steps + 1))
        for step, (codes,) in enumerate(net.seen):  # the canvas that call step + 1 saw
            there = [n for n, at in found.items() if row.insert_step[at[0]] <= step]
            hidden = {n for n in there if row.reveal_step[found[n][0]] > step}
            assert codes == [code(INFILL.segments[0])] + [
                OPEN if n in hidden else code(texts[n]) for n in there
            ]
            if step:
                masked = [[VOCAB.mask_id] if n in hidden else list(texts[n]) for n in there]
                assert shown[step - 1].token_ids == [t for each in masked for t in each]
        assert shown[-1].token_ids == row.token_ids and shown[-1].reveal_step == row.reveal_step
    assert inserted > 6


def test_rows_leave_when_they_are_finished() -> None:
    net = about(4, SCRIPTS)
    canvases = [prompt(room=1), prompt(), prompt(room=2), prompt()]
    seen: list[Decoded] = []
    rows = decode(net, canvases, steps=30, watch=seen.extend)
    sizes = [len(each) for each in net.seen]
    assert sizes == [sum(row.steps >= step for row in rows) for step in range(1, len(sizes) + 1)]
    assert rows[0].steps < 30 and len(segments_of(rows[0])) == 1  # full, and nothing open
    assert rows[1].steps >= 30
    for number, row in enumerate(rows):
        assert [s.step for s in seen if s.row == number] == list(range(1, row.steps + 1))


def test_what_is_open_at_the_end_is_revealed_by_one_more_call() -> None:
    net = at_once(3, SCRIPTS)
    (row,) = decode(net, [prompt()], steps=1)
    assert set(row.insert_step) == {1} and set(row.reveal_step) == {2}
    assert (row.steps, row.forwards, net.written) == (2, 2, [0, 3])
    (row,) = decode(about(1e-30), [prompt()], steps=5)
    assert row.token_ids == [] and row.segment == [] and (row.steps, row.forwards) == (5, 5)


# --- which segments --------------------------------------------------------------------------


@pytest.mark.parametrize("policy", SCORES)
def test_the_policy_says_which_open_segment_comes_first(policy: str) -> None:
    logs = [[math.log(p) for _, p in script] for script in SCRIPTS]
    scores = {place: SCORES[policy](place, each) for place, each in enumerate(logs)}
    order = sorted(scores, key=lambda place: -scores[place])
    assert order == ORDERS[policy]
    strict = 0
    for seed in range(8):
        (row,) = decode(at_once(4, SCRIPTS), [prompt()], seed, policy=policy, steps=9, **EARLY)
        found = segments_of(row)
        assert set(row.insert_step) == {1} and len(found) == 4
        reveals = [row.reveal_step[found[place][0]] for place in order]
        assert reveals == sorted(reveals)
        strict += len(set(reveals)) - 1
        for place, at in found.items():
            assert [row.token_ids[i] for i in at] == [t for t, _ in SCRIPTS[place][:-1]]
            assert [row.log_prob[i] for i in at] == pytest.approx(logs[place][:-1], abs=1e-5)
            recorded = math.nan if policy == "left_to_right" else scores[place]
            kept = [(row.score or [])[i] for i in at]
            assert kept == pytest.approx([recorded] * len(at), abs=1e-5, nan_ok=True)
    assert strict > 12  # they are not all revealed together


def test_a_random_order_does_not_prefer_old_slots_or_left_ones() -> None:
    """Of segments that are open together, each is revealed first equally often."""
    rows = decode(at_once(3), [prompt()] * 900, policy="random", steps=6, **EARLY)
    first = []
    for row in rows:
        reveals = [row.reveal_step[at[0]] for at in segments_of(row).values()]
        if len(reveals) == 3 and reveals.count(min(reveals)) == 1:
            first.append(reveals.index(min(reveals)))
    shares = np.bincount(first, minlength=3) / len(first)
    assert len(first) > 300 and abs(shares - 1 / 3).max() < 4 * (2 / 9 / len(first)) ** 0.5


def test_only_what_a_score_reads_is_written() -> None:
    for policy in ("left_to_right", "random"):
        net = about(6, SCRIPTS)
        rows = decode(net, [prompt(), prompt()], policy=policy, steps=20)
        segments = sum(len(segments_of(row)) for row in rows)
        tokens = sum(len(row.token_ids) for row in rows)
        assert sum(net.written) == segments > 4
        assert sum(net.headed) == tokens + segments  # each with its end, and nothing twice
    net = at_once(4, SCRIPTS)
    (row,) = decode(net, [prompt()], policy="first", steps=9, **EARLY)
    # One token of everything that is open, then the rest of what is taken.
    taken = [row.reveal_step.count(step) for step in range(1, row.steps + 1)]
    opened = [len({s for s, r in zip(row.segment or [], row.reveal_step, strict=True) if r >= step})
              for step in range(1, row.steps + 1)]  # fmt: skip
    assert net.headed == [n and o + n for n, o in zip(taken, opened, strict=True)]
    idle = [step for step, n in enumerate(taken) if not n]
    assert idle and all(net.written[step] == 0 for step in idle)


# --- what a segment may be -------------------------------------------------------------------


def test_no_segment_is_empty() -> None:
    """EOS has no chance to be the first token, however much the network wants it."""
    greedy = [[(EOS, 0.97), (EOS, 0.9)]]
    (row,) = decode(at_once(3, greedy), [prompt()], steps=1)
    assert len(segments_of(row)) == 3 == len(row.token_ids)
    assert row.log_prob == pytest.approx([math.log(1 / 3)] * 3, abs=1e-5)
    rows = decode(at_once(3, greedy), [prompt()] * 50, steps=1, temperature=1.5)
    assert all(len(segments_of(row)) == 3 for row in rows)
    tokens = {token for row in rows for token in row.token_ids}
    assert tokens == {0, 1, 2}


def test_a_segment_ends_when_it_is_full() -> None:
    (row,) = decode(at_once(2, [[(1, 0.9)]]), [prompt()], steps=1)
    assert row.token_ids == [1] * 10 and row.segment == [0] * 5 + [1] * 5


@pytest.mark.parametrize("counts", ["binomial", "poisson", "floor_bernoulli"])
def test_the_insertion_temperature_moves_segments_and_keeps_their_number(counts: Any) -> None:
    missing, nothing, samples = (0.4, 1.7, 0.9), [1e-30] * 40, 1500
    canvas = GrowingSegments((EOS,), ((2,), (2, 2)), (True, True, True), 40)
    first = {}
    for temperature in (0.5, 1.0, 2.0):
        net = Mock(lambda real, left: torch.tensor([[*missing, *nothing]])[:, : real.shape[1] + 1])
        rows = decode(
            net, [canvas] * samples, steps=1, counts=counts, insertion_temperature=temperature,
            policy="random",
        )  # fmt: skip
        numbers = np.array([len(segments_of(row)) - 2 for row in rows])
        assert abs(numbers.mean() - sum(missing)) < 4 * numbers.std() / samples**0.5 + 1e-9
        before = [(row.segment or [])[row.insert_step.index(0)] for row in rows]
        first[temperature] = np.mean(before)
    assert first[0.5] < first[1.0] - 0.04 < first[2.0] - 0.08
    assert abs(first[1.0] - missing[0]) < 0.08


# --- records ---------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["average", "random"])
def test_candidates_are_recorded_by_the_segments_of_the_final_text(policy: str) -> None:
    canvas = GrowingSegments((EOS,), ((2,),), (True, True), 6)
    moved = 0
    for seed in range(4):
        (row,) = decode(about(5, SCRIPTS), [canvas], seed, policy=policy, steps=10, candidates=True)
        (plain,) = decode(about(5, SCRIPTS), [canvas], seed, policy=policy, steps=10)
        assert (plain.token_ids, plain.candidates) == (row.token_ids, None)
        found = segments_of(row)
        when = {n: (row.insert_step[at[0]], row.reveal_step[at[0]]) for n, at in found.items()}
        assert row.candidates is not None
        expected = [
            (step, n)
            for step in range(1, row.steps + 1)
            for n, (insert, reveal) in when.items()
            if insert < step <= reveal
        ]
        assert [(each.step, each.segment) for each in row.candidates] == expected
        for each in row.candidates:
            assert each.taken == (when[each.segment][1] == each.step)
            assert math.isnan(each.score) == (policy == "random")
            if each.taken:
                assert each.token_ids == [row.token_ids[i] for i in found[each.segment]]
        born = [insert for insert, _ in when.values()]
        moved += born != sorted(born)
        trace = Trace.from_tokens(
            VOCAB,
            row.token_ids,
            prompt_ids=canvas.ids[: canvas.prompt_length],
            insert_step=row.insert_step,
            reveal_step=row.reveal_step,
            steps=row.steps,
            segment=row.segment,
            score=row.score,
            candidates=row.candidates,
        )
        assert len(trace.candidates or ()) == len(row.candidates)
    assert moved  # numbers of slots and of final segments differed


# --- refusals --------------------------------------------------------------------------------


def test_broken_networks_end_in_an_error() -> None:
    for value in (math.nan, -1.0):  # the log of a negative number is none
        net = Mock(lambda real, left, value=value: value + 0 * left)
        with pytest.raises(ValueError, match="gaps are not numbers"):
            decode(net, [prompt()], steps=4)
    with pytest.raises(ValueError, match="not finite"):
        decode(at_once(2, [[(0, math.nan)]]), [prompt()], steps=4)


def test_canvases_that_cannot_be_filled_are_refused() -> None:
    options = FlexLatentOptions()
    with pytest.raises(ValueError, match="no gap"):
        flexlatent.check([replace(INFILL, grows=(False,) * 5)], options)
    with pytest.raises(ValueError, match="freeze fewer"):
        flexlatent.check([replace(INFILL, room=0)], options)
    flexlatent.check([INFILL], FlexLatentOptions(slots=8))
    with pytest.raises(ValueError, match="may have 8 segments"):
        flexlatent.check([INFILL], FlexLatentOptions(slots=7))
    with pytest.raises(ValueError, match="at most 5"):
        decode(about(2), [replace(prompt(), segments=((1,) * 6,), grows=(True, True))])
    with pytest.raises(ValueError, match="mask id"):
        decode(about(2), [prompt(VOCAB.mask_id)])
