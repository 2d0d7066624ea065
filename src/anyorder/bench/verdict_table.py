"""`verdicts.parquet`: a row per sample and grading, grown part by part and safe to kill.

    append      verdict-parts/<grading>/00000.parquet, 00001.parquet, ... each whole or absent
    finish      verdicts.parquet from what it held and the parts, then the parts go

A grading is one way to grade a run: its task, data, extraction and limits; `grading` is their
digest. A file may hold several, and subsets of one may come one after another. Each arrow is one
rename, so a process killed anywhere leaves a folder from which the same calls go on: `done` says
whose verdict is there, in the table or in parts, and a sample never has two of one grading, because
rows of parts replace those of the table. The folder has one writer at a time (`files.alone_in`), or
several that append `together` (`files.together_in`), of which the last one finishes. That is right
on a disk without locks too: parts have names of their own, and are read before the table, so that
what another has merged meanwhile is not missed.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anyorder.bench.grade import Verdict
from anyorder.files import replacing, sweep
from anyorder.trace.run import VERDICTS_FILE
from anyorder.trace.table import read_parquet

VERSION = 1
VERSION_KEY = b"anyorder.verdicts.schema"
GRADINGS_KEY = b"anyorder.verdicts.gradings"
PARTS_FOLDER = "verdict-parts"
DIGEST_LETTERS = 12

SCHEMA = pa.schema(
    [
        pa.field("grading", pa.string(), nullable=False),
        pa.field("task", pa.string(), nullable=False),
        pa.field("data_digest", pa.string(), nullable=False),
        pa.field("extraction", pa.string(), nullable=False),
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("sample", pa.int32(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("program_digest", pa.string()),
        pa.field("level", pa.int32()),
        pa.field("cpu_seconds", pa.float64(), nullable=False),
        pa.field("wall_seconds", pa.float64(), nullable=False),
        pa.field("attempts", pa.int32(), nullable=False),
    ]
)
REMEDY = "delete it and grade again"

Key = tuple[str, int]
"""A sample: its task id and number."""


@dataclass(frozen=True)
class Grading:
    """One way to grade a run: what its verdicts depend on."""

    task: str
    data_digest: str
    extraction: str
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """A short name, the same for the same settings."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LETTERS]


class VerdictTable:
    """The verdicts of one grading of a run, to write and to read."""

    def __init__(self, folder: Path, grading: Grading, *, together: bool = False) -> None:
        self.folder = folder
        self.grading = grading
        self.together = together
        self._digest = grading.digest

    def done(self, minimum_level: int = 0) -> set[Key]:
        """The samples that have their verdict, from isolation of at least that level."""
        return {
            _key(row)
            for row in self.rows()
            if row["level"] is None or row["level"] >= minimum_level
        }

    def rows(self) -> list[dict[str, Any]]:
        """The rows of this grading that are there, from the table and from parts."""
        parts = self._part_rows()
        merged = {_key(row): row for row in self._stored()[0] if row["grading"] == self._digest}
        merged.update((_key(row), row) for row in parts)
        return list(merged.values())

    def append(self, verdicts: Sequence[Verdict]) -> None:
        """Add verdicts, whose keys are samples; all of them or, if killed, none."""
        self._parts.mkdir(parents=True, exist_ok=True)
        if not self.together:
            sweep(self._parts)
        number = max((_number(path) for path in self._part_files()), default=-1) + 1
        name = f"{number:05d}-{secrets.token_hex(6)}" if self.together else f"{number:05d}"
        rows = [self._row(verdict) for verdict in verdicts]
        _write(self._parts / f"{name}.parquet", rows, {self._digest: asdict(self.grading)})

    def finish(self, order: Mapping[Key, int]) -> None:
        """Bring the parts into verdicts.parquet; `order` sorts the samples of a grading."""
        sweep(self.folder)
        if self._part_files():
            last = len(order)
            ours = sorted(self.rows(), key=lambda row: order.get(_key(row), last))
            rows, gradings = self._stored()
            others = [row for row in rows if row["grading"] != self._digest]
            _write(
                self.folder / VERDICTS_FILE,
                others + ours,
                {**gradings, self._digest: asdict(self.grading)},
            )
        self.discard_parts()

    def discard_parts(self) -> None:
        """Remove the parts: after merging them, or to grade anew."""
        sweep(self._parts)
        for path in self._part_files():
            path.unlink(missing_ok=True)
        for folder in (self._parts, self._parts.parent):
            with suppress(OSError):  # not there, or others' files are in it
                folder.rmdir()

    @property
    def _parts(self) -> Path:
        return self.folder / PARTS_FOLDER / self._digest

    def _part_files(self) -> list[Path]:
        return sorted(path for path in self._parts.glob("*.parquet") if _PART.fullmatch(path.stem))

    def _part_rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for path in self._part_files():
            if path.exists():  # else it was merged just now
                rows += _read(path)[0]
        return rows

    def _stored(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        path = self.folder / VERDICTS_FILE
        return _read(path) if path.exists() else ([], {})

    def _row(self, verdict: Verdict) -> dict[str, Any]:
        row = asdict(verdict)
        task_id, sample = row.pop("key")
        settings = {name: getattr(self.grading, name) for name in _SETTINGS}
        return {"grading": self._digest, **settings, "task_id": task_id, "sample": sample, **row}


_PART = re.compile(r"(\d{5,})(-[0-9a-f]+)?")
_SETTINGS = ("task", "data_digest", "extraction")


def gradings_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The gradings in a run's verdicts.parquet: digest -> settings; none where there is no file."""
    path = folder / VERDICTS_FILE
    return _read(path)[1] if path.exists() else {}


def _number(part: Path) -> int:
    return int(part.stem.partition("-")[0])


def _key(row: Mapping[str, Any]) -> Key:
    return row["task_id"], row["sample"]


def _write(path: Path, rows: Collection[dict[str, Any]], gradings: dict[str, Any]) -> None:
    metadata = {
        VERSION_KEY: str(VERSION).encode(),
        GRADINGS_KEY: json.dumps(gradings, sort_keys=True).encode(),
    }
    schema = SCHEMA.with_metadata(metadata)
    table = pa.Table.from_pylist(list(rows), schema=schema)
    with replacing(path) as file:
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def _read(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    table = read_parquet(path, remedy=REMEDY)
    metadata = table.schema.metadata or {}
    version = metadata.get(VERSION_KEY)
    if version is None or not table.schema.equals(SCHEMA):
        raise ValueError(f"{path} is no table of verdicts of this anyorder: {REMEDY}")
    if version != str(VERSION).encode():
        raise ValueError(
            f"{path} has verdict schema {version.decode(errors='replace')}, this anyorder writes "
            f"{VERSION}: {REMEDY}, or use the version that wrote it"
        )
    return table.to_pylist(), json.loads(metadata[GRADINGS_KEY])
