"""Weights in and out, as safetensors: strict, atomic, never pickled.

A weight known under several names (a tied head, a shared table) is stored once, under the first of
them. The header carries a checksum of the data, so a damaged file is refused rather than loaded.
Loading checks names, shapes and checksum before the first weight is touched, and reads piece by
piece, so that a file is never in memory as a whole.

Not here: the configuration beside the weights (the checkpoint's business), optimiser states, and
the formats of published checkpoints (hub_config.py, hub_names.py).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from anyorder.files import replacing, replacing_path
from anyorder.nets.hub_files import INDEX, NOTE, SINGLE, SafetensorFiles, Store, damaged
from anyorder.nets.hub_fill import Weights, match, shared

REMEDY = "Build the model from the configuration saved beside the file"
Parts = Sequence[tuple[str, Callable[[], Tensor]]]
"""Names, and what makes the tensor when its turn comes."""


def save_weights(path: str | Path, module: nn.Module, about: str = "") -> None:
    """Write a module's weights, whole or not at all; `about` says what they are the weights of."""
    path = Path(path)
    tensors = {name: make() for name, make in own_parts(module)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing_path(path) as temporary:
        note = json.dumps({"crc32": _checksum(tensors), "about": about})
        save_file(tensors, temporary, metadata={NOTE: note})


def load_weights(path: str | Path, module: nn.Module, about: str = "") -> None:
    """Copy the weights of a file into a module of exactly that shape, or refuse and say why.

    The module keeps its device and its floating-point precision. `about`, if given, must be what
    the file was saved with.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; give the path of a .safetensors file")
    targets = shared(module)
    if any(tensor.is_meta for _, tensor in targets):
        raise ValueError("the module is on the meta device: give it memory with .to_empty() first")
    weights = open_own(SafetensorFiles(path, [path], {}), module, about)
    for names, tensor in targets:
        weights.copy(names[0], tensor)


def open_own(store: SafetensorFiles, module: nn.Module, about: str = "") -> Weights:
    """The checked weights of a file (or of shards) under our own names."""
    weights = match(store, module, REMEDY)
    said = store.note.get("about", about)
    if about and said != about:
        raise ValueError(f"{store.where} holds the weights of {said}, not of {about}")
    if "crc32" in store.note and store.note["crc32"] != _stored_checksum(store):
        raise ValueError(damaged(store.where, "the data do not match the checksum"))
    return weights


def own_parts(module: nn.Module) -> Parts:
    """A module's weights under our own names."""
    weights = shared(module)
    if any(tensor.is_meta for _, tensor in weights):
        raise ValueError("the module is on the meta device: it has no weights to save")
    return [(names[0], partial(_plain, tensor)) for names, tensor in weights]


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu").contiguous()


def save_parts(folder: Path, parts: Parts, limit: int, note: Mapping[str, Any]) -> list[Path]:
    """Write tensors as model.safetensors, or as shards of at most `limit` bytes with their index.

    One shard is in memory at a time, beside the tensors' own. The index comes last: shards without
    one are not a checkpoint. `note` is kept where our loader looks for it.
    """
    groups = list(_groups(parts, limit))
    value, total = 0, 0
    table: dict[str, str] = {}
    paths = []
    for number, group in enumerate(groups, 1):
        name = f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        name = SINGLE if len(groups) == 1 else name
        tensors = {key: make() for key, make in group}
        value = _checksum_on(tensors, value)
        total += sum(tensor.nbytes for tensor in tensors.values())
        table |= dict.fromkeys(tensors, name)
        header = {"format": "pt"}
        if len(groups) == 1:
            header = {NOTE: json.dumps({"crc32": f"{value:08x}", **note})}
        with replacing_path(folder / name) as temporary:
            save_file(tensors, temporary, metadata=header)
        paths.append(folder / name)
    if len(groups) > 1:
        about = {"total_size": total, NOTE: {"crc32": f"{value:08x}", **note}}
        with replacing(folder / INDEX) as file:
            record = {"metadata": about, "weight_map": dict(sorted(table.items()))}
            file.write(json.dumps(record, indent=2).encode() + b"\n")
        paths.append(folder / INDEX)
    return paths


def _groups(parts: Parts, limit: int) -> Iterator[list[tuple[str, Callable[[], Tensor]]]]:
    """Neighbours in the order of their names, as many as fit; a larger one stands alone."""
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


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """CRC-32 over names and bytes, in the order of the names."""
    return f"{_checksum_on(tensors, 0):08x}"


def _checksum_on(tensors: Mapping[str, Tensor], value: int) -> int:
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
