"""latentmdm's loss on one batch: mask segments, compute their conditions, write them.

Each of the L_s slots is an item of process/masking.py, empty ones included; n ~ Unif{1..L_s} of
them are masked. With h_i the condition of a masked slot and y_1, y_2 .. its segment, closed by EOS,

    nats_i            sum over j of -log p(y_j | h_i, y_1 .. y_{j-1})
    segment_mean      mean over rows of (1/n) * sum over masked i of nats_i     (the paper's)
    segment_tokens    sum over masked i of nats_i / number of target tokens     (the release's)

With exact posteriors the first is the any-order bound of the law of segments:

    L_s * E[ (1/n) * sum over masked i of nats_i ] = H(segments | prompt).

The second weighs every token alike: rows with many masks, and long segments, count for more. Its
divisor is random too, which moves the minimum towards short segments by the order of 1 / targets.

`reconstruct` adds that weight times the mean over revealed i of nats_i: the decoder also writes
the visible segments, from the same conditions. The paper has no such term. It does not move the
minimum of the others, since revealed and masked slots have different conditions.

Cost. Only visible content is encoded, only masked segments are written, and segments of similar
length go through the encoder and the decoder together. The vocabulary head runs on real targets
only (a segment of the full length has no EOS to predict, an empty one nothing else). With M = 470
targets and V = 151,645 words the logits alone are 285 MB, so `linear_nats` makes them in parts:

    nats_m = log sum over v of e^(s_m . E_v)  -  s_m . E_{y_m}
    d nats_m / d s_m = sum over v of (p_mv - [v = y_m]) E_v,    d / d E_v alike

Its forward pass keeps one number per target; its backward pass computes each part again. That is a
quarter more arithmetic in the head, so it is used only where the logits are many.

Not here: the training loop, and how text is cut into segments (anyorder/data).
Letters: B rows, L positions, S slots, N chosen segments, C conditions, T tokens of the longest of
them, M target tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from anyorder.data.batches import Batch
from anyorder.families.family import Objective
from anyorder.families.flexlatent.net import FlexLatentNet
from anyorder.families.latentmdm.config import SegmentLossConfig
from anyorder.families.latentmdm.net import LatentNet
from anyorder.nets.denoiser import ReadPrompt, SegmentCoder, SegmentNet
from anyorder.process import masking
from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise
from anyorder.vocab import Vocab

LOGITS = 2**25
"""Logits that may exist at once: 128 MB."""


def linear_nats(states: Tensor, table: Tensor, targets: Tensor, most: int = LOGITS) -> Tensor:
    """-log softmax(table @ states_m) at the targets, with at most `most` logits at once.

    states M D, table V D, targets M -> M
    """
    if len(states) * len(table) <= most:
        return functional.cross_entropy(functional.linear(states, table), targets, reduction="none")
    nats: Tensor = _InParts.apply(states, table, targets, max(1, most // len(table)))
    return nats


def _parts(states: Tensor, table: Tensor, at_once: int) -> Iterator[tuple[slice, Tensor]]:
    """`at_once` states at a time: their places and their logits, always in the same memory."""
    kind = torch.promote_types(states.dtype, torch.float32)
    memory = states.new_empty(min(at_once, len(states)), len(table), dtype=kind)
    for start in range(0, len(states), at_once):
        here = slice(start, min(start + at_once, len(states)))
        logits = memory[: here.stop - here.start]
        if kind == states.dtype:
            torch.mm(states[here], table.T, out=logits)
        else:
            logits.copy_(states[here] @ table.T)
        yield here, logits


class _InParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, table: Tensor, targets: Tensor, at_once: int) -> Tensor:
        ctx.kinds = states.dtype, table.dtype
        # Cast by hand: autocast skips products with `out=`, and does not cover the backward pass.
        if torch.is_autocast_enabled(states.device.type):
            half = torch.get_autocast_dtype(states.device.type)
            states, table = states.to(half), table.to(half)
        kind = torch.promote_types(states.dtype, torch.float32)
        total, chosen = (states.new_empty(len(states), dtype=kind) for _ in range(2))
        for here, logits in _parts(states, table, at_once):
            chosen[here] = logits.gather(1, targets[here, None])[:, 0]
            largest = logits.amax(dim=1)  # subtracted before exp, which would overflow
            total[here] = logits.sub_(largest[:, None]).exp_().sum(dim=1).log_() + largest
        ctx.save_for_backward(states, table, targets, total)
        ctx.at_once = at_once
        return total - chosen

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor, Tensor, None, None]:
        states, table, targets, total = ctx.saved_tensors
        for_states, for_table = torch.empty_like(states), torch.zeros_like(table, dtype=total.dtype)
        for here, logits in _parts(states, table, ctx.at_once):
            share = logits.sub_(total[here, None]).exp_()  # p, then p - [v = y], weighed
            row = torch.arange(len(share), device=share.device)
            share[row, targets[here]] -= 1
            share.mul_(weight[here, None])
            share = share.to(states.dtype)
            torch.mm(share, table, out=for_states[here])
            if for_table.dtype == share.dtype:
                for_table.addmm_(share.T, states[here])
            else:
                for_table += share.T @ states[here]
        return for_states.to(ctx.kinds[0]), for_table.to(ctx.kinds[1]), None, None


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
        start = batch.prompt_length[:, None] + length.cumsum(dim=1) - length  # B S
        longest = int(length.max()) if length.numel() else 0
        place = torch.arange(longest + 1, device=length.device)  # T
        real = place < length[:, :, None]  # B S T
        ids = functional.pad(batch.ids, (0, longest + 1))  # places behind a segment end there
        row = torch.arange(len(length), device=length.device)[:, None, None]
        tokens = ids[row, start[:, :, None] + place].masked_fill(~real, vocab.eos_id)
        return cls(tokens, length)

    def __getitem__(self, where: Tensor | tuple[Tensor, ...]) -> Segments:
        """Those at some places: a boolean table, or numbers."""
        return Segments(self.tokens[where], self.length[where])


def read_prompts(net: TrainedCoder, batch: Batch, vocab: Vocab) -> ReadPrompt:
    """The batch's prompts, with padding in place of the answers."""
    longest = int(batch.prompt_length.max())
    behind = torch.arange(longest, device=batch.ids.device) >= batch.prompt_length[:, None]
    ids = batch.ids[:, :longest].masked_fill(behind, vocab.pad_id)
    return net.read(ids, batch.prompt_length)


def alike(length: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Groups of segments (indices N) of similar length, and the longest length of each group.

    A group spans the lengths above half a power of two and up to it, so at most half is padding.
    """
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
    """The input of the latent transformer at each slot: B S -> B S D.

    The mask vector where masked, a segment's own where it has tokens, else `empty` (D).
    """
    blank = torch.where(masked[:, :, None], net.mask_vector, empty)
    content = (segments.length > 0) & ~masked
    if not bool(content.any()):
        return blank
    vectors = encoded(net, segments[content]).to(blank.dtype)  # autocast gives half precision
    return blank.index_put(content.nonzero(as_tuple=True), vectors)


@dataclass(frozen=True)
class SegmentNats:
    """The cost of writing some segments."""

    nats: Tensor
    """Of each target token, in no particular order.  # M"""
    segment: Tensor
    """Which segment each target belongs to.  # M"""
    count: int
    """N"""

    def per_segment(self) -> Tensor:
        """The sum over each segment's targets.  # N"""
        return self.nats.new_zeros(self.count).index_add(0, self.segment, self.nats)


def target_counts(length: Tensor, segment_length: int) -> Tensor:
    """Tokens to predict: the segment's own, and its EOS if there is room for one."""
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
        # The last token is predicted but not read: an empty segment costs its condition alone.
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
    """The head's table, for networks whose head is nothing but that product."""
    inner = net.backbone if isinstance(net, FlexLatentNet) else net
    return inner.embed.weight if isinstance(inner, LatentNet) else None


def token_nats(net: TrainedCoder, states: Tensor, targets: Tensor) -> Tensor:
    """-log p of the targets.  # M D, M -> M"""
    table = _table(net)
    if table is not None:
        return linear_nats(states, table, targets)
    return functional.cross_entropy(net.head(states), targets, reduction="none")


PLAIN = SegmentLossConfig()
"""The paper's loss."""


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
    return _objective(vocab, config, lambda found, masked: masking.mean_over_tokens(found.nats))


def _objective(
    vocab: Vocab, config: SegmentLossConfig, weigh: Callable[[SegmentNats, Tensor], LossParts]
) -> Objective:
    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        trained = cast(TrainedSegmentNet, net)
        segments = Segments.of(batch, vocab)
        every = torch.ones_like(segments.length, dtype=torch.bool)
        masked = masking.corrupt(every, batch.index, noise)  # B S
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
    """The conditions of all slots, given those that are not masked.  # B S D"""
    if segments.length.shape[1] != net.slots:
        raise ValueError(
            f"batches with {segments.length.shape[1]} slots for a network of {net.slots}: "
            "give both the same segments.slots"
        )
    seen = latents(net, segments, masked, net.empty_vector)
    real = torch.ones_like(masked)
    return net.conditions(read_prompts(net, batch, vocab), seen, real)
