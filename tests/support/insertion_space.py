"""All states of a small insertion sampler, all moves between them, and a network asked about each.

The states are the strings over the tokens and the mask up to a length. `Space` lists once what one
step can make of each: reveals (some masks become tokens), insertions (new masks in the gaps), and
where each pair of them leads. `Asker` puts all states to a network in one call.
Letters: S states, L the longest, T tokens, P reveals, I insertions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]
ANCHOR = 4  # any id but those of the tokens and of the mask


def generic_data(tokens: int, longest: int, seed: int = 0) -> dict[tuple[int, ...], float]:
    """A law on all strings up to a length, without symmetries; weights fall with the length."""
    strings = [x for n in range(longest + 1) for x in itertools.product(range(tokens), repeat=n)]
    weights = np.random.default_rng(seed).exponential(size=len(strings))
    # Less than one over the tokens, or nearly all strings would be the longest.
    weights = weights / np.array([2.0 ** len(x) for x in strings])
    return dict(zip(strings, (weights / weights.sum()).tolist(), strict=True))


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write 0..total as an ordered sum of so many parts."""
    if parts == 0:
        yield ()
        return
    for first in range(total + 1):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


class Space:
    """All states, and all moves that one step can make."""

    def __init__(self, tokens: int, longest: int) -> None:
        self.tokens, self.longest, self.mask = tokens, longest, tokens
        self.strings = [
            z for n in range(longest + 1) for z in itertools.product(range(tokens + 1), repeat=n)
        ]
        self.index = {z: i for i, z in enumerate(self.strings)}
        self.length = np.array([len(z) for z in self.strings])  # S
        self.masked = np.zeros((len(self.strings), longest), dtype=bool)  # S L
        for i, z in enumerate(self.strings):
            self.masked[i, : len(z)] = [token == self.mask for token in z]
        self.masks = self.masked.sum(axis=1)  # S
        self._list_reveals()
        self._list_inserts()
        self._list_moves()

    def _list_reveals(self) -> None:
        source, target, token = [], [], []
        for i, z in enumerate(self.strings):
            choices = [range(self.tokens + 1) if v == self.mask else (v,) for v in z]
            for after in itertools.product(*choices):
                source.append(i)
                target.append(self.index[after])
                shown = [b if a == self.mask != b else -1 for a, b in zip(z, after, strict=True)]
                token.append(shown + [-1] * (self.longest - len(z)))
        self.reveal_source, self.reveal_target = np.array(source), np.array(target)  # P
        self.reveal_token = np.array(token).reshape(len(source), self.longest)  # P L, -1: none
        self.revealed = self.reveal_token >= 0  # P L

    def _list_inserts(self) -> None:
        source, counts = [], []
        for i, z in enumerate(self.strings):
            for split in compositions(self.longest - len(z), len(z) + 1):
                source.append(i)
                counts.append([*split, *[0] * (self.longest - len(z))])
        self.insert_source, self.insert_counts = np.array(source), np.array(counts)  # I, I L+1
        room = (self.longest - self.length)[self.insert_source]
        self.fills_room = self.insert_counts.sum(axis=1) == room  # I

    def _list_moves(self) -> None:
        by_state: dict[int, list[int]] = {}
        for i, source in enumerate(self.insert_source.tolist()):
            by_state.setdefault(source, []).append(i)
        moves = []
        for p, source in enumerate(self.reveal_source.tolist()):
            shown = self.strings[int(self.reveal_target[p])]
            for i in by_state[source]:
                counts = self.insert_counts[i].tolist()
                grown = [self.mask] * counts[0]
                for token, count in zip(shown, counts[1:], strict=False):
                    grown += [token] + [self.mask] * count
                moves.append((p, i, self.index[tuple(grown)]))
        self.move_reveal, self.move_insert, self.move_target = np.array(moves).T

    def vector(self, data: dict[tuple[int, ...], float]) -> Array:
        """A law on strings as a vector over the states.  # S"""
        law = np.zeros(len(self.strings))
        for x, p in data.items():
            law[self.index[x]] = p
        return law / law.sum()


@dataclass(frozen=True)
class Beliefs:
    """What the network says of every state at one time."""

    tokens: Array  # S L T, posteriors
    missing: Array  # S L+1, expected numbers; 0 where there is no gap


class Asker:
    """Asks a network (an `Inserter` with identity head) about all states at once."""

    def __init__(self, net: Any, space: Space) -> None:
        self.net, self.space = net, space
        states = len(space.strings)
        self.ids = torch.full((states, space.longest + 1), ANCHOR)
        for i, z in enumerate(space.strings):
            self.ids[i, 1 : 1 + len(z)] = torch.tensor(z, dtype=torch.int64)
        lengths = torch.tensor(space.length)[:, None]
        self.real = torch.arange(space.longest + 1) <= lengths
        self.is_gap = self.real.numpy()  # gap i stands after slot i; the anchor is slot 0

    def at(self, time: float) -> Beliefs:
        when = torch.full((len(self.ids),), time, dtype=torch.float64)
        look = self.net.look(self.ids, mask=self.real, time=when)
        tokens = look.states[:, 1:, : self.space.tokens].exp().numpy()
        return Beliefs(tokens, np.where(self.is_gap, look.gaps.exp().numpy(), 0.0))
