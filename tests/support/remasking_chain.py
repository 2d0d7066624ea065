"""The chain of remasking over all states of a small canvas, by enumeration.

A state is a canvas of L slots, each a token 0..V-1 or the mask V. One step moves every slot by
itself, given the whole state: a matrix over states, whose law after a step is compared with the
forward law. Written from the equations alone; nothing of the decoder is used.
"""

from __future__ import annotations

import itertools
from functools import reduce

import numpy as np
from numpy.typing import NDArray

Law = NDArray[np.float64]
Data = dict[tuple[int, ...], float]


class Chain:
    """All canvases of a data distribution with full support."""

    def __init__(self, data: Data, tokens: int) -> None:
        self.slots, self.tokens, self.mask = len(next(iter(data))), tokens, tokens
        self.states = list(itertools.product(range(tokens + 1), repeat=self.slots))
        total = sum(data.values())
        self.data = {x: p / total for x, p in data.items()}
        self.posterior = [self._posterior(state) for state in self.states]

    def _posterior(self, state: tuple[int, ...]) -> Law:
        """p(x_i = v | state).  # L V"""
        found = np.zeros((self.slots, self.tokens))
        for x, p in self.data.items():
            if all(z in (self.mask, v) for z, v in zip(state, x, strict=True)):
                found[np.arange(self.slots), list(x)] += p
        return found / max(found[0].sum(), np.finfo(float).tiny)

    def forward(self, share: float) -> Law:
        """Every token revealed with probability `share`, independently, given the text."""
        law = np.zeros(len(self.states))
        for x, p in self.data.items():
            slots = [np.zeros(self.tokens + 1) for _ in x]
            for slot, v in zip(slots, x, strict=True):
                slot[v], slot[self.mask] = share, 1 - share
            law += p * reduce(np.kron, slots)
        return law

    def step(self, sigma: float, rho: float) -> NDArray[np.float64]:
        """Where each state goes."""
        moves = np.zeros((len(self.states), self.slots, self.tokens + 1))
        for state, posterior, move in zip(self.states, self.posterior, moves, strict=True):
            for z, belief, slot in zip(state, posterior, move, strict=True):
                if z == self.mask:
                    slot[: self.tokens], slot[self.mask] = rho * belief, 1 - rho
                else:
                    slot[z], slot[self.mask] = 1 - sigma, sigma
        found = moves[:, 0]
        for slot in range(1, self.slots):  # slots move independently, given the whole state
            found = (found[:, :, None] * moves[:, slot, None, :]).reshape(len(self.states), -1)
        return found

    def laws(self, sigmas: list[float], rhos: list[float]) -> list[Law]:
        """After every step, from a canvas of masks."""
        law = self.forward(0.0)
        found = []
        for sigma, rho in zip(sigmas, rhos, strict=True):
            law = law @ self.step(sigma, rho)
            found.append(law)
        return found

    def slot_laws(self, law: Law) -> NDArray[np.float64]:
        """Of each slot alone.  # L V+1"""
        cube = law.reshape((self.tokens + 1,) * self.slots)
        others = [tuple(j for j in range(self.slots) if j != i) for i in range(self.slots)]
        return np.array([cube.sum(axis=axes) for axes in others])

    def mask_law(self, law: Law) -> NDArray[np.float64]:
        """Of which slots are masked.  # 2^L"""
        found = np.zeros((2,) * self.slots)
        for state, p in zip(self.states, law, strict=True):
            found[tuple(int(z == self.mask) for z in state)] += p
        return found.ravel()

    def texts(self, law: Law) -> Data:
        """The law of canvases without a mask."""
        return {
            state: float(p)
            for state, p in zip(self.states, law, strict=True)
            if self.mask not in state
        }


def distance(left: Law, right: Law) -> float:
    """Total variation."""
    return float(np.abs(left - right).sum() / 2)
