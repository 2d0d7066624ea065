"""What the segment losses share: segments of a batch, latents of the visible, nats of the masked.

With h_i the condition of a masked slot and y_1 .. y_n its segment, closed by EOS,

    nats_i = sum over j of -log p(y_j | h_i, y_1 .. y_{j-1})

Work follows what is there: only visible content is encoded, only masked segments are written, the
vocabulary head runs on real targets only (a segment of the full length has no EOS to predict, an
empty one nothing else), in parts where logits would be many (head_nats.py). Segments of like length
go through the encoder and the decoder together, and an empty one costs one position.

Not here: which segments are masked, and how their nats are weighed.
Letters: B rows, S slots, N chosen segments, C conditions, T tokens of a group,
M target tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from anyorder.data.batches import Batch
from anyorder.data.segment_rows import segments_of
from anyorder.nets.flex_latent import FlexLatentNet
from anyorder.nets.latent import LatentNet
from anyorder.nets.segment_net import ReadPrompt, SegmentCoder
from anyorder.process.parts import LossParts
from anyorder.train.head_nats import linear_nats
from anyorder.vocab import Vocab


class TrainedCoder(SegmentCoder, Protocol):
    """A coder whose decoder can be differentiated."""

    def decode_states(self, conditions: Tensor, ids: Tensor) -> Tensor:
        """N D and N T -> N T+1 D: head(states[n, j]) predicts ids[n, j], the last what follows."""
        ...


def slot_table(batch: Batch) -> tuple[Tensor, Tensor]:
    """The length of each segment (B S), and how many each row has (B)."""
    if batch.segment_length is None or batch.segment_count is None:
        raise ValueError("this loss needs segments: make the batches with segments=")
    return batch.segment_length, batch.segment_count


@dataclass(frozen=True)
class Segments:
    """Segments, one for each of any number of places."""

    tokens: Tensor
    """Closed by EOS, up to one place behind the longest.  # ... T"""
    length: Tensor
    """Tokens without EOS; 0 where a slot is empty.  # ..."""

    @classmethod
    def of(cls, batch: Batch, vocab: Vocab) -> Segments:
        """All slots of a batch.  # B S"""
        length, _ = slot_table(batch)
        rows = segments_of(batch, torch.ones_like(length, dtype=torch.bool))
        closed = rows.tokens.masked_fill(~rows.real, vocab.eos_id)
        tokens = functional.pad(closed, (0, 1), value=vocab.eos_id)
        return cls(tokens.reshape(*length.shape, tokens.shape[1]), length)

    def __getitem__(self, where: Tensor | tuple[Tensor, ...]) -> Segments:
        """Those at some places: a boolean table, or numbers."""
        return Segments(self.tokens[where], self.length[where])


def read_prompts(net: TrainedCoder, batch: Batch, vocab: Vocab) -> ReadPrompt:
    """The batch's prompts, without what stands behind them."""
    longest = int(batch.prompt_length.max())
    behind = torch.arange(longest, device=batch.ids.device) >= batch.prompt_length[:, None]
    ids = batch.ids[:, :longest].masked_fill(behind, vocab.pad_id)
    return net.read(ids, batch.prompt_length)


def alike(length: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Numbers (N) of segments of like length, from more than half of a power of two up to it, and
    the longest length of each group."""
    power = length.clamp(min=1).double().log2().ceil().long()
    for each in power.unique().tolist():
        chosen = (power == each).nonzero()[:, 0]
        yield chosen, int(length[chosen].max())


def encoded(net: TrainedCoder, segments: Segments) -> Tensor:
    """The vectors of segments that have tokens.  # N -> N D"""
    vectors, order = [], []
    for chosen, longest in alike(segments.length):
        part = segments[chosen]
        vectors.append(net.encode(part.tokens[:, :longest], part.length))
        order.append(chosen)
    return torch.cat(vectors)[torch.cat(order).argsort()]


def latents(net: TrainedCoder, segments: Segments, masked: Tensor, empty: Tensor) -> Tensor:
    """What the latent transformer sees of each slot: B S -> B S D.

    The mask vector where masked, a segment's own where it has tokens, else `empty` (D).
    """
    blank = torch.where(masked[:, :, None], net.mask_vector, empty)
    content = (segments.length > 0) & ~masked
    if not bool(content.any()):
        return blank
    vectors = encoded(net, segments[content]).to(blank.dtype)  # half precision, under autocast
    return blank.index_put(content.nonzero(as_tuple=True), vectors)


@dataclass(frozen=True)
class SegmentNats:
    """What it costs to write some segments."""

    nats: Tensor
    """Of each target token, grouped in no promised order.  # M"""
    segment: Tensor
    """Which segment each target belongs to.  # M"""
    count: int
    """N"""

    def per_segment(self) -> Tensor:
        """The sum over each segment's targets.  # N"""
        return self.nats.new_zeros(self.count).index_add(0, self.segment, self.nats)


def target_counts(length: Tensor, segment_length: int) -> Tensor:
    """Tokens to predict: the segment's own and its EOS, where there is a place for it."""
    return length + (length < segment_length)


def segment_nats(
    net: TrainedCoder, conditions: Tensor, segments: Segments, which: Tensor | None = None
) -> SegmentNats:
    """-log p of segments, written from conditions (C D): segment n from number `which` (N) of them.

    Without `which` there is one condition for each segment.
    """
    count, device = len(segments.length), segments.length.device
    if not count:
        return SegmentNats(conditions.new_zeros(0), segments.length, 0)
    which = torch.arange(count, device=device) if which is None else which
    targets = target_counts(segments.length, net.segment_length)
    states, tokens, owner = [], [], []
    for chosen, longest in alike(targets):
        written = segments.tokens[chosen, :longest]  # N' T
        real = torch.arange(longest, device=device) < targets[chosen][:, None]  # N' T
        # The last token is predicted and not read, so that an empty segment is its condition.
        states.append(net.decode_states(conditions[which[chosen]], written[:, :-1])[real])
        tokens.append(written[real])
        owner.append(chosen[:, None].expand_as(real)[real])
    nats = token_nats(net, torch.cat(states), torch.cat(tokens))
    return SegmentNats(nats, torch.cat(owner), count)


def reconstruction(
    net: TrainedCoder, conditions: Tensor, segments: Segments, shown: Tensor
) -> Tensor:
    """The mean cost of writing the revealed segments (B S), each from its own condition (B S D)."""
    if not bool(shown.any()):
        return conditions.new_zeros(())
    return segment_nats(net, conditions[shown], segments[shown]).per_segment().mean()


def with_reconstruction(parts: LossParts, weight: float, cost: Tensor) -> LossParts:
    """A loss with the weighted cost of the revealed segments added."""
    extras = parts.extras | {"reconstruction": cost.detach() * parts.tokens}
    return replace(parts, loss=parts.loss + weight * cost, extras=extras)


def _table(net: TrainedCoder) -> Tensor | None:
    """The table that a network multiplies its states with, where its head does only that."""
    inner = net.backbone if isinstance(net, FlexLatentNet) else net
    return inner.embed.weight if isinstance(inner, LatentNet) else None


def token_nats(net: TrainedCoder, states: Tensor, targets: Tensor) -> Tensor:
    """-log p of the targets.  # M D, M -> M"""
    table = _table(net)
    if table is not None:
        return linear_nats(states, table, targets)
    return functional.cross_entropy(net.head(states), targets, reduction="none")
