"""block's losses on one batch: masked tokens of every block, after the clean blocks before it.

    mean    a uniform number of masks in each block (process/blocks.py): the default
    bound   a random time for each block, or for the sequence, as published models are trained

Both have the same expectation with full times and the weight 1/t. All blocks of a row are predicted
in one call of two streams; where the whole answer is one block, one stream is enough.

The first token of a block is never masked for a shifted network, which predicts it from the block
before (net.py): it counts with weight 1, and the others are any-order items given it.

Not here: the training loop. Letters: B rows, L positions, M predicted tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from anyorder.data.batches import Batch
from anyorder.families.block.config import BlockLossConfig
from anyorder.families.family import Objective
from anyorder.nets.blocks import block_numbers, first_of_block
from anyorder.process.blocks import (
    Corruption,
    complement,
    corrupt_counts,
    corrupt_times,
    weighted_mean,
)
from anyorder.process.masking import LossParts, mean_over_tokens
from anyorder.process.noise import Noise, Stream
from anyorder.vocab import Vocab


@dataclass(frozen=True)
class BlockRows:
    """A batch on a grid."""

    batch: Batch
    block: Tensor  # B L
    lead: Tensor  # B L, first tokens of blocks that a shifted network predicts by themselves

    @classmethod
    def of(cls, net: Any, batch: Batch, size: int) -> BlockRows:
        columns = batch.ids.shape[1]
        block = block_numbers(batch.prompt_length, columns, size, net.config.origin)
        lead = batch.answer & first_of_block(block) & net.config.shift
        return cls(batch, block, lead)

    @property
    def parts(self) -> Tensor:
        """Tokens that are masked independently of others: a lead alone, and the rest.  # B L"""
        return 2 * self.block + (~self.lead).long()

    def nats(self, net: Any, vocab: Vocab, predicted: Tensor) -> Tensor:
        """-log p of what is predicted (B L), in row-major order.  # M"""
        ids = self.batch.ids
        canvas = ids.masked_fill(predicted & ~self.lead, vocab.mask_id)
        if self._in_one_block():
            states = net.hidden(canvas, block=self.block, mask=self.batch.real)
        else:
            states = net.noisy(canvas, ids, block=self.block, mask=self.batch.real)
        logits = net.head(states[predicted])
        return functional.cross_entropy(logits, ids[predicted], reduction="none")

    def _in_one_block(self) -> bool:
        """Whether no clean token of an answer is seen by a later block."""
        answer = self.batch.answer
        first = self.block.masked_fill(~answer, int(self.block.max())).amin(dim=1)
        return bool((self.block.masked_fill(~answer, 0).amax(dim=1) <= first).all())

    def twice(self) -> BlockRows:
        """Every row a second time, behind all others."""
        doubled: dict[str, Any] = {
            name: None if value is None else torch.cat([value, value])
            for name, value in vars(self.batch).items()
        }
        both = replace(self.batch, **doubled)
        return BlockRows(both, self.block.repeat(2, 1), self.lead.repeat(2, 1))


def drawn_size(sizes: tuple[int, ...], noise: Noise) -> int:
    """The block size of a batch: one for all its rows."""
    return sizes[int(noise.uniform(Stream.SPAN, -1) * len(sizes))]


def counted_mean(vocab: Vocab, settings: BlockLossConfig | None) -> Objective:
    """A uniform number of masks in each block."""
    chosen = settings or BlockLossConfig()
    for name in ("time", "weight", "times", "pairs"):
        if getattr(chosen, name) != getattr(BlockLossConfig, name):
            raise ValueError(f"blocks.{name} has no effect on loss=mean: give --loss bound")

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        rows = BlockRows.of(net, batch, drawn_size(chosen.sizes, noise))
        drawn = corrupt_counts(batch.answer, rows.parts, batch.index, noise)
        nats = rows.nats(net, vocab, drawn.masked)
        return weighted_mean(nats, drawn, batch.answer.sum(dim=1))

    return objective


def timed_bound(vocab: Vocab, settings: BlockLossConfig | None) -> Objective:
    """Random times; with weight 1/t and full times, a bound."""
    chosen = settings or BlockLossConfig()

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        rows = BlockRows.of(net, batch, drawn_size(chosen.sizes, noise))
        block = rows.block if chosen.time == "block" else None
        free = batch.answer & ~rows.lead
        drawn = corrupt_times(free, batch.index, noise, block, chosen.times)
        if chosen.pairs:
            other = complement(free, drawn)
            rows = rows.twice()
            masked = torch.cat([drawn.masked, other.masked])
            drawn = Corruption(masked, torch.cat([drawn.weight, other.weight]))
        drawn = Corruption(drawn.masked | rows.lead, drawn.weight.masked_fill(rows.lead, 1.0))
        nats = rows.nats(net, vocab, drawn.masked)
        if chosen.weight == "none":
            return mean_over_tokens(nats)
        return weighted_mean(nats, drawn, rows.batch.answer.sum(dim=1))

    return objective
