"""Files of other libraries, opened as plain values: dicts, lists, strings, numbers, numpy arrays.

What a file is is seen from its first bytes: torch (`.pt`, weights only), numpy (`.npy`, `.npz`),
JSON, or JSON lines, which trace/interchange.py reads. Nothing is run: a pickle that would need code
is refused. What the values mean is trace/adapters.py.

Folders: every such file below, and the layout of the FlexMDM release,
`raw/<task>__<model>__<policy>/sample_03.pt` with `tasks.json` beside `raw`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anyorder.files import sha256_of
from anyorder.trace.interchange import GZIP_SIGN

ENDINGS = (".pt", ".pth", ".npy", ".npz", ".json", ".json.gz")
TASKS_FILE = "tasks.json"
JSON_LINES = "jsonl"

_SAMPLE = re.compile(r"sample_(\d+)")
_SEPARATOR = "__"
_HEAD = 1 << 16


@dataclass(frozen=True)
class ForeignFile:
    """A file and what its name says."""

    path: Path
    task_id: str
    sample: int
    variant: str = ""
    """Model and policy, where the folder tells: `flexmdm__top_k`."""


def find_files(path: Path) -> list[ForeignFile]:
    """The file itself, or all below a folder, by name."""
    if path.is_file():
        return [_named(path)]
    found = [
        item
        for item in sorted(path.rglob("*"))
        if item.is_file() and item.name.endswith(ENDINGS) and item.name != TASKS_FILE
    ]
    if not found:
        raise ValueError(f"{path} has no files to import: they end with {', '.join(ENDINGS)}")
    return [_named(item) for item in found]


def _named(path: Path) -> ForeignFile:
    match = _SAMPLE.fullmatch(path.name.split(".")[0])
    if match is None:
        return ForeignFile(path, path.name.split(".")[0], 0)
    task, _, variant = path.parent.name.partition(_SEPARATOR)
    return ForeignFile(path, task, int(match[1]), variant)


def of_one_variant(files: list[ForeignFile], variant: str | None) -> list[ForeignFile]:
    """The files of one model and policy; a run is of one, so several must be told apart."""
    variants = sorted({file.variant for file in files})
    if variant is None and len(variants) > 1:
        raise ValueError(
            f"these traces are of {len(variants)} models and policies: choose one with --variant, "
            f"from {', '.join(map(repr, variants))}"
        )
    if variant is not None and variant not in variants:
        raise ValueError(f"no variant {variant!r} here: there is {', '.join(map(repr, variants))}")
    return [file for file in files if variant in (None, file.variant)]


def entry_points(path: Path) -> dict[str, str]:
    """Per task its entry point, from every tasks.json below the path or just above it."""
    folder = path if path.is_dir() else path.parent
    lists = [*folder.rglob(TASKS_FILE)] if path.is_dir() else []
    lists += [above / TASKS_FILE for above in (folder, *folder.parents[:2])]
    found = {}
    for file in dict.fromkeys(lists):
        if not file.is_file():
            continue
        tasks = _json(file)
        if not isinstance(tasks, list) or not all(isinstance(task, Mapping) for task in tasks):
            raise ValueError(f"{file} is not a list of tasks: restore it, or move it away")
        for task in tasks:
            if isinstance(task.get("task_id"), str) and isinstance(task.get("entry_point"), str):
                found[task["task_id"]] = task["entry_point"]
    return found


def digest_of(path: Path, files: list[ForeignFile]) -> str:
    """The digest of a file, or of all files below a folder with their names."""
    if path.is_file():
        return sha256_of(path)
    total = hashlib.sha256()
    for file in files:
        line = f"{sha256_of(file.path)} {file.path.relative_to(path).as_posix()}\n"
        total.update(line.encode())
    return total.hexdigest()


def kind_of(path: Path) -> str:
    """jsonl, json, torch, npy or npz, by the first bytes."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.startswith(GZIP_SIGN):
        try:
            with gzip.open(path) as file:
                head = file.read(_HEAD)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is damaged ({error}): compress it again") from None
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if head.startswith(b"PK"):
        return _zip_kind(path)
    if head.startswith(b"\x80"):
        return "torch"
    return "json" if _is_one_document(head) else JSON_LINES


def _zip_kind(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as file:
            return "torch" if any(n.endswith("/data.pkl") for n in file.namelist()) else "npz"
    except zipfile.BadZipFile:
        raise ValueError(f"{path} is truncated or damaged: copy it again") from None


def _is_one_document(head: bytes) -> bool:
    """A JSON list, or an object that is not a trace: JSON lines hold objects with a task_id."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"["):
        return True
    return (
        start.startswith(b"{")
        and re.search(rb'"(histories|history|sequences)"\s*:', head) is not None
    )


def open_content(path: Path) -> Any:
    """What is in the file."""
    return _OPENERS[kind_of(path)](path)


def _torch(path: Path) -> Any:
    import torch

    try:
        return _plain(torch.load(path, map_location="cpu", weights_only=True))
    except pickle.UnpicklingError as error:
        needs = re.search(r"GLOBAL (\S+)", str(error))  # the rest is advice to run the code
        what = needs[1] if needs else type(error).__name__
        raise ValueError(
            f"{path} holds objects that only code can make, and none is run ({what}): save plain "
            'tensors, as in torch.save({"history": output.history}, path)'
        ) from None
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        first = str(error).strip().split("\n", 1)[0]
        raise ValueError(f"{path} is truncated or no torch file ({first[:120]})") from None


def _plain(value: Any) -> Any:
    """Tensors as arrays, at any depth."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.numpy() if hasattr(value, "numpy") and not isinstance(value, np.ndarray) else value


def _npy(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} is damaged, or an array of objects ({error})") from None


def _npz(path: Path) -> Any:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged, or has arrays of objects ({error})") from None


def _json(path: Path) -> Any:
    try:
        raw = path.read_bytes()
        text = gzip.decompress(raw) if raw.startswith(GZIP_SIGN) else raw
        return json.loads(text.decode("utf-8-sig"))
    except (ValueError, RecursionError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is truncated or not JSON ({error})") from None


def _json_lines(path: Path) -> Any:
    """Records that a format other than our own JSON lines was asked for."""
    try:
        raw = path.read_bytes()
        text = gzip.decompress(raw) if raw.startswith(GZIP_SIGN) else raw
        lines = text.decode("utf-8-sig").splitlines()
        return [json.loads(line) for line in lines if line.strip()]
    except (ValueError, RecursionError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is truncated or not JSON lines ({error})") from None


_OPENERS: dict[str, Callable[[Path], Any]] = {
    "torch": _torch,
    "npy": _npy,
    "npz": _npz,
    "json": _json,
    JSON_LINES: _json_lines,
}
