"""Validation: nats per token on a fixed grid of held-out batches and corruption levels.

The value is sum of nats / sum of predicted tokens over all cells, and a family's extras likewise
(flexmdm's gap loss: with it, both heads are watched). Batches, levels and noise are the
same at every step and in every run, so that two numbers differ only by the weights. Several
processes share the cells out among them and add up the same numbers in the same order. This does
not decide when to validate or with which weights: see loop.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from anyorder.data.batches import Batch
from anyorder.process.noise import Noise
from anyorder.process.parts import LossParts
from anyorder.train.ranks import ALONE, Ranks

VALIDATION_SEED = 0x76A11DA7E
"""Not the run's seed, so that runs with other seeds compare."""

Losses = Callable[[Batch, Noise], LossParts]
"""A network's loss on a batch."""


@torch.no_grad()
def validate(
    losses: Losses,
    validation: Sequence[Batch],
    levels: Sequence[float | None],
    device: torch.device,
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Nats per token over a fixed grid of batches and corruption levels, in all and per level."""
    count = len(validation)
    cells = len(levels) * count
    sums: dict[str, Tensor] = {}
    # Everybody takes part in every round, because a sharded network runs in all processes or none.
    for first in range(0, cells, ranks.count):
        cell = min(first + ranks.rank, cells - 1)
        row, number = divmod(cell, count)
        noise = Noise(VALIDATION_SEED, number, levels[row])
        parts = losses(validation[number].to(device), noise)
        for name, value in {"nats": parts.nats, "tokens": parts.tokens, **parts.extras}.items():
            table = sums.setdefault(name, torch.zeros(cells, dtype=torch.float64))
            if first + ranks.rank < cells:
                table[cell] = value.cpu().double()
    names = sorted(sums)
    table = ranks.total(torch.stack([sums[name] for name in names]))  # names x cells
    added = {name: _added(table[n].view(-1, count)) for n, name in enumerate(names)}
    nats, tokens = added.pop("nats"), added.pop("tokens")  # one for each level
    grid = [
        {"level": level, "nats_per_token": _ratio(nats[row], tokens[row])}
        for row, level in enumerate(levels)
    ]
    means = {name: _ratio(values.sum(), tokens.sum()) for name, values in added.items()}
    return {"nats_per_token": _ratio(nats.sum(), tokens.sum()), **means, "levels": grid}


def _added(values: Tensor) -> Tensor:
    """The sum over a level's batches, one after the other.  # levels x batches -> levels"""
    total = torch.zeros(len(values), dtype=torch.float64)
    for column in values.T:
        total = total + column
    return total


def _ratio(nats: Tensor, tokens: Tensor) -> float | None:
    """Nats over tokens; None (JSON's null) when that is no finite number."""
    value = float(nats) / max(float(tokens), 1.0)
    return value if abs(value) < float("inf") else None
