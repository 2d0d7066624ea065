"""Validation: nats per token on a fixed grid of held-out batches and corruption levels.

The value is sum of nats / sum of predicted tokens over all cells, and a family's extras likewise
(flexmdm's gap loss: with it, both heads are watched). Batches, levels and noise are the
same at every step and in every run, so that two numbers differ only by the weights. This does not
decide when to validate or with which weights: see loop.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from anyorder.data.batches import Batch
from anyorder.process.noise import Noise
from anyorder.train.objectives import Objective

VALIDATION_SEED = 0x76A11DA7E
"""Not the run's seed, so that runs with other seeds compare."""


@torch.no_grad()
def validate(
    net: nn.Module,
    objective: Objective,
    validation: Sequence[Batch],
    levels: Sequence[float | None],
    device: torch.device,
) -> dict[str, Any]:
    """Nats per token over a fixed grid of batches and corruption levels, in all and per level."""
    table = torch.zeros(len(levels), 2, dtype=torch.float64)
    extras: dict[str, Tensor] = {}
    for row, level in enumerate(levels):
        for number, batch in enumerate(validation):
            noise = Noise(VALIDATION_SEED, number, level)
            parts = objective(net, batch.to(device), noise)
            table[row] += torch.stack([parts.nats.cpu().double(), parts.tokens.cpu().double()])
            for name, value in parts.extras.items():
                extras[name] = extras.get(name, 0.0) + value.cpu().double()
    grid = [
        {"level": level, "nats_per_token": _ratio(table[row])} for row, level in enumerate(levels)
    ]
    tokens = table[:, 1].sum()
    means = {name: _ratio(torch.stack([value, tokens])) for name, value in extras.items()}
    return {"nats_per_token": _ratio(table.sum(dim=0)), **means, "levels": grid}


def _ratio(sums: Tensor) -> float | None:
    """Nats over tokens; None (JSON's null) when that is no finite number."""
    nats, tokens = sums.tolist()
    value = nats / max(tokens, 1.0)
    return value if abs(value) < float("inf") else None
