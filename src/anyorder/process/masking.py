"""Masked diffusion over generic items (paper, Section 2), and small laws that belong to it.

An item is anything that can be masked: a token for mdm, a segment for latentmdm. Items come as a
boolean table `free` (B N): True where an item exists and may be masked. A prompt, and padding, are
simply not free.

The paper's loss (`corrupt`, `mean_over_masked`). Draw n uniformly from {1, ..., L}, mask n of the L
free items at random, and take

    loss = E[ (1/n) * sum over masked i of -log f_i(x_i | z) ].

(The paper writes {0, ..., L}; n = 0 masks nothing and teaches nothing.) Times L this is the
any-order bound on -log p(x): with the exact posteriors it equals the entropy of the data.

The weighted bound (`corrupt_in_time`, `hazard_bound`). Draw t in (0, 1), reveal every item
independently with probability alpha(t), and

    -log p(x) <= E_t[ alpha'(t) / (1 - alpha(t)) * sum over masked i of -log f_i(x_i | z_t) ].

Both bounds have the same value; the first has the smaller variance and is the default.

Left to right (`predictors`, `mean_over_tokens`): -log p(x) = sum over i of -log p(x_i | x_{<i}).
The state at position i-1 predicts item i. The loss is the mean over the answer and its end, never
the prompt, of the whole batch.

A planner tuned by rewards (dUltra's variant of GRPO; `action_log_prob`, `group_advantages`). One
decoding step is one action: which of the open slots of the block are revealed, and with which
tokens. With the planner's log-odds z_j and u_j = sigmoid(z_j),

    log pi = sum over revealed j of [ln u_j + ln p_j(token_j)] + sum over the others of ln(1 - u_j)
    A = R - mean of the group,        not divided by the group's spread; small ones may be left out
    loss of a step = -A log pi

(a reveal that was forced because no slot won is scored by the same formula). The group are the
samples of one problem. With one update for each set of samples the policy is still the one that
drew them: the ratio of GRPO's clipped loss is 1, and its gradient is this one's.

Fast-dLLM's factor rule (`factor_counts`): how many of the surest slots are revealed together. With
the probabilities of the best tokens in falling order, c_1 >= c_2 >= ... >= c_N, and factor f,

    th_1 = -1,    th_n = 1 - f / (n + 1)

all slots before the first c_n < th_n are revealed: the more at once, the surer each must be. As
published, a failure at the very last slot does not count, so two open slots are always both
revealed. The quota `factor` (decode/quota.py) and the planner's imitation of it
(families/mdm/loss.py) use this.

Not here: networks, rewards and samples (apps/planner_grpo.py).
Letters: B rows, N items, L positions, M masked items of the whole batch, P problems, G samples of
each.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from anyorder.process.noise import Noise, Stream
from anyorder.process.schedule import Schedule


@dataclass(frozen=True)
class LossParts:
    """One batch's loss and its parts; all scalars.

    `loss` carries the family's weights. `nats` over `tokens` is the unweighted cross-entropy per
    predicted token, which compares between runs on the same validation grid.
    """

    loss: Tensor
    """Minimised: weighted and normalised as the objective says."""
    nats: Tensor
    """Sum of -log p over the predicted tokens, unweighted and detached."""
    tokens: Tensor
    """How many tokens were predicted."""
    extras: dict[str, Tensor] = field(default_factory=dict)
    """Further sums that a family wants to log, such as an insertion term."""

    @property
    def nats_per_token(self) -> Tensor:
        return self.nats / self.tokens.clamp(min=1)


def predictors(targets: Tensor) -> Tensor:
    """The positions whose states predict the target items: one place to the left.  # B L

    `targets` (B L, bool) must not hold position 0, which nothing precedes.
    """
    if bool(targets[:, 0].any()):
        raise ValueError("position 0 cannot be predicted: start the sequence with a prompt or BOS")
    return torch.cat([targets[:, 1:], torch.zeros_like(targets[:, :1])], dim=1)


def mean_over_tokens(nats: Tensor) -> LossParts:
    """The token mean over the batch.  # M"""
    tokens = torch.tensor(nats.shape[0], device=nats.device)
    return LossParts(loss=nats.sum() / tokens.clamp(min=1), nats=nats.detach().sum(), tokens=tokens)


def uniform_counts(free: Tensor, levels: Tensor) -> Tensor:
    """n = floor(u * L) + 1 in {1, ..., L} for each row; 0 where a row has no free item.  # B"""
    available = free.sum(dim=1)
    counts = (levels * available).floor().to(torch.int64) + 1
    return counts.clamp(max=available)


def mask_counts(free: Tensor, counts: Tensor, places: Tensor) -> Tensor:
    """Mask the `counts` free items of each row that have the smallest `places`.  # B N"""
    order = places.masked_fill(~free, 2.0).argsort(dim=1)  # places are below 1: these come last
    rank = order.argsort(dim=1)
    return (rank < counts[:, None]) & free


def mask_at_times(free: Tensor, times: Tensor, schedule: Schedule, places: Tensor) -> Tensor:
    """Mask each free item independently with probability 1 - alpha(t).  # B N"""
    return free & (places >= schedule.value(times)[:, None])


def corrupt(free: Tensor, index: Tensor, noise: Noise) -> Tensor:
    """The paper's corruption: which items are masked.  # B N

    `index` (B) names the examples: which items are masked belongs to the example, how many to the
    row, since counts are stratified over the batch.
    """
    counts = uniform_counts(free, noise.levels(len(free), free.device))
    return mask_counts(free, counts, item_noise(free, index, noise))


def corrupt_in_time(
    free: Tensor, index: Tensor, noise: Noise, schedule: Schedule
) -> tuple[Tensor, Tensor]:
    """The weighted bound's corruption: which items are masked (B N), and each row's time (B)."""
    times = 1 - noise.levels(len(free), free.device)  # a level is the share that is masked
    return mask_at_times(free, times, schedule, item_noise(free, index, noise)), times


def item_noise(free: Tensor, index: Tensor, noise: Noise) -> Tensor:
    """One uniform for each item.  # B N"""
    item = torch.arange(free.shape[1], device=free.device)
    return noise.uniform(Stream.PLACE, index[:, None], item[None, :])


def mean_over_masked(nats: Tensor, masked: Tensor) -> LossParts:
    """The paper's loss from the masked items' nats, given in row-major order of `masked`.  # M

    Each row averages over its own masked items, then rows are averaged.
    """
    counts = masked.sum(dim=1).clamp(min=1)
    return _weighted(nats, masked, 1 / (counts.to(nats.dtype) * len(masked)))


def row_means(nats: Tensor, masked: Tensor) -> Tensor:
    """For each row the mean over its masked items; 0 for a row without any.  # M -> B"""
    counts = masked.sum(dim=1).clamp(min=1)
    return nats.new_zeros(len(masked)).index_add(0, masked.nonzero()[:, 0], nats) / counts


def hazard_bound(nats: Tensor, masked: Tensor, hazard: Tensor, items: Tensor) -> LossParts:
    """The weighted bound per free item, averaged over rows.

    `hazard` (B) is alpha'/(1 - alpha) at each row's time, `items` (B) its number of free items.
    """
    weights = hazard / items.clamp(min=1)
    return _weighted(nats, masked, weights.to(nats.dtype) / len(masked))


def _weighted(nats: Tensor, masked: Tensor, weights: Tensor) -> LossParts:
    """The sum over masked items of (its row's weight) * nats, and the plain sums."""
    row = masked.nonzero()[:, 0]
    if len(nats) != len(row):
        raise ValueError(
            f"{len(nats)} losses for {len(row)} masked items: pass one per masked item"
        )
    plain = nats.detach()
    return LossParts(
        loss=(nats * weights[row]).sum(),
        nats=plain.sum(),
        tokens=torch.tensor(nats.shape[0], device=nats.device),
    )


def action_log_prob(
    odds: Tensor, taken: Tensor, eligible: Tensor, token_log_prob: Tensor | None = None
) -> Tensor:
    """log pi of revealing `taken` of `eligible`; with the tokens' part if given.  # B L -> B"""
    each = torch.where(taken, functional.logsigmoid(odds), functional.logsigmoid(-odds))
    if token_log_prob is not None:
        each = each + token_log_prob.masked_fill(~taken, 0.0)
    return each.masked_fill(~eligible, 0.0).sum(dim=1)


def group_advantages(rewards: Tensor, least: float | None = None) -> Tensor:
    """Each reward against its group's mean; those below `least` count as 0.  # P G -> P G"""
    advantages = rewards - rewards.mean(dim=1, keepdim=True)
    return advantages if least is None else advantages.masked_fill(advantages < least, 0.0)


def factor_counts(log_confidence: Tensor, factor: float = 1.0) -> Tensor:
    """How many slots of each row are revealed; -inf marks no slot.  # B L -> B"""
    ordered = log_confidence.double().sort(dim=1, descending=True).values.exp()
    place = torch.arange(1, ordered.shape[1] + 1, device=ordered.device)
    least = (1 - factor / (place + 1.0)).masked_fill(place == 1, -1.0)  # L
    slots = (log_confidence > -torch.inf).sum(dim=1)
    held = (ordered >= least).long().cumprod(dim=1).sum(dim=1).minimum(slots)
    return torch.where(held == slots - 1, slots, held)


def factor_choice(log_confidence: Tensor, factor: float = 1.0) -> Tensor:
    """Which slots of each row are revealed; among equals the leftmost.  # B L bool"""
    order = log_confidence.argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(dim=1)
    return rank < factor_counts(log_confidence, factor)[:, None]
