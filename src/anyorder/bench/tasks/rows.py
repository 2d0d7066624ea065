"""The rows of a benchmark, from a local file or from the hub, and a digest of their content.

A file is JSON lines or one JSON list, plain or gzipped; which of these, its content says and not
its name. The digest is over the rows, so that neither compression nor the spelling of the JSON
changes it. Datasets of the hub are loaded by the `datasets` and `huggingface_hub` libraries, which
are imported on request; no code of a dataset is run.

What the columns mean is the business of each task.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import socket
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from anyorder.bench.tasks.problem import Problem

GZIP_MAGIC = b"\x1f\x8b"

Found = TypeVar("Found")
Row = dict[str, Any]
Columns = Mapping[str, type | tuple[type, ...]]
"""The columns that a kind of file must have, and their types."""


@dataclass(frozen=True)
class Rows:
    """The content of a benchmark's file."""

    records: tuple[Row, ...]
    digest: str
    where: str
    """The file or dataset, for messages."""


@dataclass(frozen=True)
class Hub:
    """Where a benchmark is published."""

    dataset: str
    config: str | None = None
    split: str = "test"
    files: tuple[str, ...] = ()
    """Plain files of the repository to read instead of a split."""


def read_rows(data: str | None, hub: Hub) -> Rows:
    """The rows of a local file, or of a dataset of the hub (None: of `hub`)."""
    if data is not None and (Path(data).is_file() or not _is_dataset(data)):
        return read_file(Path(data))
    if data is not None:
        hub = Hub(data, hub.config, hub.split, hub.files)
    if not _reachable():
        raise ValueError(
            f"the hub cannot be reached: give the file of {hub.dataset} with --data FILE "
            "(docs/tasks.md says which), or set HF_HUB_OFFLINE=1 to use what was downloaded before"
        )
    try:
        records = _from_hub(hub)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise ValueError(
            f"cannot load {hub.dataset} from the hub ({reason}): give its file with --data FILE "
            "(.jsonl, .json, .gz; docs/tasks.md says which)"
        ) from None
    return _rows(records, hub.dataset)


def read_file(path: Path) -> Rows:
    """The rows of a local file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"{path}: {reason}: give --data an existing file") from None
    if content.startswith(GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: damaged gzip ({error}): download it again") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a text file ({error}): give .jsonl, .json or .gz") from None
    return _rows(list(_parsed(text, str(path))), str(path))


def kind_of(rows: Rows, kinds: Mapping[str, Columns], what: str) -> str:
    """The first of the kinds whose columns all rows have, with the right types."""
    first = rows.records[0]
    for kind, columns in kinds.items():
        if set(columns) <= set(first):
            for number, record in enumerate(rows.records):
                _check(record, columns, f"{rows.where}: row {number + 1}")
            return kind
    needed = " or ".join(", ".join(columns) for columns in kinds.values())
    raise ValueError(
        f"{rows.where} is not a file of {what}: its columns are {', '.join(first)}; needed are "
        f"{needed}"
    )


def read_each(rows: Rows, read: Callable[[Row, str], Found]) -> list[Found]:
    """What `read` makes of each row; it is told where the row is."""
    found = []
    for number, record in enumerate(rows.records, start=1):
        where = f"{rows.where}: row {number}"
        try:
            found.append(read(record, where))
        except SyntaxError as error:
            raise ValueError(f"{where} is not Python ({error.msg}): remove or repair it") from None
    return found


def distinct(problems: Sequence[Problem], where: str) -> tuple[Problem, ...]:
    """The problems, if there are any and no two have one id."""
    if not problems:
        raise ValueError(f"{where}: no problem left: choose another variant or file")
    seen: set[str] = set()
    for problem in problems:
        if problem.task_id in seen:
            raise ValueError(f"{where}: {problem.task_id} is there twice: remove one of the rows")
        seen.add(problem.task_id)
    return tuple(problems)


def _is_dataset(name: str) -> bool:
    """Whether this is a hub id, owner/name, rather than a path to a file."""
    owner, slash, rest = name.partition("/")
    plain = all(part and part.strip(".") for part in (owner, rest))
    return (
        bool(slash) and plain and "/" not in rest and not rest.endswith((".gz", ".json", ".jsonl"))
    )


def _parsed(text: str, where: str) -> Iterator[Any]:
    if text.lstrip().startswith("["):
        try:
            yield from json.loads(text)
        except ValueError as error:
            raise ValueError(f"{where}: damaged JSON ({error}): download it again") from None
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(
                    f"{where}:{number}: not JSON ({error}): each line must be one object, or the "
                    "file one list"
                ) from None


def _rows(records: list[Any], where: str) -> Rows:
    if not records:
        raise ValueError(f"{where} has no rows: download it again")
    digest = hashlib.sha256()
    for number, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            kind = type(record).__name__
            raise ValueError(f"{where}: row {number} is a {kind}, not an object with columns")
        digest.update(json.dumps(record, sort_keys=True, default=str).encode() + b"\n")
    return Rows(tuple(records), digest.hexdigest(), where)


def _check(record: Row, columns: Columns, where: str) -> None:
    for name, kinds in columns.items():
        if name not in record:
            raise ValueError(f"{where} has no column {name!r}: remove or repair it")
        if not isinstance(record[name], kinds):
            found = type(record[name]).__name__
            raise ValueError(f"{where}: column {name!r} is a {found}: remove or repair it")


def _reachable() -> bool:
    """Whether asking the hub makes sense: its library tries for half a minute before it says no."""
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") or getproxies():
        return True  # the library answers at once, from its cache; a proxy knows other names
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True


def _from_hub(hub: Hub) -> list[Any]:
    if not hub.files:
        try:
            from datasets import load_dataset
        except ImportError:
            raise ValueError("its library is missing: pip install 'anyorder[hf]'") from None
        return [dict(row) for row in load_dataset(hub.dataset, hub.config, split=hub.split)]
    from huggingface_hub import hf_hub_download

    found: list[Any] = []
    for name in hub.files:
        path = hf_hub_download(hub.dataset, name, repo_type="dataset")
        found += read_file(Path(path)).records
    return found
