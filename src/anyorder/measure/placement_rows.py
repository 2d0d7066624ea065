"""Placement as rows: one for each canvas that was looked at, and the Parquet file of them.

`placement.parquet` opens in pandas, polars or DuckDB; what was measured, on what and how is in the
file's metadata (key `anyorder.placement`, JSON). Columns, for each canvas:

    task_id, sample, step, steps        which canvas of which sample
    time                                what the network was told; null where it has no time
    span                                how the code was found (placement_span.py)
    open, masked                        open slots on the canvas, and positions that were looked at:
                                        masked slots inside the code, or places along the tentative
                                        texts of open segments (decode/segment_replayer.py)
    token_ids, mass, loc, entropy, k_loc    the kept tokens by falling mass: the first two are the
                                        paper's green points
    profile_positions, profile          per kept token, its largest f_i(v) and where
    committed_*                         the tokens that the sampler revealed next (red points):
                                        position, token, mass, probability f_i(v), localisation
                                        f_i(v) / m(v), k_loc, and log_prob as the trace has it

Files are written whole or not at all, and a damaged or foreign one is refused by name.
Not here: the mathematics (placement.py), summaries (placement_table.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anyorder.files import replacing
from anyorder.measure.placement import Placed

FORMAT = 1
ABOUT_KEY = b"anyorder.placement"

_REAL, _WHOLE = pa.list_(pa.float64()), pa.list_(pa.int32())
SCHEMA = pa.schema(
    [
        pa.field("task_id", pa.string(), nullable=False),
        *(pa.field(name, pa.int32(), nullable=False) for name in ("sample", "step", "steps")),
        pa.field("time", pa.float64()),
        pa.field("span", pa.string(), nullable=False),
        *(pa.field(name, pa.int32(), nullable=False) for name in ("open", "masked")),
        pa.field("token_ids", _WHOLE),
        *(pa.field(name, _REAL) for name in ("mass", "loc", "entropy", "k_loc")),
        pa.field("profile_positions", pa.list_(_WHOLE)),
        pa.field("profile", pa.list_(pa.list_(pa.float32()))),
        *(pa.field(f"committed_{name}", _WHOLE) for name in ("position", "token")),
        *(
            pa.field(f"committed_{name}", _REAL)
            for name in ("mass", "probability", "localisation", "k_loc", "log_prob")
        ),
    ]
)


@dataclass(frozen=True, eq=False)
class CanvasRow:
    """One canvas of one sample."""

    task_id: str
    sample: int
    step: int
    steps: int
    time: float | None
    span: str
    open: int
    masked: int
    placed: Placed
    log_prob: NDArray[np.float64]
    """Of the committed tokens, as the trace has it."""

    def to_record(self) -> dict[str, Any]:
        """The row's columns."""
        placed, found, at = self.placed, self.placed.measures, self.placed.committed_token
        own = ("task_id", "sample", "step", "steps", "time", "span", "open", "masked")
        return {name: getattr(self, name) for name in own} | {
            "token_ids": placed.tokens,
            "mass": found.mass,
            "loc": found.loc,
            "entropy": found.entropy,
            "k_loc": found.k_loc,
            "profile_positions": [positions for positions, _ in placed.profiles],
            "profile": [values for _, values in placed.profiles],
            "committed_position": [commit.position for commit in placed.commits],
            "committed_token": [commit.token for commit in placed.commits],
            "committed_mass": found.mass[at],
            "committed_probability": placed.committed,
            "committed_localisation": placed.localisation,
            "committed_k_loc": found.k_loc[at],
            "committed_log_prob": self.log_prob,
        }


def to_table(rows: Sequence[CanvasRow], about: dict[str, Any]) -> pa.Table:
    """Rows as columns, with what they are about."""
    records = [row.to_record() for row in rows]
    columns = [pa.array([each[field.name] for each in records], field.type) for field in SCHEMA]
    return pa.Table.from_arrays(columns, schema=_schema(about))


def _schema(about: dict[str, Any]) -> pa.Schema:
    text = json.dumps({"format": FORMAT} | about, sort_keys=True, allow_nan=False)
    return SCHEMA.with_metadata({ABOUT_KEY: text.encode()})


def write_file(path: Path, batches: Iterable[pa.RecordBatch], about: dict[str, Any]) -> None:
    """One file of rows, whole or not at all."""
    schema = _schema(about)
    with (
        replacing(path) as file,
        pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n", 1)[0].rstrip(".")
        raise ValueError(
            f"{path} is missing or damaged ({reason}): delete it and measure again"
        ) from None


def read_about(path: Path) -> dict[str, Any]:
    """What a file of placement says of itself; ValueError where it is none that we can read."""
    with _opened(path) as file:
        text = (file.schema_arrow.metadata or {}).get(ABOUT_KEY)
        about = {} if text is None else json.loads(text)
        if about.get("format") != FORMAT or not file.schema_arrow.equals(SCHEMA):
            raise ValueError(
                f"{path} is no table of placement of format {FORMAT}: delete it and measure again"
            )
    del about["format"]
    return dict(about)


def read_batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a file, some at a time."""
    with _opened(path) as file:
        yield from file.iter_batches(batch_size=256, columns=columns)
