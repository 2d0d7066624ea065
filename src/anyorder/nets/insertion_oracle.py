"""The perfect insertion network: exact posteriors and expected gaps of a small data law.

A canvas z (after its prompt) is a clean sequence x with some tokens deleted and some masked. All
order-preserving embeddings of z into x that agree with its visible tokens count alike:

    P(x, embedding | z at progress alpha)  is proportional to  p(x) (1 - alpha)^(len x - len z),

whatever the unmasking schedule: a clean token has probability c, a masked one m and a deleted one
1 - alpha, and how many of each there are is known from z and x. With F_i(j) the number of
embeddings of the first i slots into the first j tokens, and B_i(j) that of the slots from i on into
the tokens from j on,

    slot i is token j      F_i(j) [z_i fits x_j] B_{i+1}(j+1)    embeddings
    token j is missing between slots i-1 and i    F_i(j) B_i(j+1)    embeddings,

so that posteriors and gaps are ratios of polynomials in 1 - alpha, whose coefficients are kept for
every canvas once seen. At alpha = 1 they are their limits: as few deletions as possible.

Not for real vocabularies: the work is (sequences x positions x slots) for each new canvas. Frozen
tokens after the prompt count as visible ones; gaps that cannot grow are not known here.
Letters: B rows, L positions, S sequences, J their longest, M slots of one canvas, V vocabulary,
K numbers of deletions above the fewest possible, U different canvases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from anyorder.nets.denoiser import Look

NOTHING = -60.0
"""The log of an expected number that is 0."""
PADDING = -1


class _Table(NamedTuple):
    """Coefficients of (1 - alpha)^k for one canvas."""

    total: Tensor  # K
    slots: Tensor  # K M V
    gaps: Tensor  # K M+1


class InsertionOracle:
    """An `Inserter` whose states are exact log-posteriors, and whose head passes them on.

    `data` gives the answers, without prompt, and their probabilities. The first `prompt_length`
    tokens of a canvas are its prompt, whatever they are.
    """

    def __init__(
        self,
        data: Mapping[tuple[int, ...], float],
        mask_id: int,
        vocab_size: int,
        *,
        prompt_length: int = 1,
        coordinate: str = "progress",
        insertion_exponent: float = 1.7,
        unmasking_exponent: float = 2.89,
    ) -> None:
        if coordinate not in ("progress", "raw"):
            raise ValueError(f"the coordinate must be 'progress' or 'raw', not {coordinate!r}")
        if prompt_length < 1:
            raise ValueError("a canvas needs a token before its first gap: prompt_length >= 1")
        weight = sum(data.values())
        if not weight > 0 or min(data.values()) < 0:
            raise ValueError("the data need probabilities that are not negative, and not all 0")
        self.longest = max(len(sequence) for sequence in data)
        padded = [(*x, *[PADDING] * (self.longest - len(x))) for x in data]
        self.sequences = torch.tensor(padded, dtype=torch.int64)  # S J
        self.real = self.sequences != PADDING
        self.weights = torch.tensor([p / weight for p in data.values()], dtype=torch.float64)
        self.mask_id, self.vocab_size, self.prompt_length = mask_id, vocab_size, prompt_length
        self.coordinate = coordinate
        self.insertion_exponent = insertion_exponent
        self.unmasking_exponent = unmasking_exponent
        self._tables: dict[tuple[int, ...], _Table] = {}

    def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
        """Log-posteriors of the slots after the prompt, and log expected gaps.

        States of the prompt and of padding are 0, their gaps `NOTHING`, but for the gap after the
        prompt's last token. `time` (B) is alpha, or t where the coordinate is raw.
        """
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        if ids.shape[1] < self.prompt_length or not bool(real[:, : self.prompt_length].all()):
            raise ValueError(f"a row is shorter than its prompt of {self.prompt_length} tokens")
        rows = ids.masked_fill(~real, PADDING)[:, self.prompt_length :].cpu()
        canvases, which = _different(rows)  # U M, B
        total, slots, gaps = self._stacked(canvases)
        power = self._left(time)[:, None] ** torch.arange(total.shape[1])  # B K, 0^0 = 1
        weight = (power * total[which]).sum(dim=1)  # B
        mass = torch.einsum("bk,bkmv->bmv", power, slots[which]) / weight[:, None, None]
        missing = torch.einsum("bk,bkm->bm", power, gaps[which]) / weight[:, None]
        states = torch.zeros(*ids.shape, self.vocab_size, dtype=torch.float64)
        states[:, self.prompt_length :] = mass.log().masked_fill((rows == PADDING)[:, :, None], 0.0)
        open_gaps = torch.full(ids.shape, NOTHING, dtype=torch.float64)
        open_gaps[:, self.prompt_length - 1 :] = missing.log().clamp(min=NOTHING)
        return Look(states.to(ids.device), open_gaps.to(ids.device))

    def head(self, states: Tensor) -> Tensor:
        return states

    def _left(self, time: Tensor) -> Tensor:
        """1 - alpha.  # B"""
        left = 1 - time.to("cpu", torch.float64)
        if not bool(((left >= 0) & (left <= 1)).all()):
            raise ValueError("the oracle's time must be in [0, 1]")
        return left if self.coordinate == "progress" else left**self.insertion_exponent

    def _stacked(self, canvases: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The tables of right-padded canvases (U M): U K, U K M V and U K M+1."""
        tables = [self._table(row) for row in canvases.tolist()]
        count, width, powers = len(tables), canvases.shape[1], self.longest + 1
        total = torch.zeros(count, powers, dtype=torch.float64)
        slots = torch.zeros(count, powers, width, self.vocab_size, dtype=torch.float64)
        gaps = torch.zeros(count, powers, width + 1, dtype=torch.float64)
        for index, table in enumerate(tables):
            terms, length = table.slots.shape[:2]
            total[index, :terms] = table.total
            slots[index, :terms, :length] = table.slots
            gaps[index, :terms, : length + 1] = table.gaps
        return total, slots, gaps

    def _table(self, padded: Sequence[int]) -> _Table:
        canvas = tuple(token for token in padded if token != PADDING)
        if canvas not in self._tables:
            self._tables[canvas] = self._count(canvas)
        return self._tables[canvas]

    def _count(self, canvas: tuple[int, ...]) -> _Table:
        """Embeddings into every sequence, weighted by p(x), by number of deletions."""
        sequences, real = self.sequences, self.real.double()
        count, length = sequences.shape
        shown = torch.tensor(canvas, dtype=torch.int64)[:, None, None]
        fits = ((shown == sequences) | (shown == self.mask_id)) * real  # M S J
        before = torch.zeros(len(canvas) + 1, count, length + 1, dtype=torch.float64)
        after = torch.zeros_like(before)  # M+1 S J+1
        before[0], after[-1] = 1, 1
        for i in range(len(canvas)):
            before[i + 1, :, 1:] = (fits[i] * before[i, :, :-1]).cumsum(dim=1)
        for i in reversed(range(len(canvas))):
            after[i, :, :-1] = (fits[i] * after[i + 1, :, 1:]).flip(1).cumsum(dim=1).flip(1)
        slots = before[:-1, :, :-1] * fits * after[1:, :, 1:] * self.weights[:, None]  # M S J
        gaps = before[:, :, :-1] * real * after[:, :, 1:] * self.weights[:, None]  # M+1 S J
        deleted = (real.sum(dim=1).long() - len(canvas)).clamp(min=0)  # S; longer ones fit nowhere
        return self._by_deletions(deleted, before[-1, :, -1] * self.weights, slots, gaps)

    def _by_deletions(self, deleted: Tensor, total: Tensor, slots: Tensor, gaps: Tensor) -> _Table:
        powers = self.longest + 1
        totals = torch.zeros(powers, dtype=torch.float64).index_add(0, deleted, total)
        possible = totals.nonzero()[:, 0]
        if not len(possible):
            raise ValueError(
                "no sequence of the data explains this canvas: too many slots, or tokens that "
                "never occur together in this order"
            )
        token = deleted[:, None] * self.vocab_size + self.sequences.clamp(min=0)  # S J
        by_token = torch.zeros(powers * self.vocab_size, len(slots), dtype=torch.float64)
        by_token.index_add_(0, token.flatten(), slots.flatten(1).T)
        by_gap = torch.zeros(powers, len(gaps), dtype=torch.float64)
        by_gap.index_add_(0, deleted, gaps.sum(dim=2).T)
        fewest = int(possible[0])
        by_slot = by_token.reshape(powers, self.vocab_size, len(slots)).transpose(1, 2)
        return _Table(totals[fewest:], by_slot[fewest:], by_gap[fewest:])


def _different(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The different rows of a table, and which of them each row is."""
    if not rows.shape[1]:  # `unique` refuses a table without columns
        return rows[:1], torch.zeros(len(rows), dtype=torch.int64)
    different, which = torch.unique(rows, dim=0, return_inverse=True)
    return different, which
