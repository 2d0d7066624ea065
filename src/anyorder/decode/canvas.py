"""Canvases: a decoder's input, made from text, and `Decoded`, its output.

There are four kinds, by what an item is and whether items can be inserted:

                           an item is a token      an item is a segment
    a fixed number         Canvas                  SegmentCanvas
    inserted as needed     GrowingCanvas           GrowingSegments

Each has a constructor `of_text(text, sizes, vocab, config)`. All of them read the same marks:

    <fill>      a gap. On a fixed canvas it has the usual number of slots; where items are inserted
                it finds its own length
    <fill:12>   a gap of twelve slots, on a fixed canvas
    <answer>    the end of the prompt; without it, the prompt ends at the first gap

A text without gaps is a prompt, followed by one gap. So is a ChatPrompt, whose ids are given and
which has no marks. Where segments are lines or statements, a gap
lies between whole segments: put the mark at the start of a line. The line end behind such a mark
belongs to the mark, because the filled segments end their own lines.

Not here: how text is cut into segments (data/segments.py), and decoding.
Letters: B rows, L positions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from anyorder.data.segments import cut
from anyorder.trace.events import Change, Ghost
from anyorder.trace.trace import Proposal
from anyorder.vocab import Vocab
from anyorder.vocab.chat import AnyPrompt, ChatPrompt

MARK = re.compile(r"<fill(?::(\d+))?>")
# Misspelt marks are refused: otherwise the model would read them as text.
LIKE_A_MARK = re.compile(r"<\s*fill\s*(?:[:=\s]\s*\w*\s*)?>", re.IGNORECASE)
ANSWER = "<answer>"
LIKE_ANSWER = re.compile(r"<\s*answer\s*>", re.IGNORECASE)
LINE_END = re.compile(r"\A\r?\n")

Frame = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids before and after every prompt; those after it separate it from the answer."""


@dataclass(frozen=True)
class Marked:
    """A text, split at its marks: prompt, frozen[0], gaps[0], frozen[1], ..., frozen[-1]."""

    prompt: AnyPrompt
    frozen: tuple[str, ...]
    gaps: tuple[int | None, ...]
    """The lengths in the marks; None: a plain `<fill>`."""
    has_gaps: bool
    """False: the text is a prompt, and one gap was added after it."""
    has_answer: bool
    """Whether `<answer>` says where the prompt ends."""

    @classmethod
    def of(cls, text: AnyPrompt) -> Marked:
        """Refuses marks that are misspelt or misplaced."""
        if isinstance(text, ChatPrompt):
            return cls(text, ("", ""), (None,), has_gaps=False, has_answer=False)
        _check_marks(text)
        marks = has_gaps(text)
        text = text if marks else text + "<fill>"
        prompt, answer_mark, answer = text.partition(ANSWER)
        if not answer_mark:
            prompt = prefix_of(text)
            answer = text[len(prompt) :]
        # text, length or None, text, length or None, ..., text
        first, *rest = MARK.split(answer)
        gaps = tuple(None if length is None else int(length) for length in rest[::2])
        return cls(prompt, (first, *rest[1::2]), gaps, marks, bool(answer_mark))

    def refuse_lengths(self) -> None:
        """Refuse lengths of gaps, where items are inserted."""
        if any(length is not None for length in self.gaps):
            raise ValueError(
                "a gap of this family finds its own length: write <fill>, not <fill:12>"
            )


def has_gaps(text: AnyPrompt) -> bool:
    """Whether the text has a fill mark."""
    return isinstance(text, str) and MARK.search(text) is not None


def prefix_of(text: AnyPrompt) -> str:
    """The text before the first gap; all of it if there is no gap."""
    if isinstance(text, ChatPrompt):
        return text.text
    return MARK.split(text, maxsplit=1)[0].replace(ANSWER, "")


def check_lengths(texts: Sequence[AnyPrompt], slots: int | None) -> None:
    """Refuse a number of slots that no text uses, because every gap has its own length."""
    if slots is not None and not any(_leaves_length_open(text) for text in texts):
        raise ValueError("every gap has its own length: leave max_new_tokens out")


def _leaves_length_open(text: AnyPrompt) -> bool:
    """Whether some gap has no length of its own: a plain `<fill>`, or the gap after a prompt."""
    marks = list(MARK.finditer(text)) if isinstance(text, str) else []
    return not marks or any(mark[1] is None for mark in marks)


def _check_marks(text: str) -> None:
    for found in LIKE_A_MARK.finditer(text):
        if not MARK.fullmatch(found[0]):
            raise ValueError(f"{found[0]!r} is no fill mark: write <fill> or <fill:12>")
    for found in LIKE_ANSWER.finditer(text):
        if found[0] != ANSWER:
            raise ValueError(f"{found[0]!r} is no mark: write {ANSWER}")
    before, *after = text.split(ANSWER)
    if len(after) > 1 or (after and has_gaps(before)):
        raise ValueError(f"{ANSWER} marks where the answer begins: give it once, before every gap")


def _begun(prompt: AnyPrompt, vocab: Vocab) -> list[int]:
    """The ids of a prompt, with what begins a text; a chat template has written that itself."""
    if isinstance(prompt, ChatPrompt):
        return list(prompt.ids)
    return vocab.begin(vocab.encode(prompt))


@dataclass(frozen=True)
class Sizes:
    """How large a canvas may be."""

    new_tokens: int | None
    """Free slots after a prompt; on a growing canvas, all new slots; None: segments are counted."""
    length: int | None
    """Tokens of the whole canvas; None: not known."""
    only_length_told: bool = False
    """The caller gave only `length`: then a growing canvas may grow up to it."""
    slots: int | None = None
    """Segments; None: as in training."""
    trained: int | None = None
    """Tokens of every answer in training, padded with EOS; None: not known, or not padded so."""
    prompt: int | None = None
    """Tokens of a prompt, where segments are counted; None: not known."""
    suffix: tuple[int, ...] = ()
    """Ids that a network made elsewhere expects after a text; ours learn their ends as text."""


@dataclass(frozen=True)
class Canvas:
    """One row of a fixed number of slots: its ids, with the mask at free slots."""

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

    @classmethod
    def of_text(cls, text: AnyPrompt, sizes: Sizes, vocab: Vocab, config: Any = None) -> Canvas:
        """The canvas of a text. The start of the answer decides how much EOS follows it."""
        assert sizes.new_tokens is not None
        marked = Marked.of(text)
        if isinstance(marked.prompt, ChatPrompt):
            start = before = list(marked.prompt.ids)
        elif marked.has_gaps:
            before = vocab.encode(marked.prompt)
            start = vocab.begin([*before, *vocab.encode(marked.frozen[0], begun=bool(before))])
        else:
            # A prompt is encoded as one text: a token may reach over <answer>.
            before = vocab.encode(marked.prompt + marked.frozen[0])
            start = vocab.begin(before)
        parts: list[list[int] | int] = [start]
        for length, frozen in zip(marked.gaps, marked.frozen[1:], strict=True):
            parts.append(sizes.new_tokens if length is None else length)
            if frozen:
                parts.append(vocab.encode(frozen, begun=True))
        canvas = cls.of(parts, vocab)
        if marked.has_gaps and marked.has_answer and sizes.trained is not None:
            # In training EOS fills every answer up to its canvas: the network expects it there.
            end = len(vocab.prefix_ids) + len(before) + sizes.trained
            end = end if sizes.length is None else min(end, sizes.length)
            canvas = canvas.followed_by([vocab.eos_id] * (end - len(canvas.ids)))
        canvas = canvas.followed_by(sizes.suffix)
        if sizes.length is not None and len(canvas.ids) > sizes.length:
            free = sum(canvas.free)
            raise ValueError(
                f"the prompt's {len(canvas.ids) - free} tokens and {free} new ones do not fit on a "
                f"canvas of {sizes.length}: shorten the prompt, lower max_new_tokens or raise "
                "max_length"
            )
        return canvas

    def followed_by(self, ids: Sequence[int]) -> Canvas:
        """The same with more frozen tokens at its end."""
        return Canvas((*self.ids, *ids), (*self.free, *[False] * len(ids)))


def padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Rows of different lengths, padded on the right, and their lengths.  # B L, B"""
    tensors = [torch.tensor(row, dtype=torch.int64) for row in rows]
    ids = pad_sequence(tensors, batch_first=True, padding_value=pad)
    return ids, torch.tensor([len(row) for row in rows])


def stack(
    canvases: Sequence[Canvas], vocab: Vocab, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Right-padded rows: ids (B L), free (B L) and real, i.e. not padding (B L)."""
    ids, lengths = padded([canvas.ids for canvas in canvases], vocab.pad_id)
    free = padded([canvas.free for canvas in canvases], False)[0].bool()
    real = torch.arange(ids.shape[1]) < lengths[:, None]
    return ids.to(device), free.to(device), real.to(device)


class Framed(Protocol):
    """The part of a network's shape that a growing canvas needs."""

    def frame(self, vocab: Vocab) -> Frame:
        """The ids before and after every prompt."""
        ...


@dataclass(frozen=True)
class GrowingCanvas:
    """One row whose free spans have no length yet: frozen tokens, and gaps where slots may open."""

    ids: tuple[int, ...]
    grows: tuple[bool, ...]
    """Whether slots may be inserted right after each token."""
    room: int
    """The most slots that may be inserted."""

    @property
    def prompt_length(self) -> int:
        """The frozen prefix: everything up to the first gap that grows."""
        return self.grows.index(True) + 1

    @classmethod
    def of_text(cls, text: AnyPrompt, sizes: Sizes, vocab: Vocab, config: Framed) -> GrowingCanvas:
        """The canvas of a text. It grows until it reaches the first of the sizes."""
        assert sizes.new_tokens is not None
        marked = Marked.of(text)
        marked.refuse_lengths()
        before, after = config.frame(vocab)
        # A frame that begins with ids of its own needs no other start.
        if before and isinstance(marked.prompt, str):
            prompt = vocab.encode(marked.prompt)
        else:
            prompt = _begun(marked.prompt, vocab)
        ids = [*before, *prompt, *after, *vocab.encode(marked.frozen[0], begun=True)]
        grows = [False] * len(ids)
        for piece in marked.frozen[1:]:
            grows[-1] = True
            ids += vocab.encode(piece, begun=True)
            grows += [False] * (len(ids) - len(grows))
        return cls(tuple(ids), tuple(grows), _room(len(ids), sizes))


def _room(frozen: int, sizes: Sizes) -> int:
    """How many slots may be inserted beside this number of frozen tokens."""
    assert sizes.new_tokens is not None
    if sizes.length is None:
        return sizes.new_tokens
    room = sizes.length - frozen
    if room < 1:
        raise ValueError(
            f"the text's {frozen} tokens leave no room on a canvas of {sizes.length}: shorten it "
            "or raise max_length"
        )
    return room if sizes.only_length_told else min(room, sizes.new_tokens)


class SegmentShape(Protocol):
    """The part of a network's shape that says what a segment is (`LatentConfig`)."""

    @property
    def slots(self) -> int: ...
    @property
    def segment_length(self) -> int: ...
    @property
    def segment_by(self) -> str: ...


class FramedSegments(Framed, Protocol):
    """The shape of a network that inserts segments."""

    @property
    def latent(self) -> SegmentShape: ...


SegmentPart = tuple[int, ...] | int | None
"""A frozen segment, or a gap: the number of its free slots, None where the mark gives none."""


def parts_of(
    marked: Marked, vocab: Vocab, shape: SegmentShape
) -> tuple[list[int], list[SegmentPart]]:
    """The prompt's ids, and in reading order the frozen segments and gaps behind it."""
    in_lines = shape.segment_by != "fixed"
    before, *rest = marked.frozen
    if in_lines and not marked.has_answer and any(piece.strip() for piece in rest):
        # Text behind a gap is cut into lines, so the prompt too must end with a whole one.
        _check_line_start(prefix_of(marked.prompt))
    parts: list[SegmentPart] = [*_frozen(before, vocab, shape)]
    for length, after in zip(marked.gaps, rest, strict=True):
        if in_lines:
            _check_line_start(before)
            after = LINE_END.sub("", after, count=1)
        parts += [length, *_frozen(after, vocab, shape)]
        before = after
    return _begun(marked.prompt, vocab), parts


def _frozen(text: str, vocab: Vocab, shape: SegmentShape) -> list[tuple[int, ...]]:
    # The text around a gap is part of a program, and need not parse by itself.
    segments = cut(text, vocab, shape.segment_by, shape.segment_length, part=True)
    for segment in segments:
        if len(segment) > shape.segment_length:
            raise ValueError(
                f"a segment of the text has {len(segment)} tokens, and the model's have at "
                f"most {shape.segment_length}: break the line up"
            )
    return [tuple(segment) for segment in segments]


def _check_line_start(before: str) -> None:
    if before and not before.endswith("\n"):
        line = before.splitlines()[-1]
        raise ValueError(
            f"a fill mark is inside the line {line!r}, and this model fills whole lines: put "
            f"the mark at the start of a line ({ANSWER} may stand anywhere before it)"
        )


def _check_prompt(prompt: Sequence[int], sizes: Sizes) -> None:
    """Refuse a prompt that alone is longer than anything the network was trained on."""
    if sizes.prompt is not None and len(prompt) > sizes.prompt:
        raise ValueError(
            f"the prompt has {len(prompt)} tokens, and the model was trained on sequences "
            f"of at most {sizes.prompt}: shorten it"
        )


@dataclass(frozen=True)
class SegmentCanvas:
    """One row: a prompt, and the frozen content of each slot, if any."""

    prompt: tuple[int, ...]
    segments: tuple[tuple[int, ...] | None, ...]
    """Ids of a frozen segment, () for a frozen empty one, None for a free slot. The network's
    slots beyond these are empty: the text cannot have more segments than this."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The frozen tokens before the first free slot."""
        before = self.segments[: self.segments.index(None)]
        return self.prompt + tuple(token for segment in before for token in segment or ())

    @property
    def prompt_length(self) -> int:
        return len(self.ids)

    @classmethod
    def of_text(
        cls, text: AnyPrompt, sizes: Sizes, vocab: Vocab, config: SegmentShape
    ) -> SegmentCanvas:
        """The canvas of a text, with as many slots as the network was trained with, or fewer.

        One gap may leave its length open: it takes the slots that are left.
        """
        slots = config.slots if sizes.slots is None else sizes.slots
        if slots > config.slots:
            raise ValueError(
                f"slots={slots}: give at most {config.slots}, as many as the model was trained with"
            )
        prompt, parts = parts_of(Marked.of(text), vocab, config)
        open_gaps = sum(part is None for part in parts)
        if open_gaps > 1:
            raise ValueError("only one <fill> can take the slots that are left: number the others")
        given = sum(part if isinstance(part, int) else part is not None for part in parts)
        left = slots - given
        if left < open_gaps:
            raise ValueError(
                f"the text needs {given + open_gaps} segments, and there are {slots} slots: "
                "fill or freeze fewer"
            )
        segments: list[tuple[int, ...] | None] = []
        for part in parts:
            if isinstance(part, tuple):
                segments.append(part)
            elif part == 0:
                raise ValueError("a gap needs at least one slot: leave <fill:0> out")
            else:
                segments += [None] * (left if part is None else part)
        _check_prompt(prompt, sizes)
        return cls(tuple(prompt), tuple(segments))


@dataclass(frozen=True)
class GrowingSegments:
    """One row: frozen segments, and gaps where segments may be inserted."""

    prompt: tuple[int, ...]
    """Its last token is the anchor, so that there is an item before the first gap."""
    segments: tuple[tuple[int, ...], ...]
    """The frozen ones, none of them empty."""
    grows: tuple[bool, ...]
    """Whether segments may be inserted after the anchor, then after each frozen segment."""
    room: int
    """The most segments that may be inserted."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The prompt and all frozen segments."""
        return self.prompt + tuple(token for segment in self.segments for token in segment)

    @property
    def prefix(self) -> int:
        """The number of frozen segments before the first gap that grows."""
        return self.grows.index(True)

    @property
    def prompt_length(self) -> int:
        """The frozen prefix in tokens: everything up to the first gap that grows."""
        return len(self.prompt) + sum(map(len, self.segments[: self.prefix]))

    @classmethod
    def of_text(
        cls, text: AnyPrompt, sizes: Sizes, vocab: Vocab, config: FramedSegments
    ) -> GrowingSegments:
        """The canvas of a text, with room for as many segments as the network was trained with."""
        slots = config.latent.slots if sizes.slots is None else sizes.slots
        marked = Marked.of(text)
        prompt, parts = parts_of(marked, vocab, config.latent)
        marked.refuse_lengths()
        segments: list[tuple[int, ...]] = []
        grows = [False]
        for part in parts:
            if isinstance(part, tuple):
                segments.append(part)
                grows.append(False)
            else:
                grows[-1] = True
        room = slots - len(segments)
        if room < 1:
            raise ValueError(
                f"the text's {len(segments)} segments leave no room among {slots} slots: freeze "
                "fewer, or raise slots"
            )
        before, anchor = config.frame(vocab)
        framed = (*before, *prompt, *anchor)
        _check_prompt(framed, sizes)
        return cls(framed, tuple(segments), tuple(grows), room)


@dataclass(frozen=True)
class Decoded:
    """What a decoder did with one canvas up to some step; lists begin after the frozen prefix."""

    token_ids: list[int]
    """The mask id where a slot, or a whole segment, is still open."""
    insert_step: list[int]
    reveal_step: list[int]
    """0 while open."""
    log_prob: list[float]
    """Under the untempered posterior at the reveal; NaN while open, and for tokens that were not
    drawn."""
    steps: int
    forwards: int
    """Network calls that this row needed; a batch may make more."""
    ties: int
    """Choices that the tie rule had to make."""
    segment: list[int] | None = None
    """The slot number of the token's segment, if segments are revealed; inserted segments
    (flexlatent) are numbered in text order. An open segment is one item."""
    score: list[float] | None = None
    """The score by which the token's segment was chosen; NaN where nothing was ranked."""
    candidates: list[Proposal] | None = None
    """All proposals, if the options request them."""
    changes: Sequence[Change] = ()
    """What slots showed before their last reveal, where tokens can change or be masked again."""
    ghosts: Sequence[Ghost] = ()
    """Slots that were deleted; in `changes`, ghost g is slot `len(token_ids) + g`."""
    times: list[float] | None = None
    """Per step: the network's time in the call that decided it, if the network reads time."""
    columns: int | None = None
    """Columns of the canvas that the calls computed, if they are counted."""
    row: int = field(default=0, compare=False)
    """The canvas's number in the request. Two equal results may differ in it."""

    @property
    def step(self) -> int:
        """The step after which the row looks like this."""
        return self.steps

    @property
    def masked_again(self) -> list[int]:
        """The slots, by their places in the lists, that the last step turned back into masks."""
        return [
            change.slot
            for change in self.changes
            if change.step == self.steps and change.token_id is None
        ]


Seen = Decoded
"""The name that watchers' rows had in version 0.1."""

Watcher = Callable[[Sequence[Decoded]], None]
"""Called after each step with every row that the step may have changed; raising ends decoding."""
