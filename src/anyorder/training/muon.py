"""Muon for the matrices of the layers, AdamW for everything else (Jordan et al., 2024).

    m_n = b m_{n-1} + g_n,    u_n = g_n + b m_n,    W_n = (1 - r d) W_{n-1} - r s orthogonal(u_n)

g is the gradient, b = 0.95, r the learning rate, d the weight decay and s = sqrt(max(1, rows /
columns)). `orthogonal` replaces all singular values by numbers near 1, by five steps of a
Newton-Schulz iteration. So every direction of a matrix learns at the same speed, which is what a
look-up in the prompt needs (docs/trails.md).

`torch.optim.Muon` has the same update, but iterates in bfloat16, one matrix after another, which is
slow on a CPU without bfloat16 units. Here the iteration is in the precision of the weights, on all
matrices of one shape together.

Not here: which parameters these are and their learning rates (optimiser.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
ITERATION = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic: steep at 0, and between 0.7 and 1.2 after five steps."""
STEPS = 5
SMALLEST_NORM = 1e-7


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices with the same singular vectors and with singular values near 1.  # N R C"""
    linear, cubic, quintic = ITERATION
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.transpose(1, 2)
    # The Frobenius norm bounds the largest singular value, from which the iteration converges.
    x = wide / torch.linalg.vector_norm(wide, dim=(1, 2), keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(STEPS):
        gram = x @ x.transpose(1, 2)  # N R R, of the shorter side
        x = linear * x + (cubic * gram + quintic * gram @ gram) @ x
    return x if wide is matrices else x.transpose(1, 2)


class MuonAdamW(torch.optim.AdamW):
    """AdamW, in which groups with `muon` are trained by Muon. One `state`, one `param_groups`."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        assert closure is None, "the loop computes gradients before the step"
        for group in self.param_groups:
            if group["muon"]:
                self._step_matrices(group)
        return super().step()

    def _step_matrices(self, group: Mapping[str, Any]) -> None:
        by_shape: dict[torch.Size, list[nn.Parameter]] = {}
        for weight in group["params"]:
            if weight.grad is not None:
                by_shape.setdefault(weight.shape, []).append(weight)
        for shape, weights in by_shape.items():
            momenta = [self._momentum(weight) for weight in weights]
            gradients = [_taken_gradient(weight) for weight in weights]
            torch._foreach_mul_(momenta, MOMENTUM)
            torch._foreach_add_(momenta, gradients)
            ahead = torch._foreach_add(gradients, momenta, alpha=MOMENTUM)
            self._move(weights, orthogonal(torch.stack(list(ahead))), group, shape)

    def _move(
        self,
        weights: Sequence[nn.Parameter],
        updates: Tensor,
        group: Mapping[str, Any],
        shape: torch.Size,
    ) -> None:
        rate = float(group["lr"])
        longer = math.sqrt(max(1.0, shape[0] / shape[1]))
        torch._foreach_mul_(list(weights), 1.0 - rate * group["weight_decay"])
        torch._foreach_add_(list(weights), list(updates.unbind()), alpha=-rate * longer)

    def _momentum(self, weight: nn.Parameter) -> Tensor:
        state = self.state[weight]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weight)
        found = state["momentum"]
        assert isinstance(found, Tensor)
        return found


def _taken_gradient(weight: nn.Parameter) -> Tensor:
    """The gradient, which AdamW must not see: it skips parameters without one."""
    gradient, weight.grad = weight.grad, None
    assert gradient is not None
    return gradient
