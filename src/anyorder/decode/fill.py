"""From text to a canvas: a prompt to continue, or a text with gaps to fill.

`<fill>` and `<fill:12>` mark gaps: of the usual number of slots, or of twelve. A text without gaps
is a prompt, followed by one gap. On a growing canvas a gap has no length: it opens as needed.

`<answer>` marks where the prompt ends and the answer begins; without it, that is the first gap.
Families that part the two by a token (flexmdm) put it there; on a fixed canvas it says how much EOS
follows the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from anyorder.decode.canvas import Canvas, GrowingCanvas
from anyorder.vocab import Vocab

MARK = re.compile(r"<fill(?::(\d+))?>")
LIKE_A_MARK = re.compile(r"<\s*fill\s*(?:[:=\s]\s*\w*\s*)?>", re.IGNORECASE)
ANSWER = "<answer>"
LIKE_ANSWER = re.compile(r"<\s*answer\s*>", re.IGNORECASE)


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
    """What stands before the first gap: all of a prompt."""
    return MARK.split(text, maxsplit=1)[0].replace(ANSWER, "")


def check_marks(text: str) -> None:
    for found in LIKE_A_MARK.finditer(text):
        if not MARK.fullmatch(found[0]):
            raise ValueError(f"{found[0]!r} is no fill mark: write <fill> or <fill:12>")
    for found in LIKE_ANSWER.finditer(text):
        if found[0] != ANSWER:
            raise ValueError(f"{found[0]!r} is no mark: write {ANSWER}")
    before, *after = text.split(ANSWER)
    if len(after) > 1 or (after and has_gaps(before)):
        raise ValueError(f"{ANSWER} stands once, before every gap: the answer begins there")


def canvas_of(
    text: str, slots: int, vocab: Vocab, trained: int | None = None, longest: int | None = None
) -> Canvas:
    """The canvas of a prompt or of a text with gaps.

    trained: answers of the training took so many tokens, EOS from their end on. A text with gaps
    that says where its answer begins is then followed by EOS up to there, as the network knows it,
    within the longest canvas that it knows.
    """
    check_marks(text)
    prompt, mark, answer = text.partition(ANSWER) if has_gaps(text) else (text, "", "")
    if not mark:
        prompt, answer = "", text.replace(ANSWER, "")
    # text, length or None, text, length or None, ..., text
    first, *rest = MARK.split(answer)
    # An empty beginning is BOS where there is one, as in training.
    start = [] if vocab.bos_id is None else [vocab.bos_id]
    before = vocab.encode(prompt)
    parts: list[list[int] | int] = [[*before, *vocab.encode(first)] or start]
    if not rest:
        return Canvas.of([*parts, slots], vocab)
    for length, frozen in zip(rest[::2], rest[1::2], strict=True):
        parts.append(slots if length is None else int(length))
        if frozen:
            parts.append(vocab.encode(frozen))
    canvas = Canvas.of(parts, vocab)
    if not mark or trained is None:
        return canvas
    end = len(before) + trained
    end = end if longest is None else min(end, longest)
    return canvas.followed_by([vocab.eos_id] * (end - len(canvas.ids)))


Frame = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids before and after every prompt; the latter part it from the answer."""


def growing_canvas_of(text: str, room: int, vocab: Vocab, frame: Frame) -> GrowingCanvas:
    """The canvas on which gaps open as needed, `room` slots in all at the most."""
    check_marks(text)
    if any(mark[1] is not None for mark in MARK.finditer(text)):
        raise ValueError("a gap of this family finds its own length: write <fill>, not <fill:12>")
    if not has_gaps(text):
        text += "<fill>"
    if ANSWER in text:
        prompt, _, answer = text.partition(ANSWER)
    else:
        prompt = prefix_of(text)
        answer = text[len(prompt) :]
    # An empty beginning is BOS, as in training, unless the frame has one.
    start = [] if frame[0] or vocab.bos_id is None else [vocab.bos_id]
    ids = [*frame[0], *(vocab.encode(prompt) or start), *frame[1]]
    grows = [False] * len(ids)
    for number, piece in enumerate(re.split("<fill>", answer)):
        if number:
            grows[-1] = True
        ids += vocab.encode(piece)
        grows += [False] * (len(ids) - len(grows))
    return GrowingCanvas(tuple(ids), tuple(grows), room)
