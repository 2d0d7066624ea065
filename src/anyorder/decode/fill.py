"""From text to a canvas: a prompt to continue, or a text with gaps to fill.

`<fill>` and `<fill:12>` mark gaps: of the usual number of slots, or of twelve. A text without marks
is a prompt, followed by the usual number of slots.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from anyorder.decode.canvas import Canvas
from anyorder.vocab import Vocab

MARK = re.compile(r"<fill(?::(\d+))?>")
LIKE_A_MARK = re.compile(r"<\s*fill\s*(?:[:=\s]\s*\w*\s*)?>", re.IGNORECASE)


def has_gaps(text: str) -> bool:
    """Whether the text has a mark."""
    return MARK.search(text) is not None


def check_lengths(texts: Sequence[str], slots: int | None) -> None:
    """Refuse a number of slots that no text uses: every gap says its own length."""
    if slots is not None and not any(_leaves_length_open(text) for text in texts):
        raise ValueError("every gap has its own length: leave max_new_tokens out")


def _leaves_length_open(text: str) -> bool:
    """Whether some length is not said by the text: a prompt's, or that of a plain `<fill>`."""
    marks = list(MARK.finditer(text))
    return not marks or any(mark[1] is None for mark in marks)


def prefix_of(text: str) -> str:
    """What stands before the first mark: all of a prompt."""
    return MARK.split(text, maxsplit=1)[0]


def canvas_of(text: str, slots: int, vocab: Vocab) -> Canvas:
    """The canvas of a prompt or of a text with gaps."""
    for found in LIKE_A_MARK.finditer(text):
        if not MARK.fullmatch(found[0]):
            raise ValueError(f"{found[0]!r} is no fill mark: write <fill> or <fill:12>")
    first, *rest = MARK.split(text)  # text, length or None, text, length or None, ..., text
    # An empty beginning is BOS where there is one, as in training.
    start = [] if vocab.bos_id is None else [vocab.bos_id]
    parts: list[list[int] | int] = [vocab.encode(first) or start]
    if not rest:
        return Canvas.of([*parts, slots], vocab)
    for length, frozen in zip(rest[::2], rest[1::2], strict=True):
        parts.append(slots if length is None else int(length))
        if frozen:
            parts.append(vocab.encode(frozen))
    return Canvas.of(parts, vocab)
