"""First weights one at a time: what a network's constructor draws, without the whole network.

The constructor runs once on tensors without memory, and what it does to them is written down:

    normal_(w_1, generator), zero_(w_2), w_1.diagonal().add_(1), w_3.copy_(another net's weight)

Doing it again in the same order, on memory that a weight has from its last overwriting to its last
change, gives the same numbers. Draws that are overwritten later are made as well, because they
move their generator on. So a process that keeps a part of every weight never holds them all, and
begins with exactly the weights that one process alone would draw from the same seed.

A constructor that computes weights in another way is refused by name. Not here: where weights are
put (spread.py), and what a network begins with (nets/start.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from anyorder.train.spread import with_weights, without_memory

OVERWRITING = frozenset({"normal_", "uniform_", "fill_", "zero_", "copy_"})
DRAWING = frozenset({"normal_", "uniform_"})

Source = Callable[[], Tensor]


@dataclass(frozen=True)
class Base:
    """A trained network to begin with, whose weights are read one at a time."""

    net: nn.Module
    """On the meta device."""
    tensor: Callable[[str], Tensor]
    """The name of a parameter -> its values."""


@dataclass(frozen=True)
class _Change:
    """One operation that changed a weight, or a part of one."""

    operation: Any
    weight: int
    """The storage that it changed."""
    view: tuple[Any, Any, int]
    """Size, strides and offset of the part."""
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    source: int | None
    """The storage that was copied, if one was."""

    @property
    def name(self) -> str:
        return str(self.operation.overloadpacket.__name__)

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
    """Writes down every operation that changes a tensor in place."""

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


class FirstWeights:
    """A network on the meta device, and what it begins with.

    make: builds the network; with a `base`, `start(network, base network)` then copies its weights.
    """

    def __init__(
        self,
        make: Callable[[], nn.Module],
        base: Base | None = None,
        start: Callable[[Any, nn.Module], None] | None = None,
    ) -> None:
        recorder = _Recorder()
        self._sources: dict[int, Source] = {}
        with FakeTensorMode(), recorder:
            net = make()
            if base is not None:
                assert start is not None
                start(net, self._imitated(base))
        self._fake = net  # its storages are the names in the record
        self._changes = recorder.changes
        self.net = without_memory(net)

    def _imitated(self, base: Base) -> nn.Module:
        net = with_weights(base.net, lambda weight: torch.empty(weight.shape, dtype=weight.dtype))
        for name, weight in net.named_parameters():
            self._sources[_storage(weight)] = partial(base.tensor, name)
        return net

    def __call__(self) -> Iterator[tuple[str, Tensor]]:
        """Names and values, each as soon as it is final."""
        names = {_storage(weight): name for name, weight in self._fake.named_parameters()}
        shapes = {_storage(weight): weight.shape for weight in self._fake.parameters()}
        changes = [change for change in self._changes if change.weight in names]
        written, changed = self._moments(changes, shapes, names)
        generators = self._fresh_generators(changes)
        memory: dict[int, Tensor] = {}
        for moment, change in enumerate(changes):
            weight = change.weight
            if moment < written[weight]:
                if change.named.get("generator") is not None:
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
        """When each weight is overwritten for the last time, and changed for the last time."""
        written, changed = {}, {}
        for moment, change in enumerate(changes):
            changed[change.weight] = moment
            if change.overwrites(shapes[change.weight]):
                written[change.weight] = moment
        for weight, name in names.items():
            last = changes[written[weight]] if weight in written else None
            hidden = last is not None and last.name in DRAWING and not last.named.get("generator")
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

    def _fresh_generators(self, changes: list[_Change]) -> dict[Any, torch.Generator]:
        """Generators in the state in which the constructor had them: it has drawn nothing."""
        found: dict[Any, torch.Generator] = {}
        for change in changes:
            given = change.named.get("generator")
            if given is not None and given not in found:
                found[given] = torch.Generator().set_state(given.get_state())
        return found
