"""Weights in and out: from files into a network, and our own safetensors format.

A network is built on the meta device, where it takes no memory. `fill` then makes one parameter
after the other, real, on its device and in its precision, and copies it from the files in pieces.
So at most the network and one piece are in memory.

Our own files are strict, atomic and never pickled. A weight with several names (a tied head, a
shared table) is stored once, under the first of them. The header carries a checksum of the data, so
a damaged file is refused. Loading checks names, shapes and checksum before it changes a weight.

Not here: tensor names and config.json of published checkpoints (formats.py), how files are read
(files.py), the configuration beside our own weights and optimiser states (training/checkpoint.py).
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from anyorder.files import replacing, replacing_path
from anyorder.hub.files import (
    INDEX,
    NOTE,
    SINGLE,
    Difference,
    SafetensorFiles,
    Store,
    copy_into,
    damaged,
    equal,
    read,
)

CONSTANTS = re.compile(r".*\.rotary_emb\.inv_freq$")
"""Tensors in old checkpoints that follow from their config.json, and are ignored."""


def usable_device(name: str) -> torch.device:
    """The device called `name`; ValueError if this machine cannot use it."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device, dtype=torch.float64)  # noise and ranking need it
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device {name!r} cannot be used here ({reason}): give cpu, or cuda or cuda:1 if this "
            "machine has one"
        ) from error
    return device


@dataclass(frozen=True)
class PublishedWeights:
    """Where each tensor of a network is stored: our name -> (store, its name there)."""

    places: Mapping[str, tuple[Store, str]]

    def tensor(self, name: str) -> Tensor:
        """The whole tensor on the CPU, as stored; a copy, so the file is not kept open."""
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


def match(store: Store, net: nn.Module, remedy: str) -> PublishedWeights:
    """Find weights that are stored under our own names; a shared one under any of its names."""
    places: dict[str, tuple[Store, str]] = {}
    wanted = {}
    for names, tensor in shared(net):
        source = next((name for name in names if name in store.shapes), names[0])
        wanted[source] = tuple(tensor.shape)
        places |= dict.fromkeys(names, (store, source))
    Difference.between(store.shapes, wanted).refuse(store.where, remedy)
    return _checked(PublishedWeights(places), net)


def match_published(
    head: str,
    stores: Mapping[Store, Mapping[str, str]],
    net: nn.Module,
) -> PublishedWeights:
    """Find the weights of a published checkpoint: for each store, our name -> their name.

    A tied checkpoint may store its `head` as well, if it equals the table.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in net.state_dict(keep_vars=True).items()}
    given = {ours for names in stores.values() for ours in names}
    assert given == shapes.keys(), given ^ shapes.keys()
    places: dict[str, tuple[Store, str]] = {}
    for store, names in stores.items():
        wanted = {theirs: shapes[ours] for ours, theirs in names.items()}
        spare = {name for name in store.shapes if CONSTANTS.match(name)}
        # `names` lists the table first (`backbone_names`).
        table = next(iter(names.values()), "")
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
    return _checked(PublishedWeights(places), net)


def _checked(weights: PublishedWeights, net: nn.Module) -> PublishedWeights:
    """Refuse whole numbers for floating-point ones, and the reverse, before anything is copied."""
    for name, tensor in net.state_dict(keep_vars=True).items():
        store, theirs = weights.places[name]
        if store.kinds[theirs].is_floating_point != tensor.dtype.is_floating_point:
            raise ValueError(
                f"{store.where}: {theirs} is {store.kinds[theirs]} where the module has "
                f"{tensor.dtype}; load it into the model it was saved from"
            )
    return weights


def fill(
    net: nn.Module,
    weights: PublishedWeights,
    *,
    device: torch.device | str,
    dtype: torch.dtype | None,
) -> None:
    """Give a network on the meta device real tensors, one after the other."""
    for names, tensor in shared(net):
        kind = tensor.dtype if dtype is None or not tensor.is_floating_point() else dtype
        with torch.no_grad():
            real = torch.empty(tensor.shape, dtype=kind, device=device)
        weights.copy(names[0], real)
        if isinstance(tensor, nn.Parameter):
            real = nn.Parameter(real, requires_grad=tensor.requires_grad)
        for name in names:  # the same tensor under all of its names: tied weights stay tied
            owner, _, leaf = name.rpartition(".")
            module = net.get_submodule(owner)
            held: dict[str, Any] = module._parameters  # as setattr does, without its checks
            (held if leaf in held else module._buffers)[leaf] = real


def is_real(net: nn.Module) -> bool:
    """Whether no tensor of a network is on the meta device, plain attributes included."""
    for module in net.modules():
        held = (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
        if any(isinstance(each, Tensor) and each.is_meta for each in held):
            return False
    return True


class _Undrawn(TorchFunctionMode):
    """Skip random draws: on the meta device there is no number to set.

    Otherwise torch looks up how each draw would be decomposed, and imports a compiler for that,
    which takes two seconds of every start.
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
    """A network without memory; an error in its configuration names the file."""
    try:
        with torch.device("meta"), _Undrawn():
            return build()
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"{where}: {str(error).splitlines()[0]}: restore the file") from None


REMEDY = "Build the model from the configuration saved beside the file"
Parts = Sequence[tuple[str, Callable[[], Tensor]]]
"""Names, and functions that make the tensors when they are written."""


def save_weights(path: str | Path, module: nn.Module, about: str = "") -> None:
    """Write a module's weights, atomically; `about` describes the model."""
    path = Path(path)
    tensors = {name: make() for name, make in named_tensors(module)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing_path(path) as temporary:
        note = json.dumps({"crc32": f"{_checksum(tensors):08x}", "about": about})
        save_file(tensors, temporary, metadata={NOTE: note})


def load_weights(path: str | Path, module: nn.Module, about: str = "") -> None:
    """Copy the weights of a file into a module of exactly that shape, or refuse and say why.

    The module keeps its device and its floating-point precision. `about`, if given, must equal the
    file's.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; give the path of a .safetensors file")
    targets = shared(module)
    if any(tensor.is_meta for _, tensor in targets):
        raise ValueError("the module is on the meta device: give it memory with .to_empty() first")
    # All checks come first: a file that is refused leaves the module as it was.
    weights = open_own(SafetensorFiles(path, [path], {}), module, about)
    for names, tensor in targets:
        weights.copy(names[0], tensor)


def open_own(store: SafetensorFiles, module: nn.Module, about: str = "") -> PublishedWeights:
    """The checked weights of a file (or of shards) under our own names."""
    weights = match(store, module, REMEDY)
    said = store.note.get("about", about)
    if about and said != about:
        raise ValueError(f"{store.where} holds the weights of {said}, not of {about}")
    if "crc32" in store.note and store.note["crc32"] != _stored_checksum(store):
        raise ValueError(damaged(store.where, "the data do not match the checksum"))
    return weights


def named_tensors(module: nn.Module) -> Parts:
    """A module's weights under our own names."""
    weights = shared(module)
    if any(tensor.is_meta for _, tensor in weights):
        raise ValueError("the module is on the meta device: it has no weights to save")
    return [(names[0], partial(_plain, tensor)) for names, tensor in weights]


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu").contiguous()


def save_parts(folder: Path, parts: Parts, limit: int, note: Mapping[str, Any]) -> list[Path]:
    """Write tensors as model.safetensors, or as shards of at most `limit` bytes with their index.

    Besides the tensors themselves, one shard is in memory at a time. `note` is for our own loader.
    """
    groups = list(_groups(parts, limit))
    value, total = 0, 0
    table: dict[str, str] = {}
    paths = []
    for number, group in enumerate(groups, 1):
        name = f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        name = SINGLE if len(groups) == 1 else name
        tensors = {key: make() for key, make in group}
        # Groups follow the order of names, so this is the checksum of one file with all tensors.
        value = _checksum(tensors, value)
        total += sum(tensor.nbytes for tensor in tensors.values())
        table |= dict.fromkeys(tensors, name)
        header = {"format": "pt"}
        if len(groups) == 1:
            header = {NOTE: json.dumps({"crc32": f"{value:08x}", **note})}
        with replacing_path(folder / name) as temporary:
            save_file(tensors, temporary, metadata=header)
        paths.append(folder / name)
    if len(groups) > 1:
        # The index comes last: if writing stops earlier, the shards do not look like a checkpoint.
        about = {"total_size": total, NOTE: {"crc32": f"{value:08x}", **note}}
        with replacing(folder / INDEX) as file:
            record = {"metadata": about, "weight_map": dict(sorted(table.items()))}
            file.write(json.dumps(record, indent=2).encode() + b"\n")
        paths.append(folder / INDEX)
    return paths


def _groups(parts: Parts, limit: int) -> Iterator[list[tuple[str, Callable[[], Tensor]]]]:
    """Tensors in order of their names, as many as fit; one above the limit is a group alone."""
    group: list[tuple[str, Callable[[], Tensor]]] = []
    size = 0
    for name, make in sorted(parts, key=lambda part: part[0]):
        nbytes = make().nbytes
        if group and size + nbytes > limit:
            yield group
            group, size = [], 0
        group.append((name, make))
        size += nbytes
    yield group


def _checksum(tensors: Mapping[str, Tensor], value: int = 0) -> int:
    """CRC-32 over names and bytes, in the order of the names, continued from `value`."""
    for name in sorted(tensors):
        value = zlib.crc32(name.encode(), value)
        value = zlib.crc32(_bytes(tensors[name]), value)
    return value


def _stored_checksum(store: Store) -> str:
    value = 0
    for name in sorted(store.shapes):
        value = zlib.crc32(name.encode(), value)
        for _, rows in store.pieces(name):
            value = zlib.crc32(_bytes(rows), value)
    return f"{value:08x}"


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data


OUR_KEY = "anyorder"
"""The key of an exported config.json for settings that the published format lacks."""
