"""The exact output law of the event-driven insertion sampler, on a fine grid of time.

In x = -log(1 - t) all rates are constant: with a bound K on the number E of missing tokens and M
masks, moments are proposed at the rate a K + b M. At a proposed moment the network is asked, and

    b M / (a K + b M)            reveal one mask, the policy's first
    a min(E, K) / (a K + b M)    insert one mask, in gap i with probability n_i / E
    the rest                     nothing

then K = E + rise after an event and K = E after nothing. A call is known by its state z, the cell
of x it falls into, and what was before: the start, nothing, or an event in the state z'. Mass flows
from call to call; events lead to states with one event more, so states are taken in that order, and
"nothing" leads to later cells of the same state, a triangular system. Nothing is sampled.
Letters: S states, G cells, X points where calls are (the start, then the middle of every cell).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from insertion_laws import Rule, asked_time, fill, near
from insertion_space import Array, Asker
from scipy.linalg import solve_triangular


class Cells:
    """A grid of x up to where 1 - t = `end`, finer where most happens."""

    def __init__(self, cells: int, end: float) -> None:
        self.edges = -math.log(end) * np.linspace(0, 1, cells + 1) ** 1.5
        self.points = np.concatenate([[0.0], (self.edges[1:] + self.edges[:-1]) / 2])  # X
        self.begin = np.maximum(self.edges[:-1] - self.points[:, None], 0)  # X G
        self.end = np.maximum(self.edges[1:] - self.points[:, None], 0)  # X G
        self.rest = np.maximum(self.edges[-1] - self.points, 0)  # X

    def arrivals(self, rate: Array) -> Array:
        """P(the next moment falls into a cell), from every point at its rate.  # X G"""
        return np.exp(-rate[:, None] * self.begin) - np.exp(-rate[:, None] * self.end)


@dataclass
class Flow:
    """What leaves the calls of one state, by the cell of the next call."""

    reveal: Array  # G
    insert: Array  # G
    nothing: Array  # G
    ended: float


def _flow(cells: Cells, mass: Array, bound: Array, missing: Array, rates: Array) -> Flow:
    """`mass` and `bound` (X) at the last call; `missing` (X) is E; `rates` holds a and b M."""
    insertion, reveal = rates
    rate = insertion * bound + reveal  # X
    coming = mass[:, None] * cells.arrivals(rate)  # X G
    per_rate = coming / np.maximum(rate, 1e-300)[:, None]
    inserted = insertion * (per_rate * np.minimum(missing[1:], bound[:, None])).sum(axis=0)
    revealed = reveal * per_rate.sum(axis=0)
    nothing = np.maximum(coming.sum(axis=0) - revealed - inserted, 0)
    return Flow(revealed, inserted, nothing, float((mass * np.exp(-rate * cells.rest)).sum()))


def _after_nothing(cells: Cells, first: Array, missing: Array, rates: Array) -> Array:
    """All calls that follow a call without event, when `first` (X) follow one with.  # X"""
    insertion, reveal = rates
    rate = insertion * missing + reveal
    refused = insertion * np.maximum(missing[:, None] - missing[1:], 0)  # X G, E falls
    again = cells.arrivals(rate) * refused / np.maximum(rate, 1e-300)[:, None]
    system = np.eye(len(first))
    system[1:, :] -= again.T  # a refusal within a cell has probability 0: strictly triangular
    return solve_triangular(system, first, lower=True)


class EventLaw:
    """The law of the output, and the mean number of network calls.

    `rise`: K = E + rise after an event. Of `rule`, the schedules and the policy are read.
    """

    def __init__(
        self, asker: Asker, rule: Rule, cells: int = 200, rise: float = 1.0, end: float = 1e-6
    ) -> None:
        self.asker, self.space, self.rule, self.rise = asker, asker.space, rule, rise
        self.cells = Cells(cells, end)
        times = [asked_time(rule, asker.net, 1 - math.exp(-x)) for x in self.cells.points]
        beliefs = [asker.at(time) for time in times]
        self.tokens = np.stack([each.tokens for each in beliefs], axis=1)  # S X L T
        has_room = (self.space.length < self.space.longest)[:, None, None]
        self.gaps = np.stack([each.missing for each in beliefs], axis=1) * has_room  # S X L+1
        self.missing = self.gaps.sum(axis=2)  # S X
        # Calls right after an event, by state and by the state before it.
        self.calls: list[dict[int, Array]] = [{} for _ in self.space.strings]
        self.ended = np.zeros(len(self.space.strings))
        self.fills = 0.0
        self._push()
        self.law = fill(asker, self.ended)

    def _push(self) -> None:
        events = 2 * self.space.length - self.space.masks
        start = np.zeros(len(self.cells.points))
        start[0] = 1.0
        self.mean_calls = 1.0
        for state in np.argsort(events, kind="stable").tolist():
            length, masks = self.space.length[state], self.space.masks[state]
            if length == self.space.longest and not masks:
                self.ended[state] += sum(mass.sum() for mass in self.calls[state].values())
                continue
            self._leave(state, start if length == 0 else 0 * start)
        self.mean_calls += self.fills

    def _leave(self, state: int, first: Array) -> None:
        rates = np.array([self.rule.insertion, self.rule.unmasking * self.space.masks[state]])
        missing, has_room = self.missing[state], self.space.length[state] < self.space.longest
        flows = []
        for before, mass in self.calls[state].items():
            bound = (self.missing[before] + self.rise) * has_room
            flows.append(_flow(self.cells, mass, bound, missing, rates))
        refused = sum((flow.nothing for flow in flows), np.zeros(len(self.cells.points) - 1))
        calm = _after_nothing(self.cells, first + np.append(0.0, refused), missing, rates)
        flows.append(_flow(self.cells, calm, missing, missing, rates))
        ended = sum(flow.ended for flow in flows)
        self.ended[state] += ended
        self.fills += ended * bool(self.space.masks[state])
        for flow in flows:
            self.mean_calls += float((flow.reveal + flow.insert + flow.nothing).sum())
            self._insert(state, flow.insert)
            self._reveal(state, flow.reveal)

    def _arrive(self, state: int, before: int, mass: Array) -> None:
        found = self.calls[state].get(before, np.zeros(len(mass) + 1))
        self.calls[state][before] = found + np.append(0.0, mass)

    def _insert(self, state: int, mass: Array) -> None:
        z = self.space.strings[state]
        if len(z) == self.space.longest:
            return
        place = self.gaps[state, 1:] / self.missing[state, 1:, None]  # G L+1
        for gap in range(len(z) + 1):
            grown = self.space.index[(*z[:gap], self.space.mask, *z[gap:])]
            self._arrive(grown, state, mass * place[:, gap])

    def _reveal(self, state: int, mass: Array) -> None:
        z = self.space.strings[state]
        where = [i for i, token in enumerate(z) if token == self.space.mask]
        if not where:
            return
        belief = self.tokens[state, 1:][:, where]  # G M T
        scores = near(np.log(belief.max(axis=2))) if self.rule.policy == "confidence" else 0.0
        first = np.equal(scores, np.max(scores, axis=-1, keepdims=True)) * np.ones(belief.shape[:2])
        first = first / first.sum(axis=1, keepdims=True)  # ties share
        for place, i in enumerate(where):
            for token in range(self.space.tokens):
                shown = self.space.index[(*z[:i], token, *z[i + 1 :])]
                self._arrive(shown, state, mass * first[:, place] * belief[:, place, token])
