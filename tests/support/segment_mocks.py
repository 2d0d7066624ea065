"""Networks over segments whose answers are made by hand or by a hash: shared by the tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anyorder.nets.denoiser import ReadPrompt
from anyorder.nets.oracles import Segment, SegmentOracle, TrieWriter
from anyorder.process.noise import bits, uniform
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c", "d"])
A, B, C, D = range(4)
EOS = VOCAB.eos_id

Belief = dict[Segment, float]
"""The chance of each segment in one slot."""
Beliefs = Callable[[Sequence[Segment | None]], Sequence[Belief]]
"""What stands in a row's slots (None: open) -> what the network believes about each."""


@dataclass
class Rows:
    """Prompts of which only the lengths are known."""

    length: Tensor

    def keep(self, rows: Tensor) -> Rows:
        return Rows(self.length[rows])


@dataclass
class TaggedWriter:
    """A trie writer whose states also say whose they are, which place they predict and after
    which tokens."""

    trie: TrieWriter
    tags: Tensor  # N 2, row and slot
    calls: Counter[str]

    def first(self) -> Tensor:
        self.calls["first"] += 1
        return self._tagged(self.trie.first()[:, None], torch.zeros(len(self.tags), 1))[:, 0]

    def read(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        self.calls["read"] += 1
        depth = self.trie.length[:, None] + torch.arange(ids.shape[1]) + 1
        return self._tagged(self.trie.read(ids, real), depth)

    def cut(self, lengths: Tensor) -> None:
        self.trie.cut(lengths)

    def keep(self, rows: Tensor) -> TaggedWriter:
        return replace(self, trie=self.trie.keep(rows), tags=self.tags[rows])

    def _tagged(self, states: Tensor, depth: Tensor) -> Tensor:
        tags = self.tags[:, None].expand(*depth.shape, 2).double()
        place = torch.arange(self.trie.prefix.shape[1])
        digits = (self.trie.prefix + 2) * VOCAB.size**place  # N R
        before = (digits[:, None] * (place < depth[:, :, None])).sum(dim=2)  # N T
        own = torch.stack([depth, before], dim=2).double()
        return torch.cat([states, tags, own], dim=2)


class Scripted(SegmentOracle):
    """A `SegmentNet` that believes what it is told, and writes down what it is asked.

    `headed` has one entry per latent call: (row, slot, place, tokens before) of what the head saw.
    """

    def __init__(
        self,
        beliefs: Beliefs,
        segments: Sequence[Segment],
        slots: int,
        segment_length: int | None = None,
    ) -> None:
        law = {(segment,) * slots: 1.0 for segment in segments}
        super().__init__(law, EOS, VOCAB.size, segment_length=segment_length)
        self.beliefs = beliefs
        self.headed: list[list[tuple[int, ...]]] = []
        self.calls: list[Counter[str]] = []
        self.encoded: list[Segment] = []
        self.rows: list[int] = []

    def encode(self, ids: Tensor, length: Tensor) -> Tensor:
        pairs = zip(ids.tolist(), length.tolist(), strict=True)
        self.encoded += [tuple(row[:count]) for row, count in pairs]
        return super().encode(ids, length)

    def conditions(self, prompt: ReadPrompt, latents: Tensor, real: Tensor | None = None) -> Tensor:
        self.headed.append([])
        self.calls.append(Counter())
        self.rows.append(len(latents))
        items = self._items(prompt, latents, torch.ones(latents.shape[:2], dtype=torch.bool))
        posterior = torch.zeros(*items.shape, self.width + 2, dtype=torch.float64)
        for row, letters in enumerate(items.tolist()):
            known = [None if x == self.mask_item else self.segments[x] for x in letters]
            for slot, belief in enumerate(self.beliefs(known)):
                for segment, chance in belief.items():
                    posterior[row, slot, self.index[segment]] = chance
                posterior[row, slot, -2:] = torch.tensor([row, slot]).exp()
        return posterior.log()

    def write(self, conditions: Tensor) -> TaggedWriter:  # type: ignore[override]
        self.calls[-1]["written"] += len(conditions)
        return TaggedWriter(
            super().write(conditions[:, :-2]), conditions[:, -2:].round().long(), self.calls[-1]
        )

    def head(self, states: Tensor) -> Tensor:
        self.calls[-1]["head"] += 1
        self.headed[-1] += [tuple(map(int, tags)) for tags in states[:, -4:].tolist()]
        assert len(set(self.headed[-1])) == len(self.headed[-1]), "a place was headed twice"
        return states[..., : self.vocab_size]


class HashWriter:
    """What comes next is a hash of the tokens so far and of as many numbers of the condition."""

    def __init__(self, conditions: Tensor) -> None:
        self.conditions = conditions.long()  # N T+1
        self.hash = torch.zeros_like(self.conditions)  # N T+1, after so many tokens
        self.hash[:, 0] = bits(1, self.conditions[:, 0])
        self.length = torch.zeros(len(conditions), dtype=torch.int64)

    def first(self) -> Tensor:
        return self._states(torch.zeros_like(self.length))

    def read(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        room = self.hash.shape[1] - 1
        assert int(self.length.max()) + ids.shape[1] <= room, "padding needs room as well"
        states = []
        for column in range(ids.shape[1]):
            going = torch.ones_like(ids[:, 0]) if real is None else real[:, column].long()
            before, after = self.length[:, None], (self.length + going)[:, None]
            old, number = self.hash.gather(1, before), self.conditions.gather(1, after)
            new = bits(2, old, ids[:, column, None], number)
            # Where nothing is read, the hash is written where it stood.
            self.hash.scatter_(1, after, new.where(going[:, None] > 0, old))
            self.length = after[:, 0]
            states.append(self._states(self.length))
        return torch.stack(states, dim=1)

    def cut(self, lengths: Tensor) -> None:
        assert bool((lengths <= self.length).all()), "a segment is only ever cut shorter"
        self.length = lengths.clone()

    def keep(self, rows: Tensor) -> HashWriter:
        kept = HashWriter(self.conditions[rows])
        kept.hash, kept.length = self.hash[rows], self.length[rows]
        return kept

    def _states(self, depth: Tensor) -> Tensor:
        """52 bits, which float64 holds.  # N 1"""
        return (self.hash.gather(1, depth[:, None]) & ((1 << 52) - 1)).double()


class HashNet:
    """A `SegmentCoder` whose conditions are whole numbers, one for each place of a segment: as
    long as they and the tokens agree, so does what comes next."""

    slots = 4
    mask_vector = torch.zeros(1)

    def __init__(self, segment_length: int, sharpness: float = 6.0, extra: int = 0) -> None:
        self.segment_length, self.sharpness = segment_length, sharpness
        self.vocab_size = VOCAB.size + extra
        self.heads = 0

    def read(self, ids: Tensor, length: Tensor) -> Rows:
        return Rows(length)

    def encode(self, ids: Tensor, length: Tensor) -> Tensor:
        raise NotImplementedError

    def write(self, conditions: Tensor) -> HashWriter:
        return HashWriter(conditions)

    def head(self, states: Tensor) -> Tensor:
        self.heads += len(states)
        noise = uniform(3, states[:, 0].long()[:, None], torch.arange(self.vocab_size))
        return self.sharpness * noise
