"""A network over the processes of a training: replicated, or sharded among them (FSDP2).

    Replicated   every process has all weights; gradients are averaged over processes once a step
    Sharded      every process has its rows of each weight, gradient and moment. A layer's weights
                 are gathered before it runs and freed after; the rest (tables, heads, time) is
                 gathered for the whole forward and backward pass. hybrid: sharded among the
                 processes of a machine, replicated over machines

Both give a step the gradient sum_m g_m / A over its A micro batches: each of W processes averages
its own A / W, and one reduction averages over processes after the last (or after each with
`reduce="micro"`, which needs no memory for whole gradients). The objective runs inside the root's
forward pass, so families need not know of sharding. bfloat16: weights stay float32 and are cast
when used; losses are float32.

**Layers.** `recompute`: a layer keeps only its input and runs again in the backward pass.
`compile`: torch.compile, for any length. `units`: the layers that are gathered one by one. A unit
must run exactly once per batch in every process, since gathering is a message among all. So the
encoder and decoder of a segment network, which run once for each group of segments, are no units;
nor is the latent network of a prefix_lm, which reads prompts by its layers' parts.

**First weights** (`ShardedInit`). The constructor runs once on tensors without memory, and its
in-place operations are recorded:

    normal_(w_1, generator), zero_(w_2), w_1.diagonal().add_(1), w_3.copy_(another net's weight)

Replaying them in order, with memory for one weight from its last overwriting to its last change,
gives the same numbers. So no process ever holds all weights, and the first weights equal those of
one process with the same seed. A draw that is overwritten later is made only if another weight
draws from the same generator after it; with a `NamedSeed` (nets/init.py) none does. A constructor
that computes weights in another way is refused.

Not here: rows and messages (processes.py), the loop (loop.py), layers (nets/stack.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from anyorder.data.batches import Batch
from anyorder.families.family import Objective
from anyorder.families.latentmdm.net import LatentNet
from anyorder.families.mdm.planner import PlannerHead
from anyorder.families.sflm.net import DiT
from anyorder.nets.stack import Stack
from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise
from anyorder.training.config import TrainConfig
from anyorder.training.optimiser import trained_parameters
from anyorder.training.processes import Ranks, put, whole_of


def units(net: nn.Module) -> list[nn.Module]:
    """The layers that run exactly once for each batch."""
    others: set[nn.Module] = _reading_by_parts(net)
    for module in net.modules():
        if isinstance(module, LatentNet):
            others |= {module.encoder, module.decoder}
        elif isinstance(module, PlannerHead):
            others.add(module.layer)
    return [layer for stack in _stacks(net) if stack not in others for layer in stack.blocks]


@contextmanager
def prepared(net: nn.Module, config: TrainConfig) -> Iterator[None]:
    """Inside the block, layers are compiled and recomputed as the configuration says."""
    changed: list[nn.Module] = []
    by_parts = _reading_by_parts(net)
    try:
        for stack in _stacks(net):
            for layer in stack.blocks:
                forward = layer.forward
                if config.compile:
                    forward = torch.compile(forward, dynamic=True)
                # A layer of a prefix_lm stores its keys as it runs, so it must not run twice.
                if config.recompute and stack not in by_parts:
                    forward = partial(
                        checkpoint, forward, use_reentrant=False, preserve_rng_state=False
                    )
                if forward is not layer.forward:
                    vars(layer)["forward"] = forward  # hides the class's method until the end
                    changed.append(layer)
        if (config.compile or config.recompute) and not changed:
            raise ValueError(
                "recompute and compile work on layers, and this network has none: leave them out"
            )
        yield
    finally:
        for layer in changed:
            del vars(layer)["forward"]


def layer_names(net: nn.Module) -> list[str]:
    """The names of all modules in the layers."""
    inside = {module for stack in _stacks(net) for layer in stack.blocks
              for module in layer.modules()}  # fmt: skip
    return [name for name, module in net.named_modules() if module in inside]


def _stacks(net: nn.Module) -> list[Stack | DiT]:
    return [module for module in net.modules() if isinstance(module, Stack | DiT)]


def _reading_by_parts(net: nn.Module) -> set[nn.Module]:
    return {
        module.latent
        for module in net.modules()
        if isinstance(module, LatentNet) and module.config.attention == "prefix_lm"
    }


Weights = Callable[[], Iterable[tuple[str, Tensor]]]
"""Yields the first weights by name, one at a time, so that no process holds them all."""
BUCKET = 1 << 25
"""Gradient values in one message."""


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


class Replicated:
    """A network on this process's device, with all weights in every process."""

    def __init__(
        self, net: nn.Module, config: TrainConfig, ranks: Ranks, weights: Weights | None = None
    ) -> None:
        """A network on meta gets its values from `weights`."""
        self.net, self.config, self.ranks = net, config, ranks
        self.device = ranks.device(config.device)
        if config.dtype == "float64":
            net.double()
        self._place(weights)
        self.parameters = list(trained_parameters(net).values())

    def _place(self, weights: Weights | None) -> None:
        _fill(self.net, self.device, weights)

    def loss(self, objective: Objective, batch: Batch, noise: Noise) -> LossParts:
        half = self.config.dtype == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            return self._loss(objective, batch, noise)

    def _loss(self, objective: Objective, batch: Batch, noise: Noise) -> LossParts:
        return objective(self.net, batch, noise)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradients of a micro batch; `last`: it is this process's last in the step."""
        loss.backward()
        if last and self.ranks.count > 1:
            self._average()

    @torch.no_grad()
    def _average(self) -> None:
        """Average gradients over processes, in buckets."""
        bucket: list[nn.Parameter] = []
        for parameter in self.parameters:
            # All processes must send the same messages, whichever weights their batches used.
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
        """Clip the step's gradient to `limit`; returns its norm before."""
        return whole_of(nn.utils.clip_grad_norm_(self.parameters, limit))

    def whole(self) -> nn.Module | None:
        """The network with all its weights, in rank 0; None elsewhere."""
        return self.net if self.ranks.first else None

    def rest(self) -> None:
        """After passes without gradients: free gathered weights, which the next step changes."""


class _ZeroGradients(torch.autograd.Function):
    """Passes a loss on, and adds gradients of zero for some weights.

    A weight that a batch does not use would have no gradient and send no message; the other
    processes would wait for it.
    """

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
        """The modules whose weights are gathered with the root."""

    def forward(self, objective: Objective, batch: Batch, noise: Noise) -> tuple[Tensor, LossParts]:
        parts = objective(self.net, batch, noise)
        # Gathered weights are other objects than the optimiser's, and exist only in this pass.
        weights = {
            weight: None
            for module in self._own
            for weight in module.parameters(recurse=False)
            if weight.requires_grad
        }
        loss: Tensor = _ZeroGradients.apply(parts.loss, *weights)
        return loss, parts


class Sharded(Replicated):
    """A network with some rows of every weight in each process."""

    def _place(self, weights: Weights | None) -> None:
        assert not list(self.net.buffers()), "a sharded network has no buffers"
        self._shape = without_memory(self.net)  # before sharding replaces the weights
        half = self.config.dtype == "bfloat16"
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if half else None,
            reduce_dtype=torch.float32 if half else None,
        )
        mesh = _mesh(self.config, self.ranks, self.device)
        # Layers first: the root then gathers only the weights that no layer has.
        for layer in units(self.net):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        inner = _Root(self.net)
        self.root = fully_shard(inner, mesh=mesh, mp_policy=policy)
        assert isinstance(self.root, FSDPModule)
        _fill(inner, self.device, weights, prefix="net.")

    def _loss(self, objective: Objective, batch: Batch, noise: Noise) -> LossParts:
        loss, parts = self.root(objective, batch, noise)  # type: ignore[operator]
        return replace(parts, loss=loss)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        each = self.config.reduce == "micro"
        self.root.set_requires_gradient_sync(last or each)
        self.root.set_requires_all_reduce(last)  # hybrid: reduce over machines once a step
        loss.backward()

    @torch.no_grad()
    def whole(self) -> nn.Module | None:
        found = copy.deepcopy(self._shape) if self.ranks.first else None
        targets = {} if found is None else dict(found.to_empty(device="cpu").named_parameters())
        for name, weight in self.net.named_parameters():
            gathered = whole_of(weight)  # one at a time, so that no GPU must hold them all
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
    """A copy of a network with other tensors as its weights."""
    others = {
        id(weight): nn.Parameter(make(weight), weight.requires_grad) for weight in net.parameters()
    }
    # A memo that has the new weights already: deepcopy never copies the old ones, and ties stay.
    return copy.deepcopy(net, dict(others))


def _mesh(config: TrainConfig, ranks: Ranks, device: torch.device) -> DeviceMesh:
    """One dimension of all processes, or machines x processes."""
    if config.optimiser == "muon":
        raise ValueError(
            f"optimiser=muon needs whole matrices, and shard={config.shard} divides them among the "
            "processes: give shard=none, or optimiser=adamw"
        )
    if config.shard == "full":
        return init_device_mesh(device.type, (ranks.count,))
    machines, rest = divmod(ranks.count, ranks.local_count)
    if rest:
        raise ValueError(
            f"shard=hybrid needs equally many processes on each machine, and {ranks.count} is not "
            f"a multiple of {ranks.local_count}: start as many on each, or give shard=full"
        )
    names = ("machine", "process")
    return init_device_mesh(device.type, (machines, ranks.local_count), mesh_dim_names=names)


OVERWRITING = frozenset({"normal_", "uniform_", "fill_", "zero_", "copy_"})
DRAWING = frozenset({"normal_", "uniform_"})

TensorSource = Callable[[], Tensor]


@dataclass(frozen=True)
class Base:
    """A trained network to start from, whose weights are read one at a time."""

    net: nn.Module
    """On the meta device."""
    tensor: Callable[[str], Tensor]
    """The name of a parameter -> its values."""


@dataclass(frozen=True)
class _Change:
    """One in-place operation on a weight, or on a part of one."""

    operation: Any
    weight: int
    """The changed storage."""
    view: tuple[Any, Any, int]
    """Size, strides and offset of the part."""
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    source: int | None
    """The storage that was copied from, if any."""

    @property
    def name(self) -> str:
        return str(self.operation.overloadpacket.__name__)

    @property
    def generator(self) -> torch.Generator | None:
        return self.named.get("generator")

    def overwrites(self, shape: torch.Size) -> bool:
        return self.name in OVERWRITING and self.view[0] == shape

    def apply(self, memory: Tensor, generators: dict[Any, torch.Generator], source: Any) -> None:
        target = torch.as_strided(memory, *self.view)
        named = {
            key: generators.get(value, value) if isinstance(value, torch.Generator) else value
            for key, value in self.named.items()
        }
        arguments = self.arguments if source is None else (source,)
        self.operation(target, *arguments, **named)


class _Recorder(TorchDispatchMode):
    """Records every operation that changes a tensor in place."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[_Change] = []

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = operation(*args, **kwargs)
        if operation._schema.is_mutable:
            target, *rest = args
            tensors = [value for value in rest if isinstance(value, Tensor)]
            self.changes.append(
                _Change(
                    operation,
                    _storage(target),
                    (target.shape, target.stride(), target.storage_offset()),
                    tuple(rest),
                    kwargs,
                    _storage(tensors[0]) if tensors else None,
                )
            )
        return result


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


class ShardedInit:
    """A network on the meta device, and its first weights.

    `make` builds the network. With a `base`, `start(network, base network)` then copies weights.
    """

    def __init__(
        self,
        make: Callable[[], nn.Module],
        base: Base | None = None,
        start: Callable[[Any, nn.Module], None] | None = None,
    ) -> None:
        recorder = _Recorder()
        self._sources: dict[int, TensorSource] = {}
        with FakeTensorMode(), recorder:
            net = make()
            if base is not None:
                assert start is not None
                start(net, self._imitated(base))
        self._fake = net  # kept alive: the record names weights by its storages
        self._changes = recorder.changes
        self.net = without_memory(net)

    def _imitated(self, base: Base) -> nn.Module:
        net = with_weights(base.net, lambda weight: torch.empty(weight.shape, dtype=weight.dtype))
        for name, weight in net.named_parameters():
            self._sources[_storage(weight)] = partial(base.tensor, name)
        return net

    def __call__(self) -> Iterator[tuple[str, Tensor]]:
        """Yield names and values, each as soon as it is final."""
        names = {_storage(weight): name for name, weight in self._fake.named_parameters()}
        shapes = {_storage(weight): weight.shape for weight in self._fake.parameters()}
        changes = [change for change in self._changes if change.weight in names]
        written, changed = self._moments(changes, shapes, names)
        generators = self._fresh_generators(changes)
        needed = self._last_needed(changes, written)
        memory: dict[int, Tensor] = {}
        for moment, change in enumerate(changes):
            weight = change.weight
            if moment < written[weight]:
                # Overwritten later, but the draw must advance a generator that others need.
                if moment < needed.get(change.generator, -1):
                    change.apply(torch.empty(shapes[weight]), generators, None)
                continue
            if moment == written[weight]:
                memory[weight] = torch.empty(shapes[weight])
            source = None if change.source is None else self._read(change, names[weight])
            change.apply(memory[weight], generators, source)
            if moment == changed[weight]:
                yield names[weight], memory.pop(weight)

    def _moments(
        self, changes: list[_Change], shapes: dict[int, torch.Size], names: dict[int, str]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """The last overwriting and the last change of each weight, as places in `changes`."""
        written, changed = {}, {}
        for moment, change in enumerate(changes):
            changed[change.weight] = moment
            if change.overwrites(shapes[change.weight]):
                written[change.weight] = moment
        for weight, name in names.items():
            last = changes[written[weight]] if weight in written else None
            hidden = last is not None and last.name in DRAWING and last.generator is None
            if last is None or hidden:
                raise ValueError(
                    f"the first values of {name} are not a function of the seed: set them in the "
                    "network's constructor with a generator, or train in one process"
                )
        return written, changed

    def _read(self, change: _Change, name: str) -> Tensor:
        if change.source not in self._sources or change.name != "copy_":
            raise ValueError(
                f"the first values of {name} are computed from other tensors: copy or draw them, "
                "or train in one process"
            )
        return self._sources[change.source]()

    @staticmethod
    def _last_needed(changes: list[_Change], written: dict[int, int]) -> dict[Any, int]:
        """The last place at which each generator gives values that stay."""
        return {
            change.generator: moment
            for moment, change in enumerate(changes)
            if change.generator is not None and moment >= written[change.weight]
        }

    def _fresh_generators(self, changes: list[_Change]) -> dict[Any, torch.Generator]:
        """Copies of the generators. Fake tensors draw nothing, so they are still at the start."""
        found: dict[Any, torch.Generator] = {}
        for change in changes:
            given = change.generator
            if given is not None and given not in found:
                found[given] = torch.Generator().set_state(given.get_state())
        return found
