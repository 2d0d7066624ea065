"""What an objective is: one batch and its noise -> the parts of a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from anyorder.data.batches import Batch
from anyorder.process.losses import LossParts
from anyorder.process.noise import Noise

Objective = Callable[[nn.Module, Batch, Noise], LossParts]


def token_nats(net: Any, states: Tensor, targets: Tensor) -> Tensor:
    """-log p of the targets.  # M"""
    return functional.cross_entropy(net.head(states), targets, reduction="none")
