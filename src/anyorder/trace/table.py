"""Traces as Parquet: a row per sample, list columns for values per token.

The schema is stable and carries its version in the file's metadata; pages have checksums. Readers
here are strict: a truncated, damaged or foreign file, or one of a later version, is refused by
name. Other software (pandas, polars, DuckDB) opens the file as it is.

Version 2 added `score` and `candidates`, version 3 `columns`, version 4 `ghosts` and `times`,
version 5 `block`. In files of an earlier version they are read as null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anyorder.files import replacing
from anyorder.trace.events import Event, Ghost
from anyorder.trace.trace import Candidate, Trace

VERSION = 5
VERSION_KEY = b"anyorder.trace.schema"

# Rows in one row group: large enough to compress, small enough to hold in memory.
GROUP_ROWS = 512


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(_required("element", kind))


EVENT = pa.struct(
    [
        _required("step", pa.int32()),
        _required("slot", pa.int32()),
        pa.field("token_id", pa.int32()),
        pa.field("piece", pa.string()),
    ]
)

GHOST = pa.struct(
    [
        _required("after", pa.int32()),
        _required("insert_step", pa.int32()),
        pa.field("reveal_step", pa.int32()),
        _required("delete_step", pa.int32()),
        pa.field("token_id", pa.int32()),
        pa.field("piece", pa.string()),
    ]
)

CANDIDATE = pa.struct(
    [
        _required("step", pa.int32()),
        _required("segment", pa.int32()),
        pa.field("token_ids", _list(pa.int32())),
        _required("piece", pa.string()),
        pa.field("score", pa.float32()),
        _required("taken", pa.bool_()),
    ]
)

SCHEMA = pa.schema(
    [
        _required("task_id", pa.string()),
        _required("sample", pa.int32()),
        _required("prompt", pa.string()),
        _required("text", pa.string()),
        pa.field("program", pa.string()),
        pa.field("entry_point", pa.string()),
        pa.field("prompt_ids", _list(pa.int32())),
        pa.field("token_ids", _list(pa.int32())),
        pa.field("char_end", _list(pa.int32())),
        pa.field("insert_step", _list(pa.int32())),
        pa.field("reveal_step", _list(pa.int32())),
        pa.field("log_prob", _list(pa.float32())),
        pa.field("segment", _list(pa.int32())),
        pa.field("score", _list(pa.float32())),
        pa.field("steps", pa.int32()),
        pa.field("forwards", pa.int32()),
        pa.field("columns", pa.int32()),
        pa.field("seconds", pa.float64()),
        pa.field("ties", pa.int32()),
        pa.field("family", pa.string()),
        pa.field("policy", pa.string()),
        pa.field("seed", pa.int64()),
        pa.field("events", _list(EVENT)),
        pa.field("candidates", _list(CANDIDATE)),
        pa.field("ghosts", _list(GHOST)),
        pa.field("times", _list(pa.float64())),
        pa.field("block", _list(pa.int32())),
    ],
    metadata={VERSION_KEY: str(VERSION).encode()},
)

ADDED = {
    1: ("score", "candidates", "columns", "ghosts", "times", "block"),
    2: ("columns", "ghosts", "times", "block"),
    3: ("ghosts", "times", "block"),
    4: ("block",),
}
"""Version -> the columns that it lacks."""
RECORDS: dict[str, type[Event] | type[Candidate] | type[Ghost]] = {
    "events": Event,
    "candidates": Candidate,
    "ghosts": Ghost,
}
"""Columns whose entries are lists of records."""


def to_table(traces: Sequence[Trace]) -> pa.Table:
    """The rows of some traces, in their order."""
    columns = []
    for field in SCHEMA:
        values = [getattr(trace, field.name) for trace in traces]
        if field.name in RECORDS:
            values = [None if each is None else [one._asdict() for one in each] for each in values]
        columns.append(pa.array(values, type=field.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def from_batch(batch: pa.RecordBatch) -> Iterator[Trace]:
    """The traces of a batch of rows."""
    columns = {
        field.name: numpy_rows(column)
        if pa.types.is_list(field.type) and field.name not in RECORDS
        else column.to_pylist()
        for field, column in zip(batch.schema, batch.columns, strict=True)
    }
    for row in range(batch.num_rows):
        values = {name: column[row] for name, column in columns.items()}
        for name, kind in RECORDS.items():
            if values[name] is not None:
                values[name] = tuple(kind(**record) for record in values[name])
        yield Trace(**values)  # checks every value again: a file may have been edited


def write_traces(path: Path, traces: Sequence[Trace]) -> None:
    """One file of traces, whole or not at all."""
    with replacing(path) as file, _writer(file) as writer:
        writer.write_table(to_table(traces), row_group_size=GROUP_ROWS)


def read_batches(
    path: Path, columns: Sequence[str] | None = None, *, remedy: str
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in batches; `remedy` ends the errors about a damaged file."""
    with _opened(path, remedy) as file:
        names = SCHEMA.names if columns is None else list(columns)
        there = [name for name in names if name in file.schema_arrow.names]
        try:
            for batch in file.iter_batches(batch_size=GROUP_ROWS, columns=there):
                yield _completed(batch, names)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path} is damaged ({first_line(error)}): {remedy}") from None


def read_traces(path: Path, *, remedy: str) -> Iterator[Trace]:
    """The traces of a file, one after another."""
    for batch in read_batches(path, remedy=remedy):
        try:
            yield from from_batch(batch)
        except ValueError as error:
            raise ValueError(f"{path}: {error}: {remedy}") from None


def merge(sources: Sequence[Path], target: Path, *, remedy: str) -> None:
    """Join files into one, row group by row group, never all in memory.

    A sample that occurs twice is refused: it would count twice in every measure.
    """
    seen: set[tuple[str, int]] = set()
    waiting: list[pa.RecordBatch] = []
    with replacing(target) as file, _writer(file) as writer:
        for source in sources:
            for batch in read_batches(source, remedy=remedy):
                _check_new(batch, seen, source)
                # Parts may be tiny; full row groups compress better and read faster.
                if sum(piece.num_rows for piece in waiting) + batch.num_rows > GROUP_ROWS:
                    writer.write_table(pa.Table.from_batches(waiting, schema=SCHEMA))
                    waiting = []
                waiting.append(batch)
        writer.write_table(pa.Table.from_batches(waiting, schema=SCHEMA))


def count_rows(path: Path) -> int | None:
    """The number of rows by a file's metadata; None if it cannot be read."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        return None


def read_parquet(path: Path, *, remedy: str) -> pa.Table:
    """A Parquet table of a run folder that is not of traces, such as verdicts."""
    try:
        return pq.read_table(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged ({first_line(error)}): {remedy}") from None


@contextmanager
def _opened(path: Path, remedy: str) -> Iterator[pq.ParquetFile]:
    if not path.is_file():
        raise ValueError(
            f"{path} is missing: repeat the command that made the run, or make the run again in "
            "another folder"
        )
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{path} is truncated or not Parquet ({first_line(error)}): {remedy}"
        ) from None
    with file:
        _check_schema(path, file.schema_arrow)
        yield file


def _check_schema(path: Path, schema: pa.Schema) -> None:
    version = (schema.metadata or {}).get(VERSION_KEY)
    if version is None:
        raise ValueError(
            f"{path} was not written as traces of anyorder: to bring in traces of other software, "
            "write them as JSONL and use `anyorder import`"
        )
    lacking = {str(number).encode(): names for number, names in (ADDED | {VERSION: ()}).items()}
    if version not in lacking:
        raise ValueError(
            f"{path} has trace schema {version.decode(errors='replace')}, this anyorder reads "
            f"{VERSION} and before: read it with the version named in its run.json"
        )
    expected = pa.schema([field for field in SCHEMA if field.name not in lacking[version]])
    if not schema.equals(expected):
        different = sorted(
            {field.name for field in set(schema) ^ set(expected)} or {"the order of the columns"}
        )
        raise ValueError(
            f"{path} says trace schema {version.decode()} but differs in {', '.join(different)}: "
            "it was changed after it was written; restore the original"
        )


def _check_new(batch: pa.RecordBatch, seen: set[tuple[str, int]], source: Path) -> None:
    tasks, samples = batch.column("task_id").to_pylist(), batch.column("sample").to_pylist()
    for key in zip(tasks, samples, strict=True):
        if key in seen:
            raise ValueError(
                f"{source}: task {key[0]!r} sample {key[1]} is in this run already: "
                "number the samples of a task 0, 1, 2, ..."
            )
        seen.add(key)


def _writer(file: Any) -> pq.ParquetWriter:
    # Page checksums, because a flipped bit in a column of steps could still be a valid trace.
    return pq.ParquetWriter(file, SCHEMA, compression="zstd", write_page_checksum=True)


def _completed(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The named columns; null where an earlier version lacks them."""
    schema = pa.schema([SCHEMA.field(name) for name in names], SCHEMA.metadata)
    columns = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def numpy_rows(column: pa.ListArray) -> list[Any]:
    """Rows of a list column as arrays, without a Python object per number."""
    flat = column.values.to_numpy(zero_copy_only=False)
    bounds = column.offsets.to_numpy()
    valid = column.is_valid().to_pylist()
    return [flat[bounds[i] : bounds[i + 1]] if valid[i] else None for i in range(len(column))]


def first_line(error: Exception) -> str:
    """What a library says about a file, in one line."""
    return str(error).split("\n", 1)[0].rstrip(".")
