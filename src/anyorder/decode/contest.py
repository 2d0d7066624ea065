"""Which open segments a step takes: what must be written of them, their scores, and the choice.

Paper, appendix E. What is written before the choice depends on what the score reads:

    nothing   (left_to_right, random)   choose, then write what is taken
    opening   (first)                   the first token of all, then the rest of what is taken
    segment   (average, minimum)        all candidates, as long as they can still be taken

In a row that takes k, a candidate is given up once the most that it can still reach (Score.bound)
is below the k-th best finished one; no choice and no tie changes by that. With a slot temperature T
the choice is Gumbel-top-k over score / T: segments are drawn one after another, each with a
probability proportional to exp(score / T).

Not here: how candidates are written (candidates.py), how many are taken, and what becomes of them.
Letters: B rows, L positions, N segments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anyorder.decode.candidates import Candidates, Goal, Worth
from anyorder.decode.policy import (
    Items,
    Policy,
    Ranking,
    Written,
    near_ties_as_ties,
    take,
    tie_noise,
)
from anyorder.decode.proposals import Sight
from anyorder.process.noise import Stream, uniform


@dataclass(frozen=True)
class Choice:
    """What one step takes."""

    taken: Tensor
    """B L; their candidates are whole."""
    scores: Tensor
    """B L; NaN where nothing was ranked, or a candidate was given up."""
    ties: Tensor
    """B: choices that the tie rule made."""


@dataclass(frozen=True)
class _Places:
    """Segments of some rows."""

    row: Tensor  # N
    position: Tensor  # N
    slot: Tensor  # N, the number of each

    @classmethod
    def where(cls, chosen: Tensor, sight: Sight) -> _Places:
        row, position = chosen.nonzero(as_tuple=True)
        return cls(row, position, sight.slot[row, position])


@dataclass(frozen=True)
class Contest:
    """Chooses among open segments by their candidates."""

    candidates: Candidates
    policy: Policy
    slot_temperature: float = 0.0
    """0 takes the best."""
    complete: bool = False
    """Write every candidate to its end, chosen or not, for whoever wants to see them."""
    anew: bool = False
    """The noise of tokens is fresh in every step."""
    reshuffles: bool = False
    """A random order is drawn anew each step, so that slots which join late are not ahead."""

    def choose(self, sight: Sight, eligible: Tensor, counts: Tensor) -> Choice:
        """Take the `counts` (B) first of the eligible segments (B L), by conditions (B L D)."""
        if not self.complete:
            eligible = eligible & (counts > 0)[:, None]
        places = _Places.where(eligible, sight)
        goal = self._before_the_choice(sight, places, counts)
        if goal is not None:
            conditions = sight.states[places.row, places.position]
            self.candidates.refresh(places.row, places.slot, conditions, goal)
        ranking, scores = self._rank(sight, places, eligible)
        taken, ties = take(ranking, counts)
        self._finish(sight, taken, checked=goal is not None)
        reads_nothing = self.policy.score.reads == "nothing"
        return Choice(taken, scores, torch.zeros_like(ties) if reads_nothing else ties)

    def _before_the_choice(self, sight: Sight, places: _Places, counts: Tensor) -> Goal | None:
        """How far candidates are written before one is chosen; None: not at all."""
        step = sight.step if self.anew else None
        score = self.policy.score
        unbounded = score.reads == "segment" and score.bound is None
        if self.complete or unbounded:
            return Goal(step=step)
        goals = {
            "nothing": None,
            "opening": Goal(upto=1, step=step),
            "segment": Goal(worth=self._can_win(sight, places, counts), step=step),
        }
        return goals[score.reads]

    def _finish(self, sight: Sight, taken: Tensor, *, checked: bool) -> None:
        """Write what is taken to its end, where that was not necessary before."""
        if self.complete or self.policy.score.reads == "segment":
            return
        places = _Places.where(taken, sight)
        goal = Goal(step=sight.step if self.anew else None)
        write = self.candidates.extend if checked else self.candidates.refresh
        write(places.row, places.slot, sight.states[places.row, places.position], goal)

    def _can_win(self, sight: Sight, places: _Places, counts: Tensor) -> Worth:
        """Whether a candidate may still be among the first of its row."""
        last = (counts - 1).clamp(0, sight.slot.shape[1] - 1)[:, None]  # B 1

        def worth(index: Tensor) -> Tensor:
            scores, known = self._scores(sight, places)
            values = self._compared(sight, places, scores)
            board = values.new_full(sight.slot.shape, -torch.inf)
            board[places.row, places.position] = values.where(known, -torch.inf)
            bar = board.sort(dim=1, descending=True).values.gather(1, last)[:, 0]  # B
            return values[index] >= bar[places.row[index]]

        return worth

    def _rank(self, sight: Sight, places: _Places, eligible: Tensor) -> tuple[Ranking, Tensor]:
        """What the choice is made from, and the scores as they are recorded (B L)."""
        scores, known = self._scores(sight, places)
        values = scores.new_full(eligible.shape, -torch.inf)
        recorded = torch.full_like(values, torch.nan)
        values[places.row, places.position] = self._compared(sight, places, scores)
        recorded[places.row, places.position] = scores.where(known, torch.nan)
        breaks = tie_noise(self.policy, sight.key, sight.step, eligible.shape[1], sight.slot)
        return Ranking(values, eligible, torch.zeros_like(eligible), breaks), recorded

    def _scores(self, sight: Sight, places: _Places) -> tuple[Tensor, Tensor]:
        """What places are ranked by, and whether it is their candidate's score: not where nothing
        is read, nor where a candidate is unfinished, of which it is the most it can reach.  # N"""
        score, held = self.policy.score, self.candidates
        step = sight.step if self.reshuffles else None
        items = Items(places.position, sight.key[places.row], slot=places.slot, step=step)
        if score.reads == "nothing":
            return score.rank(items), torch.zeros_like(places.row, dtype=torch.bool)
        at = (places.row, places.slot)
        written = Written(held.log_prob[at], held.checked[at])
        reached = score.rank(replace(items, written=written))
        if score.bound is None:
            return reached, torch.ones_like(places.row, dtype=torch.bool)
        whole = held.whole(*at)
        return reached.where(whole, score.bound(written)), whole

    def _compared(self, sight: Sight, places: _Places, scores: Tensor) -> Tensor:
        """What is compared: near-equal scores are equal, unless chance enters.  # N"""
        if self.policy.score.reads == "nothing":
            return scores
        if self.slot_temperature == 0:
            return near_ties_as_ties(scores)
        noise = uniform(0, int(Stream.ORDER), sight.key[places.row], places.slot, sight.step)
        return scores / self.slot_temperature - (-noise.log()).log()  # Gumbel
