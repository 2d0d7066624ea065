"""A network over the processes of a training: whole in each, or sharded among them (FSDP2).

    Whole      every process has all weights; gradients are averaged over processes once a step
    Sharded    every process has its rows of each weight, gradient and moment. Before a layer runs,
               its weights are gathered, and freed again; the rest (tables, heads, time) is gathered
               for the whole forward and backward pass. hybrid: sharded among the processes of a
               machine, the same on every machine

Both give a step the gradient sum_m g_m / A over its A micro batches: a process averages its own
A / W, and the average over processes is taken in one reduction, when the last one is done (or after
each, `reduce="micro"`: whole gradients need no memory then).

The objective runs inside the root's forward pass, whatever methods of the network it calls, so that
families need not know of sharding. All processes must send the same messages: a weight that a
batch happens not to use gets a gradient of zero.

bfloat16: the weights stay float32 and are cast when they are used; losses are computed in float32.

Not here: which layers are gathered one by one (layers.py), rows (parts.py), the loop (loop.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from anyorder.data.batches import Batch
from anyorder.process.noise import Noise
from anyorder.process.parts import LossParts
from anyorder.train.config import TrainConfig
from anyorder.train.ema import Ema, ShardedEma
from anyorder.train.layers import units
from anyorder.train.objective import Objective
from anyorder.train.optimiser import trained_parameters
from anyorder.train.parts import put, whole_of
from anyorder.train.ranks import Ranks

Weights = Callable[[], Iterable[tuple[str, Tensor]]]
"""Makes the first weights, by name, one at a time: nobody has to hold them all."""
BUCKET = 1 << 25
"""Gradients that are added up in one message."""


class Spread(Protocol):
    """How the loop works with a network, wherever its weights are."""

    net: nn.Module

    def loss(
        self, net: nn.Module, objective: Objective, batch: Batch, noise: Noise
    ) -> LossParts: ...

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradients of one of this process's micro batches; `last`: of the step."""
        ...

    def clip(self, limit: float) -> Tensor:
        """Complete the step's gradient and shorten it to `limit`; its norm before."""
        ...

    def average(self, decay: float) -> Ema | ShardedEma:
        """An average of the weights as they are now."""
        ...

    def whole(self, net: nn.Module) -> nn.Module | None:
        """`net` (this one, or its average) with all its weights, in rank 0; None elsewhere."""
        ...

    def rest(self) -> None:
        """After passes without gradients: keep nothing that the next step changes."""
        ...


def spread(
    net: nn.Module, config: TrainConfig, ranks: Ranks, weights: Weights | None = None
) -> Spread:
    """Put a network on this process's device, with its weights or, on meta, those given."""
    kind = Whole if ranks.count == 1 or config.shard == "none" else Sharded
    return kind(net, config, ranks, weights)


def _casting(config: TrainConfig, device: torch.device) -> AbstractContextManager[Any]:
    half = config.dtype == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=half)


def _fill(net: nn.Module, device: torch.device, weights: Weights | None, prefix: str = "") -> None:
    """Give memory and first weights to a network on the meta device."""
    empty = {name for name, value in net.named_parameters() if value.is_meta}
    if not empty:
        net.to(device)
        return
    assert weights is not None, "a network on the meta device needs weights"
    net.to_empty(device=device)
    targets = dict(net.named_parameters())
    for name, whole in weights():
        put(targets[prefix + name], whole)
        empty.discard(prefix + name)
    assert not empty, f"no first weights for {', '.join(sorted(empty))}"


class Whole:
    """All weights in every process."""

    def __init__(
        self, net: nn.Module, config: TrainConfig, ranks: Ranks, weights: Weights | None
    ) -> None:
        self.net, self.config, self.ranks = net, config, ranks
        self.device = ranks.device(config.device)
        if config.dtype == "float64":
            net.double()
        _fill(net, self.device, weights)
        self.parameters = list(trained_parameters(net).values())

    def loss(self, net: nn.Module, objective: Objective, batch: Batch, noise: Noise) -> LossParts:
        with _casting(self.config, self.device):
            return objective(net, batch, noise)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        loss.backward()
        if last and self.ranks.count > 1:
            self._average()

    @torch.no_grad()
    def _average(self) -> None:
        """Gradients over processes, some at a time."""
        bucket: list[nn.Parameter] = []
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            bucket.append(parameter)
            if sum(each.numel() for each in bucket) >= BUCKET:
                self._average_bucket(bucket)
                bucket = []
        if bucket:
            self._average_bucket(bucket)

    def _average_bucket(self, bucket: list[nn.Parameter]) -> None:
        grads = [each.grad for each in bucket if each.grad is not None]
        flat = torch.cat([grad.flatten() for grad in grads])
        flat = self.ranks.total(flat) / self.ranks.count
        for grad, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
            grad.copy_(part.view_as(grad))

    def clip(self, limit: float) -> Tensor:
        return nn.utils.clip_grad_norm_(self.parameters, limit)

    def average(self, decay: float) -> Ema:
        return Ema(self.net, decay)

    def whole(self, net: nn.Module) -> nn.Module | None:
        return net if self.ranks.first else None

    def rest(self) -> None:
        pass


class _Touch(torch.autograd.Function):
    """A loss as it is, with gradients of zero for some weights besides those that it has."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, *weights: Tensor) -> Tensor:
        ctx.kinds = [(weight.shape, weight.dtype) for weight in weights]
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        zeros = (grad.new_zeros((), dtype=dtype).expand(shape) for shape, dtype in ctx.kinds)
        return grad, *zeros


class _Root(nn.Module):
    """The module whose forward pass is the objective."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        layers = {inner for layer in units(net) for inner in layer.modules()}
        self._own = [module for module in net.modules() if module not in layers]
        """Whose weights are gathered with the root."""

    def forward(self, objective: Objective, batch: Batch, noise: Noise) -> tuple[Tensor, LossParts]:
        parts = objective(self.net, batch, noise)
        # Gathered weights are other objects than those of the optimiser: only here they are found.
        weights = {
            weight: None
            for module in self._own
            for weight in module.parameters(recurse=False)
            if weight.requires_grad
        }
        loss: Tensor = _Touch.apply(parts.loss, *weights)
        return loss, parts


class Sharded:
    """Rows of every weight in each process."""

    def __init__(
        self, net: nn.Module, config: TrainConfig, ranks: Ranks, weights: Weights | None
    ) -> None:
        self.net, self.config, self.ranks = net, config, ranks
        self.device = ranks.device(config.device)
        if config.dtype == "float64":
            net.double()
        self._shape = without_memory(net)
        half = config.dtype == "bfloat16"
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if half else None,
            reduce_dtype=torch.float32 if half else None,
        )
        mesh = _mesh(config, ranks, self.device)
        for layer in units(net):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        inner = _Root(net)
        self.root = fully_shard(inner, mesh=mesh, mp_policy=policy)
        assert isinstance(self.root, FSDPModule)
        _fill(inner, self.device, weights, prefix="net.")
        self.parameters = list(trained_parameters(net).values())

    def loss(self, net: nn.Module, objective: Objective, batch: Batch, noise: Noise) -> LossParts:
        assert net is self.net
        with _casting(self.config, self.device):
            loss, parts = self.root(objective, batch, noise)  # type: ignore[operator]
        return replace(parts, loss=loss)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        each = self.config.reduce == "micro"
        self.root.set_requires_gradient_sync(last or each)
        self.root.set_requires_all_reduce(last)  # hybrid: over machines only once
        loss.backward()

    def clip(self, limit: float) -> Tensor:
        norm = nn.utils.clip_grad_norm_(self.parameters, limit)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def average(self, decay: float) -> ShardedEma:
        return ShardedEma(self.net, decay)

    @torch.no_grad()
    def whole(self, net: nn.Module) -> nn.Module | None:
        assert net is self.net
        found = copy.deepcopy(self._shape) if self.ranks.first else None
        targets = {} if found is None else dict(found.to_empty(device="cpu").named_parameters())
        for name, weight in net.named_parameters():
            gathered = whole_of(weight)  # one at a time: no GPU has to hold them all
            if targets:
                targets[name].copy_(gathered)
        return found

    def rest(self) -> None:
        self.root.reshard()


def without_memory(net: nn.Module) -> nn.Module:
    """A copy of a network on the meta device."""
    return with_weights(
        net, lambda weight: torch.empty(weight.shape, dtype=weight.dtype, device="meta")
    )


def with_weights(net: nn.Module, make: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of a network with other tensors in the place of its weights."""
    others = {
        id(weight): nn.Parameter(make(weight), weight.requires_grad) for weight in net.parameters()
    }
    return copy.deepcopy(net, dict(others))


def _mesh(config: TrainConfig, ranks: Ranks, device: torch.device) -> DeviceMesh:
    """All processes in a row, or machines times the processes of each."""
    if config.shard == "full":
        return init_device_mesh(device.type, (ranks.count,))
    machines, rest = divmod(ranks.count, ranks.local_count)
    if rest:
        raise ValueError(
            f"{ranks.count} processes on machines with {ranks.local_count} here and others "
            "elsewhere: start as many on each, or give shard=full"
        )
    names = ("machine", "process")
    return init_device_mesh(device.type, (machines, ranks.local_count), mesh_dim_names=names)
