"""Texts with marks as canvases on which segments are inserted."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from anyorder.decode.canvas import Frame, GrowingSegments, Sizes
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c", "\n"])
A, B, C, END = range(4)
EOS = VOCAB.eos_id
FRAME: Frame = ((), (EOS,))


@dataclass(frozen=True)
class Shape:
    """A network's shape, as far as a canvas looks at it."""

    ids: Frame = FRAME
    slots: int = 6
    segment_length: int = 4
    segment_by: str = "line"

    @property
    def latent(self) -> Shape:
        return self

    def frame(self, vocab: Vocab) -> Frame:
        return self.ids


def canvas(text: str, slots: int | None = None, frame: Frame = FRAME) -> GrowingSegments:
    return GrowingSegments.of_text(text, Sizes(None, None, slots=slots), VOCAB, Shape(frame))


def test_a_prompt_has_one_gap_behind_its_anchor() -> None:
    found = canvas("ab\nc")
    assert found == GrowingSegments((A, B, END, C, EOS), (), (True,), 6)
    assert (found.ids, found.prompt_length, found.prefix) == (found.prompt, 5, 0)


def test_frozen_lines_stand_between_gaps() -> None:
    found = canvas("a\n<fill>\nb\nc\n<fill>\n")
    assert found.prompt == (A, END, EOS)
    assert found.segments == ((B, END), (C, END)) and found.grows == (True, False, True)
    assert (found.room, found.prompt_length) == (4, 3)
    assert found.ids == (A, END, EOS, B, END, C, END)


def test_lines_before_the_first_gap_belong_to_the_answer_where_it_is_marked() -> None:
    found = canvas("a<answer>b\nc\n<fill>\na\n")
    assert found.prompt == (A, EOS) and found.grows == (False, False, True, False)
    assert found.segments == ((B, END), (C, END), (A, END))
    assert (found.prefix, found.prompt_length) == (2, 6)
    assert found.ids[: found.prompt_length] == (A, EOS, B, END, C, END)


def test_an_empty_prompt_is_bos_as_in_training_and_has_its_anchor() -> None:
    found = canvas("<fill>\na\n")
    assert found.prompt == (VOCAB.bos_id, EOS) and found.segments == ((A, END),)
    framed = canvas("b\n<fill>\na\n", 3, ((C,), (EOS,)))
    assert framed.prompt == (C, B, END, EOS) and framed.segments == ((A, END),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a\nb<fill>\nc\n", "inside the line"),
        ("<answer>a\nb<fill>\n", "inside the line"),
        ("a\n<fill:2>\n", "its own length"),
        ("a\n<fill>\nb\nb\nb\n", "leave no room"),
        ("<fill>\nabcab\n", "at most 4"),
        ("<fil>a<Fill>", "no fill mark"),
    ],
)
def test_texts_that_cannot_be_filled_are_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        canvas(text, slots=3)
