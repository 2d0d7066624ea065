"""Left-to-right modelling: -log p(x) = sum over i of -log p(x_i | x_1 ... x_{i-1}).

The state at position i-1 predicts item i. The loss counts the items in `targets` (the answer and
its end), never the prompt, and is a mean over all of them in the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyorder.process.parts import LossParts


def predictors(targets: Tensor) -> Tensor:
    """Where the states stand that predict the target items: one place to the left.  # B L

    `targets` (B L, bool) must not hold position 0, which nothing precedes.
    """
    if bool(targets[:, 0].any()):
        raise ValueError("position 0 cannot be predicted: start the sequence with a prompt or BOS")
    return torch.cat([targets[:, 1:], torch.zeros_like(targets[:, :1])], dim=1)


def mean_over_tokens(nats: Tensor) -> LossParts:
    """The token mean over the batch.  # M"""
    tokens = torch.tensor(nats.shape[0], device=nats.device)
    return LossParts(loss=nats.sum() / tokens.clamp(min=1), nats=nats.detach().sum(), tokens=tokens)
