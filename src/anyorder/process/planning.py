"""The mathematics of tuning a planner by its rewards (dUltra's variant of GRPO).

One decoding step is one action: which of the open slots of the block are revealed, and with which
tokens. With the planner's log-odds z_j, u_j = sigmoid(z_j), its log-probability is

    log pi = sum over revealed j of [ln u_j + ln p_j(token_j)] + sum over the others of ln(1 - u_j)

(a reveal that was forced because no slot won is scored by the same formula). A problem is answered
by a group of samples; what counts is how much better a sample is than its group,

    A = R - mean of the group,        not divided by the group's spread; small ones may be left out
    loss of a step = -A log pi

With one update for each set of samples, pi is still what drew them: the ratio of GRPO's clipped
loss is 1, nothing is clipped, and its gradient is this one's.

Not here: rewards, samples (apps/planner_rollouts.py), networks.
Letters: B rows, L positions, P problems, G samples of each.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def action_log_prob(
    odds: Tensor, taken: Tensor, eligible: Tensor, token_log_prob: Tensor | None = None
) -> Tensor:
    """log pi of revealing `taken` of `eligible`; the tokens' part where it is given.  # B L -> B"""
    each = torch.where(taken, functional.logsigmoid(odds), functional.logsigmoid(-odds))
    if token_log_prob is not None:
        each = each + token_log_prob.masked_fill(~taken, 0.0)
    return each.masked_fill(~eligible, 0.0).sum(dim=1)


def group_advantages(rewards: Tensor, least: float | None = None) -> Tensor:
    """Each reward against its group's mean; those below `least` count as 0.  # P G -> P G"""
    advantages = rewards - rewards.mean(dim=1, keepdim=True)
    return advantages if least is None else advantages.masked_fill(advantages < least, 0.0)
