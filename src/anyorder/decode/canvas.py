"""The canvas: a row of slots, some frozen and some free, and a request to fill it.

A prompt is a frozen prefix followed by free slots. Infilling is the same with frozen text between
and after the free spans. Letters: B rows, L positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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
