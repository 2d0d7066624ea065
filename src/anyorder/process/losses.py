"""What a loss returns: the number to minimise, and the plain numbers people compare.

`loss` carries the family's weights and normalisation. `nats` over `tokens` is the unweighted
cross-entropy per predicted token, comparable between runs on the same validation grid.

Left-to-right modelling: -log p(x) = sum over i of -log p(x_i | x_1 ... x_{i-1}).

The state at position i-1 predicts item i. The loss counts the items in `targets` (the answer and
its end), never the prompt, and is a mean over all of them in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class LossParts:
    """One batch's loss and its parts; all scalars."""

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
