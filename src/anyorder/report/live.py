"""A generation as it happens: one small message per step for the trace player's live mode.

A decoder shows its whole canvas after every step; the player wants what changed. A message is

    {"step": s,
     "replace": [[at, [[piece, logp], ...]], ...]   an open segment at `at` became these tokens
     "insert":  [at, ...]                           new masked slots
     "show":    [[at, piece, logp], ...]            a slot shows a token
     "hide":    [at, ...]}                          a slot is masked again

to be applied in this order; keys with nothing in them are left out. Places of `replace` count in
the canvas before the step, all others in the canvas after it. `logp` is as in traces.py. The first
message is of step 0 and builds the canvas from nothing, also where a decoder shows itself only
after its first step.

It does not decode, and it knows no network: whoever serves the page calls it from a `Watcher`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

from anyorder.report.traces import UNKNOWN
from anyorder.vocab import Vocab


class CanvasSeen(Protocol):
    """One canvas after a step; decode/canvas.py: Seen is one. Open slots hold the mask id.

    `segment`, where the decoder gives it (a list, one number per item), says which items belong to
    one segment; an open segment is a single item.
    """

    @property
    def step(self) -> int: ...
    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def insert_step(self) -> Sequence[int]: ...
    @property
    def reveal_step(self) -> Sequence[int]: ...
    @property
    def log_prob(self) -> Sequence[float]: ...


@dataclass
class _Item:
    piece: str | None
    """None while it is masked."""
    logp: int


@dataclass(frozen=True)
class _Start:
    """The canvas before the first step, told from the one after it."""

    token_ids: list[int]
    insert_step: list[int]
    reveal_step: list[int]
    log_prob: list[float]
    segment: list[int] | None
    step: int = 0

    @classmethod
    def of(cls, seen: CanvasSeen, mask_id: int) -> _Start:
        """What was there from the start, masked unless it was given; an open segment once."""
        segment: Sequence[int] | None = getattr(seen, "segment", None)
        ids: list[int] = []
        numbers: list[int] = []
        for at, number in enumerate(seen.token_ids):
            if seen.insert_step[at] > 0:
                continue
            given = number != mask_id and seen.reveal_step[at] == 0
            place = at if segment is None or segment[at] < 0 else segment[at]
            if not given and segment is not None and numbers[-1:] == [place]:
                continue
            ids.append(number if given else mask_id)
            numbers.append(place)
        zeros = [0] * len(ids)
        nans = [math.nan] * len(ids)
        return cls(ids, zeros, zeros, nans, None if segment is None else numbers)


@dataclass
class LiveSteps:
    """The messages of one generation, asked for once per step, in order."""

    vocab: Vocab
    cuts: bool = True
    """Whether nothing is shown after an end of sequence, as in a trace's text. Not where an end may
    still become another token: a trace then holds all that was shown behind it."""
    _before: list[list[_Item]] = field(default_factory=list)
    """The canvas of the last message: its segments, or its slots one by one."""
    _last: int = -1
    """The step of the last message."""

    def messages(self, seen: CanvasSeen) -> list[dict[str, Any]]:
        """What changed since the last call; the first call tells of step 0 as well."""
        told = []
        if self._last < 0 < seen.step:
            told.append(self.message(_Start.of(seen, self.vocab.mask_id)))
        return [*told, self.message(seen)]

    def message(self, seen: CanvasSeen) -> dict[str, Any]:
        """The same for who shows step 0 too."""
        segment: Sequence[int] | None = getattr(seen, "segment", None)
        blocks = _blocks(self._items(seen, cut=self.cuts and segment is None), segment)
        is_new = self._new_blocks(seen, blocks)
        found = _Changes()
        before = iter(self._before)
        for block, new in zip(blocks, is_new, strict=True):
            found.add(block, None if new else next(before))
        self._before = blocks
        self._last = seen.step
        return found.message(seen.step)

    def _new_blocks(self, seen: CanvasSeen, blocks: list[list[_Item]]) -> list[bool]:
        """Which blocks were not there before: inserted since the last message."""
        flags, at = [], 0
        for block in blocks:
            flags.append(seen.insert_step[at] > self._last)
            at += len(block)
        if flags.count(False) != len(self._before):
            raise ValueError(
                f"step {seen.step}: {flags.count(False)} old slots where there were "
                f"{len(self._before)}; a decoder of segments must say `segment` for each item"
            )
        return flags

    def _items(self, seen: CanvasSeen, *, cut: bool) -> list[_Item]:
        pieces = self._pieces(seen.token_ids, cut)
        return [
            _Item(piece, UNKNOWN if math.isnan(value) else max(0, round(-1000 * value)))
            for piece, value in zip(pieces, seen.log_prob, strict=True)
        ]

    def _pieces(self, ids: Sequence[int], cut: bool) -> list[str | None]:
        """What each slot shows. `cut`: nothing after an end of sequence, as in a trace's text."""
        pieces: list[str | None] = [None] * len(ids)
        ended = False
        start = 0
        while start < len(ids):
            stop = start
            while stop < len(ids) and ids[stop] != self.vocab.mask_id:
                stop += 1
            run = list(ids[start:stop])
            kept = run.index(self.vocab.eos_id) if cut and self.vocab.eos_id in run else len(run)
            text, spans = self.vocab.spans(run[: 0 if ended else kept])
            ends = [0, *(end for _, end in spans)]
            texts = [text[a:b] for a, b in pairwise(ends)]
            pieces[start:stop] = texts + [""] * (len(run) - len(texts))
            ended = ended or kept < len(run)
            start = stop + 1
        return pieces


@dataclass
class _Changes:
    replace: list[Any] = field(default_factory=list)
    insert: list[int] = field(default_factory=list)
    show: list[Any] = field(default_factory=list)
    hide: list[int] = field(default_factory=list)
    _old: int = 0
    _new: int = 0

    def add(self, block: list[_Item], before: list[_Item] | None) -> None:
        """The next block of the canvas, and what it was."""
        if before is None:
            self.insert += range(self._new, self._new + len(block))
            before = [_Item(None, UNKNOWN)] * len(block)
        else:
            at = self._old
            self._old += len(before)
            if len(before) != len(block):
                assert len(before) == 1, "only an open segment changes its length"
                self.replace.append([at, [[item.piece, item.logp] for item in block]])
                before = block
        for at, (item, was) in enumerate(zip(block, before, strict=True), self._new):
            if item.piece != was.piece:
                if item.piece is None:
                    self.hide.append(at)
                else:
                    self.show.append([at, item.piece, item.logp])
        self._new += len(block)

    def message(self, step: int) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in ("replace", "insert", "show", "hide")}
        return {"step": step, **{name: value for name, value in parts.items() if value}}


def _blocks(items: list[_Item], segment: Sequence[int] | None) -> list[list[_Item]]:
    """Items of one segment together; each alone where there are no segments."""
    if segment is None:
        return [[item] for item in items]
    blocks: list[list[_Item]] = []
    last: int | None = None
    for item, number in zip(items, segment, strict=True):
        if number != last or number < 0:
            blocks.append([])
        blocks[-1].append(item)
        last = number
    return blocks
