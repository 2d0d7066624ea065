"""The canvas: a row of slots, some frozen and some free, and a request to fill it.

A prompt is a frozen prefix followed by free slots. Infilling is the same with frozen text between
and after the free spans. Letters: B rows, L positions.

From text to a canvas: a prompt to continue, or a text with gaps to fill.

`<fill>` and `<fill:12>` mark gaps: of the usual number of slots, or of twelve. A text without gaps
is a prompt, followed by one gap. On a growing canvas a gap has no length: it opens as needed.

`<answer>` marks where the prompt ends and the answer begins; without it, that is the first gap.
Families that part the two by a token (flexmdm) put it there; on a fixed canvas it says how much EOS
follows the text.

The canvas of segments: a prompt, then slots that are free, frozen or empty; and texts to it.

A text without marks is a prompt, and every slot after it is free. In a text to be filled,

    <fill:3>   three free slots
    <fill>     as many as are left (at most one of these)
    <answer>   ends the prompt; without it, that is the first gap

stand between whole segments: at the start of a line, where segments are lines. The line end behind
a mark belongs to the mark, because what is filled in ends its own lines.

How text is cut into segments is the caller's: it depends on what the network was trained with.

The canvas on which segments are inserted: a prompt, frozen segments, gaps; and texts to it.

A text without marks is a prompt, and the gap behind it grows. In a text to be filled, `<fill>`
stands between whole segments (segment_canvas.py says where a mark may stand); a gap has no length,
it opens as needed. Every prompt ends with an anchor, which stands before the first gap.

From a text to what a family's decoder fills, within the sizes that were asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from anyorder.data.segments import cut
from anyorder.trace.snapshots import Change
from anyorder.vocab import Vocab


@dataclass(frozen=True)
class Canvas:
    """One row: its ids, with the mask at free slots."""

    ids: tuple[int, ...]
    free: tuple[bool, ...]

    @property
    def prompt_length(self) -> int:
        """The frozen prefix: everything before the first free slot."""
        return self.free.index(True)

    @classmethod
    def of(cls, parts: Sequence[Sequence[int] | int], vocab: Vocab) -> Canvas:
        """Frozen ids and numbers of free slots, in reading order: [[5, 6], 10] or [[5], 4, [9]]."""
        ids: list[int] = []
        free: list[bool] = []
        for part in parts:
            if isinstance(part, int):
                if part < 1:
                    raise ValueError(f"a span to fill needs at least one slot, not {part}")
                ids += [vocab.mask_id] * part
                free += [True] * part
            else:
                vocab.check_prompt(part)
                ids += part
                free += [False] * len(part)
        if not any(free):
            raise ValueError("nothing to fill: the canvas has no free slot")
        return cls(tuple(ids), tuple(free))

    def followed_by(self, ids: Sequence[int]) -> Canvas:
        """The same with more frozen tokens at its end."""
        return Canvas((*self.ids, *ids), (*self.free, *[False] * len(ids)))


@dataclass(frozen=True)
class GrowingCanvas:
    """One row whose free spans have no length yet: frozen tokens, and gaps where slots may open."""

    ids: tuple[int, ...]
    grows: tuple[bool, ...]
    """Whether slots may be inserted right after each token."""
    room: int
    """At most so many slots are inserted."""

    @property
    def prompt_length(self) -> int:
        """The frozen prefix: everything up to the first gap that grows."""
        return self.grows.index(True) + 1


@dataclass(frozen=True)
class Candidate:
    """A segment that was proposed in some step."""

    step: int
    segment: int
    """The number of the segment's slot."""
    token_ids: list[int]
    """Without the end that closes a segment; empty for an empty one."""
    score: float
    taken: bool


@dataclass(frozen=True)
class Decoded:
    """What a decoder did with one canvas. Lists run over the positions after the frozen prefix."""

    token_ids: list[int]
    insert_step: list[int]
    reveal_step: list[int]
    log_prob: list[float]
    """Under the untempered posterior at the moment of the reveal; NaN for what was not drawn."""
    steps: int
    forwards: int
    """Network calls that this row needed."""
    ties: int
    """Choices that the tie rule had to make."""
    segment: list[int] | None = None
    """The number of the segment's slot, where segments are revealed; of inserted ones (flexlatent)
    the number in the final order."""
    score: list[float] | None = None
    """What the token's segment was chosen by; NaN where nothing was ranked."""
    candidates: list[Candidate] | None = None
    """All that was proposed, where it was asked for."""
    changes: Sequence[Change] = ()
    """What slots showed before their last reveal, where tokens can change or be masked again."""
    columns: int | None = None
    """Columns of the canvas that the calls computed, where that is counted."""


@dataclass(frozen=True)
class Seen:
    """One row's canvas after a step, for whoever watches. Lists as in `Decoded`."""

    row: int
    """The row's number in the request."""
    step: int
    token_ids: list[int]
    """The mask id where a slot, or a whole segment, is open."""
    insert_step: list[int]
    reveal_step: list[int]
    """0 while open."""
    log_prob: list[float]
    """NaN while open, and for what was not drawn."""
    segment: list[int] | None = None
    """The number of the segment's slot, where segments are revealed; an open one is one item."""
    masked_again: Sequence[int] = ()
    """The slots, by their places in the lists, that this step turned back into masks."""


Watcher = Callable[[Sequence[Seen]], None]
"""Told of every row that a step may have changed; it may end the work by raising."""


def stack(
    canvases: Sequence[Canvas], vocab: Vocab, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Right-padded rows: ids (B L), free (B L) and real, i.e. not padding (B L)."""
    longest = max(len(canvas.ids) for canvas in canvases)
    ids = torch.full((len(canvases), longest), vocab.pad_id)
    free = torch.zeros(len(canvases), longest, dtype=torch.bool)
    lengths = torch.tensor([len(canvas.ids) for canvas in canvases])
    for row, canvas in enumerate(canvases):
        ids[row, : len(canvas.ids)] = torch.tensor(canvas.ids)
        free[row, : len(canvas.ids)] = torch.tensor(canvas.free)
    real = torch.arange(longest)[None, :] < lengths[:, None]
    return ids.to(device), free.to(device), real.to(device)


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


@dataclass(frozen=True)
class GrowingSegments:
    """One row: frozen segments, and gaps where segments may be inserted."""

    prompt: tuple[int, ...]
    """The anchor is its last token."""
    segments: tuple[tuple[int, ...], ...]
    """The frozen ones, none of them empty."""
    grows: tuple[bool, ...]
    """Whether segments may be inserted after the anchor, then after each frozen segment."""
    room: int
    """At most so many segments are inserted."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The prompt and all that is frozen."""
        return self.prompt + tuple(token for segment in self.segments for token in segment)

    @property
    def prefix(self) -> int:
        """How many frozen segments stand before the first gap that grows."""
        return self.grows.index(True)

    @property
    def prompt_length(self) -> int:
        """The frozen prefix in tokens: everything up to the first gap that grows."""
        return len(self.prompt) + sum(map(len, self.segments[: self.prefix]))


def growing_segments_of(
    text: str, slots: int, vocab: Vocab, cutter: Cutter, frame: Frame
) -> GrowingSegments:
    """The canvas of a prompt or of a text with gaps, of at most `slots` segments in all."""
    prompt, parts = parts_of(text, vocab, cutter)
    segments: list[tuple[int, ...]] = []
    grows = [False]
    for part in parts:
        if isinstance(part, int):
            raise ValueError(
                "a gap of this family finds its own length: write <fill>, not <fill:12>"
            )
        if part is None:
            grows[-1] = True
        else:
            segments.append(part)
            grows.append(False)
    room = slots - len(segments)
    if room < 1:
        raise ValueError(
            f"the text's {len(segments)} segments leave no room among {slots} slots: freeze fewer, "
            "or raise slots"
        )
    before, anchor = frame
    return GrowingSegments((*before, *prompt, *anchor), tuple(segments), tuple(grows), room)


@dataclass(frozen=True)
class Sizes:
    """How large a canvas may be."""

    new_tokens: int | None
    """Free slots after a prompt; on a growing canvas, slots in all; None: segments are counted."""
    length: int | None
    """Tokens in all; None: not known."""
    only_length_told: bool = False
    """Only `length` was asked for: then a growing canvas may grow up to it."""
    slots: int | None = None
    """Segments; None: as in training."""
    trained: int | None = None
    """Tokens of every answer in training, EOS from its end on; None: not known, or otherwise."""
    prompt: int | None = None
    """Tokens of a prompt, where segments are counted; None: not known."""


def fixed_canvas(text: str, sizes: Sizes, vocab: Vocab, config: Any) -> Canvas:
    """A canvas whose every slot is there from the start."""
    assert sizes.new_tokens is not None
    canvas = canvas_of(text, sizes.new_tokens, vocab, sizes.trained, sizes.length)
    if sizes.length is not None and len(canvas.ids) > sizes.length:
        free = sum(canvas.free)
        raise ValueError(
            f"the prompt's {len(canvas.ids) - free} tokens and {free} new ones do not fit on a "
            f"canvas of {sizes.length}: shorten the prompt, lower max_new_tokens or raise "
            "max_length"
        )
    return canvas


class Framed(Protocol):
    """A network's shape that knows which ids stand around every prompt."""

    def frame(self, vocab: Vocab) -> Frame: ...


class Cut(Protocol):
    """A network's shape that knows what a segment is."""

    @property
    def slots(self) -> int: ...
    @property
    def segment_length(self) -> int: ...
    @property
    def segment_by(self) -> str: ...


class FramedCut(Framed, Protocol):
    """Both."""

    @property
    def latent(self) -> Cut: ...


def open_canvas(text: str, sizes: Sizes, vocab: Vocab, config: Framed) -> GrowingCanvas:
    """A canvas that grows until a size is reached, whichever is first."""
    assert sizes.new_tokens is not None
    canvas = growing_canvas_of(text, 0, vocab, config.frame(vocab))
    frozen = len(canvas.ids)
    if sizes.length is None:
        return replace(canvas, room=sizes.new_tokens)
    room = sizes.length - frozen
    if room < 1:
        raise ValueError(
            f"the text's {frozen} tokens leave no room on a canvas of {sizes.length}: shorten it "
            "or raise max_length"
        )
    return replace(canvas, room=room if sizes.only_length_told else min(room, sizes.new_tokens))


def slot_canvas(text: str, sizes: Sizes, vocab: Vocab, config: Cut) -> SegmentCanvas:
    """A fixed number of slots for segments: what the network was trained with, or fewer."""
    slots = config.slots if sizes.slots is None else sizes.slots
    if slots > config.slots:
        raise ValueError(
            f"slots={slots}: the model was trained with {config.slots}, give at most so many"
        )
    return _within(segment_canvas_of(text, slots, vocab, _cutter(vocab, config)), sizes)


def open_segments(text: str, sizes: Sizes, vocab: Vocab, config: FramedCut) -> GrowingSegments:
    """No segments but frozen ones, and room for as many as the network was trained with."""
    slots = config.latent.slots if sizes.slots is None else sizes.slots
    frame = config.frame(vocab)
    return _within(
        growing_segments_of(text, slots, vocab, _cutter(vocab, config.latent), frame), sizes
    )


_Segmented = TypeVar("_Segmented", SegmentCanvas, GrowingSegments)


def _within(canvas: _Segmented, sizes: Sizes) -> _Segmented:
    """The canvas, unless its prompt alone is longer than anything the network was trained on."""
    if sizes.prompt is not None and len(canvas.prompt) > sizes.prompt:
        raise ValueError(
            f"the prompt has {len(canvas.prompt)} tokens, and the model was trained on sequences "
            f"of at most {sizes.prompt}: shorten it"
        )
    return canvas


def _cutter(vocab: Vocab, config: Cut) -> Cutter:
    length = config.segment_length
    # What stands around a gap is a part of a program, and need not be one.
    pieces = partial(cut, vocab=vocab, by=config.segment_by, segment_length=length, part=True)
    return Cutter(pieces, config.segment_length, in_lines=config.segment_by != "fixed")
