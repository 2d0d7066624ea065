"""The perfect segment networks: exact posteriors of a small law over sequences of segments.

The different segments of the data are the letters of an alphabet, and a sequence of segments is a
word over it, so that the posteriors of whole segments are those of `Oracle` (a fixed number of
slots, where () is the empty segment), and with gaps those of `InsertionOracle` (any number). The
segment decoder's part is to walk the trie of segments: with q_a the posterior of segment a,

    p(next token = v | prefix, condition) = sum of q_a over the segments that go on with prefix v
                                            / sum of q_a over those that begin with prefix,

where every segment goes on with EOS behind its last token, and so the tokens of a segment have
q_a as the product of their probabilities. After a prefix that cannot be, all tokens are alike.

Vectors have one width, the larger of A + 1 and V: latents are one-hot (the segment, or the mask),
conditions hold log q and states log p; the head passes states on. Latents of any other kind are
refused. Prompts say nothing. Not for real data: the work is (segments x tokens) for each slot.
Letters: B rows, S slots, N segments being written, T tokens, A segments of the alphabet,
V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from anyorder.nets.insertion_oracle import InsertionOracle
from anyorder.nets.oracle import Oracle
from anyorder.nets.segment_net import ReadPrompt, SegmentLook

Segment = tuple[int, ...]
Law = Mapping[tuple[Segment, ...], float]
BEYOND = -1
"""Stands in the table of segments behind their ends."""


@dataclass(frozen=True)
class _Rows:
    """Prompts, of which only their number is known."""

    count: int

    def keep(self, rows: Tensor) -> _Rows:
        return _Rows(len(rows))


@dataclass
class TrieWriter:
    """A `Writer` that walks the trie of segments."""

    table: Tensor  # A T, each segment's tokens, its EOS, then BEYOND
    weight: Tensor  # N A, the posterior of each segment
    width: int
    vocab_size: int
    prefix: Tensor  # N T, what was read
    length: Tensor  # N

    def first(self) -> Tensor:
        return self._next(torch.zeros_like(self.length)[:, None])[:, 0]

    def read(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
        place = self.length[:, None] + torch.arange(ids.shape[1])  # N T
        room = self.prefix.shape[1]
        assert bool((place[real] < room).all()), f"a segment of more than {room} tokens"
        row, column = real.nonzero(as_tuple=True)
        self.prefix[row, place[row, column]] = ids[row, column]
        self.length = self.length + real.sum(dim=1)
        return self._next((place + 1).clamp(max=room))

    def cut(self, lengths: Tensor) -> None:
        assert bool((lengths <= self.length).all()), "a segment cannot be cut to more than it has"
        self.length = lengths.clone()

    def keep(self, rows: Tensor) -> TrieWriter:
        return replace(
            self, weight=self.weight[rows], prefix=self.prefix[rows], length=self.length[rows]
        )

    def _next(self, depth: Tensor) -> Tensor:
        """The log-probabilities of what follows the first `depth` (N T) tokens.  # N T D"""
        same = self.prefix[:, :, None] == self.table.T[: self.prefix.shape[1]]  # N R A
        begins = F.pad(same.cumprod(dim=1), (0, 0, 1, 0), value=1)  # N R+1 A
        columns = F.pad(self.table, (0, 1), value=BEYOND).T  # so that any depth has one
        following = columns[depth]  # N T A
        goes_on = begins.gather(1, depth[:, :, None].expand(following.shape)) * (
            following != BEYOND
        )
        mass = torch.zeros(*depth.shape, self.width, dtype=torch.float64)
        mass.scatter_add_(2, following.clamp(min=0), goes_on * self.weight[:, None])
        mass[:, :, : self.vocab_size] += (mass.sum(dim=2, keepdim=True) == 0).double()
        return (mass / mass.sum(dim=2, keepdim=True)).log()


class _Alphabet:
    """Segments as one-hot vectors and as a trie: what both oracles share."""

    def __init__(
        self, segments: Iterable[Segment], eos_id: int, vocab_size: int, segment_length: int | None
    ) -> None:
        self.segments = sorted(set(segments))
        self.index = {segment: number for number, segment in enumerate(self.segments)}
        longest = max(map(len, self.segments), default=0)
        self.segment_length = longest + 1 if segment_length is None else segment_length
        if longest > self.segment_length:
            raise ValueError(
                f"a segment of {longest} tokens: give a segment_length of at least as many"
            )
        rows = [
            [*segment, eos_id] + [BEYOND] * (self.segment_length - len(segment))
            for segment in self.segments
        ]
        self.table = torch.tensor(rows, dtype=torch.int64).reshape(-1, self.segment_length + 1)
        self.vocab_size = vocab_size
        self.mask_item = len(self.segments)
        self.width = max(len(self.segments) + 1, vocab_size)
        self.mask_vector = self._one_hot(torch.tensor(self.mask_item))

    def read(self, ids: Tensor, length: Tensor) -> ReadPrompt:
        return _Rows(len(ids))

    def encode(self, ids: Tensor, length: Tensor) -> Tensor:
        found = [
            self.index.get(tuple(row[:count]), self.mask_item) if count else self.mask_item
            for row, count in zip(ids.tolist(), length.tolist(), strict=True)
        ]
        if self.mask_item in found:
            row = found.index(self.mask_item)
            segment = tuple(ids[row, : int(length[row])].tolist())
            raise ValueError(f"the data have no segment {segment} that could be encoded")
        return self._one_hot(torch.tensor(found, dtype=torch.int64))

    def write(self, conditions: Tensor) -> TrieWriter:
        rows, room = len(conditions), self.segment_length + 1
        return TrieWriter(
            table=self.table,
            weight=conditions[:, : len(self.segments)].exp(),
            width=self.width,
            vocab_size=self.vocab_size,
            prefix=torch.full((rows, room), BEYOND),
            length=torch.zeros(rows, dtype=torch.int64),
        )

    def head(self, states: Tensor) -> Tensor:
        return states[..., : self.vocab_size]

    def _one_hot(self, items: Tensor) -> Tensor:
        return F.one_hot(items, self.width).double()

    def _items(self, prompt: ReadPrompt, latents: Tensor, real: Tensor) -> Tensor:
        """Which segment each latent is, or the mask; the mask in padding.  # B S"""
        assert isinstance(prompt, _Rows) and prompt.count == len(latents), "prompts of other rows"
        given = latents[real]  # N D
        if not bool(((given == 0) | (given == 1)).all() & (given.sum(dim=1) == 1).all()):
            raise ValueError("a latent is no vector of the oracle: encode segments with it")
        return latents.argmax(dim=2).masked_fill(~real, self.mask_item)

    def _wide(self, posterior: Tensor) -> Tensor:
        """Log-posteriors of letters (..., A + 1) as conditions.  # ... D"""
        return F.pad(posterior, (0, self.width - posterior.shape[-1]), value=-torch.inf)


class SegmentOracle(_Alphabet):
    """A `SegmentNet` whose conditions are exact log-posteriors of segments.

    `data` gives sequences of one number of segments, () for an empty one, and their probabilities.
    `segment_length`: the longest segment's tokens and its EOS, unless told.
    """

    def __init__(
        self, data: Law, eos_id: int, vocab_size: int, *, segment_length: int | None = None
    ) -> None:
        segments = {segment for sequence in data for segment in sequence}
        super().__init__(segments | {()}, eos_id, vocab_size, segment_length)
        words = {tuple(self.index[each] for each in word): p for word, p in data.items()}
        self.oracle = Oracle(words, self.mask_item, len(self.segments) + 1)
        self.slots = self.oracle.sequences.shape[1]
        self.empty_vector = self._one_hot(torch.tensor(self.index[()]))

    def conditions(self, prompt: ReadPrompt, latents: Tensor, real: Tensor | None = None) -> Tensor:
        whole = torch.ones(latents.shape[:2], dtype=torch.bool)
        if latents.shape[1] != self.slots or not bool((whole if real is None else real).all()):
            raise ValueError(f"the oracle knows rows of {self.slots} slots")
        posterior = self.oracle.hidden(self._items(prompt, latents, whole))
        if bool(posterior.isnan().any()):
            raise ValueError("no sequence of the data has these segments in these slots")
        return self._wide(posterior)


class SegmentInsertionOracle(_Alphabet):
    """A `SegmentInserter` whose conditions and expected gaps are exact.

    `data` gives sequences of any numbers of segments, none of them empty. Time is alpha.
    """

    coordinate = "progress"

    def __init__(
        self,
        data: Law,
        eos_id: int,
        vocab_size: int,
        *,
        segment_length: int | None = None,
        insertion_exponent: float = 1.7,
        unmasking_exponent: float = 2.89,
    ) -> None:
        segments = {segment for sequence in data for segment in sequence}
        if () in segments:
            raise ValueError("where segments are inserted none is empty: leave () out")
        super().__init__(segments, eos_id, vocab_size, segment_length)
        self.insertion_exponent, self.unmasking_exponent = insertion_exponent, unmasking_exponent
        words = {tuple(self.index[each] for each in word): p for word, p in data.items()}
        self.oracle = InsertionOracle(words, self.mask_item, len(self.segments) + 1)
        self.slots = self.oracle.longest

    def look(
        self, prompt: ReadPrompt, latents: Tensor, real: Tensor | None = None, *, time: Tensor
    ) -> SegmentLook:
        real = torch.ones(latents.shape[:2], dtype=torch.bool) if real is None else real
        items = F.pad(self._items(prompt, latents, real), (1, 0))  # B S+1, the anchor first
        look = self.oracle.look(items, mask=F.pad(real, (1, 0), value=True), time=time)
        return SegmentLook(self._wide(look.states[:, 1:]), look.gaps)
