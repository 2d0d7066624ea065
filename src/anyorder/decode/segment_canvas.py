"""The canvas of segments: a prompt, then slots that are free, frozen or empty; and texts to it.

A text without marks is a prompt, and every slot after it is free. In a text to be filled,

    <fill:3>   three free slots
    <fill>     as many as are left (at most one of these)
    <answer>   ends the prompt; without it, that is the first gap

stand between whole segments: at the start of a line, where segments are lines. The line end behind
a mark belongs to the mark, because what is filled in ends its own lines.

How text is cut into segments is the caller's: it depends on what the network was trained with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anyorder.decode.fill import ANSWER, MARK, check_marks, has_gaps, prefix_of
from anyorder.vocab import Vocab

LINE_END = re.compile(r"\A\r?\n")

Gap = int | None
"""Free slots of a gap; None: not said."""
Part = tuple[int, ...] | Gap
"""A frozen segment, or a gap."""


@dataclass(frozen=True)
class SegmentCanvas:
    """One row: a prompt, and what is known of each slot."""

    prompt: tuple[int, ...]
    segments: tuple[tuple[int, ...] | None, ...]
    """Ids of a frozen segment, () for a frozen empty one, None for a free slot. The network's
    slots beyond these are empty: the text has at most so many segments."""

    @property
    def ids(self) -> tuple[int, ...]:
        """What is frozen before the first free slot."""
        before = self.segments[: self.segments.index(None)]
        return self.prompt + tuple(token for segment in before for token in segment or ())

    @property
    def prompt_length(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Cutter:
    """How a network's segments are cut out of text."""

    cut: Callable[[str], Sequence[Sequence[int]]]
    """Text -> the ids of its segments, none of them empty."""
    segment_length: int
    """The most tokens of a segment."""
    in_lines: bool = True
    """Whether every segment ends with a line."""

    def frozen(self, text: str) -> list[tuple[int, ...]]:
        """The segments of a text that stays as it is."""
        segments = [tuple(segment) for segment in self.cut(text)]
        for segment in segments:
            if len(segment) > self.segment_length:
                raise ValueError(
                    f"a segment of the text has {len(segment)} tokens, and the model's have at "
                    f"most {self.segment_length}: break the line up"
                )
        return segments


def parts_of(text: str, vocab: Vocab, cutter: Cutter) -> tuple[tuple[int, ...], list[Part]]:
    """The prompt's ids, and in reading order the frozen segments and gaps behind it."""
    check_marks(text)
    if not has_gaps(text):
        text += "<fill>"
    if ANSWER in text:
        prompt, _, answer = text.partition(ANSWER)
    else:
        prompt = prefix_of(text)
        answer = text[len(prompt) :]
        if cutter.in_lines and MARK.sub("", answer).strip():
            _check_line_start(prompt)
    # frozen, length or None, frozen, length or None, ..., frozen
    first, *rest = MARK.split(answer)
    parts: list[Part] = [*cutter.frozen(first)]
    before = first
    for length, after in zip(rest[::2], rest[1::2], strict=True):
        if cutter.in_lines:
            _check_line_start(before)
            after = LINE_END.sub("", after, count=1)
        parts += [None if length is None else int(length), *cutter.frozen(after)]
        before = after
    # An empty beginning is BOS where there is one, as in training.
    start = [] if vocab.bos_id is None else [vocab.bos_id]
    return tuple(vocab.encode(prompt) or start), parts


def _check_line_start(before: str) -> None:
    """Refuse a gap after this text, unless the text ends a line."""
    if before and not before.endswith("\n"):
        line = before.splitlines()[-1]
        raise ValueError(
            f"a fill mark stands inside the line {line!r}, and this model fills whole lines: put "
            f"the mark at the start of a line ({ANSWER} may stand anywhere before it)"
        )


def segment_canvas_of(text: str, slots: int, vocab: Vocab, cutter: Cutter) -> SegmentCanvas:
    """The canvas of a prompt or of a text with gaps, of at most `slots` segments."""
    prompt, parts = parts_of(text, vocab, cutter)
    unnumbered = sum(part is None for part in parts)
    if unnumbered > 1:
        raise ValueError("only one <fill> can take the slots that are left: number the others")
    told = sum(part if isinstance(part, int) else part is not None for part in parts)
    left = slots - told
    if left < unnumbered:
        raise ValueError(
            f"the text asks for {told + unnumbered} segments, and there are {slots} slots: fill or "
            "freeze fewer"
        )
    segments: list[tuple[int, ...] | None] = []
    for part in parts:
        if isinstance(part, tuple):
            segments.append(part)
        elif part == 0:
            raise ValueError("a gap needs at least one slot: leave <fill:0> out")
        else:
            segments += [None] * (left if part is None else part)
    return SegmentCanvas(prompt, tuple(segments))
