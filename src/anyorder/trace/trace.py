"""Trace: one generated sample, and when each of its tokens was inserted and revealed.

A generation is a table with one row per token: `insert_step`, `reveal_step`, log-probability,
segment and its score, block, and where its text ends (`char_end`). Snapshot s (0..steps) holds the
slots with insert_step <= s, and a slot shows its token when reveal_step <= s; 0: from the start. A
slot that is still a mask at the end was never revealed: its reveal_step is steps + 1.
Where slots change (masked again, token replaced), `events` holds what they showed before their last
reveal; slots that were deleted are `ghosts` (events.py). `replay` gives any snapshot: slots never
change their order, so the slots of a step in that order are the left-packed canvas of that step.

A decoder of segments proposes content for every open segment, ranks the proposals by a score and
commits the best. `candidates` holds them all: the paper's generation trace.

Not here: decoding, measures, files (run.py). Letters: S snapshots (steps + 1), N slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anyorder.trace import checks
from anyorder.trace.checks import DoubleArray, Float32Array, Int32Array
from anyorder.trace.events import (
    Event,
    Ghost,
    SlotChange,
    SlotLives,
    decoded,
    kinds_of_change,
    read_events,
    read_ghosts,
)

if TYPE_CHECKING:
    from anyorder.vocab import Vocab


class Candidate(NamedTuple):
    """In step `step`, `piece` was proposed for `segment`."""

    step: int
    segment: int
    """As in the trace's column `segment`."""
    token_ids: tuple[int, ...] | None
    """Without the end of the segment; None for imported strings."""
    piece: str
    """The proposed text."""
    score: float | None
    """The score that ranked it; None where nothing was ranked."""
    taken: bool
    """Whether the step committed it."""


class Proposal(NamedTuple):
    """A candidate as a decoder records it: ids without text."""

    step: int
    segment: int
    token_ids: Sequence[int]
    """Without the end of the segment."""
    score: float
    """NaN where nothing was ranked."""
    taken: bool


def _spelled_candidates(vocab: Vocab | None, proposed: Iterable[Proposal]) -> tuple[Candidate, ...]:
    found = []
    for each in proposed:
        ids = tuple(map(int, each.token_ids))
        text = decoded(vocab, ids, begun=True)
        found.append(Candidate(each.step, each.segment, ids, text, each.score, each.taken))
    return tuple(found)


def _candidates(name: str, values: Any) -> tuple[Candidate, ...] | None:
    """Candidates from outside in their stored types; None for an empty list."""
    found = []
    for number, (step, segment, token_ids, piece, score, taken) in enumerate(values):
        entry = f"{name}[{number}]"
        if not isinstance(taken, bool | np.bool_):
            raise ValueError(f"{entry}.taken: true or false is needed, got {taken!r}")
        ids = None
        if token_ids is not None:
            ids = tuple(checks.integers(f"{entry}.token_ids", token_ids).tolist())
        found.append(
            Candidate(
                checks.count(f"{entry}.step", step, lowest=1),
                checks.count(f"{entry}.segment", segment),
                ids,
                checks.text(f"{entry}.piece", piece),
                _score(f"{entry}.score", score),
                bool(taken),
            )
        )
    return tuple(found) or None


def _score(name: str, value: Any) -> float | None:
    """As the file holds it: float32, and None instead of NaN."""
    if value is None:
        return None
    score = float(checks.scores(name, [value])[0])
    return None if math.isnan(score) else score


REPR_CHARACTERS = 40
MASK_SIGN = "▁"


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The canvas after `step` steps. N is the number of slots on it."""

    step: int
    slots: Int32Array  # N
    """The slots on the canvas, left to right: i is the trace's token i, N + g its ghost g."""
    revealed: NDArray[np.bool_]  # N
    pieces: tuple[str, ...]
    """The text of each slot; empty where it is masked."""
    token_ids: Int32Array | None  # N
    """Ids, valid where revealed; None for imported strings."""
    prompt: str
    prompt_ids: Int32Array | None

    @property
    def masked(self) -> Int32Array:
        """The slots on the canvas that show no token yet."""
        return self.slots[~self.revealed]

    def text(self, mask: str = MASK_SIGN, *, prompt: bool = False) -> str:
        """The canvas as text, `mask` for each masked slot."""
        shown = zip(self.pieces, self.revealed.tolist(), strict=True)
        body = "".join(piece if revealed else mask for piece, revealed in shown)
        return self.prompt + body if prompt else body

    def ids(self, mask_id: int, *, prompt: bool = False) -> Int32Array:
        """The canvas as ids, `mask_id` for each masked slot."""
        if self.token_ids is None or self.prompt_ids is None:
            raise ValueError("this trace holds strings, not ids: use text() instead of ids()")
        body = np.where(self.revealed, self.token_ids, np.int32(mask_id))
        return np.concatenate([self.prompt_ids, body]) if prompt else body

    def __len__(self) -> int:
        return len(self.slots)

    def __str__(self) -> str:
        return self.text()


class About(TypedDict, total=False):
    """Further columns of `Trace.from_tokens`."""

    task_id: str
    sample: int
    prompt: str
    program: str | None
    entry_point: str | None
    log_prob: Float32Array | None
    segment: Int32Array | None
    score: Float32Array | None
    events: Sequence[Event] | None
    candidates: Sequence[Proposal] | None
    ghosts: Sequence[Ghost] | None
    times: DoubleArray | Sequence[float] | None
    block: ArrayLike | None
    forwards: int | None
    columns: int | None
    seconds: float | None
    ties: int | None
    family: str | None
    policy: str | None
    seed: int | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Trace:
    """One sample. Per-token columns have one entry for each final token, left to right."""

    task_id: str
    sample: int
    """The number of this sample among those of its task, from 0."""
    prompt: str
    text: str
    """The generated text, up to the first end-of-sequence token."""
    program: str | None = None
    """The program found in the text, where extraction ran."""
    entry_point: str | None = None
    prompt_ids: Int32Array | None = None
    token_ids: Int32Array | None = None
    """Ids of the prompt and of the tokens; both None for imported strings."""
    char_end: Int32Array | None = None
    """Per token: where its text ends in `text`. None: only the text is known, no tokens."""
    insert_step: Int32Array | None = None
    reveal_step: Int32Array | None = None
    log_prob: Float32Array | None = None
    """Per token: log-probability when it was drawn; NaN where it was given."""
    segment: Int32Array | None = None
    """Per token: the segment it belongs to; -1 for none."""
    score: Float32Array | None = None
    """Per token: the score that chose its segment; NaN where nothing was ranked."""
    steps: int | None = None
    """The number of the last snapshot."""
    forwards: int | None = None
    columns: int | None = None
    """Columns of the canvas that the forwards computed, where counted."""
    seconds: float | None = None
    ties: int | None = None
    """How many choices of a slot to reveal were ties."""
    family: str | None = None
    policy: str | None = None
    seed: int | None = None
    events: tuple[Event, ...] | None = None
    """What slots showed before their last reveal, by step; None when each is revealed once."""
    candidates: tuple[Candidate, ...] | None = None
    """All proposals, by step and segment; None where not recorded."""
    ghosts: tuple[Ghost, ...] | None = None
    """Slots that were deleted, left to right; None where none was."""
    times: DoubleArray | None = None
    """Per step: the network's time when it was called on the canvas before that step; NaN where
    there is no such time. None: not recorded, or the network reads none."""
    block: Int32Array | None = None
    """Per token: its block, numbered from left to right, where blocks are filled one after another;
    -1 for given tokens of none. None: not recorded (blocks.py), or there are no blocks."""

    def __post_init__(self) -> None:
        try:
            # The class is frozen, and values from outside become their stored types only here.
            for name, check in _COLUMNS.items():
                value = getattr(self, name)
                if value is not None or name in _REQUIRED:
                    object.__setattr__(self, name, check(name, value))
            checks.check_tokens(self)
            checks.check_steps(self)
            checks.check_blocks(self)
            checks.check_ghosts(self)
            checks.check_events(self)
            checks.check_candidates(self)
        except ValueError as error:
            raise ValueError(f"{self._name}: {error}") from None

    @classmethod
    def from_tokens(
        cls,
        vocab: Vocab | None,
        token_ids: ArrayLike,
        *,
        prompt_ids: ArrayLike,
        insert_step: ArrayLike,
        reveal_step: ArrayLike,
        steps: int | None = None,
        mask_id: int | None = None,
        **about: Unpack[About],
    ) -> Trace:
        """A trace of ids; `steps` defaults to the largest reveal step.

        `mask_id`: tokens with this id are masks that were never revealed, and have no text.

        Without a vocabulary the text of token 17 is `<17>`. The prompt's text is decoded from
        `prompt_ids` unless `prompt` is given.
        """
        ids = checks.integers("token_ids", token_ids)
        prompt = checks.integers("prompt_ids", prompt_ids)
        reveal = checks.integers("reveal_step", reveal_step)
        begun = vocab is not None and bool(vocab.decode(prompt.tolist()))
        text, char_end = spell(vocab, ids, begun=begun, mask_id=mask_id)
        known: dict[str, Any] = {"task_id": "", "sample": 0, **about}
        known["events"] = known.get("events") or None
        if known.get("candidates") is not None:
            known["candidates"] = _spelled_candidates(vocab, known["candidates"])
        if "prompt" not in known:
            known["prompt"] = decoded(vocab, prompt.tolist())
        return cls(
            text=text,
            prompt_ids=prompt,
            token_ids=ids,
            char_end=char_end,
            insert_step=checks.integers("insert_step", insert_step),
            reveal_step=reveal,
            steps=int(reveal.max(initial=0)) if steps is None else steps,
            **known,
        )

    @classmethod
    def from_snapshots(
        cls,
        snapshots: Sequence[ArrayLike] | NDArray[Any],
        mask_id: int,
        *,
        vocab: Vocab | None = None,
        prompt_length: int = 0,
        insertion_masks: Sequence[ArrayLike] | NDArray[Any] | None = None,
        attention_masks: Sequence[ArrayLike] | NDArray[Any] | None = None,
        **about: Unpack[About],
    ) -> Trace:
        """The trace of a list of canvases, one per step, as other libraries record them.

        `insertion_masks[s]` marks the positions of snapshot s that step s created, and is needed
        when the canvas grows; `attention_masks[s]` marks the positions in use, where snapshots
        are padded. A slot still masked at the end keeps the mask id and is never revealed: its
        step is one after the last.
        """
        from anyorder.trace.history import History  # which imports this file

        history = History.read(snapshots, mask_id, insertion_masks, attention_masks)
        return history.trace(vocab, prompt_length, **about)

    @classmethod
    def from_jsonl(cls, line: str) -> Trace:
        """The trace of one line of the interchange format."""
        from anyorder.trace.interchange import parse_line

        return parse_line(line)

    def to_jsonl(self) -> str:
        """One line (without its newline) of the interchange format."""
        from anyorder.trace.interchange import format_line

        return format_line(self)

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """The text of each token. A token that adds no character has an empty piece; a character
        shared by several byte-level tokens is in the piece of the first of them."""
        if self.char_end is None:
            raise ValueError(f"{self._name} has text but no tokens: give tokens when importing it")
        ends = self.char_end.tolist()
        return tuple(self.text[a:b] for a, b in zip([0, *ends], ends, strict=False))

    @property
    def filled(self) -> str:
        """The decoded part of the text: from the first token that was not given to the last.

        Behind a prompt that is all of it. Where only the text is known, too.
        """
        return filled_text(self.text, self.char_end, self.reveal_step)

    @cached_property
    def _lives(self) -> SlotLives:
        return SlotLives.of(self)

    @property
    def slot_order(self) -> Int32Array:
        """The numbers of all slots, final ones and ghosts, from left to right."""
        return self._lives.order

    def replay(self, step: int) -> Snapshot:
        """The canvas after `step` steps, 0..steps."""
        lives = self._lives
        step = checks.count("step", step, highest=self.steps or 0)
        there = (lives.insert <= step) & (step < lives.delete)
        slots = lives.order[there[lives.order]]
        revealed = lives.reveal <= step  # per slot; narrowed to `slots` below
        pieces = list(lives.pieces)
        ids = None if lives.token_ids is None else lives.token_ids.copy()
        for event in self.events or ():
            if event.step > step:  # events are sorted by step
                break
            if lives.reveal[event.slot] <= step:
                continue
            revealed[event.slot] = event.piece is not None
            pieces[event.slot] = event.piece or ""
            if ids is not None and event.token_id is not None:
                ids[event.slot] = event.token_id
        return Snapshot(
            step=step,
            slots=slots,
            revealed=revealed[slots],
            pieces=tuple(pieces[slot] if revealed[slot] else "" for slot in slots.tolist()),
            token_ids=None if ids is None else ids[slots],
            prompt=self.prompt,
            prompt_ids=self.prompt_ids,
        )

    def changes(self) -> tuple[SlotChange, ...]:
        """All reveals, edits, masks that returned and deletions, by step, then slot."""
        return kinds_of_change(self)

    @cached_property
    def first_reveal_step(self) -> Int32Array:
        """Per token: the step at which its slot first showed any token.

        `reveal_step` is when it last changed. A token of step 0 that changes later does not count
        as shown: duo's canvases begin as noise.
        """
        first = self.timing()[1].copy()
        for event in self.events or ():
            if event.slot < len(first) and event.piece is not None and event.step > 0:
                first[event.slot] = min(first[event.slot], event.step)
        first.flags.writeable = False
        return first

    def order(self) -> NDArray[np.intp]:
        """Token indices by reveal step, left to right within a step; what never was is left out."""
        reveal = self.timing()[1]
        return np.argsort(reveal, kind="stable")[: int((reveal <= (self.steps or 0)).sum())]

    def timing(self) -> tuple[Int32Array, Int32Array]:
        """(insert_step, reveal_step); ValueError if only the text is known."""
        if self.insert_step is None or self.reveal_step is None:
            raise ValueError(
                f"{self._name} has text but no steps, so its order is unknown: "
                "import it with tokens, insert_step and reveal_step"
            )
        return self.insert_step, self.reveal_step

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __repr__(self) -> str:
        text = repr(self.text[:REPR_CHARACTERS])
        more = "..." if len(self.text) > REPR_CHARACTERS else ""
        about = f"task_id={self.task_id!r}, sample={self.sample}, steps={self.steps}"
        return f"Trace({about}, text={text}{more})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the trace player."""
        from anyorder.report.notebook import trace_html  # looking is not a trace's business

        return trace_html(self)

    @property
    def _name(self) -> str:
        return f"trace {self.task_id!r} sample {self.sample}"


def spell(
    vocab: Vocab | None,
    ids: Int32Array,
    *,
    begun: bool = False,
    mask_id: int | None = None,
) -> tuple[str, Int32Array]:
    """The text of ids up to the first end of sequence, and where each token's text ends.

    A token ends with the last character that it gives a byte to. Tokens from the end of sequence
    on, special tokens and masks (`mask_id`) add nothing. `begun`: a prompt with text stands before
    it.
    """
    if vocab is None:
        pieces = ["" if number == mask_id else f"<{number}>" for number in ids.tolist()]
        lengths = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
        return "".join(pieces), checks.integers("char_end", lengths)
    if mask_id is not None:  # the recording may have another id for it
        ids = np.where(ids == mask_id, np.int32(vocab.mask_id), ids)
    stop = vocab.end_of(ids.tolist())
    text, spans = vocab.spans(ids[:stop].tolist(), begun=begun)
    ends = [end for _, end in spans] + [len(text)] * (len(ids) - stop)
    return text, checks.integers("char_end", ends)


def filled_text(text: str, char_end: ArrayLike | None, reveal_step: ArrayLike | None) -> str:
    """`Trace.filled`, from columns: tokens of step 0 were given."""
    if char_end is None or reveal_step is None:
        return text
    decoded = np.flatnonzero(np.asarray(reveal_step))
    if not decoded.size:
        return ""
    starts = [0, *np.asarray(char_end).tolist()]
    return text[starts[decoded[0]] : starts[decoded[-1] + 1]]


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        # NaN marks a missing number, so it equals itself here.
        return bool(np.array_equal(left, right, equal_nan=left.dtype.kind == "f"))
    return type(left) is type(right) and bool(left == right)


_REQUIRED = ("task_id", "sample", "prompt", "text")
_COLUMNS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("task_id", "prompt", "text", "program", "entry_point"), checks.text),
    **dict.fromkeys(("family", "policy"), checks.text),
    **dict.fromkeys(("sample", "steps", "forwards", "columns", "ties"), checks.count),
    **dict.fromkeys(("prompt_ids", "token_ids", "char_end"), checks.integers),
    **dict.fromkeys(("insert_step", "reveal_step"), checks.integers),
    "log_prob": checks.log_probs,
    **dict.fromkeys(("segment", "block"), partial(checks.integers, lowest=-1)),
    "score": checks.scores,
    "seconds": checks.seconds,
    "seed": partial(checks.count, lowest=-checks.INT64_MAX, highest=checks.INT64_MAX),
    "events": read_events,
    "candidates": _candidates,
    "ghosts": read_ghosts,
    "times": checks.times,
}
