"""Texts to canvases of segments: prompts, gaps between lines, and marks that make no sense."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from anyorder.decode.canvas import Marked, SegmentCanvas, Sizes, parts_of
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c", " ", "\n"])


@dataclass(frozen=True)
class Shape:
    """A network's shape, as far as a canvas looks at it."""

    slots: int = 5
    segment_length: int = 4
    segment_by: str = "line"


LINES = Shape()
PAIRS = Shape(segment_length=3, segment_by="fixed")  # two tokens, and the EOS that closes them
BOS = "<bos>"


def canvas_of(text: str, shape: Shape = LINES) -> SegmentCanvas:
    return SegmentCanvas.of_text(text, Sizes(None, None), VOCAB, shape)


def shown(text: str, shape: Shape = LINES) -> tuple[str, str]:
    """The prompt, and the segments: `_` free, `-` an empty one."""
    canvas = canvas_of(text, shape)
    prompt = BOS if canvas.prompt == (VOCAB.bos_id,) else VOCAB.decode(canvas.prompt)
    pieces = [
        "_" if segment is None else VOCAB.decode(segment) or "-" for segment in canvas.segments
    ]
    return prompt, "|".join(pieces).replace("\n", "/")


@pytest.mark.parametrize(
    ("text", "prompt", "segments"),
    [
        ("ab\n", "ab\n", "_|_|_|_|_"),
        ("ab", "ab", "_|_|_|_|_"),  # a prompt may end anywhere
        ("ab<fill>", "ab", "_|_|_|_|_"),
        ("ab<fill:3>", "ab", "_|_|_"),
        ("ab\n<fill:2>c\n", "ab\n", "_|_|c/"),
        ("ab\n<fill>c\n", "ab\n", "_|_|_|_|c/"),
        ("ab\n<fill:2>\nc\n", "ab\n", "_|_|c/"),  # a mark on a line of its own
        ("ab\n<fill:2>\r\nc\n", "ab\n", "_|_|c/"),
        ("ab\n<fill:2>\n\nc\n", "ab\n", "_|_|/|c/"),  # and then a blank line
        ("ab\n<fill:1>c\na\n<fill>b", "ab\n", "_|c/|a/|_|b"),
        ("ab\n<fill:1>\n<fill:2>\nc", "ab\n", "_|_|_|c"),
        ("ab<answer>a\nb\n<fill>c", "ab", "a/|b/|_|_|c"),
        ("ab<answer>", "ab", "_|_|_|_|_"),
        ("ab<answer>a\n", "ab", "a/|_|_|_|_"),
        ("ab<answer><fill:2>\nc", "ab", "_|_|c"),
        ("<fill>", BOS, "_|_|_|_|_"),
        ("", BOS, "_|_|_|_|_"),
        ("<fill:4>a\n", BOS, "_|_|_|_|a/"),
    ],
)
def test_texts_become_canvases(text: str, prompt: str, segments: str) -> None:
    assert shown(text) == (prompt, segments)


def test_segments_that_are_not_lines_may_begin_anywhere() -> None:
    assert shown("ab<fill:1>bca", PAIRS) == ("ab", "_|bc|a")
    assert shown("a<answer>b<fill:1>\nc", PAIRS) == ("a", "b|_|/c")


def test_what_stands_before_the_first_gap() -> None:
    canvas = canvas_of("ab<answer>a\nb\n<fill:1>c")
    assert VOCAB.decode(canvas.ids) == "aba\nb\n" and canvas.prompt_length == len(canvas.ids) == 6
    canvas = SegmentCanvas((0,), ((1, 2), (), None, (0,)))
    assert canvas.ids == (0, 1, 2) and canvas.prompt_length == 3


def test_parts_in_reading_order() -> None:
    prompt, parts = parts_of(Marked.of("a\n<fill>b\n<fill:2>\n<fill>c"), VOCAB, LINES)
    assert VOCAB.decode(prompt) == "a\n"
    assert parts == [None, tuple(VOCAB.encode("b\n")), 2, None, tuple(VOCAB.encode("c"))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n<fill>b\n<fill>", "only one <fill>"),
        ("a\n<fill:6>", "needs 6 segments"),
        ("a\n<fill:5>b", "needs 6 segments"),
        ("a<answer>a\nb\nc\na\nb\n", "needs 6 segments"),
        ("a\n<fill:0>b", "at least one slot"),
        ("a\n<fill:1>b<fill:1>c", "inside the line 'b'"),
        ("a<answer>b\nab<fill:1>", "inside the line 'ab'"),
        ("a\nb <fill:1>\nc", "inside the line 'b '"),
        ("a\n<fill:1>abcab\n", "6 tokens"),
        ("a\n<Fill>", "no fill mark"),
        ("a<fill><answer>", "before every gap"),
    ],
)
def test_texts_that_cannot_be_filled(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        canvas_of(text)
