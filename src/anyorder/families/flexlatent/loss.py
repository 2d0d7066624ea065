"""flexlatent's loss on one batch: delete and mask segments, look, compare (process/insertion.py).

Items are segments behind an anchor: item 0 is the anchor, which ends the prompt, is frozen, and has
the first gap behind it. With nats_i of a masked segment as in families/latentmdm/loss.py and
phi(x, g) = e^g - x g for the number x of segments missing in a gap, a row at time t costs

    w_beta(t) * sum over masked i of nats_i  +  w_alpha(t) * sum over gaps of phi(x_i, g_i)

with its minimum at the exact posteriors of segments and the exact expected numbers of missing ones.

`targets`: "sampled" takes the segments that were drawn. "integrated" takes all alignments of the
visible slots with the clean row (`align` in process/insertion.py; two segments are equal if all
their tokens are): the decoder writes every segment that a masked slot could be, weighed by its
probability. `reconstruct` is that of families/latentmdm/loss.py.

Not here: the training loop. Letters: B rows, S segments of the longest row, I = S + 1 items, V
visible slots (without the anchor), M masked slots, P pairs of a masked slot and a segment, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from anyorder.data.batches import Batch
from anyorder.families.family import Objective
from anyorder.families.flexlatent.config import SegmentInsertionConfig
from anyorder.families.flexmdm.loss import clocks_of, row_weights
from anyorder.families.latentmdm.loss import (
    Segments,
    TrainedCoder,
    latents,
    read_prompts,
    reconstruction,
    segment_nats,
    slot_table,
    target_counts,
    with_reconstruction,
)
from anyorder.nets.denoiser import SegmentInserter, SegmentLook
from anyorder.process import insertion
from anyorder.process.insertion import InsertionItems, Interpolant, align, could_be
from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise
from anyorder.vocab import Vocab


class TrainedInserter(SegmentInserter, TrainedCoder, Protocol):
    """A network of flexlatent whose decoder can be differentiated."""


@dataclass(frozen=True)
class Targets:
    """The targets of the loss's two terms."""

    slot: Tensor
    """A masked slot, counted in row-major order.  # P"""
    item: Tensor
    """An item that it could be.  # P"""
    probability: Tensor
    """The probability of that; sums to 1 for every masked slot.  # P"""
    missing: Tensor
    """The number of segments missing behind the anchor and each visible slot.  # B V+1"""


def segment_insertion_bound(
    vocab: Vocab, config: SegmentInsertionConfig, max_length: int
) -> Objective:
    """flexlatent: nats of masked segments and the Poisson loss on gaps, weighted and normalised."""
    targets_of = TARGETS[config.targets]

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        inserter = cast(TrainedInserter, net)
        clocks, segments = clocks_of(inserter), Segments.of(batch, vocab)
        items = segment_items(batch, noise, config.infill)
        seen = insertion.corrupt(items, batch.index, noise, clocks)
        visible = visible_segments(segments, seen)
        look = _look(inserter, batch, visible, seen, vocab)
        conditions = look.states[seen.masked[:, 1:]]  # M D
        targets = targets_of(segments, seen, items)
        nats, tokens = _expected_nats(inserter, conditions, segments, seen, targets)
        divisor = insertion.divisor(config.normalise, items, max_length)
        scale = row_weights(config, clocks, seen, divisor)
        missing = targets.missing.to(look.gaps.dtype)
        weighted = insertion.weighted(nats, look.gaps, missing, seen, scale)
        parts = replace(weighted, tokens=tokens)
        if not config.reconstruct:
            return parts
        shown = (seen.real & ~seen.masked)[:, 1:]
        cost = reconstruction(inserter, look.states, visible, shown)
        return with_reconstruction(parts, config.reconstruct, cost)

    return objective


def segment_items(batch: Batch, noise: Noise, infill: float) -> InsertionItems:
    """The anchor, then the segments, which are free.  # B I"""
    length, count = slot_table(batch)
    first, last = torch.ones_like(count), count + 1
    return insertion.answer_items(first, last, length.shape[1] + 1, batch.index, noise, infill)


def visible_segments(segments: Segments, seen: Interpolant) -> Segments:
    """The segments of the visible slots; arbitrary ones at padding.  # B V"""
    row = torch.arange(len(seen.origin), device=seen.origin.device)[:, None]
    return segments[row, (seen.origin[:, 1:] - 1).clamp(min=0)]


def _look(
    net: TrainedInserter, batch: Batch, visible: Segments, seen: Interpolant, vocab: Vocab
) -> SegmentLook:
    real = seen.real[:, 1:]
    # No segment is empty, and padding is not read: any vector will do for "empty".
    vectors = latents(net, visible, seen.masked[:, 1:] | ~real, net.mask_vector)
    return net.look(read_prompts(net, batch, vocab), vectors, real, time=seen.time.float())


def _expected_nats(
    net: TrainedInserter, conditions: Tensor, segments: Segments, seen: Interpolant, to: Targets
) -> tuple[Tensor, Tensor]:
    """The masked slots' nats (M), and the number of tokens that they predict."""
    row = seen.masked.nonzero()[:, 0]
    chosen = segments[row[to.slot], to.item - 1]  # P
    each = segment_nats(net, conditions, chosen, to.slot).per_segment()
    nats = each.new_zeros(len(row)).index_add(0, to.slot, each * to.probability.to(each.dtype))
    counts = target_counts(chosen.length, net.segment_length)
    return nats, (counts * to.probability).sum()


def _sampled(segments: Segments, seen: Interpolant, items: InsertionItems) -> Targets:
    item = seen.origin[seen.masked]
    slot = torch.arange(len(item), device=item.device)
    return Targets(slot, item, torch.ones_like(item), seen.missing)


def _integrated(segments: Segments, seen: Interpolant, items: InsertionItems) -> Targets:
    row = torch.arange(len(seen.origin), device=seen.origin.device)[:, None]
    shown = same_items(segments)[row, seen.origin]  # B V+1 I
    posterior = align(could_be(seen, items, shown), seen, items)
    probability = posterior.origin[seen.masked]  # M I
    slot, item = probability.nonzero(as_tuple=True)
    return Targets(slot, item, probability[slot, item], posterior.missing)


def same_items(segments: Segments) -> Tensor:
    """Whether two items are the same segment, token for token.  # B I I"""
    tokens = segments.tokens  # B S T
    same = (tokens[:, :, None] == tokens[:, None]).all(dim=3)
    same &= segments.length[:, :, None] == segments.length[:, None]
    return functional.pad(same, (1, 0, 1, 0))  # the anchor equals no other item


TARGETS = {"sampled": _sampled, "integrated": _integrated}
