"""The ask-again corrector of flexmdm: on perfect networks, on networks set by hand, in traces."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flex_mocks import ANCHOR, INFILL, VOCAB, Mock
from hypothesis import given
from hypothesis import strategies as st
from insertion_space import generic_data
from rapidfuzz.distance import Levenshtein
from replay_support import placed_by, whole
from torch import Tensor

import anyorder
from anyorder.data.corpora.stories import StoriesConfig, problem
from anyorder.decode.canvas import Decoded, GrowingCanvas
from anyorder.families.flexmdm import decode as flexmdm
from anyorder.families.flexmdm.config import FlexOptions
from anyorder.families.flexmdm.correct import (
    END,
    Answer,
    CorrectionRule,
    Review,
    TextItem,
    VisitedText,
    Visits,
    correct,
    correct_tokens,
    review,
    slots_of,
)
from anyorder.families.flexmdm.history import Move, TextHistory
from anyorder.families.replay import flex_reader
from anyorder.model import Model
from anyorder.nets.oracles import InsertionOracle
from anyorder.report.traces import LiveSteps
from anyorder.trace import Trace
from anyorder.trace.events import spelled, spelled_ghosts
from anyorder.trace.table import from_batch, read_traces, to_table, write_traces

Word = tuple[int, ...]
Law = Mapping[Word, float]

CANVAS = GrowingCanvas((ANCHOR,), (True,), 60)


def finished(ids: Sequence[int], steps: int = 9) -> Decoded:
    """A row as decoding leaves it: inserted from the left, revealed in the last step."""
    count = len(ids)
    return Decoded(
        token_ids=list(ids),
        insert_step=[min(i + 1, steps) for i in range(count)],
        reveal_step=[steps] * count,
        log_prob=[-0.5] * count,
        steps=steps,
        forwards=steps,
        ties=0,
        times=[i / 10 for i in range(steps)],
    )


def corrected(net: Any, words: Sequence[Word], rounds: int = 30, room: int = 60) -> list[Decoded]:
    canvas = replace(CANVAS, room=room)
    rows = [finished(word) for word in words]
    return correct_tokens(net, VOCAB, [canvas] * len(rows), rows, rounds)


def oracle(law: Law) -> InsertionOracle:
    return InsertionOracle(law, VOCAB.mask_id, VOCAB.size)


def few(number: int, longest: int, seed: int) -> dict[Word, float]:
    """A law on a few strings of very different probabilities."""
    noise = np.random.default_rng(seed)
    strings = [x for n in range(longest + 1) for x in itertools.product(range(3), repeat=n)]
    chosen = noise.choice(len(strings), number, replace=False)
    weights = noise.exponential(size=number) ** 4 + 1e-6
    return {strings[i]: float(w) for i, w in zip(chosen, weights / weights.sum(), strict=True)}


FREE_VARIATION = 0.488

# --- perfect networks ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("number", [3, 12])
def test_a_possible_text_never_becomes_impossible(number: int, seed: int) -> None:
    law = few(number, 5, seed)
    rows = corrected(oracle(law), list(law))
    assert {tuple(row.token_ids) for row in rows} <= law.keys()


def shorter(law: Law) -> list[Word]:
    """Every text of which something is missing and that is not itself possible."""
    lacks = {tuple(w[:i] + w[i + 1 :]) for w in law for i in range(len(w))}
    return sorted(lacks - law.keys())


def test_a_text_that_lacks_a_token_gets_it() -> None:
    law = {(0, 1, 2, 0, 1): 0.5, (2, 2, 0, 0, 1): 0.3, (1, 1, 1, 2, 2): 0.2}
    rows = corrected(oracle(law), shorter(law))
    assert {tuple(row.token_ids) for row in rows} == law.keys()


def pushed(law: Law) -> dict[Word, float]:
    """The law of the corrected text, exactly: the corrector draws nothing."""
    result: dict[Word, float] = {}
    for probability, row in zip(law.values(), corrected(oracle(law), list(law)), strict=True):
        text = tuple(row.token_ids)
        result[text] = result.get(text, 0.0) + probability
    return result


def total_variation(left: Law, right: Law) -> float:
    texts = left.keys() | right.keys()
    return sum(abs(left.get(x, 0.0) - right.get(x, 0.0)) for x in texts) / 2


def test_the_law_that_it_leaves() -> None:
    """The numbers of docs/flexmdm.md: it moves short, free texts far, and sure ones not at all."""
    free = generic_data(3, 3)
    assert total_variation(pushed(free), free) == pytest.approx(FREE_VARIATION, abs=5e-4)
    apart = {(0, 1, 2, 0, 1): 0.5, (2, 2, 0, 0, 1): 0.3, (1, 1, 1, 2, 2): 0.2}
    assert total_variation(pushed(apart), apart) == 0


# --- networks set by hand --------------------------------------------------------------------


class ByHand:
    """An `Asker` that knows the word that should be there, and follows the edit distance to it."""

    rule = CorrectionRule()

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted

    def time(self, left: float) -> float:
        return 1 - left

    def missing(self, texts: Sequence[VisitedText], left: Sequence[float]) -> list[list[float]]:
        return [self._gaps(spelled_text(text)) for text in texts]

    def _gaps(self, word: str) -> list[float]:
        """One is expected where some token leads closer."""
        now = self._far(word)
        return [
            0.9 if min(self._far(word[:i] + x + word[i:]) for x in "abc") < now else 0.01
            for i in range(len(word) + 1)
        ]

    def again(self, masked: Sequence[tuple[VisitedText, int]]) -> list[Answer]:
        found = []
        for text, place in masked:
            word = spelled_text(text)
            far = {x: self._far(word[:place] + x + word[place + 1 :]) for x in "abc"}
            best = min(far, key=lambda x: far[x])
            own = -0.02 if far.get(word[place], 99) == far[best] else -8.0
            found.append(Answer(own, -0.02, ("abc".index(best),), (-0.02,)))
        return found

    def _far(self, word: str) -> int:
        return int(Levenshtein.distance(word, self.wanted))


def spelled_text(text: VisitedText) -> str:
    return "".join("abc"[ids[0]] if ids else "?" for ids in text.content)


def text_of(word: str, room: int = 9, frozen: Sequence[int] = ()) -> VisitedText:
    items = [
        TextItem(("abc".index(letter),), frozen=place in frozen)
        for place, letter in enumerate(word)
    ]
    return VisitedText(0, tuple(items), room)


def best_text(path: Visits, start: VisitedText) -> str:
    text = start
    for move in path.moves[: path.best]:
        text = text.after(move)
    return spelled_text(text)


@pytest.mark.parametrize(
    ("word", "kinds"),
    [
        ("abcab", []),
        ("abab", ["insert"]),
        ("abcb", ["insert"]),
        ("abcaa", ["replace"]),
        ("aabcab", ["delete"]),
    ],
)
def test_one_change_at_a_time(word: str, kinds: list[str]) -> None:
    start = text_of(word)
    (path,) = correct(ByHand("abcab"), [start], 9)
    assert [move.kind for move in path.moves[: path.best]] == kinds
    assert best_text(path, start) == "abcab"


def test_frozen_items_and_full_texts_stay() -> None:
    (path,) = correct(ByHand("abcab"), [text_of("abcaa", frozen=range(5))], 9)
    assert path.text.items[-5:] == text_of("abcaa", frozen=range(5)).items
    (path,) = correct(ByHand("abcab"), [text_of("abab", room=0)], 9)
    assert all(move.kind != "insert" for move in path.moves[:1])
    closed = text_of("abcaa", frozen=range(5))
    items = tuple(item._replace(grows=False) for item in closed.items)
    (path,) = correct(ByHand("babcaac"), [closed._replace(items=items)], 9)
    assert path.text.items == (TextItem((1,)), *items)  # only the first gap is open


class Turning(ByHand):
    """Always prefers another token at the first place, and likes all texts alike."""

    def missing(self, texts: Sequence[VisitedText], left: Sequence[float]) -> list[list[float]]:
        # Nothing is missing in a text of five, and all that is deleted is wanted back.
        return [[0.01 if len(t.items) == 5 else 0.9] * (len(t.items) + 1) for t in texts]

    def again(self, masked: Sequence[tuple[VisitedText, int]]) -> list[Answer]:
        return [
            Answer(-0.1 if place else -3.0, -0.1, ((text.items[place].ids[0] + 1) % 3,), (-0.1,))
            for text, place in masked
        ]


def test_it_does_not_run_in_circles() -> None:
    asker, start = Turning("abcab"), text_of("abcab")
    (path,) = correct(asker, [start], 1000)
    assert [move.kind for move in path.moves] == ["replace"] * 2  # the third would lead back
    assert path.best == 0 and best_text(path, start) == "abcab"


def test_the_limit_and_the_calls() -> None:
    asker, start = Turning("abcab"), text_of("abcab")
    (path,) = correct(asker, [start], 1)
    assert len(path.moves) == 1
    again, (whole,) = path.asked, review(asker, [start])
    assert again == 2 * whole.asked  # two texts of one length
    assert whole.asked == 2 + 5 + 5  # the text at two clocks, each token masked, each deleted


def test_the_first_of_equal_texts_is_the_best() -> None:
    path = Visits(text_of("ab"))
    for score in (-2.0, -2.0 + 1e-4, -1.0, -1.5):
        path.judge(Review(score, None, 1))
        path.moves.append(Move("delete", 0, (0.5,)))
    assert (path.best, path.score) == (2, -1.0)


def test_a_text_below_every_threshold_stays_bit_for_bit() -> None:
    law = {(0, 1, 2, 0, 1): 0.5, (2, 2, 0, 0, 1): 0.5}
    for word, row in zip(law, corrected(oracle(law), list(law)), strict=True):
        assert replace(row, forwards=0) == replace(finished(word), forwards=0)
        assert row.forwards > 9


# --- traces ---------------------------------------------------------------------------------


@given(st.data())
def test_random_changes_replay_to_the_texts(data: st.DataObject) -> None:
    """Whatever changes: every snapshot is the text of its step, and files keep it."""
    word = data.draw(st.lists(st.integers(0, 2), max_size=5))
    row = finished(word)
    history = TextHistory(row, slots_of(row), VOCAB.mask_id)
    text, shown = VisitedText(0, tuple(TextItem((token,)) for token in word), 9), [list(word)]
    for _ in range(data.draw(st.integers(0, 6))):
        kinds = ["insert", "delete", "replace"] if text.items else ["insert"]
        kind = data.draw(st.sampled_from(kinds))
        place = data.draw(st.integers(0, len(text.items) - (kind != "insert")))
        token = data.draw(st.integers(0, 2))
        written = () if kind == "delete" else (token,)
        move = Move(kind, place, (0.5, 0.9)[: 1 + len(written)], written, (-0.25,) * len(written))
        before, text = [ids[0] for ids in text.content], text.after(move)
        steps = [each.token_ids for each in history.make(move)]
        after = [ids[0] for ids in text.content]
        masked = before if kind == "replace" else after
        masked = [*masked[:place], VOCAB.mask_id, *masked[place + 1 :]]
        assert steps == ([after] if kind == "delete" else [masked, after])
        shown += steps
    trace = traced(CANVAS, history.row())
    assert trace.steps == row.steps + len(shown) - 1 == len(trace.times)  # type: ignore[arg-type]
    for step, ids in enumerate(shown, row.steps):
        assert trace.replay(step).ids(VOCAB.mask_id).tolist() == ids
    (again,) = (each for batch in to_table([trace]).to_batches() for each in from_batch(batch))
    assert again == trace


def traced(canvas: GrowingCanvas, row: Decoded) -> Trace:
    return Trace.from_tokens(
        VOCAB,
        row.token_ids,
        prompt_ids=canvas.ids[: canvas.prompt_length],
        insert_step=row.insert_step,
        reveal_step=row.reveal_step,
        steps=row.steps,
        log_prob=row.log_prob,  # type: ignore[arg-type]
        events=spelled(VOCAB, row.changes),
        ghosts=spelled_ghosts(VOCAB, row.ghosts) or None,
        times=row.times,
    )


STORIES = [problem(StoriesConfig(0, "heldout", 1.0), index).prompt for index in (0, 2)]
ROUGH: dict[str, Any] = {"steps": 24, "temperature": 1.0}
"""So few steps that the text needs all kinds of changes."""


@pytest.fixture(scope="module")
def model() -> Model:
    return anyorder.load("flexmdm")


@pytest.fixture(scope="module")
def stories(model: Model) -> list[Trace]:
    return model.sample(STORIES, correct=12, **ROUGH)


def test_corrections_follow_the_decoding(model: Model, stories: list[Trace]) -> None:
    kinds = set[str]()
    for before, trace in zip(model.sample(STORIES, **ROUGH), stories, strict=True):
        steps, mask = before.steps or 0, model.vocab.mask_id
        made = [change for change in trace.changes() if change.step > steps]
        kinds |= {change.kind for change in made}
        assert trace.replay(steps).ids(mask).tolist() == before.replay(steps).ids(mask).tolist()
        assert trace.times is not None and before.times is not None
        assert len(trace.times) == trace.steps and (trace.times[:steps] == before.times).all()
        assert (trace.forwards or 0) > (before.forwards or 0) + 2 * len(before.pieces)
        # One change at a time: a step deletes, opens, masks or reveals one slot.
        opened = [step for step in _births(trace) if step > steps]
        assert sorted([*opened, *(change.step for change in made)]) == list(
            range(steps + 1, (trace.steps or 0) + 1)
        )
    assert kinds == {"reveal", "mask", "delete"}


def _births(trace: Trace) -> list[int]:
    ghosts = [ghost.insert_step for ghost in trace.ghosts or ()]
    return [*trace.timing()[0].tolist(), *ghosts]


def test_a_batch_equals_its_rows_alone(model: Model, stories: list[Trace]) -> None:
    (alone,) = model.sample(STORIES[0], correct=12, **ROUGH)
    together = stories[0]
    for name in ("text", "steps", "forwards", "events", "ghosts"):
        assert getattr(alone, name) == getattr(together, name)
    assert (alone.insert_step == together.insert_step).all()  # type: ignore[union-attr]
    assert (alone.reveal_step == together.reveal_step).all()  # type: ignore[union-attr]


def test_each_step_is_seen_as_the_trace_replays_it(model: Model, stories: list[Trace]) -> None:
    seen = list[Decoded]()
    (trace,) = model.sample(STORIES[1], correct=12, watch=seen.extend, **ROUGH)
    assert trace.text == stories[1].text
    assert [each.step for each in seen] == list(range(1, (trace.steps or 0) + 1))
    live = LiveSteps(model.vocab)
    for each in seen:
        live.messages(each)  # which refuses canvases that do not follow from each other
        assert each.token_ids == trace.replay(each.step).ids(model.vocab.mask_id).tolist()


def test_traces_through_files(stories: list[Trace], tmp_path: Path) -> None:
    assert any(trace.ghosts for trace in stories) and any(trace.events for trace in stories)
    write_traces(tmp_path / "traces.parquet", stories)
    assert list(read_traces(tmp_path / "traces.parquet", remedy="")) == stories
    for trace in stories:
        again = Trace.from_jsonl(trace.to_jsonl())
        for step in range((trace.steps or 0) + 1):
            assert again.replay(step).text() == trace.replay(step).text()


def test_the_network_is_asked_again_where_it_decided(model: Model, stories: list[Trace]) -> None:
    """Tokens that the corrector wrote have the probabilities of their traces."""
    reader = flex_reader(model.net, model.vocab, model.choose(ROUGH, []))
    written = 0
    for moment, found in placed_by(reader, [whole(trace) for trace in stories]):
        known = ~np.isnan(moment.log_prob)
        assert np.log(found.committed)[known] == pytest.approx(moment.log_prob[known], abs=1e-4)
        written += int(known.sum()) if moment.time == pytest.approx(1 - END, abs=1e-9) else 0
    assert written > 5


class Restless(Mock):
    """Wants nothing that is there: nearly no token, and another one everywhere."""

    def __init__(self) -> None:
        super().__init__(lambda ids, mask, left: 0.2 * left + 0 * ids, self.first)

    def first(self, place: Tensor) -> Tensor:
        return torch.tensor([2.0] + [0.0] * (VOCAB.size - 1)).repeat(len(place), 1)


def test_given_text_is_never_changed() -> None:
    frozen = list(INFILL.ids[INFILL.prompt_length :])
    made = finished([1, 2, *frozen[:2], 2, 2, 1, frozen[2]])
    for place in (2, 3, 7):
        made.insert_step[place] = made.reveal_step[place] = 0
    (row,) = correct_tokens(Restless(), VOCAB, [INFILL], [made], 9)
    places = [place for place, step in enumerate(row.insert_step) if step == 0]
    assert [row.token_ids[place] for place in places] == frozen
    assert not set(places) & {change.slot for change in row.changes}
    assert all(ghost.insert_step > 0 for ghost in row.ghosts)
    assert row.token_ids == frozen and len(row.ghosts) == 5  # all others are gone


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"correct": -1}, "correct=-1: give the most corrections of a text, or 0 for none"),
        ({"correct": 3, "mode": "compat"}, "correct has no effect in mode compat"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        flexmdm.resolve(FlexOptions(**options))
