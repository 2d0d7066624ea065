"""flexlatent with the perfect network: the law of the data, over numbers of segments and segments.

Segments are the letters of the words whose exact sampling laws insertion_laws.py pushes through the
kernel of flexmdm, so the real sampler of segments is held against the law of its own number of
steps, which is far from the data's, and against the data's where it must have that. Variants that
are wrong on purpose show that these tests would notice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from insertion_event_laws import EventLaw
from insertion_laws import Rule, output_law
from insertion_space import Array, Asker, Space, generic_data
from scipy import stats
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingSegments
from anyorder.decode.growing import END, RISE
from anyorder.families.flexlatent import decode as flexlatent
from anyorder.families.flexlatent.config import FlexLatentOptions
from anyorder.families.latentmdm import candidates
from anyorder.families.latentmdm.candidates import Candidates
from anyorder.nets.denoiser import ReadPrompt, SegmentLook
from anyorder.nets.oracles import Segment, SegmentInsertionOracle
from anyorder.process.noise import key_of, uniform
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c"])
LONGEST = 3
SEGMENTS: list[Segment] = [(0,), (0, 1), (2, 1, 0)]  # sorted: letters 0, 1, 2
LETTERS = generic_data(3, LONGEST)
DATA = {tuple(SEGMENTS[letter] for letter in word): p for word, p in LETTERS.items()}
SPACE = Space(3, LONGEST)
CARRIED = 2.89 / 1.7 * 2.9  # B(Gamma(t)) with Gamma's exponent 2.9
SAMPLES = 2500


def oracle() -> SegmentInsertionOracle:
    return SegmentInsertionOracle(DATA, VOCAB.eos_id, VOCAB.size)


def asker(net: SegmentInsertionOracle) -> Asker:
    assert net.segments == SEGMENTS
    return Asker(net.oracle, SPACE)


def decoded(net: Any, options: FlexLatentOptions, samples: int = SAMPLES) -> list[Decoded]:
    canvas = GrowingSegments((VOCAB.eos_id,), (), (True,), room=LONGEST)
    keys = [key_of(3, i) for i in range(samples)]
    return flexlatent.decode(net, VOCAB, [canvas] * samples, keys, options)


def word_of(row: Decoded) -> tuple[Segment, ...]:
    """The segments of a row, by its own account of which token belongs where."""
    assert row.segment is not None and row.segment == sorted(row.segment)
    found: dict[int, list[int]] = {}
    for token, segment in zip(row.token_ids, row.segment, strict=True):
        found.setdefault(segment, []).append(token)
    assert list(found) == list(range(len(found)))
    return tuple(tuple(each) for each in found.values())


def chi_square(observed: Array, expected: Array) -> float:
    """The p-value; the rarest outcomes count as one."""
    order = np.argsort(expected)
    observed, expected = observed[order], expected[order]
    rare = int(np.searchsorted(expected, 5.0))
    rare = max(rare, int(np.searchsorted(expected.cumsum(), 5.0)) + 1)
    pooled = [np.append(each[rare:], each[:rare].sum()) for each in (observed, expected)]
    return float(stats.chisquare(*pooled).pvalue)


def p_value(rows: Sequence[Decoded], law: Array | None = None) -> float:
    """Of the words that came out against a law over letters; None: the data's."""
    law = SPACE.vector(LETTERS) if law is None else law
    seen = Counter(tuple(SEGMENTS.index(s) for s in word_of(row)) for row in rows)
    observed = np.array([seen[z] for z in SPACE.strings], dtype=float)
    assert observed.sum() == len(rows) and observed[law == 0].sum() == 0
    return chi_square(observed, law * len(rows))


# --- right ones ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["random", "left_to_right"])
def test_one_thing_at_a_time_has_the_law_of_the_data(policy: str) -> None:
    net = oracle()
    rows = decoded(net, FlexLatentOptions(policy=policy, clock="events", temperature=1.0))
    assert p_value(rows) > 1e-3
    lengths = Counter(len(word_of(row)) for row in rows)
    assert set(lengths) == {0, 1, 2, 3}  # and chi-square compares their shares as well
    for row in rows[:500]:
        at = list(zip(row.segment or [], row.insert_step, row.reveal_step, strict=True))
        moments = [step for _, insert, reveal in set(at) for step in (insert, reveal)]
        before = [step for step in moments if step < row.steps]
        assert len(set(before)) == len(before)


def test_events_have_the_law_and_the_calls_of_their_kernel() -> None:
    net = oracle()
    options = {"policy": "random", "temperature": 1.0, "unmasking_schedule": "kept"}
    rows = decoded(net, FlexLatentOptions(clock="events", **options))  # type: ignore[arg-type]
    law = EventLaw(asker(net), Rule(insertion=2.9), cells=120, rise=RISE, end=END)
    assert p_value(rows, law.law) > 1e-3
    calls = np.array([row.forwards for row in rows])
    assert abs(calls.mean() - law.mean_calls) < 4 * calls.std() / SAMPLES**0.5 + 0.01


STEPWISE: dict[str, tuple[dict[str, Any], Rule]] = {
    "binomial": ({}, Rule(insertion=2.9, unmasking=CARRIED)),
    "poisson counts and quota": (
        {"counts": "poisson", "quota": "poisson", "unmasking_schedule": "kept"},
        Rule(insertion=2.9, counts="poisson", quota="poisson"),
    ),
    "floor, left": (
        {"counts": "floor_bernoulli", "hazard": "left", "unmasking_schedule": 1.0},
        Rule(insertion=2.9, unmasking=1.0, counts="floor_bernoulli", hazard="left"),
    ),
    "insertion temperature": (
        {"insertion_temperature": 0.5},
        Rule(insertion=2.9, unmasking=CARRIED, insertion_temperature=0.5),
    ),
    "candidates recorded": ({"candidates": True}, Rule(insertion=2.9, unmasking=CARRIED)),
}


@pytest.mark.parametrize(("options", "rule"), STEPWISE.values(), ids=STEPWISE)
def test_steps_have_the_law_of_their_kernel(options: dict[str, Any], rule: Rule) -> None:
    """Recorded candidates are written and verified in every step, and still have this law."""
    net, steps = oracle(), 5
    law = output_law(replace(rule, steps=steps), asker(net))
    chosen = FlexLatentOptions(policy="random", temperature=1.0, steps=steps, **options)
    rows = decoded(net, chosen)
    assert p_value(rows, law) > 1e-3
    assert p_value(rows) < 1e-9  # five steps are not enough, and it shows


@pytest.mark.parametrize("samples", [800, pytest.param(SAMPLES, marks=pytest.mark.long)])
def test_many_steps_have_the_law_of_the_data(samples: int) -> None:
    options = FlexLatentOptions(policy="random", temperature=1.0, steps=80)
    assert p_value(decoded(oracle(), options, samples)) > 1e-3
    assert p_value(decoded(oracle(), replace(options, steps=5), samples)) < 1e-4  # it can be seen


# --- wrong ones ------------------------------------------------------------------------------


def test_choosing_by_drawn_tokens_is_biased() -> None:
    """As the documentation says: likely segments come first, and that shows in the law."""
    late = FlexLatentOptions(clock="events", temperature=1.0, unmasking_schedule=0.5)
    assert p_value(decoded(oracle(), replace(late, policy="average"))) < 1e-9
    assert p_value(decoded(oracle(), replace(late, policy="random"))) > 1e-3


def test_a_segment_that_keeps_its_first_candidate_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def written_once(self: Candidates, row: Tensor, slot: Tensor, *rest: Any) -> None:
        new = self.length[row, slot] == 0
        self.extend(row[new], slot[new], rest[0][new], *rest[1:])

    monkeypatch.setattr(Candidates, "refresh", written_once)
    options = FlexLatentOptions(policy="random", clock="events", temperature=1.0, candidates=True)
    assert p_value(decoded(oracle(), options)) < 1e-9


def test_segments_that_share_their_noise_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(seed: int, stream: int, key: Tensor, slot: Tensor, *rest: Any) -> Tensor:
        return uniform(seed, stream, key, torch.zeros_like(slot), *rest)

    monkeypatch.setattr(candidates, "uniform", shared)
    options = FlexLatentOptions(policy="random", clock="events", temperature=1.0)
    assert p_value(decoded(oracle(), options)) < 1e-9


class Forgetful(SegmentInsertionOracle):
    """Says of every gap what is missing in the one before it."""

    def look(
        self, prompt: ReadPrompt, latents: Tensor, real: Tensor | None = None, *, time: Tensor
    ) -> SegmentLook:
        look = super().look(prompt, latents, real, time=time)
        return look._replace(gaps=torch.cat([look.gaps[:, :1], look.gaps[:, :-1]], dim=1))


def test_gaps_that_are_one_off_are_noticed() -> None:
    options = FlexLatentOptions(policy="random", clock="events", temperature=1.0)
    assert p_value(decoded(Forgetful(DATA, VOCAB.eos_id, VOCAB.size), options)) < 1e-9


# --- between frozen segments -----------------------------------------------------------------

A, B, HEAD, TAIL = (0,), (0, 1), (2,), (2, 2)
MIDDLES = generic_data(2, 3, seed=5)
FRAMED = {(HEAD, *((A, B)[letter] for letter in word), TAIL): p for word, p in MIDDLES.items()}
CASES = {
    "a suffix": GrowingSegments((VOCAB.eos_id,), (TAIL,), (True, False), 4),
    "a prefix": GrowingSegments((VOCAB.eos_id,), (HEAD,), (False, True), 4),
    "both": GrowingSegments((VOCAB.eos_id,), (HEAD, TAIL), (False, True, False), 3),
    "both and one between": GrowingSegments(
        (1, VOCAB.eos_id), (HEAD, B, TAIL), (False, True, True, False), 2
    ),
}


class Careless(SegmentInsertionOracle):
    """The perfect network, but for the closed gaps of a canvas: there it asks for many segments."""

    def __init__(self, canvas: GrowingSegments) -> None:
        super().__init__(FRAMED, VOCAB.eos_id, VOCAB.size)
        items = (None, *canvas.segments)
        closed = [item for item, grows in zip(items, canvas.grows, strict=True) if not grows]
        self.after_anchor = None in closed
        self.closed = [self.index[item] for item in closed if item is not None]

    def look(
        self, prompt: ReadPrompt, latents: Tensor, real: Tensor | None = None, *, time: Tensor
    ) -> SegmentLook:
        look = super().look(prompt, latents, real, time=time)
        is_closed = torch.isin(latents.argmax(dim=2), torch.tensor(self.closed, dtype=torch.int64))
        first = torch.full((len(latents), 1), self.after_anchor)
        return look._replace(gaps=look.gaps.masked_fill(torch.cat([first, is_closed], dim=1), 3.0))


def law_given(canvas: GrowingSegments) -> dict[tuple[Segment, ...], float]:
    """By enumeration of the places at which the frozen segments may stand."""
    inner = [segment for segment in canvas.segments if segment in (A, B)]
    weights = {word: p * (word.count(inner[0]) if inner else 1) for word, p in FRAMED.items()}
    return {word: p / sum(weights.values()) for word, p in weights.items() if p}


@pytest.mark.parametrize("canvas", CASES.values(), ids=CASES)
def test_frozen_segments_stay_and_the_rest_has_the_law_given_them(canvas: GrowingSegments) -> None:
    options = FlexLatentOptions(policy="random", clock="events", temperature=1.0)
    keys = [key_of(6, i) for i in range(1500)]
    rows = flexlatent.decode(Careless(canvas), VOCAB, [canvas] * len(keys), keys, options)
    law = law_given(canvas)
    seen: Counter[tuple[Segment, ...]] = Counter()
    for row in rows:
        assert row.segment is not None
        found: dict[int, list[int]] = {}
        for token, segment in zip(row.token_ids, row.segment, strict=True):
            found.setdefault(segment, []).append(token)
        # The frozen prefix is not among the tokens, but it is numbered.
        assert list(found) == list(range(canvas.prefix, canvas.prefix + len(found)))
        seen[(*canvas.segments[: canvas.prefix], *map(tuple, found.values()))] += 1
    assert set(seen) <= set(law)
    observed = np.array([seen[word] for word in law], dtype=float)
    assert chi_square(observed, np.array(list(law.values())) * len(rows)) > 1e-3
