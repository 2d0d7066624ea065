"""What happens to slots beyond one insertion and one reveal: edits, masks that return, deletions.

All slots that ever were on a canvas have one order, which never changes: a slot is inserted between
two others, and may be deleted, but does not move. So a slot is known by its number, whatever is
inserted or deleted before it:

    0 .. N-1        the final slots, left to right: the columns of a trace
    N .. N+G-1      *ghosts*, slots that were deleted, left to right (`Ghost`)

Two lists add to the columns what slots showed at other times:

    events    what a slot showed before its last reveal. `Event` has the text of the token, `Change`
              is the same as a decoder records it
    ghosts    the deleted slots: where they stood, when they lived, what they showed last

`kinds_of_change` names what every step did with every slot, as `SlotChange`. Two functions make
these records from canvases: `changes_of` where no slot comes or goes, and `slot_history` where
slots have identities.

Not here: the trace itself and its replay (trace.py). Letters: S snapshots (steps + 1), N slots.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anyorder.trace import checks
from anyorder.trace.checks import Int32Array

if TYPE_CHECKING:
    from anyorder.trace.trace import Trace
    from anyorder.vocab import Vocab

NEVER = checks.INT32_MAX
"""The reveal step of a slot that was deleted as a mask, and the delete step of a final slot."""


class Event(NamedTuple):
    """From snapshot `step` until its next event or its last reveal, `slot` shows `piece`."""

    step: int
    slot: int
    """A final slot, or the number of tokens plus the number of a ghost."""
    token_id: int | None
    """The id shown; None for a mask, and for imported strings."""
    piece: str | None
    """The text shown; None for a mask."""


class Change(NamedTuple):
    """From snapshot `step` on, `slot` shows another token; None for a mask."""

    step: int
    slot: int
    token_id: int | None


class Ghost(NamedTuple):
    """A slot that was deleted: on the canvas while insert_step <= s < delete_step."""

    after: int
    """The final slot behind which it stood; -1: before all. Ghosts of one place are in order."""
    insert_step: int
    reveal_step: int | None
    """When it last changed to the token that it showed at the end; None: it was deleted as a
    mask."""
    delete_step: int
    token_id: int | None
    """The last id; None for a mask, and for imported strings."""
    piece: str | None
    """The last text; None for a mask, and in a decoder's record, which has ids only."""


ChangeKind = Literal["reveal", "edit", "mask", "delete"]


class SlotChange(NamedTuple):
    """In step `step`, `slot` changed from a token or a mask to another, or was deleted."""

    step: int
    slot: int
    kind: ChangeKind
    """reveal: mask to token. edit: token to another. mask: token to mask. delete: it is gone."""
    token_id: int | None
    piece: str | None
    """After the change; None for a mask and for a deleted slot. Imported strings have no ids."""
    old_token_id: int | None
    old_piece: str | None
    """Before it."""


class SlotLives(NamedTuple):
    """The slots of a trace, final ones and ghosts, by number. M = N + G."""

    insert: Int32Array  # M
    reveal: Int32Array  # M, NEVER if it was deleted as a mask
    delete: Int32Array  # M, NEVER if it is final
    order: Int32Array  # M, the numbers from left to right
    token_ids: Int32Array | None  # M, of the last token
    pieces: tuple[str, ...]  # M, likewise; "" for a mask

    @classmethod
    def of(cls, trace: Trace) -> SlotLives:
        insert, reveal = trace.timing()
        ghosts, count = trace.ghosts or (), len(insert)
        never = np.full(count, NEVER, dtype=np.int32)
        if not ghosts:
            number = np.arange(count, dtype=np.int32)
            return cls(insert, reveal, never, number, trace.token_ids, trace.pieces)
        after, born, shown, gone, last, pieces = zip(*ghosts, strict=True)
        ids = trace.token_ids
        if ids is not None:
            ids = _joined(ids, [token or 0 for token in last])
        # A final slot comes before the ghosts behind it; the sort is stable among those.
        place = np.concatenate([2 * np.arange(count), 2 * np.asarray(after) + 1])
        return cls(
            insert=_joined(insert, born),
            reveal=_joined(reveal, [NEVER if step is None else step for step in shown]),
            delete=_joined(never, gone),
            order=np.argsort(place, kind="stable").astype(np.int32),
            token_ids=ids,
            pieces=(*trace.pieces, *(piece or "" for piece in pieces)),
        )


def _joined(column: Int32Array, more: Sequence[int]) -> Int32Array:
    return np.concatenate([column, np.asarray(more, dtype=np.int32)])


def kinds_of_change(trace: Trace) -> tuple[SlotChange, ...]:
    """Every change of a trace's slots, by step, then slot. What is there at step 0 was given."""
    lives = SlotLives.of(trace)
    shows: list[list[Event]] = [[] for _ in lives.pieces]
    for event in trace.events or ():
        shows[event.slot].append(event)
    ids = [None] * len(shows) if lives.token_ids is None else lives.token_ids.tolist()
    last = zip(lives.reveal.tolist(), ids, lives.pieces, lives.delete.tolist(), strict=True)
    found: list[SlotChange] = []
    for slot, (reveal, token_id, piece, gone) in enumerate(last):
        shown = shows[slot]
        if reveal <= (trace.steps or 0):  # a later one is never
            shown.append(Event(reveal, slot, token_id, piece))
        was: tuple[int | None, str | None] = (None, None)
        for event in shown:
            now = (event.token_id, event.piece)
            kind = _kind(was, now)
            if kind is not None and event.step > 0:
                found.append(SlotChange(event.step, slot, kind, *now, *was))
            was = now
        if gone != NEVER:
            found.append(SlotChange(gone, slot, "delete", None, None, *was))
    return tuple(sorted(found, key=lambda change: change[:2]))


def _kind(
    was: tuple[int | None, str | None], now: tuple[int | None, str | None]
) -> ChangeKind | None:
    """The kind of a change between two (id, text); None: nothing changed."""
    if was[1] is None:
        return None if now[1] is None else "reveal"
    if now[1] is None:
        return "mask"
    # Ids decide where there are some: the text of a token may depend on its neighbours.
    same = was[1] == now[1] if now[0] is None else was[0] == now[0]
    return None if same else "edit"


def changes_of(shown: NDArray[np.int64], mask_id: int) -> tuple[NDArray[np.int64], list[Change]]:
    """The step from which on each slot shows its last token (N), and all that it showed before.

    `shown` (S N) has the id in each slot of each snapshot; a slot begins as a mask. One that is
    still a mask at the end is never revealed: its step is one after the last.
    """
    steps, final = len(shown) - 1, shown[-1]
    differs = shown != final
    reveal = np.where(differs.any(axis=0), steps + 1 - differs[::-1].argmax(axis=0), 0)
    reveal[final == mask_id] = steps + 1
    before = np.vstack([np.full_like(shown[:1], mask_id), shown[:-1]])
    early = np.arange(len(shown))[:, None] < reveal
    changes = []
    for step, slot in np.argwhere((shown != before) & early).tolist():
        token = int(shown[step, slot])
        changes.append(Change(step, slot, None if token == mask_id else token))
    return reveal, changes


class SlotHistory(NamedTuple):
    """The columns and records of a trace whose slots were followed through canvases."""

    slots: list[Hashable]
    """The identity of each final slot."""
    token_ids: list[int]
    insert_step: list[int]
    reveal_step: list[int]
    changes: list[Change]
    ghosts: list[Ghost]
    """Without text: `spelled_ghosts` adds it."""


class _Life(NamedTuple):
    """One slot while canvases are read."""

    insert: int
    shown: list[int]
    """Its id in each snapshot from `insert` on."""


def slot_history(canvases: Iterable[Sequence[tuple[Hashable, int]]], mask_id: int) -> SlotHistory:
    """Follow slots through canvases, one per step from before step 1 on.

    A canvas lists (identity, id shown) from left to right. Identities are unique and may be of any
    hashable type. A slot that is still a mask at the end keeps the mask id and is never revealed:
    its step is one after the last.
    """
    lives: dict[Hashable, _Life] = {}
    order: list[Hashable] = []  # all slots so far, from left to right
    step, alive = -1, list[Hashable]()
    for step, canvas in enumerate(canvases):
        _extend_order(order, [slot for slot, _ in canvas], set(alive), lives.keys(), step)
        for slot, token in canvas:
            lives.setdefault(slot, _Life(step, [])).shown.append(int(token))
        alive = [slot for slot, _ in canvas]
    if step < 0:
        raise ValueError("no canvases: the first is the one before step 1")
    return _recorded(lives, order, alive, step, mask_id)


def _extend_order(
    order: list[Hashable], canvas: list[Hashable], alive: set[Hashable], known: Any, step: int
) -> None:
    """Put the new slots of a canvas into the order, each behind its left neighbour."""
    if len(set(canvas)) < len(canvas):
        raise ValueError(f"canvas {step}: a slot is there twice: give each its own identity")
    place = -1
    for slot in canvas:
        if slot not in known:
            place += 1
            order.insert(place, slot)
            continue
        if slot not in alive:
            raise ValueError(
                f"canvas {step}: slot {slot!r} was deleted before: give a new slot a new identity"
            )
        try:
            place = order.index(slot, place + 1)
        except ValueError:
            raise ValueError(
                f"canvas {step}: slot {slot!r} has moved: slots keep their order"
            ) from None


def _recorded(
    lives: dict[Hashable, _Life],
    order: Sequence[Hashable],
    final: list[Hashable],
    steps: int,
    mask_id: int,
) -> SlotHistory:
    number = {slot: place for place, slot in enumerate(final)}
    found = SlotHistory(final, [], [], [], [], [])
    for slot in order:
        insert, shown = lives[slot]
        last, stays = shown[-1], len(shown) - 1
        while stays and shown[stays - 1] == last:
            stays -= 1
        reveal: int | None = insert + stays  # since when it shows its last token
        if slot in number:
            reveal = steps + 1 if last == mask_id else reveal
            found.token_ids.append(last)
            found.insert_step.append(insert)
            found.reveal_step.append(reveal or 0)
            own, until = number[slot], reveal or 0
        else:
            masked = last == mask_id
            reveal, gone = None if masked else reveal, insert + len(shown)
            token = None if masked else last
            own, until = len(final) + len(found.ghosts), gone if reveal is None else reveal
            after = len(found.token_ids) - 1
            found.ghosts.append(Ghost(after, insert, reveal, gone, token, None))
        found.changes.extend(_own_changes(lives[slot], own, until, mask_id))
    found.changes.sort(key=lambda change: change[:2])
    return found


def _own_changes(life: _Life, slot: int, until: int, mask_id: int) -> Iterable[Change]:
    """What one slot showed before step `until`; it begins as a mask."""
    was = mask_id
    for step, token in enumerate(life.shown[: until - life.insert], life.insert):
        if token != was:
            yield Change(step, slot, None if token == mask_id else token)
        was = token


def decoded(vocab: Vocab | None, ids: Sequence[int], *, begun: bool = False) -> str:
    """The text of ids; without a vocabulary token 17 is `<17>`."""
    return vocab.decode(ids, begun=begun) if vocab else "".join(f"<{number}>" for number in ids)


def spelled(vocab: Vocab | None, changes: Sequence[Change]) -> list[Event]:
    """The changes as events, with the text of their tokens."""
    return [
        Event(
            *change,
            None if change.token_id is None else decoded(vocab, [change.token_id], begun=True),
        )
        for change in changes
    ]


def spelled_ghosts(vocab: Vocab | None, ghosts: Sequence[Ghost]) -> list[Ghost]:
    """The ghosts of a decoder, with the text of their tokens."""
    return [
        ghost._replace(
            piece=None if ghost.token_id is None else decoded(vocab, [ghost.token_id], begun=True)
        )
        for ghost in ghosts
    ]


def read_events(name: str, values: Any) -> tuple[Event, ...] | None:
    """Events from outside in their stored types; None for an empty list."""
    events = []
    for number, (step, slot, token_id, piece) in enumerate(values):
        entry = f"{name}[{number}]"
        events.append(
            Event(
                checks.count(f"{entry}.step", step),
                checks.count(f"{entry}.slot", slot),
                None if token_id is None else checks.count(f"{entry}.token_id", token_id),
                None if piece is None else checks.text(f"{entry}.piece", piece),
            )
        )
    return tuple(events) or None


def read_ghosts(name: str, values: Any) -> tuple[Ghost, ...] | None:
    """Ghosts from outside in their stored types; None for an empty list."""
    ghosts = []
    for number, (after, insert, reveal, delete, token_id, piece) in enumerate(values):
        entry = f"{name}[{number}]"
        ghosts.append(
            Ghost(
                checks.count(f"{entry}.after", after, lowest=-1),
                checks.count(f"{entry}.insert_step", insert),
                None if reveal is None else checks.count(f"{entry}.reveal_step", reveal),
                checks.count(f"{entry}.delete_step", delete),
                None if token_id is None else checks.count(f"{entry}.token_id", token_id),
                None if piece is None else checks.text(f"{entry}.piece", piece),
            )
        )
    return tuple(ghosts) or None
