"""Texts to canvases: prompts, gaps, and where the answer begins."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from anyorder.decode.canvas import Canvas, Frame, GrowingCanvas, Sizes, prefix_of
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c", " "])
A, B, C, SPACE = range(4)
ANCHOR: Frame = ((), (VOCAB.eos_id,))
RELEASE: Frame = ((90,), (91,))


@dataclass(frozen=True)
class Framed:
    """A network's shape, as far as a growing canvas looks at it."""

    ids: Frame

    def frame(self, vocab: Vocab) -> Frame:
        return self.ids


def canvas_of(
    text: str, slots: int, vocab: Vocab, trained: int | None = None, longest: int | None = None
) -> Canvas:
    return Canvas.of_text(text, Sizes(slots, longest, trained=trained), vocab)


def growing(text: str, frame: Frame = ANCHOR) -> GrowingCanvas:
    return GrowingCanvas.of_text(text, Sizes(9, None), VOCAB, Framed(frame))


def grown(text: str, frame: Frame = ANCHOR) -> tuple[list[int], list[int]]:
    """The ids, and the places whose gaps grow."""
    canvas = growing(text, frame)
    assert canvas.room == 9 and len(canvas.grows) == len(canvas.ids)
    return list(canvas.ids), [i for i, grows in enumerate(canvas.grows) if grows]


END = VOCAB.eos_id


@pytest.mark.parametrize(
    ("text", "ids", "grows"),
    [
        ("ab", [A, B, END], [2]),
        ("ab<fill>", [A, B, END], [2]),
        ("ab<answer>", [A, B, END], [2]),
        ("ab<answer>c", [A, B, END, C], [3]),
        ("ab<answer><fill>c", [A, B, END, C], [2]),
        ("ab<answer>c<fill>a", [A, B, END, C, A], [3]),
        ("ab<fill>c<fill>a", [A, B, END, C, A], [2, 3]),
        ("ab<fill><fill>c", [A, B, END, C], [2]),
        ("a<answer>b<fill>c<fill>", [A, END, B, C], [2, 3]),
        ("<fill>", [VOCAB.bos_id, END], [1]),
        ("", [VOCAB.bos_id, END], [1]),
    ],
)
def test_growing_canvases(text: str, ids: list[int], grows: list[int]) -> None:
    assert grown(text) == (ids, grows)


def test_a_frame_stands_around_the_prompt_only() -> None:
    assert grown("ab<answer>c<fill>a", RELEASE) == ([90, A, B, 91, C, A], [4])
    assert growing("ab<answer>c<fill>a", RELEASE).prompt_length == 5


def test_behind_an_answer_with_gaps_stands_what_stood_there_in_training() -> None:
    text = "ab<answer>c<fill:2>a"
    plain = canvas_of(text, 5, VOCAB)
    assert canvas_of(text, 5, VOCAB, trained=6) == plain.followed_by([VOCAB.eos_id] * 2)
    assert canvas_of(text, 5, VOCAB, trained=6, longest=7) == plain.followed_by([VOCAB.eos_id])
    assert canvas_of(text, 5, VOCAB, trained=6, longest=6) == plain
    with pytest.raises(ValueError, match="do not fit on a canvas of 3"):
        canvas_of(text, 5, VOCAB, trained=6, longest=3)
    assert canvas_of(text, 5, VOCAB, trained=4) == canvas_of(text, 5, VOCAB, trained=2) == plain
    # Where it begins, and so where it ends, is not said; or a prompt is to be continued.
    for other in ("abc<fill:2>a", "ab<answer>", "ab"):
        assert canvas_of(other, 5, VOCAB, trained=6) == canvas_of(other, 5, VOCAB)


def test_fixed_canvases_ignore_where_the_answer_begins() -> None:
    assert canvas_of("ab<answer>c<fill:2>a", 5, VOCAB) == canvas_of("abc<fill:2>a", 5, VOCAB)
    assert canvas_of("ab<answer>", 5, VOCAB) == canvas_of("ab", 5, VOCAB)
    assert prefix_of("ab<answer>c<fill>a") == "abc"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ab<fill:3>", "finds its own length"),
        ("ab<fill>c<answer>", "before every gap"),
        ("a<answer>b<answer>", "give it once"),
        ("a<Fill>", "no fill mark"),
        ("a<Answer>", "no mark"),
    ],
)
def test_marks_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        growing(text)
