"""An exponential moving average of the weights, with a warm-up of its decay.

    average_n = d_n average_{n-1} + (1 - d_n) weights_n,   d_n = min(decay, (1 + n) / (10 + n)),

where average_0 are the initial weights and n = 1, 2, ... counts the updates. The warm-up lets the
average follow the fast first steps instead of remembering the initial weights. Buffers are copied,
not averaged. `Ema` has a network of its own; `ShardedEma` has averages beside a sharded network,
which are exchanged for its weights while somebody looks. This does not decide when to update or
which weights to use: see loop.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from anyorder.train.optimiser import trained_parameters
from anyorder.train.parts import local


def warm_decay(decay: float, update: int) -> float:
    """d_n of the equation above."""
    return min(decay, (1 + update) / (10 + update))


class Ema:
    """The averaged copy of a network."""

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self._average = AveragedModel(net, multi_avg_fn=self._mix)
        self._average.requires_grad_(False)
        self._average.eval()
        # AveragedModel replaces the average at its first update; the initial weights count as
        # that update here, so that the warm-up is the published one from the first step on.
        self._average.n_averaged.fill_(1)

    @property
    def module(self) -> nn.Module:
        """The network with averaged weights, in evaluation mode."""
        module = self._average.module
        assert isinstance(module, nn.Module)
        return module

    @contextmanager
    def shown(self) -> Iterator[nn.Module]:
        """The network with averaged weights."""
        yield self.module

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        self.updates += 1
        self._average.update_parameters(net)

    def _mix(self, average: Sequence[Tensor], current: Sequence[Tensor], _: Tensor | int) -> None:
        # The count is ours and not the tensor that is passed in: reading that would wait for a GPU.
        weight = 1.0 - warm_decay(self.decay, self.updates)
        torch._foreach_lerp_(list(average), list(current), weight)


class ShardedEma:
    """The average of what this process holds of a sharded network's trained weights."""

    def __init__(self, net: nn.Module, decay: float) -> None:
        assert not list(net.buffers()), "a sharded network has no buffers"
        self.decay = decay
        self.updates = 0
        self._net = net
        self._average = {
            name: local(weight).detach().clone() for name, weight in trained_parameters(net).items()
        }

    @contextmanager
    def shown(self) -> Iterator[nn.Module]:
        """The network itself, with averaged weights in place of its own until this ends."""
        self._exchange()
        try:
            yield self._net
        finally:
            self._exchange()

    def update(self, net: nn.Module) -> None:
        assert net is self._net
        self.updates += 1
        weight = 1.0 - warm_decay(self.decay, self.updates)
        torch._foreach_lerp_(list(self._average.values()), self._weights(), weight)

    def _weights(self) -> list[Tensor]:
        return [local(weight).detach() for weight in trained_parameters(self._net).values()]

    def _exchange(self) -> None:
        for average, weight in zip(self._average.values(), self._weights(), strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)
