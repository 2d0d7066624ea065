"""The decoding loop of all families: step, show, collect finished rows, continue with the rest.

    while rows are left:
        advance    one step of all rows (a family's `Stepper`)
        watch      show the rows to the watcher, if there is one
        collect    the results of finished rows
        keep       drop them, so that the next step computes only unfinished rows

A stepper owns the state of its batch, which usually is a dataclass of tensors with one entry per
row (B) or one line of slots per row (B L).

`Proposer` is the vocabulary side of a step, shared by the families that reveal slots:

    rank      logits of the open slots -> a score for each, and its token where the choice needs it
    reveal    logits of the taken slots -> their tokens and log-probabilities, written down

The head runs on chosen slots only and in pieces, so that memory stays bounded; ids that a slot must
not hold have probability 0. All noise is keyed by (row key, slot, step).
Letters: B rows, L positions, N chosen slots, V vocabulary, D width.

Not here: what else a step does (families/*/decode.py), and how a canvas is drawn for a human
(apps/show.py for the terminal, apps/play/ for the page).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from anyorder.decode.canvas import Decoded, Watcher
from anyorder.decode.draw import Draw, Posterior, filtered, pick, pick_from, refuse_nan, text_logits
from anyorder.decode.policy import Items, Policy, Ranking, near_ties_as_ties, tie_noise
from anyorder.process.noise import Stream, uniform
from anyorder.vocab import Vocab


class Stepper(Protocol):
    """A batch that is being decoded by one family. Steps are counted from 1."""

    @property
    def row(self) -> Tensor:
        """The numbers in the request of the rows that are left.  # B"""
        ...

    def advance(self, step: int) -> None:
        """Take one step with all rows."""
        ...

    def done(self, step: int) -> Tensor:
        """Which rows are finished after `step` steps; called with 0 before the first.  # B"""
        ...

    def collect(self, index: int, step: int) -> Decoded:
        """The result of the row at this index after `step` steps, finished or not."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these (indices, at least one)."""
        ...


def run(stepper: Stepper, watch: Watcher | None = None) -> list[Decoded]:
    """Decode until every row is finished; the results in the order of the request."""
    results: dict[int, Decoded] = {}
    step = 0
    while True:
        # Before the first step too: a canvas without room is finished from the start.
        done = stepper.done(step)
        if bool(done.any()):  # the loop's one wait for the device in a step
            results |= _collected(stepper, done.nonzero()[:, 0].tolist(), step)
            left = (~done).nonzero()[:, 0]
            if not len(left):
                return [results[number] for number in sorted(results)]
            stepper.keep(left)
        step += 1
        stepper.advance(step)
        if watch is not None:
            # Before finished rows leave, so that their last step is shown too.
            watch(list(_collected(stepper, range(len(stepper.row)), step).values()))


def _collected(stepper: Stepper, at: Sequence[int], step: int) -> dict[int, Decoded]:
    numbers = stepper.row.tolist()
    return {
        numbers[index]: replace(stepper.collect(index, step), row=numbers[index]) for index in at
    }


def keep_rows(batch: Any, rows: Tensor, lengths: str) -> None:
    """Drop the other rows of a dataclass of tensors, and the columns that only they needed.

    `lengths` names the field with the lengths of rows: slots (B), or real positions (B L).
    """
    for each in fields(batch):
        setattr(batch, each.name, getattr(batch, each.name)[rows])
    given = getattr(batch, lengths)
    longest = int((given.sum(dim=1) if given.dim() == 2 else given).max())
    for each in fields(batch):
        value = getattr(batch, each.name)
        if value.dim() == 2:
            setattr(batch, each.name, value[:, :longest])


def counted_from(first: int, watch: Watcher | None) -> Watcher | None:
    """The watcher of a batch whose rows are numbered from `first` on."""
    if watch is None or first == 0:
        return watch

    def renumbered(rows: Sequence[Decoded]) -> None:
        watch([replace(each, row=first + each.row) for each in rows])

    return renumbered


class TimedWatcher:
    """A watcher that counts its own time, so that it can be taken off the decoder's."""

    def __init__(self, watch: Watcher) -> None:
        self.watch = watch
        self.seconds = 0.0

    def __call__(self, rows: Sequence[Decoded]) -> None:
        started = time.perf_counter()
        self.watch(rows)
        self.seconds += time.perf_counter() - started


HEAD_BUDGET = 1 << 23
"""Logits held at once, in numbers: larger canvases pass through the head in pieces."""
AHEAD, READ_BUDGET = 4, 1 << 20
"""A `Proposer` computes AHEAD times HEAD_BUDGET logits at once, because the head is faster on more
slots, and reads READ_BUDGET of them at a time, so that a CPU keeps intermediate values in cache."""


def slices(count: int, vocab: Vocab, times: int = 1) -> Iterator[slice]:
    """`count` slots in pieces that fit HEAD_BUDGET (or `times` as much)."""
    size = max(1, times * HEAD_BUDGET // vocab.size)
    return (slice(first, first + size) for first in range(0, count, size))


def pieces(chosen: Tensor, vocab: Vocab, times: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows and positions of the chosen slots (B L), few enough at a time for the head."""
    row, position = chosen.nonzero(as_tuple=True)
    return ((row[piece], position[piece]) for piece in slices(len(row), vocab, times))


@dataclass(frozen=True)
class StepView:
    """The result of one network call on the rows."""

    states: Tensor  # B L D
    key: Tensor  # B
    slot: Tensor  # B L, the slot numbers that key the noise
    step: int
    odds: Tensor | None = None  # B L, a planner's, if the policy reads them


@dataclass(frozen=True)
class Proposer:
    """Reads the vocabulary head of a network for a policy."""

    head: Callable[[Tensor], Tensor]
    """N D -> N V."""
    vocab: Vocab
    policy: Policy
    draw: Draw
    forbidden: tuple[int, ...]
    """Ids that no slot may hold; those beyond the vocabulary never may."""
    waits_for: tuple[int, ...] = ()
    """A slot that proposes one of these tokens comes after all others."""
    reshuffles: bool = False
    """Draw a random order again in each step, so that slots which join late have no advantage."""
    draws_first: bool = False
    """Draw tokens for all candidates, even if the choice does not depend on them."""

    @property
    def draws(self) -> bool:
        """Whether ranking draws the tokens of all candidates."""
        return self.draws_first or self.policy.score.reads == "token" or bool(self.waits_for)

    def rank(self, view: StepView, eligible: Tensor) -> tuple[Ranking, Tensor | None]:
        """The ranking of the eligible slots, and their tokens if they had to be drawn (B L)."""
        shape, device, score = eligible.shape, eligible.device, self.policy.score
        scores = torch.full(shape, -torch.inf, dtype=torch.float64, device=device)
        waits = torch.zeros(shape, dtype=torch.bool, device=device)
        tie_break = tie_noise(self.policy, view.key, view.step, shape[1], view.slot)
        ranking = Ranking(scores, eligible, waits, tie_break)
        tokens = torch.zeros(shape, dtype=torch.int64, device=device) if self.draws else None
        if not score.reads_vocabulary:
            row, position = eligible.nonzero(as_tuple=True)
            found = score.rank(self._items(view, row, position))
            # Positions and keyed noise are exact; log-odds carry the network's rounding.
            scores[row, position] = found if view.odds is None else near_ties_as_ties(found)
            if tokens is None:
                return ranking, None
        for row, position, logits in self._read(view, eligible):
            self._propose(view, (row, position), logits, ranking, tokens)
            del logits  # before the next piece: two pieces at once would double the memory
        return ranking, tokens

    def reveal(
        self, view: StepView, taken: Tensor, tokens: Tensor | None, ids: Tensor, log_prob: Tensor
    ) -> None:
        """Write the taken slots' tokens into `ids` and their untempered `log_prob` (all B L)."""
        for row, position, logits in self._read(view, taken):
            if tokens is None:
                drawn = pick(logits, self.draw, _token_noise(view, row, position))
            else:
                drawn = tokens[row, position]
            found = Posterior(logits).log_prob(drawn)
            del logits  # before the next piece: two pieces at once would double the memory
            refuse_nan(found, view.step)
            ids[row, position] = drawn
            log_prob[row, position] = found

    def probabilities(self, view: StepView, chosen: Tensor, row: int) -> Tensor:
        """The untempered posteriors of the chosen slots of one row.  # N V"""
        position = chosen[row].nonzero()[:, 0]
        return self.logits(view, torch.full_like(position, row), position).softmax(-1)

    def logits(self, view: StepView, row: Tensor, position: Tensor) -> Tensor:
        """Logits of chosen slots, without the ids that a slot must not hold.  # N V"""
        return text_logits(self.head(view.states[row, position]), self.vocab, self.forbidden)

    def _read(self, view: StepView, chosen: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Rows, positions and logits of the chosen slots (B L), few at a time.  # N, N, N V"""
        for row, position in pieces(chosen, self.vocab, AHEAD):
            logits = self.logits(view, row, position)
            on_cpu = logits.device.type == "cpu"  # on a GPU, more pieces only mean more launches
            few = max(1, READ_BUDGET // self.vocab.size) if on_cpu else len(logits)
            yield from zip(row.split(few), position.split(few), logits.split(few), strict=True)
            del logits

    def _propose(
        self,
        view: StepView,
        where: tuple[Tensor, Tensor],
        logits: Tensor,
        ranking: Ranking,
        tokens: Tensor | None,
    ) -> None:
        """Write scores of chosen slots into `ranking`, and their tokens into `tokens`, if any."""
        row, position = where
        reads_filtered = self.policy.posterior == "filtered"
        read = filtered(logits, self.draw) if reads_filtered else logits
        drawn = None
        if tokens is not None:
            noise = _token_noise(view, row, position)
            if reads_filtered and self.draw.temperature > 0:
                drawn = pick_from(read, noise)  # filtered already
            else:
                drawn = pick(logits, self.draw, noise)
            tokens[row, position] = drawn
            for token in self.waits_for:
                ranking.waits[row, position] |= drawn == token
        if self.policy.score.reads_vocabulary:
            items = self._items(view, row, position, Posterior(read), drawn)
            ranking.scores[row, position] = near_ties_as_ties(self.policy.score.rank(items))

    def _items(
        self,
        view: StepView,
        row: Tensor,
        position: Tensor,
        posterior: Posterior | None = None,
        tokens: Tensor | None = None,
    ) -> Items:
        slot, step = view.slot[row, position], view.step if self.reshuffles else None
        odds = None if view.odds is None else view.odds[row, position]
        return Items(position, view.key[row], posterior, tokens, slot, step, odds=odds)


def _token_noise(view: StepView, row: Tensor, position: Tensor) -> Tensor:
    return uniform(0, int(Stream.TOKEN), view.key[row], view.slot[row, position], view.step)
