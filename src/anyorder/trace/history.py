"""Canvases of ids, one for each step, become a trace.

`History` follows slots through canvases, forwards: the positions of snapshot s that step s did not
create are, in order, the positions in use of snapshot s-1. With insertion masks this is exact;
without them the canvas must keep its length. Otherwise it is an error: adjacent masks look alike,
and a guess would invent an order. Samplers of blocks widen the canvas on the right only, when all
before is written: `padded_right` gives their canvases one width.

`trace_of_slots` is for canvases whose slots have identities, where slots may be deleted too.

Not here: what files of other libraries hold (recorders/adapters.py). Letters: L positions,
S snapshots (steps + 1), N final slots with those of the prompt.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anyorder.trace import checks
from anyorder.trace.events import changes_of, slot_history, spelled, spelled_ghosts
from anyorder.trace.trace import About, Trace

if TYPE_CHECKING:
    from anyorder.vocab import Vocab

CanvasRows = Sequence[ArrayLike] | NDArray[Any]

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
        snapshots: CanvasRows,
        mask_id: int,
        insertion_masks: CanvasRows | None = None,
        attention_masks: CanvasRows | None = None,
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
        changed = [step for step, row in enumerate(packed) if len(row) != len(packed[0])]
        if insertion_masks is None and changed:
            raise ValueError(
                f"snapshot {changed[0]} has {len(packed[changed[0]])} positions and snapshot 0 has "
                f"{len(packed[0])}: ids alone do not say which slots are new. "
                "Pass insertion_masks, where insertion_masks[s] marks what step s created"
            )
        return cls(_follow(packed, new), checks.count("mask_id", mask_id))

    def trace(self, vocab: Vocab | None, prompt_length: int = 0, **about: Unpack[About]) -> Trace:
        """The trace of all slots after the prompt."""
        prompt_length = self._check_prompt(prompt_length)
        shown = self.shown[:, prompt_length:]
        insert = (shown != ABSENT).argmax(axis=0)
        reveal, changes = changes_of(np.where(shown == ABSENT, self.mask_id, shown), self.mask_id)
        about["events"] = spelled(vocab, changes)
        return Trace.from_tokens(
            vocab,
            shown[-1],
            prompt_ids=self.shown[-1, :prompt_length],
            insert_step=insert,
            reveal_step=reveal,
            steps=len(shown) - 1,
            mask_id=self.mask_id,
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


def trace_of_slots(
    canvases: Iterable[Sequence[tuple[Hashable, int]]],
    mask_id: int,
    *,
    vocab: Vocab | None = None,
    prompt_ids: Sequence[int] = (),
    **about: Unpack[About],
) -> Trace:
    """The trace of canvases of (identity, id), without the prompt, from before step 1 on."""
    rows = list(canvases)
    found = slot_history(rows, mask_id)
    about["events"] = spelled(vocab, found.changes)
    about["ghosts"] = spelled_ghosts(vocab, found.ghosts)
    return Trace.from_tokens(
        vocab,
        found.token_ids,
        prompt_ids=prompt_ids,
        insert_step=found.insert_step,
        reveal_step=found.reveal_step,
        steps=len(rows) - 1,
        mask_id=mask_id,
        **about,
    )


def padded_right(canvases: Sequence[NDArray[Any]], mask_id: int) -> list[NDArray[Any]]:
    """Canvases (B L) that grow on the right, padded with masks to the width of the last.

    Blocks that a sampler adds are then there from the start, as masks, like those of our own
    decoders. A canvas may grow only when it is written in full and stays as it is: then the new
    columns are those on the right, whatever they hold. In a batch one such row will do, because
    rows that have ended may keep masks.
    """
    for step, (before, now) in enumerate(pairwise(canvases), start=1):
        old, new = before.shape[-1], now.shape[-1]
        if new == old:
            continue
        if new < old:
            raise ValueError(
                f"canvas {step} has {new} positions, canvas {step - 1} had {old}: every canvas "
                "needs all positions, those that a cache holds too"
            )
        changed = (now[..., :old] != before).any()
        if changed or not (before != mask_id).all(axis=-1).any():
            why = "changes earlier ones" if changed else "earlier ones are masked"
            raise ValueError(
                f"canvas {step} has {new} positions and canvas {step - 1} had {old}, and {why}: "
                "ids alone do not say which slots are new. Give what step s created as "
                "insertion_masks[s] (Trace.from_snapshots), or the identity of every slot "
                "(Recorder.canvas)"
            )
    width = canvases[-1].shape[-1]
    return [
        np.pad(
            canvas,
            [*[(0, 0)] * (canvas.ndim - 1), (0, width - canvas.shape[-1])],
            constant_values=mask_id,
        )
        for canvas in canvases
    ]


def active_masks(
    snapshots: CanvasRows, pad_id: int, prompt_length: int = 0
) -> list[NDArray[np.bool_]]:
    """Attention masks for snapshots padded on the right: all up to the last id that is not padding.

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
        old, had = int((~new[step]).sum()), len(packed[step - 1])
        if old != had:
            raise ValueError(
                f"snapshot {step} keeps {old} positions of the {had} in snapshot {step - 1}: "
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


def _ids(number: int, row: ArrayLike) -> NDArray[np.int32]:
    array = np.asarray(row)
    if array.ndim != 1:
        raise ValueError(
            f"snapshot {number} has shape {array.shape}, a flat row of ids is needed: "
            "for a batch, make one trace per row with [snapshot[row] for snapshot in snapshots]"
        )
    return checks.integers(f"snapshot {number}", array)


def _masks(
    name: str, masks: CanvasRows | None, rows: list[NDArray[np.int32]], *, default: bool
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
