"""latentmdm's loss on one batch: mask segments, ask for their conditions, write them.

Every one of the L_s slots is an item of process/masking.py, empty ones included: n ~ Unif{1..L_s}
of them are masked, and with nats_i as in segment_parts.py

    segment_mean      mean over rows of (1/n) * sum over masked i of nats_i     (the paper's)
    segment_tokens    sum over masked i of nats_i / number of target tokens     (the release's)

With exact posteriors the first is the any-order bound of the law of segments:

    L_s * E[ (1/n) * sum over masked i of nats_i ] = H(segments | prompt).

The second weighs every token alike: rows with many masks, and long segments, count for more. Its
divisor is drawn too, which moves the minimum towards short segments by the order of 1 / targets.

`reconstruct` adds that weight times the mean over revealed i of nats_i: the decoder also writes
what was shown, from the same conditions. The paper has no such term. It leaves the minimum of the
others where it is, since revealed and masked slots have conditions of their own.

No loop, no optimiser. Letters: B rows, S slots, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from anyorder.data.batches import Batch
from anyorder.nets.segment_net import SegmentNet
from anyorder.process import causal, masking
from anyorder.process.noise import Noise
from anyorder.process.parts import LossParts
from anyorder.train.objective import Objective
from anyorder.train.segment_config import SegmentLossConfig
from anyorder.train.segment_parts import (
    SegmentNats,
    Segments,
    TrainedCoder,
    latents,
    read_prompts,
    reconstruction,
    segment_nats,
    slot_table,
    with_reconstruction,
)
from anyorder.vocab import Vocab

PLAIN = SegmentLossConfig()
"""The paper's."""


class TrainedSegmentNet(SegmentNet, TrainedCoder, Protocol):
    """A network of latentmdm whose decoder can be differentiated."""


def segment_mean(vocab: Vocab, config: SegmentLossConfig = PLAIN) -> Objective:
    """latentmdm: the mean over a row's masked segments of their nats, then over rows."""

    def weigh(found: SegmentNats, masked: Tensor) -> LossParts:
        parts = masking.mean_over_masked(found.per_segment(), masked)
        return replace(parts, tokens=torch.tensor(len(found.nats), device=found.nats.device))

    return _objective(vocab, config, weigh)


def segment_tokens(vocab: Vocab, config: SegmentLossConfig = PLAIN) -> Objective:
    """latentmdm: the mean over all target tokens of the batch."""
    return _objective(vocab, config, lambda found, masked: causal.mean_over_tokens(found.nats))


def _objective(
    vocab: Vocab, config: SegmentLossConfig, weigh: Callable[[SegmentNats, Tensor], LossParts]
) -> Objective:
    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        trained = cast(TrainedSegmentNet, net)
        segments = Segments.of(batch, vocab)
        masked = _corrupt(batch, noise)
        conditions = masked_conditions(trained, batch, segments, masked, vocab)  # B S D
        parts = weigh(segment_nats(trained, conditions[masked], segments[masked]), masked)
        if not config.reconstruct:
            return parts
        shown = ~masked & (segments.length > 0)
        cost = reconstruction(trained, conditions, segments, shown)
        return with_reconstruction(parts, config.reconstruct, cost)

    return objective


def masked_conditions(
    net: TrainedSegmentNet, batch: Batch, segments: Segments, masked: Tensor, vocab: Vocab
) -> Tensor:
    """What the latent network says of every slot, where some are masked.  # B S D"""
    if segments.length.shape[1] != net.slots:
        raise ValueError(
            f"batches with {segments.length.shape[1]} slots for a network of {net.slots}: "
            "give both the same segments.slots"
        )
    seen = latents(net, segments, masked, net.empty_vector)
    real = torch.ones_like(masked)
    return net.conditions(read_prompts(net, batch, vocab), seen, real)


def _corrupt(batch: Batch, noise: Noise) -> Tensor:
    """Which slots are masked.  # B S"""
    length, _ = slot_table(batch)
    every = torch.ones_like(length, dtype=torch.bool)
    return masking.corrupt(every, batch.index, noise)
