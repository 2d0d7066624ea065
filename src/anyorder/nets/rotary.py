"""Rotary positions (RoPE), in the rotate-half layout of Qwen2 and Llama.

Position p turns the pair (x_j, x_{j + W/2}) of every head by the angle p * theta^(-2j/W). A turn
keeps norms, and the product of a turned query and a turned key depends on the difference of their
positions alone.

Not here: frequency scaling for contexts longer than those trained on.
Letters: B rows, L positions, H heads, W head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

Rotation = tuple[Tensor, Tensor]
"""[cos | cos] and [-sin | sin] of the angles, each (1 or B) L 1 W, float32."""


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn each pair (j, j + W/2) of every head by its angle: B L H W -> B L H W.

    x cos + (x with its halves exchanged) (-sin | sin), in passes over whole heads: half the time of
    turning the halves one by one. The float32 tables promote half precision for the turn itself.
    """
    cos, sin = rotation
    exchanged = x.roll(x.shape[-1] // 2, dims=-1)
    return (x * cos).add_(exchanged * sin).to(x.dtype)


class Rotary:
    """The cosines and sines of a net, computed once per length and device.

    Deliberately no module: as buffers the tables would follow `.to(bfloat16)` and lose their
    precision, and would be left uninitialised on the way from the meta device to a real one.
    """

    def __init__(self, head_width: int, theta: float) -> None:
        self.head_width = head_width
        self.theta = theta
        self._table: Rotation | None = None

    def prefix(self, length: int, device: torch.device) -> Rotation:
        """Positions 0 .. length - 1."""
        cos, sin = self._grown(length, device)
        return cos[:, :length], sin[:, :length]

    def pick(self, positions: Tensor, limit: int) -> Rotation:
        """Positions (B L) known to be below `limit`."""
        cos, sin = self._grown(limit, positions.device)
        return cos[0, positions], sin[0, positions]

    def at(self, positions: Tensor) -> Rotation:
        """Any positions (B L). Computed afresh: the host does not know how large they are."""
        even = torch.arange(0, self.head_width, 2, dtype=torch.float32, device=positions.device)
        frequency = 1.0 / self.theta ** (even / self.head_width)
        angle = positions.float()[..., None, None] * frequency  # B L 1 W/2
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)

    def _grown(self, length: int, device: torch.device) -> Rotation:
        table = self._table
        if table is None or table[0].shape[1] < length or table[0].device != device:
            rows = 1 << max(length - 1, 63).bit_length()  # doubling, so that growth is rare
            # A table made in inference mode could not be used for training later on.
            with torch.inference_mode(False), torch.no_grad():
                table = self.at(torch.arange(rows, device=device)[None])
            self._table = table
        return table
