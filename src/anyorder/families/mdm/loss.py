"""mdm's losses on one batch: masked tokens (process/masking.py), and the planner's imitation loss.

An objective corrupts the batch, calls the network for the states of the predicted tokens only, and
hands their cross-entropies to the process, which weighs them.

Imitation: the planner learns to reveal what the factor rule would reveal (dUltra, pre-training).
In each row, a block [a, b) of the answer is drawn, its length uniform from the least one to the
whole canvas, its place uniform. n = max(1, ceil(t |block|)) random slots of the block are masked,
t uniform, and everything right of the block. The planner may reveal the masked slots of the block:

    y_j  = 1 for those that the factor rule reveals, by the network's own confidences
    loss = mean over them of BCE(z_j, y_j), slots with y = 1 weighed by #(y = 0) / #(y = 1)

(unweighted if a batch has one kind only). No gradient reaches the backbone. The head is planner.py.

Not here: the training loop. Letters: B rows, L positions, D width, V vocabulary, M predicted tokens
or slots that the planner judges.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from anyorder.data.batches import Batch
from anyorder.families.family import Objective
from anyorder.families.mdm.config import ImitationConfig
from anyorder.families.mdm.planner import PlannedNet
from anyorder.nets.denoiser import ShiftedNet
from anyorder.nets.transformer import Transformer
from anyorder.process import masking
from anyorder.process.masking import LossParts, factor_choice, item_noise, mask_counts
from anyorder.process.noise import Noise, Stream
from anyorder.process.schedule import LINEAR
from anyorder.vocab import Vocab


def masked_mean(vocab: Vocab) -> Objective:
    """The paper's loss: n ~ Unif{1..L} masks, the mean over them."""

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        masked = masking.corrupt(batch.answer, batch.index, noise)
        return masking.mean_over_masked(_masked_nats(net, batch, masked, vocab), masked)

    return objective


def masked_bound(vocab: Vocab) -> Objective:
    """The hazard-weighted bound at a random time."""

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        masked, times = masking.corrupt_in_time(batch.answer, batch.index, noise, LINEAR)
        nats = _masked_nats(net, batch, masked, vocab)
        return masking.hazard_bound(nats, masked, LINEAR.hazard(times), batch.answer.sum(dim=1))

    return objective


def _masked_nats(net: nn.Module, batch: Batch, masked: Tensor, vocab: Vocab) -> Tensor:
    assert isinstance(net, Transformer | ShiftedNet | PlannedNet)
    canvas = batch.ids.masked_fill(masked, vocab.mask_id)
    states = net.hidden(canvas, mask=batch.real)[masked]  # M D
    return functional.cross_entropy(net.head(states), batch.ids[masked], reduction="none")


def imitation(vocab: Vocab, config: ImitationConfig | None) -> Objective:
    """The imitation loss: the head learns the factor rule, the backbone does not change."""
    if config is None:
        raise ValueError("imitation needs a planner to train: use the recipe tiny/planner")

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        if not isinstance(net, PlannedNet):
            raise ValueError("this network has no planner head: use the recipe tiny/planner")
        masked, eligible = corrupt_block(batch.answer, batch.index, noise, config.least_block)
        canvas = batch.ids.masked_fill(masked, vocab.mask_id)
        with torch.no_grad():
            states = net.hidden(canvas, mask=batch.real)  # B L D
            confidence = log_confidence(net, states, eligible, vocab)
        target = factor_choice(confidence, config.factor)[eligible]  # M
        odds = net.plan(states, masked=masked, eligible=eligible, mask=batch.real)[eligible]
        return imitation_parts(odds, target, balanced=config.balanced)

    return objective


def corrupt_block(answer: Tensor, index: Tensor, noise: Noise, least: int) -> tuple[Tensor, Tensor]:
    """All masked slots, and those in the block, which the planner judges.  # B L each"""
    slots = answer.sum(dim=1)  # B
    rank = answer.long().cumsum(dim=1) - 1  # B L
    chance = [noise.uniform(Stream.SPAN, index, part) for part in (0, 1)]
    least_slots = slots.clamp(max=least)
    length = least_slots + (chance[0] * (slots - least_slots + 1)).long()
    start = (chance[1] * (slots - length + 1)).long()
    block = answer & (rank >= start[:, None]) & (rank < (start + length)[:, None])
    counts = (noise.levels(len(answer), answer.device) * length).ceil().long().clamp(min=1)
    eligible = mask_counts(block, counts, item_noise(answer, index, noise))
    beyond = answer & (rank >= (start + length)[:, None])
    return eligible | beyond, eligible


def log_confidence(net: PlannedNet, states: Tensor, eligible: Tensor, vocab: Vocab) -> Tensor:
    """log of the largest probability at the eligible slots, MASK barred; -inf elsewhere.  # B L"""
    logits = net.head(states[eligible]).double()  # M V
    logits[:, vocab.mask_id] = -torch.inf
    logits[:, vocab.size :] = -torch.inf
    found = logits.amax(dim=-1) - logits.logsumexp(dim=-1)
    nothing = torch.full(eligible.shape, -torch.inf, dtype=torch.float64, device=states.device)
    return nothing.masked_scatter(eligible, found)


def imitation_parts(odds: Tensor, target: Tensor, *, balanced: bool) -> LossParts:
    """The loss from log-odds and targets (M); `agreement` counts slots judged as by the rule."""
    ones = target.sum()
    others = target.numel() - ones
    # With one kind only, the weight would be 0 or infinite.
    mixed = balanced and bool((ones > 0) & (others > 0))
    wanted = target.to(odds.dtype)
    loss = functional.binary_cross_entropy_with_logits(
        odds, wanted, pos_weight=(others / ones).to(odds.dtype) if mixed else None
    )
    plain = functional.binary_cross_entropy_with_logits(odds.detach(), wanted, reduction="sum")
    return LossParts(
        loss=loss,
        nats=plain,
        tokens=torch.tensor(target.numel(), device=odds.device),
        extras={
            "agreement": ((odds.detach() > 0) == target).sum(),
            "revealed": ones,
        },
    )
