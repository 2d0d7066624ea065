"""Rows of large files, one after another: JSON lines (.gz too) and Parquet, from any row on.

Nothing is held but the batch at hand. Starting at row n reads past n lines of JSON without parsing
them, and past whole row groups of Parquet without reading them.

What this file does not do: interpret columns, download. Small files that are read by index are
sources.py's business.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]

PARQUET_ROWS = 256
"""Rows that are decoded together."""


def read_records(path: Path, start: int, columns: Sequence[str]) -> Iterator[Record]:
    """The rows of a file from `start` on; of Parquet only these columns, where they are there."""
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if kind not in READERS or (kind == ".parquet" and path.suffix == ".gz"):
        raise ValueError(f"{path}: give .jsonl, .jsonl.gz or .parquet")
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    return READERS[kind](path, start, columns)


def _json_lines(path: Path, start: int, columns: Sequence[str]) -> Iterator[Record]:
    number = 0
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate((line for line in file if line.strip()), start=1):
                if number > start:
                    yield _parsed(line, f"{path}: row {number}")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read after row {number}: {error}") from error


def _parsed(line: bytes, where: str) -> Record:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where} is not a JSON object ({error}): repair the file") from None
    if not isinstance(record, dict):
        raise ValueError(f"{where} is a {type(record).__name__}, not an object with columns")
    return record


def _parquet(path: Path, start: int, columns: Sequence[str]) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path, memory_map=True)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path}: not a Parquet file ({error}): download it again") from None
    with file:
        there = [name for name in columns if name in file.schema_arrow.names]
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if start >= rows:
                start -= rows
                continue
            for batch in file.iter_batches(PARQUET_ROWS, row_groups=[group], columns=there):
                if start < batch.num_rows:
                    yield from batch.slice(start).to_pylist()
                start = max(0, start - batch.num_rows)


READERS: dict[str, Callable[[Path, int, Sequence[str]], Iterator[Record]]] = {
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
