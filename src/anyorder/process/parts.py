"""What a loss returns: the number to minimise, and the plain numbers people compare.

`loss` carries the family's weights and normalisation. `nats` over `tokens` is the unweighted
cross-entropy per predicted token, comparable between runs on the same validation grid.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
