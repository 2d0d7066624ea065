"""Weights in and out, as safetensors: strict, atomic, never pickled.

A weight known under several names (a tied head, a shared table) is stored once, under the first of
them. The header carries a checksum of the data, so a damaged file is refused rather than loaded.
Loading checks names, shapes and checksum before the first weight is touched.

Not here: the configuration beside the weights (the checkpoint's business), and optimiser states.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from anyorder.files import replacing_path

_NOTE = "anyorder"
"""One key for all we note in the header: several would be written in no fixed order."""
_LISTED = 5  # entries an error shows before "and n more"


def save_weights(path: str | Path, module: nn.Module, about: str = "") -> None:
    """Write a module's weights, whole or not at all; `about` says what they are the weights of."""
    path = Path(path)
    weights = _weights(module)
    if any(tensor.is_meta for _, tensor in weights):
        raise ValueError("the module is on the meta device: it has no weights to save")
    tensors = {names[0]: tensor.detach().to("cpu").contiguous() for names, tensor in weights}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing_path(path) as temporary:
        note = json.dumps({"crc32": _checksum(tensors), "about": about})
        save_file(tensors, temporary, metadata={_NOTE: note})


def load_weights(path: str | Path, module: nn.Module, about: str = "") -> None:
    """Copy the weights of a file into a module of exactly that shape, or refuse and say why.

    The module keeps its device and its floating-point precision. `about`, if given, must be what
    the file was saved with.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; give the path of a .safetensors file")
    targets = _weights(module)
    if any(tensor.is_meta for _, tensor in targets):
        raise ValueError("the module is on the meta device: give it memory with .to_empty() first")
    try:
        with safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            sources = _match(path, shapes, targets)
            stored = {name: file.get_tensor(name) for name in sources}
            note = json.loads((file.metadata() or {}).get(_NOTE, "{}"))
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise ValueError(_damaged(path, str(error))) from error
    if about and note.get("about", about) != about:
        raise ValueError(f"{path} holds the weights of {note['about']}, not of {about}")
    if "crc32" in note and note["crc32"] != _checksum(stored):
        raise ValueError(_damaged(path, "the data do not match the checksum"))
    for name, (_, tensor) in zip(sources, targets, strict=True):
        if stored[name].is_floating_point() != tensor.is_floating_point():
            raise ValueError(
                f"{path}: {name} is {stored[name].dtype} where the module has {tensor.dtype}; "
                "load it into the model it was saved from"
            )
    with torch.no_grad():
        for name, (_, tensor) in zip(sources, targets, strict=True):
            tensor.copy_(stored[name])


def _weights(module: nn.Module) -> list[tuple[list[str], Tensor]]:
    """Each tensor of a module once, with all of its names."""
    groups: dict[int, tuple[list[str], Tensor]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        groups.setdefault(id(tensor), ([], tensor))[0].append(name)
    return list(groups.values())


def _match(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    targets: Sequence[tuple[list[str], Tensor]],
) -> list[str]:
    """The name in the file of each target; every difference at once as a ValueError."""
    sources, missing, misshapen = [], [], []
    for names, tensor in targets:
        source = next((name for name in names if name in shapes), None)
        if source is None:
            missing.append(names[0])
            continue
        sources.append(source)
        if shapes[source] != tuple(tensor.shape):
            misshapen.append(f"{source} (file {list(shapes[source])}, module {list(tensor.shape)})")
    unexpected = sorted(set(shapes) - set(sources))
    found = [
        f"{len(entries)} {kind}: {_listed(entries)}"
        for kind, entries in (
            ("missing", missing),
            ("unexpected", unexpected),
            ("of another shape", misshapen),
        )
        if entries
    ]
    if found:
        raise ValueError(
            f"{path} holds the weights of another model: {'; '.join(found)}. "
            "Build the model from the configuration saved beside the file"
        )
    return sources


def _listed(entries: Sequence[str]) -> str:
    shown = ", ".join(entries[:_LISTED])
    more = len(entries) - _LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def _damaged(path: Path, reason: str) -> str:
    return (
        f"{path} is damaged or no safetensors file ({reason}): "
        "restore it from a copy, or save or download it again"
    )


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """CRC-32 over names and bytes, in the order of the names."""
    value = 0
    for name in sorted(tensors):
        value = zlib.crc32(name.encode(), value)
        value = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"
