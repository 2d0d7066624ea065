"""Which columns of a fixed canvas a step computes: all of them, or those that a cache leaves.

    WholeCanvas    every column in every step: the exact decoder
    CachedCanvas   every column when a row enters a block, then in each step of the block

        prefix     the block and what is right of it; the prompt and closed blocks are cached
        block      the block alone; everything left and right of it is cached

as in Fast-dLLM (arXiv 2505.22618; its `dual cache` is `block`). A cached column always belongs to
the token that the canvas shows there; otherwise the whole row is read again. Out of date is only
what that column has seen of the others. `CachedStates` (nets/transformer.py) holds the columns.

When a row is read again depends on that row alone, so that batches do not change results. A row
that reveals nothing in a step is not computed in it.
Letters: B rows, L positions, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from anyorder.nets.denoiser import Denoiser
from anyorder.nets.transformer import Span, rereader_of


@dataclass(frozen=True)
class StepRows:
    """The rows before a step."""

    ids: Tensor  # B L
    real: Tensor  # B L
    block: Tensor  # B L, block numbers of free slots, -1 elsewhere
    window: Tensor  # B, the block being closed


class RowStates(NamedTuple):
    """The result of a step's network calls."""

    states: Tensor  # B L D: the one at i predicts slot i
    columns: Tensor  # B, columns computed for each row
    calls: Tensor  # B, calls that each row needed


class RowReader(Protocol):
    """Network calls on a batch of rows."""

    def states(self, before: StepRows, needed: Tensor | None) -> RowStates:
        """Only states in the window of the `needed` rows (B; None: all) are valid."""
        ...

    def keep(self, rows: Tensor, columns: int) -> None:
        """Drop all rows but these, and all columns but the first `columns`."""
        ...


class WholeCanvas:
    """The network on all columns."""

    def __init__(self, net: Denoiser) -> None:
        self.net = net

    def states(self, before: StepRows, needed: Tensor | None) -> RowStates:
        columns = before.real.sum(dim=1)
        states = self.net.hidden(before.ids, mask=before.real)
        return RowStates(states, columns, torch.ones_like(columns))

    def keep(self, rows: Tensor, columns: int) -> None:
        pass


ColumnExtent = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(slots in the window, real columns; B L each) -> the first column that steps inside a block
compute, and the end, which is excluded; B each."""


def _first(which: Tensor) -> Tensor:
    # argmax gives the first of equal maxima.
    return which.long().argmax(dim=1)


def _prefix(inside: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    return _first(inside), real.sum(dim=1)


def _block(inside: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    return _first(inside), inside.shape[1] - _first(inside.flip(1))


EXTENTS: dict[str, ColumnExtent] = {"prefix": _prefix, "block": _block}


class CachedCanvas:
    """The network on the columns of `kind`. It reads all columns of a row every `refresh` calls."""

    def __init__(self, net: Any, kind: str, refresh: int | None, before: StepRows) -> None:
        self.cache = rereader_of(net, *before.ids.shape)
        self.extent, self.refresh = EXTENTS[kind], refresh
        self.window = torch.full_like(before.window, -1)  # B, the block of the last full read
        self.age = torch.zeros_like(before.window)  # B, calls since then, including it
        self.shown = before.ids.clone()  # B L, the tokens that were read
        self.found: Tensor | None = None  # B L D

    def states(self, before: StepRows, needed: Tensor | None) -> RowStates:
        ids, real = before.ids, before.real
        first, end = self.extent(before.block == before.window[:, None], real)
        place = torch.arange(ids.shape[1], device=ids.device)
        kept = (place < first[:, None]) | (place >= end[:, None])
        # eos=fill changes tokens right of the block, so their cached columns are wrong.
        stale = (before.window != self.window) | (kept & (ids != self.shown)).any(dim=1)
        if self.refresh is not None:
            stale = stale | (self.age >= self.refresh)
        called = torch.ones_like(stale) if needed is None else needed
        full, partial = called & stale, called & ~stale
        # A shifted network also computes the column left of the block: it predicts the first slot.
        led = (first - self.cache.lead).clamp(min=0)
        if bool(full.any()):
            self._read(before, full)
        if bool(partial.any()):
            self._reread(before, partial, first, end - first)
        # A full read has just set the age to 0 and counts as the first call.
        self.age += called
        assert self.found is not None  # a row's first call is always a full read
        columns = torch.where(stale, real.sum(dim=1), end - led) * called
        return RowStates(self.found, columns, called.long())

    def _read(self, before: StepRows, which: Tensor) -> None:
        rows = places_of(which)
        chosen = slice(None) if rows is None else rows
        states = self.cache.read(before.ids[chosen], before.real[chosen], rows)
        if self.found is None:
            # Only the first read knows the width and the type of the states.
            self.found = states.new_zeros(*before.ids.shape, states.shape[-1])
        self.found[chosen] = states
        self.shown[chosen] = before.ids[chosen]
        self.window[chosen] = before.window[chosen]
        self.age[chosen] = 0

    def _reread(self, before: StepRows, which: Tensor, first: Tensor, count: Tensor) -> None:
        rows = places_of(which)
        chosen = slice(None) if rows is None else rows
        # The width must be known to the host: the one synchronisation of a partial call.
        span = Span(first[chosen], count[chosen], int(count[chosen].max()))
        states = self.cache.reread(before.ids[chosen], before.real[chosen], span, rows)
        columns, inside = span.columns()
        at, place = inside.nonzero(as_tuple=True)
        row = at if rows is None else rows[at]
        assert self.found is not None
        self.found[row, columns[at, place]] = states[at, place]

    def keep(self, rows: Tensor, columns: int) -> None:
        # The cache keeps all columns; its calls read only as many as the ids have.
        self.cache.keep(rows)
        self.window, self.age = self.window[rows], self.age[rows]
        self.shown = self.shown[rows, :columns]
        self.found = None if self.found is None else self.found[rows, :columns]


def places_of(which: Tensor) -> Tensor | None:
    """The rows chosen by a mask (B); None: all, which needs no copies."""
    return None if bool(which.all()) else which.nonzero()[:, 0]
