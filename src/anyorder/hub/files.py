"""Files of published checkpoints: tensors read piece by piece, and folders fetched from a hub.

Tensors come from one safetensors file, from shards with an index, or from a pickle of tensors
alone. A file is mapped into memory for one piece at a time, so that reading a model never takes
more than the model and one piece: mapped pages count as memory as long as the map lives. Missing
and unexpected tensors are listed and refused.

A hub id is `owner/name`, or `owner/name@revision`. Only weights, JSON and tokenizer files of its
top folder, and named chat templates, are fetched: no code. Without a network, or with
HF_HUB_OFFLINE set, the cache is used.

Not here: what the tensors are called (formats.py), where they go (weights.py), and tokenizers
(vocab.py).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from anyorder.vocab import NAMED_TEMPLATES

PIECE_BYTES = 1 << 24
"""Bytes of a tensor that are read at once, but at least one row."""
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
NOTE = "anyorder"
"""One key for all our notes in a header: several would be written in no fixed order."""
LISTED = 5  # entries an error shows before "and n more"

KINDS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class Store(Protocol):
    """Tensors by name."""

    where: Path
    """Its name in messages."""
    shapes: dict[str, tuple[int, ...]]
    kinds: dict[str, torch.dtype]

    def pieces(self, name: str) -> Iterator[tuple[int, Tensor]]:
        """The first row and the rows of each piece; a scalar is one piece. Do not keep pieces."""
        ...


class SafetensorFiles:
    """One .safetensors file, or the shards that an index names."""

    def __init__(self, where: Path, paths: Sequence[Path], note: Mapping[str, Any]) -> None:
        self.where, self.paths, self.note = where, list(paths), note
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.kinds: dict[str, torch.dtype] = {}
        self._path: dict[str, Path] = {}
        for path in self.paths:
            self._read_header(path)

    def _read_header(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118
                    if name in self._path:
                        raise ValueError(f"{name} is in {self._path[name].name} and {path.name}")
                    part = file.get_slice(name)
                    kind = part.get_dtype()
                    if kind not in KINDS:
                        raise ValueError(f"{name} is {kind}, a kind that is not read here")
                    self.shapes[name], self.kinds[name] = tuple(part.get_shape()), KINDS[kind]
                    self._path[name] = path
                if len(self.paths) == 1 and not self.note:
                    self.note = json.loads((file.metadata() or {}).get(NOTE, "{}"))
        except (SafetensorError, OSError, ValueError) as error:
            raise ValueError(damaged(path, str(error))) from error

    def file_of(self, name: str) -> str | None:
        """The name of the file that holds a tensor."""
        return self._path[name].name if name in self._path else None

    def pieces(self, name: str) -> Iterator[tuple[int, Tensor]]:
        path, shape = self._path[name], self.shapes[name]
        size = self.kinds[name].itemsize * math.prod(shape)
        try:
            if not shape or size <= PIECE_BYTES:
                with safe_open(path, framework="pt") as file:
                    yield 0, file.get_tensor(name)
                return
            rows = max(1, PIECE_BYTES * shape[0] // size)
            for first in range(0, shape[0], rows):
                # Opened again for each piece: the pages of one map would add up to the whole file.
                with safe_open(path, framework="pt") as file:
                    yield first, file.get_slice(name)[first : first + rows]
        except (SafetensorError, OSError) as error:
            raise ValueError(damaged(path, str(error))) from error


class TensorPickle:
    """A dictionary of tensors that `torch.save` wrote."""

    def __init__(self, path: Path) -> None:
        self.where = path
        content = self._content()
        self.shapes = {name: tuple(tensor.shape) for name, tensor in content.items()}
        self.kinds = {name: tensor.dtype for name, tensor in content.items()}

    def _content(self) -> dict[str, Tensor]:
        try:
            # weights_only: a pickle may hold code, which must never run.
            content = torch.load(self.where, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:  # noqa: BLE001  (unpickling raises what it likes)
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(
                f"{self.where} is damaged or holds more than tensors ({reason}): download it again"
            ) from None
        if not isinstance(content, dict) or not all(
            isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items()
        ):
            raise ValueError(f"{self.where} is no dictionary of tensors: download it again")
        return content

    def pieces(self, name: str) -> Iterator[tuple[int, Tensor]]:
        yield 0, self._content()[name]  # mapped again, so that no page of it stays


def open_folder(folder: Path, *, what: str = "") -> SafetensorFiles:
    """The weights of a folder: one file, or shards beside their index."""
    if (folder / SINGLE).is_file():
        return SafetensorFiles(folder / SINGLE, [folder / SINGLE], {})
    if (folder / INDEX).is_file():
        return _open_shards(folder / INDEX)
    pickled = sorted(p.name for p in folder.iterdir() if p.suffix in {".bin", ".pt", ".pth"})
    hint = f" ({pickled[0]} is pickled code: convert it to safetensors)" if pickled else ""
    what = what or "download it again, or name another model"
    raise ValueError(f"{folder / SINGLE} is missing, and so is {INDEX}{hint}: {what}")


def _open_shards(path: Path) -> SafetensorFiles:
    try:
        record = json.loads(path.read_bytes())
        table = dict(record["weight_map"])
        note = (record.get("metadata") or {}).get(NOTE, {})
        names = sorted(set(table.values()))
        # A shard's name must not lead out of the folder.
        strange = [name for name in names if Path(name).name != name]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no index of shards ({error!r}): download it again") from None
    if strange or not names:
        raise ValueError(f"{path} names {strange or 'no files'}: a shard must be beside its index")
    absent = [name for name in names if not (path.parent / name).is_file()]
    if absent:
        raise ValueError(
            f"{path} names files that are missing: {listed(absent)}: download them again"
        )
    files = SafetensorFiles(path, [path.parent / name for name in names], note)
    elsewhere = [name for name, file in table.items() if files.file_of(name) != file]
    unlisted = sorted(files.shapes.keys() - table.keys())
    if elsewhere or unlisted:
        raise ValueError(
            f"{path} does not fit its shards: {listed(elsewhere + unlisted)}: download them again"
        )
    return files


def copy_into(store: Store, name: str, target: Tensor) -> None:
    """Copy a tensor piece by piece, to the device and precision of the target."""
    with torch.no_grad():
        for first, rows in store.pieces(name):
            if rows.dim() == 0:
                target.copy_(rows)
            else:
                target[first : first + len(rows)].copy_(rows)


def read(store: Store, name: str) -> Tensor:
    """A whole tensor as it is stored, copied into memory."""
    tensor = torch.empty(store.shapes[name], dtype=store.kinds[name])
    copy_into(store, name, tensor)
    return tensor


def equal(store: Store, one: str, other: str) -> bool:
    """Whether two tensors of a store hold the same numbers."""
    if store.shapes[one] != store.shapes[other] or store.kinds[one] != store.kinds[other]:
        return False
    pairs = zip(store.pieces(one), store.pieces(other), strict=True)
    return all(torch.equal(a, b) for (_, a), (_, b) in pairs)


@dataclass(frozen=True)
class Difference:
    """Tensors that files lack, have in excess, or have in another shape."""

    missing: Sequence[str] = ()
    unexpected: Sequence[str] = ()
    misshapen: Sequence[str] = ()

    @classmethod
    def between(
        cls,
        stored: Mapping[str, tuple[int, ...]],
        wanted: Mapping[str, tuple[int, ...]],
        ignored: Collection[str] = (),
    ) -> Difference:
        return cls(
            [name for name in wanted if name not in stored],
            sorted(name for name in stored if name not in wanted and name not in ignored),
            [
                f"{name} (file {list(stored[name])}, module {list(shape)})"
                for name, shape in wanted.items()
                if name in stored and stored[name] != shape
            ],
        )

    def refuse(self, where: Path, remedy: str) -> None:
        """Raise one ValueError that lists all differences, if there are any."""
        kinds = {
            "missing": self.missing,
            "unexpected": self.unexpected,
            "of another shape": self.misshapen,
        }
        found = [f"{len(names)} {kind}: {listed(names)}" for kind, names in kinds.items() if names]
        if found:
            raise ValueError(
                f"{where} holds the weights of another model: {'; '.join(found)}. {remedy}"
            )


def listed(entries: Sequence[str]) -> str:
    shown = ", ".join(entries[:LISTED])
    more = len(entries) - LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def damaged(path: Path, reason: str) -> str:
    return (
        f"{path} is damaged or no safetensors file ({reason}): "
        "restore it from a copy, or save or download it again"
    )


ID = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
OURS = ("tiny", "trails", "paper", "runs")
"""First parts of names that never mean the hub: recipes, shipped models, the usual folder of
results."""
WANTED = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocabulary.json",
    "flexmdm_extras.pt",
)
WEIGHTS = ("*.safetensors", "*.pt")
NAMED_CHATS = f"{NAMED_TEMPLATES}/*.jinja"


def is_hub_id(name: str) -> bool:
    """Whether a name can be a hub id: `owner/name`, unless a local folder is called `owner`."""
    found = ID.fullmatch(name)
    if found is None or ".." in name:
        return False
    owner = found["repo"].split("/")[0]
    return owner not in (*OURS, ".", "..") and not Path(owner).exists()


def fetch(name: str, *, weights: bool = True) -> Path:
    """The local folder of a hub id, downloaded if necessary, at will without its weights."""
    found = ID.fullmatch(name)
    assert found is not None, name
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = snapshot_download(
            found["repo"],
            revision=found["revision"],
            allow_patterns=[*WANTED, NAMED_CHATS],
            # Subfolders hold copies in other formats.
            ignore_patterns=[f"*/{name}" for name in WANTED] + [*([] if weights else WEIGHTS)],
        )
    except LocalEntryNotFoundError as error:
        raise ValueError(
            f"no model {name!r}: no folder here has that name, and the hub's copy is neither in "
            f"the cache nor within reach ({_first_line(error)}): train it with `anyorder train`, "
            "or fetch it where there is a network (unset HF_HUB_OFFLINE, or copy the folder)"
        ) from None
    except Exception as error:  # noqa: BLE001  (the library raises many kinds, some its own)
        raise ValueError(
            f"no model {name!r}: the hub does not give it ({_first_line(error)}): check the name, "
            "and log in with `hf auth login` if it is private or gated"
        ) from None
    return Path(str(folder))


class HubApi(Protocol):
    """The part of huggingface_hub.HfApi that pushing needs."""

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> Any: ...

    def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> Any: ...


def push(folder: Path, repo: str, *, private: bool, message: str, api: HubApi | None = None) -> str:
    """Upload a folder as one commit; its address."""
    if ID.fullmatch(repo) is None or "@" in repo:
        raise ValueError(f"{repo!r} is no hub id: give owner/name")
    from huggingface_hub import HfApi

    chosen: Any = HfApi() if api is None else api
    try:
        chosen.create_repo(repo, private=private, exist_ok=True)
        done = chosen.upload_folder(repo_id=repo, folder_path=str(folder), commit_message=message)
    except Exception as error:  # noqa: BLE001  (as above)
        raise ValueError(
            f"the hub does not take {repo} ({_first_line(error)}): log in with `hf auth login` "
            "with a token that may write there, and check the name"
        ) from None
    return str(getattr(done, "commit_url", done))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
