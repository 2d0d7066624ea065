"""Canvases to a trace, and back: import of snapshots, and replay.

Import (`History`): other libraries record a generation as one canvas per step. Slots are followed
forwards: the positions of snapshot s that step s did not create are, in order, the positions in use
of snapshot s-1. With insertion masks the lineage is exact; without them the canvas must keep its
length. Otherwise it is an error: adjacent masks look alike, and a guess would invent an order.

Replay (`Snapshot`): snapshot s has the slots with insert_step <= s in their final left-to-right
order. Slots are never deleted, so this is the left-packed canvas of that step. A slot shows its
token from its reveal step on, before that what its events say, else a mask.

Letters: S snapshots (steps + 1), N slots (in `History` the final ones, prompt included).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anyorder.trace import checks
from anyorder.trace.checks import IntArray
from anyorder.trace.trace import About, Event, Trace

if TYPE_CHECKING:
    from anyorder.vocab import Vocab

Rows = Sequence[ArrayLike] | NDArray[Any]

ABSENT = -1


@dataclass(frozen=True)
class History:
    """What each final slot showed in each snapshot."""

    shown: NDArray[np.int64]  # S N
    """Ids; ABSENT before the slot was inserted."""
    mask_id: int

    @classmethod
    def read(
        cls,
        snapshots: Rows,
        mask_id: int,
        insertion_masks: Rows | None = None,
        attention_masks: Rows | None = None,
    ) -> History:
        """Follow the slots through the snapshots; ValueError if they cannot be followed."""
        if len(snapshots) == 0:
            raise ValueError("snapshots is empty: the first is the canvas before step 1")
        rows = [_ids(number, row) for number, row in enumerate(snapshots)]
        active = _masks("attention_masks", attention_masks, rows, default=True)
        created = _masks("insertion_masks", insertion_masks, rows, default=False)
        packed = [row[used] for row, used in zip(rows, active, strict=True)]
        new = [mark[used] for mark, used in zip(created, active, strict=True)]
        for step, (mark, used) in enumerate(zip(created, active, strict=True)):
            if (mark & ~used).any():
                raise ValueError(
                    f"insertion_masks[{step}] marks position {int(np.argmax(mark & ~used))}, which "
                    f"attention_masks[{step}] leaves out: only positions in use can be new"
                )
        if insertion_masks is None:
            _check_fixed(packed)
        return cls(_follow(packed, new), checks.count("mask_id", mask_id))

    def trace(self, vocab: Vocab | None, prompt_length: int = 0, **about: Unpack[About]) -> Trace:
        """The trace of all slots after the prompt."""
        prompt_length = self._check_prompt(prompt_length)
        shown = self.shown[:, prompt_length:]
        insert = (shown != ABSENT).argmax(axis=0)
        reveal, changes = changes_of(np.where(shown == ABSENT, self.mask_id, shown), self.mask_id)
        return Trace.from_tokens(
            vocab,
            shown[-1],
            prompt_ids=self.shown[-1, :prompt_length],
            insert_step=insert,
            reveal_step=reveal,
            steps=len(shown) - 1,
            events=spelled(vocab, changes),
            **about,
        )

    def _check_prompt(self, length: int) -> int:
        length = checks.count("prompt_length", length)
        if length > int((self.shown[0] != ABSENT).sum()):
            raise ValueError(
                f"prompt_length = {length} is more than the first snapshot holds: "
                "it counts the ids in front of the answer"
            )
        prompt = self.shown[:, :length]
        moved = np.argwhere((prompt != prompt[-1]) | (prompt == self.mask_id))
        if len(moved):
            step, position = moved[0].tolist()
            raise ValueError(
                f"snapshot {step} changes, masks or inserts at position {position} of the prompt: "
                f"prompt_length = {length} is too large, or these are snapshots of several samples"
            )
        return length


class Change(NamedTuple):
    """From snapshot `step` on, `slot` shows another token; None for a mask."""

    step: int
    slot: int
    token_id: int | None


def changes_of(shown: NDArray[np.int64], mask_id: int) -> tuple[NDArray[np.int64], list[Change]]:
    """The step from which on each slot shows its last token (N), and all that it showed before.

    `shown` (S N) has the id in each slot of each snapshot; a slot begins as a mask. One that is
    still a mask at the end has the last step.
    """
    steps, final = len(shown) - 1, shown[-1]
    differs = shown != final
    reveal = np.where(differs.any(axis=0), steps + 1 - differs[::-1].argmax(axis=0), 0)
    reveal[final == mask_id] = steps
    before = np.vstack([np.full_like(shown[:1], mask_id), shown[:-1]])
    early = np.arange(len(shown))[:, None] < reveal
    changes = []
    for step, slot in np.argwhere((shown != before) & early).tolist():
        token = int(shown[step, slot])
        changes.append(Change(step, slot, None if token == mask_id else token))
    return reveal, changes


def spelled(vocab: Vocab | None, changes: Sequence[Change]) -> list[Event]:
    """The changes as events, with the text of their tokens."""
    return [Event(*change, _piece(vocab, change.token_id)) for change in changes]


def _piece(vocab: Vocab | None, token: int | None) -> str | None:
    if token is None:
        return None
    return f"<{token}>" if vocab is None else vocab.decode([token])


def active_masks(snapshots: Rows, pad_id: int, prompt_length: int = 0) -> list[NDArray[np.bool_]]:
    """Attention masks for snapshots padded on the right: all up to the last id that is no padding.

    The first `prompt_length` positions are always in use, so a prompt may end with the pad id.
    """
    masks = []
    for number, row in enumerate(snapshots):
        ids = _ids(number, row)
        used = np.flatnonzero(ids != pad_id)
        length = max(prompt_length, int(used[-1]) + 1 if used.size else 0)
        masks.append(np.arange(len(ids)) < length)
    return masks


def _follow(packed: list[NDArray[np.int32]], new: list[NDArray[np.bool_]]) -> NDArray[np.int64]:
    """Number the slots in the order of their insertion, then sort them by final position.  # S N"""
    numbers = [np.arange(len(packed[0]))]
    born = len(packed[0])
    for step in range(1, len(packed)):
        kept, had = int((~new[step]).sum()), len(packed[step - 1])
        if kept != had:
            raise ValueError(
                f"snapshot {step} keeps {kept} positions of the {had} in snapshot {step - 1}: "
                "slots cannot vanish. insertion_masks[s] marks what step s created; pass "
                "attention_masks too when snapshots are padded"
            )
        row = np.empty(len(packed[step]), dtype=np.int64)
        row[~new[step]] = numbers[-1]
        row[new[step]] = np.arange(born, born + int(new[step].sum()))
        born += int(new[step].sum())
        numbers.append(row)
    place = np.argsort(numbers[-1])  # slot number -> final position
    shown = np.full((len(packed), born), ABSENT, dtype=np.int64)  # S N
    for step, row in enumerate(numbers):
        shown[step, place[row]] = packed[step]
    return shown


def _check_fixed(packed: list[NDArray[np.int32]]) -> None:
    for step in range(1, len(packed)):
        if len(packed[step]) != len(packed[0]):
            raise ValueError(
                f"snapshot {step} has {len(packed[step])} positions and snapshot 0 has "
                f"{len(packed[0])}: which slots are new cannot be told from ids alone. "
                "Pass insertion_masks, where insertion_masks[s] marks what step s created"
            )


def _ids(number: int, row: ArrayLike) -> NDArray[np.int32]:
    array = np.asarray(row)
    if array.ndim != 1:
        raise ValueError(
            f"snapshot {number} has shape {array.shape}, a flat row of ids is needed: "
            "for a batch, make one trace per row with [snapshot[row] for snapshot in snapshots]"
        )
    return checks.integers(f"snapshot {number}", array)


def _masks(
    name: str, masks: Rows | None, rows: list[NDArray[np.int32]], *, default: bool
) -> list[NDArray[np.bool_]]:
    if masks is None:
        return [np.full(len(row), default) for row in rows]
    if len(masks) != len(rows):
        raise ValueError(f"{name} has {len(masks)} rows for {len(rows)} snapshots: one each")
    result = []
    for step, row in enumerate(rows):
        mask = np.asarray(masks[step])
        if mask.shape != row.shape:
            raise ValueError(f"{name}[{step}] has shape {mask.shape}, its snapshot {row.shape}")
        if not np.isin(mask, (0, 1)).all():
            raise ValueError(f"{name}[{step}] holds values other than true and false")
        result.append(mask.astype(bool))
    return result


MASK_SIGN = "▁"


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The canvas after `step` steps. N is the number of slots on it."""

    step: int
    slots: IntArray  # N
    """Indices of the trace's tokens on the canvas, left to right."""
    revealed: NDArray[np.bool_]  # N
    pieces: tuple[str, ...]
    """The text of each slot; empty where it is masked."""
    token_ids: IntArray | None  # N
    """Ids, valid where revealed; None for imported strings."""
    prompt: str
    prompt_ids: IntArray | None

    @property
    def masked(self) -> IntArray:
        """The slots on the canvas that show no token yet."""
        return self.slots[~self.revealed]

    def text(self, mask: str = MASK_SIGN, *, prompt: bool = False) -> str:
        """The canvas as text, `mask` for each masked slot."""
        shown = zip(self.pieces, self.revealed.tolist(), strict=True)
        body = "".join(piece if revealed else mask for piece, revealed in shown)
        return self.prompt + body if prompt else body

    def ids(self, mask_id: int, *, prompt: bool = False) -> IntArray:
        """The canvas as ids, `mask_id` for each masked slot."""
        if self.token_ids is None or self.prompt_ids is None:
            raise ValueError("this trace holds strings, not ids: use text() instead of ids()")
        body = np.where(self.revealed, self.token_ids, np.int32(mask_id))
        return np.concatenate([self.prompt_ids, body]) if prompt else body

    def __len__(self) -> int:
        return len(self.slots)

    def __str__(self) -> str:
        return self.text()


def replay(trace: Trace, step: int) -> Snapshot:
    """The snapshot of `trace` after `step` steps, 0..trace.steps."""
    insert, reveal = trace.timing()
    step = checks.count("step", step, highest=trace.steps or 0)
    slots = np.flatnonzero(insert <= step).astype(np.int32)
    revealed = reveal <= step  # per final token; narrowed to `slots` below
    pieces = list(trace.pieces)
    ids = None if trace.token_ids is None else trace.token_ids.copy()
    for event in trace.events or ():
        if event.step > step:  # events are sorted by step
            break
        if reveal[event.slot] <= step:
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
        prompt=trace.prompt,
        prompt_ids=trace.prompt_ids,
    )
