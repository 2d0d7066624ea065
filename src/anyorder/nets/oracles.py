"""Perfect networks: exact posteriors of a small data distribution, by enumeration.

A decoder that is right must reproduce the data distribution when it is given such a network; a loss
that is right must reach the data's entropy. Tests use them. They are not for real vocabularies: the
work is at least (sequences x positions) for each canvas.

Masked (`Oracle`). Given every sequence of the data with its probability, the posterior of slot i on
a canvas z is

    p(x_i = v | z) = sum of p(x) over sequences x that agree with z and have x_i = v, normalised.

Inserting (`InsertionOracle`): posteriors and expected gaps. A canvas z (after its prompt) is a
clean sequence x with some tokens deleted and some masked. All order-preserving embeddings of z into
x that agree with its visible tokens count alike:

    P(x, embedding | z at progress alpha)  is proportional to  p(x) (1 - alpha)^(len x - len z),

for every unmasking schedule: a clean token has probability c, a masked one m and a deleted one
1 - alpha, and z and x determine how many of each there are. With F_i(j) the number of
embeddings of the first i slots into the first j tokens, and B_i(j) that of the slots from i on into
the tokens from j on,

    slot i is token j      F_i(j) [z_i fits x_j] B_{i+1}(j+1)    embeddings
    token j is missing between slots i-1 and i    F_i(j) B_i(j+1)    embeddings,

so that posteriors and gaps are ratios of polynomials in 1 - alpha, whose coefficients are kept for
every canvas once seen. At alpha = 1 they are their limits: as few deletions as possible. Frozen
tokens after the prompt count as visible ones; the oracle does not know of gaps that cannot grow.

Uniform-state (`UniformOracle`). For a canvas z at alpha, with q(z_j | x_j) = alpha [z_j = x_j] + (1
- alpha) / K at free places and [z_j = x_j] at frozen ones, the prediction that minimises the bound
(process/uniform.py) is the posterior of place i given all *other* places,

    p_i(v) is proportional to  sum over x with x_i = v of p(x) * product over j != i of q(z_j | x_j)

because the reverse step's formula adds the evidence of z_i. `joint` takes the product over all j,
the plain posterior p(x_i | z): a sampler then counts z_i twice, and is wrong for more than one
token. The oracle must know the frozen places of a request; a real network does not.

Segments (`SegmentOracle` and `SegmentInsertionOracle`). The different segments of the data are the
letters of an alphabet, and a sequence of segments is a word over it, so that the posteriors of
whole segments are those of `Oracle` (a fixed number of slots, where () is the empty segment), and
with gaps those of `InsertionOracle` (any number). The segment decoder walks the trie of segments:
with q_a the posterior of segment a,

    p(next token = v | prefix, condition) = sum of q_a over the segments that begin with prefix v
                                            / sum of q_a over those that begin with prefix,

where EOS follows the last token of every segment, so the probabilities of a segment's tokens
multiply to q_a. After an impossible prefix all tokens are equally likely.

Vectors have one width, the larger of A + 1 and V: latents are one-hot (the segment, or the mask),
conditions hold log q and states log p; the head passes states on. Latents of any other kind are
refused. Prompts are ignored.

Letters: B rows, L positions, S sequences (over segments: slots), J their longest, M slots of one
canvas, K numbers of deletions above the fewest possible, U different canvases, N segments being
written, T tokens, A segments of the alphabet, V vocabulary (rows of the table), D width.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from anyorder.nets.denoiser import Look, ReadPrompt, SegmentLook


class Oracle:
    """A `Denoiser` whose hidden states are exact log-posteriors, and whose head passes them on."""

    def __init__(
        self, data: Mapping[tuple[int, ...], float], mask_id: int, vocab_size: int
    ) -> None:
        if len({len(sequence) for sequence in data}) != 1:
            raise ValueError("the oracle's sequences must all have one length")
        total = sum(data.values())
        self.sequences = torch.tensor(list(data))  # S L
        self.weights = torch.tensor([p / total for p in data.values()], dtype=torch.float64)  # S
        self.mask_id, self.vocab_size = mask_id, vocab_size

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        """Log-posteriors of every slot.  # B L V"""
        if ids.shape[1] != self.sequences.shape[1]:
            raise ValueError(
                f"the oracle knows rows of {self.sequences.shape[1]} tokens, not {ids.shape[1]}"
            )
        agrees = (ids[:, None, :] == self.sequences) | (ids[:, None, :] == self.mask_id)  # B S L
        weight = agrees.all(dim=2) * self.weights  # B S
        one_hot = torch.nn.functional.one_hot(self.sequences, self.vocab_size).double()  # S L V
        mass = torch.einsum("bs,slv->blv", weight, one_hot)
        return (mass / weight.sum(dim=1)[:, None, None]).log()

    def head(self, hidden: Tensor) -> Tensor:
        return hidden

    def entropy(self) -> float:
        """-sum p log p of the data, in nats."""
        return float(-(self.weights * self.weights.log()).sum())


NOTHING = -60.0
"""The log of an expected number that is 0."""
PADDING = NO_MASK = -1


class _Table(NamedTuple):
    """Coefficients of (1 - alpha)^k for one canvas."""

    total: Tensor  # K
    slots: Tensor  # K M V
    gaps: Tensor  # K M+1


class InsertionOracle:
    """An `Inserter` whose states are exact log-posteriors, and whose head passes them on.

    `data` gives the answers, without prompt, and their probabilities. The first `prompt_length`
    tokens of a canvas are its prompt; their content is ignored.
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


class UniformOracle(Oracle):
    """A `Denoiser` whose hidden states are log-predictions, and whose head passes them on.

    `states` is K, the number of states that noise is drawn from; `time` is alpha.
    """

    def __init__(
        self,
        data: Mapping[tuple[int, ...], float],
        states: int,
        vocab_size: int,
        *,
        frozen: Collection[int] = (),
        joint: bool = False,
    ) -> None:
        super().__init__(data, NO_MASK, vocab_size)
        self.states, self.joint = states, joint
        self.frozen = torch.zeros(self.sequences.shape[1], dtype=torch.bool)
        self.frozen[list(frozen)] = True

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        """Log-predictions of every place.  # B L V"""
        if ids.shape[1] != self.sequences.shape[1] or time is None:
            raise ValueError(
                f"the oracle knows rows of {self.sequences.shape[1]} tokens, not {ids.shape[1]}, "
                "and needs a time"
            )
        alpha = time.double()[:, None, None]
        equal = ids[:, None, :] == self.sequences  # B S L
        fits = torch.where(self.frozen, equal.double(), alpha * equal + (1 - alpha) / self.states)
        if self.joint:
            weight = fits.prod(dim=2, keepdim=True).expand_as(fits)
        else:
            weight = _product_of_others(fits)
        one_hot = torch.nn.functional.one_hot(self.sequences, self.vocab_size).double()  # S L V
        mass = torch.einsum("s,bsl,slv->blv", self.weights, weight, one_hot)
        return (mass / mass.sum(dim=-1, keepdim=True)).log()


def _product_of_others(factors: Tensor) -> Tensor:
    """For each place the product over all others.  # B S L"""
    # Not the whole product divided by each factor: factors may be 0.
    ones = torch.ones_like(factors[..., :1])
    before = torch.cat([ones, factors[..., :-1].cumprod(dim=-1)], dim=-1)
    after = torch.cat([ones, factors.flip(-1)[..., :-1].cumprod(dim=-1)], dim=-1).flip(-1)
    return before * after


Segment = tuple[int, ...]
Law = Mapping[tuple[Segment, ...], float]
BEYOND = -1
"""Fills the table of segments behind their ends."""


@dataclass(frozen=True)
class _Rows:
    """Prompts, of which only the number is kept."""

    count: int

    def keep(self, rows: Tensor) -> _Rows:
        return _Rows(len(rows))


@dataclass
class TrieWriter:
    """A `SegmentDrafter` that walks the trie of segments."""

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
        # After an impossible prefix there is no mass: make all tokens equally likely, not NaN.
        mass[:, :, : self.vocab_size] += (mass.sum(dim=2, keepdim=True) == 0).double()
        return (mass / mass.sum(dim=2, keepdim=True)).log()


class _Alphabet:
    """Segments as one-hot vectors and as a trie: the base of both segment oracles."""

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
    `segment_length`: by default the longest segment's tokens and its EOS.
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
