"""Remasking inside mdm's loop: which slots are masked again, and how many are revealed.

The mathematics is process/remasking.py. In each step, every free slot draws one keyed uniform u:

    a revealed slot is masked again     where u < sigma
    a masked slot adds one reveal       where u < rho

With the policy `random`, which draws a new order in each step, at temperature 1 without filters,
this is ReMDM exactly; any other policy keeps the numbers and chooses the slots itself. Both happen
on the canvas before the step: reveals still see the tokens that are masked again beside them.

What slots showed before their last reveal is kept as a list of changes, which the trace stores as
events. Frozen slots never change. Letters: B rows, L positions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.process.noise import Stream, uniform
from anyorder.process.remasking import (
    Cap,
    ConfidenceHeuristic,
    Loop,
    Remasking,
    Rescale,
    reveal_chance,
)
from anyorder.trace.events import Change

REMASKINGS: dict[str, Callable[..., Remasking]] = {
    "cap": Cap,
    "rescale": Rescale,
    "loop": Loop,
    "confidence": ConfidenceHeuristic,
}
FORMS = "cap:ETA, rescale:ETA, loop:ETA or confidence[:ETA]"


def parse_remasking(text: str) -> Remasking:
    """`cap:ETA`, `rescale:ETA`, `loop:ETA` or the heuristic `confidence[:ETA]`."""
    name, colon, argument = text.partition(":")
    if name not in REMASKINGS or (colon and not argument):
        raise ValueError(f"unknown remasking {text!r}: choose {FORMS}")
    if not colon and name == "confidence":
        return REMASKINGS[name]()
    try:
        return REMASKINGS[name](float(argument))
    except ValueError:
        raise ValueError(
            f"remasking {text!r} needs a number from 0 to 1, such as {name}:0.02"
        ) from None


@dataclass(frozen=True)
class StepCounts:
    """What one step reveals and masks."""

    reveals: Tensor  # B, how many masked slots are revealed
    masked_again: Tensor  # B L, the revealed slots that become masks


class Remasker:
    """The draws of one batch, and the history of its slots."""

    def __init__(self, remasking: Remasking, steps: int, device: torch.device | str) -> None:
        grid = remasking.grid(steps)
        self._remasking = remasking
        self._share, self._sigma = grid.share.to(device), grid.sigma.to(device)
        # A canvas without masks may end early only if no later step can mask a slot again.
        some = grid.sigma.nonzero()[:, 0]
        self._last = int(some[-1]) + 1 if len(some) else 0
        self._changes: defaultdict[int, list[Change]] = defaultdict(list)

    def is_over(self, step: int) -> bool:
        """Whether no step after this one masks anything again."""
        return step >= self._last

    def turns(
        self, key: Tensor, step: int, free: Tensor, open: Tensor, log_prob: Tensor
    ) -> StepCounts:
        """The draws of rows with these noise keys (B), in step `step`, from 1."""
        before, after, sigma = self._share[step - 1], self._share[step], self._sigma[step - 1]
        shown = free & ~open
        each = self._remasking.sigmas(sigma, log_prob.exp(), shown)  # B L
        slot = torch.arange(free.shape[1], device=free.device)
        # One coin is enough for both: a slot is either masked or shown.
        coin = uniform(0, int(Stream.REMASK), key[:, None], slot, step)  # B L
        turn = open & (coin < reveal_chance(before, after, each))
        return StepCounts(turn.sum(dim=1), shown & (coin < each))

    def note(self, row: Tensor, step: int, changed: Tensor, ids: Tensor, open: Tensor) -> None:
        """Record what the changed slots show after a step; `row` (B) are the rows' numbers."""
        at, slot = changed.nonzero(as_tuple=True)
        # Four transfers to the host for all changes together, not one for each.
        columns = (row[at], slot, ids[at, slot], open[at, slot])
        for number, place, token, masked in zip(*(each.tolist() for each in columns), strict=True):
            self._changes[number].append(Change(step, place, None if masked else token))

    def changes(self, row: int, first: int, reveal_step: Sequence[int]) -> list[Change]:
        """What slots from position `first` on showed before their last `reveal_step` (0: open)."""
        found = []
        for step, position, token in self._changes[row]:
            slot = position - first
            # The last reveal is in the trace's own columns; only earlier changes are events.
            if not 0 < reveal_step[slot] <= step:
                found.append(Change(step, slot, token))
        return found
