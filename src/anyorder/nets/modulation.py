"""Time conditioning of the backbone: one embedding per row, one scale and shift per layer.

    s(t)  = [cos(1000 t f) | sin(1000 t f)],   f_j = 10000^(-j / half),   half = D / 2
    c     = W2 silu(W1 s(t)),                  W1: D -> 4D, W2: 4D -> D
    (scale, shift) = split(W_layer c),         y = (1 + scale) * norm(x) + shift

The same scale and shift follow both norms of a layer, the scale is the first half, nothing stands
between the two linear maps, and the final norm is left alone. W_layer starts at zero, so a net
given time conditioning computes exactly what it computed before.

Not here: what "time" means (a process decides), and any other conditioning.
Letters: B rows, D width.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TIME_SCALE = 1000.0
MAX_PERIOD = 10000.0


def sinusoids(time: Tensor, width: int, scale: float = TIME_SCALE) -> Tensor:
    """The [cos | sin] features of a time in [0, 1], always in float32: B -> B D.

    Half precision would round the time itself (bfloat16 keeps 8 bits), hence the explicit float32.
    """
    half = width // 2
    index = torch.arange(half, dtype=torch.float32, device=time.device)
    frequency = torch.exp(-math.log(MAX_PERIOD) * index / half)
    angle = scale * time.float()[:, None] * frequency  # B D/2
    return torch.cat([angle.cos(), angle.sin()], dim=-1)


class TimeEmbedding(nn.Module):
    """Time -> the condition vector that every layer reads: B -> B D."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * width, width)

    def forward(self, time: Tensor) -> Tensor:
        features = sinusoids(time, self.width).to(self.inner.weight.dtype)
        return self.outer(F.silu(self.inner(features)))


class Modulation(nn.Module):
    """Condition -> the scale and shift of one layer: B D -> two times B 1 D."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 2 * width)

    def forward(self, condition: Tensor) -> tuple[Tensor, Tensor]:
        scale, shift = self.project(condition)[:, None, :].chunk(2, dim=-1)
        return scale, shift


def modulate(normed: Tensor, scale_shift: tuple[Tensor, Tensor] | None) -> Tensor:
    """Apply a layer's scale and shift to the output of a norm; None leaves it as it is."""
    if scale_shift is None:
        return normed
    scale, shift = scale_shift
    return torch.addcmul(shift, normed, 1 + scale)
