"""Fast-dLLM's factor rule: how many of the surest slots may be revealed together.

With the probabilities of the best tokens in falling order, c_1 >= c_2 >= ... >= c_N, and factor f,

    th_1 = -1,    th_n = 1 - f / (n + 1)

the rule goes on while c_n >= th_n and reveals what stands before the first failure: the more are
revealed at once, the surer each must be. As published, a failure at the very last slot counts as
none: then all are revealed, so that two open slots always are.

Shared by the quota `factor` (decode/quota.py) and by the planner's imitation of it
(train/planner_objective.py). Letters: B rows, L positions.
"""

from __future__ import annotations

import torch
from torch import Tensor


def factor_counts(log_confidence: Tensor, factor: float = 1.0) -> Tensor:
    """How many slots of each row are revealed; -inf stands where there is none.  # B L -> B"""
    ordered = log_confidence.double().sort(dim=1, descending=True).values.exp()
    place = torch.arange(1, ordered.shape[1] + 1, device=ordered.device)
    least = (1 - factor / (place + 1.0)).masked_fill(place == 1, -1.0)  # L
    slots = (log_confidence > -torch.inf).sum(dim=1)
    held = (ordered >= least).long().cumprod(dim=1).sum(dim=1).minimum(slots)
    return torch.where(held == slots - 1, slots, held)


def factor_choice(log_confidence: Tensor, factor: float = 1.0) -> Tensor:
    """Which slots of each row are revealed; of equals the leftmost ones.  # B L bool"""
    order = log_confidence.argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(dim=1)
    return rank < factor_counts(log_confidence, factor)[:, None]
