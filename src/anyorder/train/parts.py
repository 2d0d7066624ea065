"""Tensors in parts: which rows of a tensor a process holds, and files that hold rows.

A sharded tensor is cut along its first dimension like a loaf: with S processes, process s has the
rows s c, ..., (s + 1) c - 1 of n, where c = ceil(n / S); the last ones may have fewer, or none.
Everything that is not sharded counts as one part with all rows.

    stem.safetensors                    all rows
    stem-00001-of-00002.safetensors     those of process 1 of 2; a tensor is the rows of all files,
                                        in the order of their numbers. One without rows to divide
                                        (a step count) is in the first file

So files written by any number of processes can be read by any other, row by row. Not here: which
tensors a checkpoint has, digests, and when files are written (checkpoint.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor

Rows = tuple[int, int]
"""The first row, and the one after the last."""


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds, in the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def rows_of(tensor: Tensor) -> Rows | None:
    """Which rows that part is; None: the tensor is not sharded."""
    if not isinstance(tensor, DTensor):
        return None
    mesh = tensor.device_mesh
    dimension = mesh.ndim - 1  # of a mesh machines x processes: within a machine
    return cut(tensor.shape[0], mesh.size(dimension), mesh.get_local_rank(dimension))


def cut(rows: int, parts: int, part: int) -> Rows:
    """The rows of one part."""
    each = -(-rows // parts)
    return min(part * each, rows), min((part + 1) * each, rows)


@torch.no_grad()
def put(tensor: Tensor, whole: Tensor) -> None:
    """Give a tensor its values, of which this process keeps its own."""
    rows = rows_of(tensor)
    local(tensor).copy_(whole if rows is None else whole[rows[0] : rows[1]])


def like(part: Tensor, model: Tensor) -> Tensor:
    """A tensor that is sharded as `model` is, from this process's part."""
    if not isinstance(model, DTensor):
        return part
    return DTensor.from_local(
        part.to(local(model).device),
        model.device_mesh,
        model.placements,
        run_check=False,
        shape=model.shape,
        stride=model.stride(),
    )


def whole_of(tensor: Tensor) -> Tensor:
    """All rows, in every process; all must ask for the same tensor."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def file_names(stem: str, parts: int | None) -> list[str]:
    """The files that hold one kind of tensors: one, or one for each part."""
    if parts is None:
        return [f"{stem}.safetensors"]
    return [f"{stem}-{part:05d}-of-{parts:05d}.safetensors" for part in range(parts)]


def save_part(path: Path, tensors: Mapping[str, Tensor], part: int) -> None:
    """Write this process's rows; what has no rows is the first part's."""
    found = {
        name: local(tensor).detach().contiguous().cpu()
        for name, tensor in tensors.items()
        if rows_of(tensor) is not None or part == 0
    }
    save_file(found, path)


class Reader:
    """The tensors in one file, or in the files of all parts, each read when it is asked for."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = list(paths)
        self._stack = ExitStack()
        self._files: list[Any] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        """Of the whole tensors, by name."""

    def __enter__(self) -> Reader:
        with ExitStack() as opening:  # closed again should one of them be unreadable
            for path in self.paths:
                try:
                    file = opening.enter_context(safe_open(path, framework="pt"))
                except (SafetensorError, OSError) as error:
                    raise ValueError(f"{path} cannot be read ({error}): restore it") from error
                self._files.append(file)
                for name in file.keys():  # noqa: SIM118 - not a dictionary
                    self._note(name, tuple(file.get_slice(name).get_shape()), path)
            self._stack = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files = []
        self._stack.close()

    def _note(self, name: str, shape: tuple[int, ...], path: Path) -> None:
        before = self.shapes.get(name)
        if before is None:
            self.shapes[name] = shape
        elif shape and before[1:] == shape[1:]:
            self.shapes[name] = (before[0] + shape[0], *shape[1:])
        else:
            raise ValueError(f"{path}: {name} has another shape than in the files before it")

    def rows(self, name: str, rows: Rows | None = None) -> Tensor:
        """Some rows of a tensor, from whichever files have them; None: all."""
        shape = self.shapes[name]
        if not shape:
            return self._files[0].get_tensor(name)
        first, last = (0, shape[0]) if rows is None else rows
        found, start = [], 0
        holding = [file for file in self._files if name in file.keys()]  # noqa: SIM118
        for file in holding:
            part = file.get_slice(name)
            count = part.get_shape()[0]
            begin, end = max(first - start, 0), min(last - start, count)
            if begin < end:
                found.append(part[begin:end])
            start += count
        if not found:
            return holding[0].get_tensor(name)[:0]
        return found[0] if len(found) == 1 else torch.cat(found)

    def read(self, name: str, model: Tensor) -> Tensor:
        """The tensor as `model` is sharded: this process reads its rows only."""
        return like(self.rows(name, rows_of(model)), model)
