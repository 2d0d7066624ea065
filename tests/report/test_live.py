"""Live messages: applied one after another they give every canvas that the decoder showed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from plain_canvases import MASK, canvases

from anyorder.report.traces import LiveSteps
from anyorder.trace import Ghost, Trace, slot_history
from anyorder.vocab import Vocab

VOCAB = Vocab.bytes()


@dataclass
class Canvas:
    """What a decoder shows; `segment` where it reveals segments."""

    step: int
    token_ids: list[int]
    insert_step: list[int]
    log_prob: list[float] = field(default_factory=list)
    segment: list[int] | None = None
    reveal_step: list[int] = field(default_factory=list)
    ghosts: list[Ghost] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log_prob = self.log_prob or [math.nan] * len(self.token_ids)
        self.reveal_step = self.reveal_step or [0] * len(self.token_ids)


def apply(canvas: list[Any], message: dict[str, Any]) -> list[Any]:
    """The message on a canvas of pieces (None: masked), in the documented order."""
    canvas = list(canvas)
    old = [(at, [piece for piece, _ in tokens]) for at, tokens in message.get("replace", [])]
    old += [(at, []) for at in message.get("delete", [])]
    for at, pieces in sorted(old, reverse=True):
        canvas[at : at + 1] = pieces
    for at in message.get("insert", []):
        canvas.insert(at, None)
    for at, piece, _ in message.get("show", []):
        canvas[at] = piece
    for at in message.get("hide", []):
        canvas[at] = None
    return canvas


def only(live: LiveSteps, seen: Canvas) -> dict[str, Any]:
    (message,) = live.messages(seen)
    return message


def ids(text: str) -> list[int]:
    """Letters as ids, `_` as the mask, `$` as the end of sequence."""
    special = {"_": VOCAB.mask_id, "$": VOCAB.eos_id}
    return [special.get(letter, letter.encode()[0]) for letter in text]


@st.composite
def generations(draw: st.DrawFn) -> list[Canvas]:
    """Slots inserted and revealed at any steps, as a decoder shows them step by step."""
    steps = draw(st.integers(0, 6))
    count = draw(st.integers(0, 8))
    spans = [sorted(draw(st.tuples(*[st.integers(0, steps)] * 2))) for _ in range(count)]
    tokens = [draw(st.sampled_from(ids("abc$"))) for _ in range(count)]
    shown = []
    for step in range(steps + 1):
        here = [slot for slot in range(count) if spans[slot][0] <= step]
        open_ids = [tokens[s] if spans[s][1] <= step else VOCAB.mask_id for s in here]
        reveal = [spans[s][1] if spans[s][1] <= step else 0 for s in here]
        insert = [spans[slot][0] for slot in here]
        shown.append(Canvas(step, open_ids, insert, reveal_step=reveal))
    return shown


@given(generations())
def test_messages_rebuild_every_canvas(shown: list[Canvas]) -> None:
    live, canvas = LiveSteps(VOCAB), []
    for seen in shown:
        (message,) = live.messages(seen)
        assert message["step"] == seen.step
        canvas = apply(canvas, message)
        assert [piece is None for piece in canvas] == [
            number == VOCAB.mask_id for number in seen.token_ids
        ]
    last = shown[-1]
    trace = Trace.from_tokens(
        VOCAB,
        last.token_ids,
        prompt_ids=[],
        insert_step=[0] * len(last.token_ids),
        reveal_step=[0] * len(last.token_ids),
    )
    assert canvas == list(trace.pieces)


@given(generations())
def test_the_start_is_told_by_the_first_step(shown: list[Canvas]) -> None:
    whole, late = LiveSteps(VOCAB), LiveSteps(VOCAB)
    told = [message for seen in shown for message in whole.messages(seen)]
    assert [message for seen in shown[1:] for message in late.messages(seen)] == (
        told if shown[1:] else []
    )


@given(canvases(), st.booleans())
def test_slots_may_be_deleted(history: list[Any], late: bool) -> None:
    """The decoder's rows after each step, as it would record them."""
    letters = {MASK: VOCAB.mask_id, **{token: ids("abcdef")[token] for token in range(6)}}
    live, canvas = LiveSteps(VOCAB), []
    for step in range(late, len(history)):
        found = slot_history(history[: step + 1], MASK)
        seen = Canvas(
            step,
            [letters[token] for token in found.token_ids],
            found.insert_step,
            reveal_step=found.reveal_step,
            ghosts=[
                ghost
                if ghost.token_id is None
                else ghost._replace(token_id=letters[ghost.token_id])
                for ghost in found.ghosts
            ],
        )
        for message in live.messages(seen):
            canvas = apply(canvas, message)
        text = "".join("_" if token == MASK else "abcdef"[token] for _, token in history[step])
        assert "".join(piece or "_" for piece in canvas) == text


def test_segments_may_be_deleted() -> None:
    live = LiveSteps(VOCAB)
    only(live, Canvas(0, ids("__"), [0, 0], segment=[0, 1]))
    only(live, Canvas(1, ids("ab_"), [0, 0, 0], segment=[0, 0, 1]))
    gone = [Ghost(-1, 0, 1, 2, 97, None), Ghost(-1, 0, 1, 2, 98, None)]
    message = only(live, Canvas(2, ids("xyz"), [0, 0, 0], segment=[0, 0, 0], ghosts=gone))
    assert message == {
        "step": 2,
        "replace": [[2, [["x", -1], ["y", -1], ["z", -1]]]],
        "delete": [0, 1],
    }
    assert apply(["a", "b", None], message) == ["x", "y", "z"]
    with pytest.raises(ValueError, match="one that deletes slots `ghosts`"):
        only(live, Canvas(3, [], [], segment=[]))


def test_nothing_is_said_of_what_stays() -> None:
    live = LiveSteps(VOCAB)
    first = only(live, Canvas(0, ids("a__"), [0, 0, 0]))
    assert first == {"step": 0, "insert": [0, 1, 2], "show": [[0, "a", -1]]}
    second = only(live, Canvas(1, ids("a_bc"), [0, 0, 1, 0], [math.nan, math.nan, -0.5, -2.0]))
    assert second == {"step": 1, "insert": [2], "show": [[2, "b", 500], [3, "c", 2000]]}
    assert only(live, Canvas(2, ids("a_bc"), [0, 0, 1, 0])) == {"step": 2}
    assert only(live, Canvas(3, ids("a_b_"), [0, 0, 1, 0])) == {"step": 3, "hide": [3]}


def test_what_stands_after_the_end_has_no_text() -> None:
    live = LiveSteps(VOCAB)
    only(live, Canvas(0, ids("___"), [0, 0, 0]))
    assert only(live, Canvas(1, ids("_$b"), [0, 0, 0]))["show"] == [[1, "", -1], [2, "", -1]]
    assert only(live, Canvas(2, ids("a$b"), [0, 0, 0]))["show"] == [[0, "a", -1]]


def test_what_stands_after_an_end_that_may_change_is_shown() -> None:
    live = LiveSteps(VOCAB, cuts=False)
    only(live, Canvas(0, ids("___"), [0, 0, 0]))
    assert only(live, Canvas(1, ids("a$b"), [0, 0, 0]))["show"] == [
        [0, "a", -1],
        [1, "", -1],
        [2, "b", -1],
    ]


def test_a_character_of_two_bytes_waits_for_its_second() -> None:
    live = LiveSteps(VOCAB)
    first, second = "é".encode()
    only(live, Canvas(0, ids("__"), [0, 0]))
    assert only(live, Canvas(1, [first, *ids("_")], [0, 0]))["show"] == [[0, "\ufffd", -1]]
    assert only(live, Canvas(2, [first, second], [0, 0]))["show"] == [[0, "é", -1], [1, "", -1]]


def test_segments_are_replaced_by_their_tokens() -> None:
    live, canvas = LiveSteps(VOCAB), []
    shown = [
        Canvas(0, ids("__"), [0, 0], segment=[0, 1]),
        Canvas(1, ids("_xy"), [0, 0, 0], segment=[0, 1, 1]),
        Canvas(2, ids("_abxy"), [2, 0, 0, 0, 0], segment=[0, 1, 1, 2, 2]),
        Canvas(3, ids("$abxy"), [2, 0, 0, 0, 0], segment=[0, 1, 1, 2, 2]),
    ]
    messages = [only(live, seen) for seen in shown]
    assert messages[1] == {"step": 1, "replace": [[1, [["x", -1], ["y", -1]]]]}
    assert messages[2] == {"step": 2, "replace": [[0, [["a", -1], ["b", -1]]]], "insert": [0]}
    for message in messages:
        canvas = apply(canvas, message)
    assert canvas == ["", "a", "b", "x", "y"]


def test_segments_that_came_in_the_first_step_were_open_before() -> None:
    shown = Canvas(1, ids("ab_xy"), [0] * 5, segment=[0, 0, 1, 2, 2], reveal_step=[1, 1, 0, 0, 0])
    start, first = LiveSteps(VOCAB).messages(shown)
    assert apply([], start) == [None, None, "x", "y"]
    assert apply(apply([], start), first) == ["a", "b", None, "x", "y"]


def test_a_canvas_that_does_not_fit_is_refused() -> None:
    live = LiveSteps(VOCAB)
    only(live, Canvas(0, ids("__"), [0, 0]))
    with pytest.raises(ValueError, match="must say `segment`"):
        only(live, Canvas(1, ids("abc_"), [0, 0, 0, 0]))
