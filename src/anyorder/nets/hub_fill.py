"""From files to a network: each tensor straight into its place, in the wanted precision.

A network is built on the meta device, where it takes no memory. `fill` then makes one parameter
after the other, real, on its device and in its precision, and copies it from the files in pieces.
So the most that is ever held is the network and one piece.

Not here: which names belong together (hub_names.py) and how files are read (hub_files.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from anyorder.nets.hub_files import Difference, Store, copy_into, equal, read
from anyorder.nets.hub_names import HEADS

CONSTANTS = re.compile(r".*\.rotary_emb\.inv_freq$")
"""Tensors that old checkpoints hold and that follow from their config.json."""


@dataclass(frozen=True)
class Weights:
    """Where each tensor of a network is stored: our name -> (store, its name there)."""

    places: Mapping[str, tuple[Store, str]]

    def tensor(self, name: str) -> Tensor:
        """The whole tensor on the CPU, as stored; nothing is kept of the file."""
        return read(*self.places[name])

    def copy(self, name: str, target: Tensor) -> None:
        store, theirs = self.places[name]
        copy_into(store, theirs, target)

    def stored_kind(self) -> torch.dtype:
        """The precision in which most of the numbers are stored."""
        sizes: dict[torch.dtype, int] = {}
        for store, theirs in self.places.values():
            size = torch.Size(store.shapes[theirs]).numel()
            sizes[store.kinds[theirs]] = sizes.get(store.kinds[theirs], 0) + size
        return max(sizes, key=lambda kind: sizes[kind])


def shared(module: nn.Module) -> list[tuple[list[str], Tensor]]:
    """Each tensor of a module once, with all of its names."""
    groups: dict[int, tuple[list[str], Tensor]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        groups.setdefault(id(tensor), ([], tensor))[0].append(name)
    return list(groups.values())


def match(store: Store, net: nn.Module, remedy: str) -> Weights:
    """Weights stored under our own names; a shared one under any of its names."""
    places: dict[str, tuple[Store, str]] = {}
    wanted = {}
    for names, tensor in shared(net):
        source = next((name for name in names if name in store.shapes), names[0])
        wanted[source] = tuple(tensor.shape)
        places |= dict.fromkeys(names, (store, source))
    Difference.between(store.shapes, wanted).refuse(store.where, remedy)
    return _checked(Weights(places), net)


def match_published(
    layout: str,
    stores: Mapping[Store, Mapping[str, str]],
    net: nn.Module,
) -> Weights:
    """Weights of a published checkpoint: for each store, our name -> their name.

    A tied checkpoint may hold its head as well, if that is the table.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in net.state_dict(keep_vars=True).items()}
    given = {ours for names in stores.values() for ours in names}
    assert given == shapes.keys(), given ^ shapes.keys()
    places: dict[str, tuple[Store, str]] = {}
    for store, names in stores.items():
        wanted = {theirs: shapes[ours] for ours, theirs in names.items()}
        spare = {name for name in store.shapes if CONSTANTS.match(name)}
        head, table = HEADS[layout], next(iter(names.values()), "")
        if head not in wanted and head in store.shapes and table in store.shapes:
            if not equal(store, head, table):
                raise ValueError(
                    f"{store.where}: {head} differs from {table}, and config.json says that they "
                    "are one: set tie_word_embeddings (or weight_tying) to false"
                )
            spare.add(head)
        Difference.between(store.shapes, wanted, spare).refuse(
            store.where, "Check config.json beside it, or download the checkpoint again"
        )
        places |= {ours: (store, theirs) for ours, theirs in names.items()}
    return _checked(Weights(places), net)


def _checked(weights: Weights, net: nn.Module) -> Weights:
    """Refuse numbers of another sort, before the first is copied."""
    for name, tensor in net.state_dict(keep_vars=True).items():
        store, theirs = weights.places[name]
        if store.kinds[theirs].is_floating_point != tensor.dtype.is_floating_point:
            raise ValueError(
                f"{store.where}: {theirs} is {store.kinds[theirs]} where the module has "
                f"{tensor.dtype}; load it into the model it was saved from"
            )
    return weights


def fill(
    net: nn.Module, weights: Weights, *, device: torch.device | str, dtype: torch.dtype | None
) -> None:
    """Give a network on the meta device real tensors, one after the other."""
    for names, tensor in shared(net):
        kind = tensor.dtype if dtype is None or not tensor.is_floating_point() else dtype
        with torch.no_grad():
            real = torch.empty(tensor.shape, dtype=kind, device=device)
        weights.copy(names[0], real)
        if isinstance(tensor, nn.Parameter):
            real = nn.Parameter(real, requires_grad=tensor.requires_grad)
        for name in names:
            owner, _, leaf = name.rpartition(".")
            module = net.get_submodule(owner)
            held: dict[str, Any] = module._parameters  # what setattr would put there, unchecked
            (held if leaf in held else module._buffers)[leaf] = real


def is_real(net: nn.Module) -> bool:
    """Whether nothing of a network is on the meta device, attributes included."""
    for module in net.modules():
        held = (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
        if any(isinstance(each, Tensor) and each.is_meta for each in held):
            return False
    return True


class _Undrawn(TorchFunctionMode):
    """Nothing is drawn: on the meta device there is no number to set.

    Without it torch looks up how each draw would be decomposed, and imports a compiler for that:
    two seconds of every start.
    """

    DRAWS = frozenset({"normal_", "uniform_", "trunc_normal_"})

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in self.DRAWS:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def on_meta(build: Callable[[], nn.Module], where: Path) -> nn.Module:
    """A network without memory; what makes no sense of its configuration is named by its file."""
    try:
        with torch.device("meta"), _Undrawn():
            return build()
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"{where}: {str(error).splitlines()[0]}: restore the file") from None
