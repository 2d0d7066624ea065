"""The table of placement: one row per canvas, its Parquet file, and summaries over a run.

`placement.parquet` opens in pandas, polars or DuckDB. Its metadata (key `anyorder.placement`, JSON)
says what was measured, and how. Columns, for each canvas:

    task_id, sample, step, steps        which canvas of which sample
    time                                the time given to the network; null where it takes none
    span                                how the code was found (placement_scores.py)
    open, masked                        open slots on the canvas (of the block that is being
                                        filled, where there are blocks), and positions of the
                                        region: those of them inside the code, or places along the
                                        tentative texts of open segments
                                        (families/replay_segments.py)
    token_ids, mass, loc, entropy, k_loc    the kept tokens by falling mass: the first two are the
                                        paper's green points
    profile_positions, profile          per kept token, its largest f_i(v) and where
    committed_*                         the tokens that the sampler revealed next (red points):
                                        position, token, mass, probability f_i(v), localisation
                                        f_i(v) / m(v), k_loc, and log_prob as the trace has it

A summary gives means with bootstrap intervals over tasks: of a canvas over its points, of a sample
over its canvases, of a task over its samples. even_loc and even_k_loc are the floors of LOC and
k-LOC: the values if each mass were even over the masked positions. The gap is committed minus top,
on canvases that have both.

In a run with blocks (`block_slots` in the metadata) all this is within the block that is being
filled. It has few slots, so its floor is high; what belongs in later blocks does not count. The
summary of such a run has three more quantities: open, and LOC and committed-position localisation
as (value - floor) / (1 - floor), on canvases with two masked positions or more.

Not here: the mathematics (placement_scores.py), reading runs (apps/placement.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anyorder.files import replacing
from anyorder.measure.intervals import Interval, as_record, known_mean, mean_interval
from anyorder.measure.placement_scores import TOP, CanvasPlacement, copies
from anyorder.trace.table import first_line, numpy_rows

FORMAT = 1
ABOUT_KEY = b"anyorder.placement"
BLOCK_SLOTS = "block_slots"
"""In the metadata of a run with blocks: the generated tokens of the largest one."""

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
    placed: CanvasPlacement
    log_prob: NDArray[np.float64]
    """Of the committed tokens, as the trace has it."""

    def to_record(self) -> dict[str, Any]:
        """The row's columns."""
        placed, found, at = self.placed, self.placed.measures, self.placed.committed_token
        own = ("task_id", "sample", "step", "steps", "time", "span", "open", "masked")
        return {
            **{name: getattr(self, name) for name in own},
            "token_ids": placed.tokens,
            **{name: getattr(found, name) for name in ("mass", "loc", "entropy", "k_loc")},
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
    """Rows as columns, with `about` as metadata."""
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
        raise ValueError(
            f"{path} is missing or damaged ({first_line(error)}): delete it and measure again"
        ) from None


def read_about(path: Path) -> dict[str, Any]:
    """The metadata of a file of placement; ValueError if it is foreign or damaged."""
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


RESAMPLES = 2_000
PAPER_STEPS = (0, 16, 32, 48, 64, 80)
"""The canvases of the paper's step series, of runs of 256 steps."""
_NUMBERS = [name for name in SCHEMA.names if not name.startswith("profile")]


@dataclass(frozen=True)
class StepSummary:
    """Means over the canvases after one number of steps; `step` None: over all of them."""

    step: int | None
    canvases: int
    """Those with a masked position in the region."""
    values: dict[str, Interval]
    """By quantity, over the `n` tasks that have it."""

    def to_record(self) -> dict[str, Any]:
        return {"step": self.step, "canvases": self.canvases} | as_record(self.values)


class _Canvas(NamedTuple):
    """The part of a canvas that a summary needs."""

    step: int
    sample: tuple[str, int]
    numbers: dict[str, float]


class PlacementTable:
    """All canvases of a run, read in batches: the profiles need not fit in memory."""

    def __init__(
        self,
        batches: Callable[[Sequence[str] | None], Iterator[pa.RecordBatch]],
        about: dict[str, Any],
    ) -> None:
        self.batches = batches
        """(columns, or None for all) -> the rows, some at a time."""
        self.about = about
        """The metadata."""

    @classmethod
    def of_rows(cls, rows: Sequence[CanvasRow], about: dict[str, Any]) -> PlacementTable:
        table = to_table(rows, about)
        return cls(lambda columns: iter(table.select(columns or SCHEMA.names).to_batches()), about)

    @classmethod
    def read(cls, path: str | Path) -> PlacementTable:
        """The table in a `placement.parquet`."""
        path = Path(path)
        return cls(lambda columns: read_batches(path, columns), read_about(path))

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows as an Arrow table, all columns or some."""
        names = list(columns or SCHEMA.names)
        schema = pa.schema([SCHEMA.field(name) for name in names])
        return pa.Table.from_batches(
            [batch.replace_schema_metadata(None) for batch in self.batches(names)], schema
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """The canvases one by one, lists as arrays, without profiles."""
        for batch in self.batches(_NUMBERS):
            columns = {name: _values(batch.column(name)) for name in _NUMBERS}
            for number in range(batch.num_rows):
                yield {name: values[number] for name, values in columns.items()}

    def points(self) -> dict[str, dict[str, NDArray[Any]]]:
        """The paper's plot: {"top": {step, mass, loc, k_loc, entropy}, "committed": {step, mass,
        localisation, k_loc}}, an entry for each point."""
        kinds = {
            "top": {name: name for name in ("mass", "loc", "k_loc", "entropy")},
            "committed": {name: f"committed_{name}" for name in ("mass", "localisation", "k_loc")},
        }
        found: dict[str, dict[str, list[Any]]] = {
            kind: {name: [] for name in ("step", *names)} for kind, names in kinds.items()
        }
        for row in self.rows():
            for kind, names in kinds.items():
                most = TOP if kind == "top" else None
                for name, column in names.items():
                    found[kind][name].append(row[column][:most])
                found[kind]["step"].append(np.full(len(row[column][:most]), row["step"]))
        return {
            kind: {name: np.concatenate([np.zeros(0), *parts]) for name, parts in lists.items()}
            for kind, lists in found.items()
        }

    def summary(self, steps: Sequence[int] | None = None) -> list[StepSummary]:
        """One summary for each step, all or those in `steps`, and last one over all of these."""
        # Keep only the means of a canvas: its tokens would hold the whole file in memory.
        blocks = BLOCK_SLOTS in self.about
        found = [
            _Canvas(row["step"], (row["task_id"], row["sample"]), numbers_of(row, blocks=blocks))
            for row in self.rows()
            if row["masked"]
        ]
        there = sorted({canvas.step for canvas in found})
        chosen = [step for step in there if steps is None or step in steps]
        groups: list[tuple[int | None, set[int]]] = [(step, {step}) for step in chosen]
        return [
            _summed(step, [canvas for canvas in found if canvas.step in among])
            for step, among in [*groups, (None, set(chosen))]
        ]

    def to_record(self) -> dict[str, Any]:
        """Everything but the points, as JSON."""
        samples: dict[tuple[str, int], str] = {}
        worst, compared = 0.0, 0
        for row in self.rows():
            samples[row["task_id"], row["sample"]] = row["span"]
            # A probability of 0 gives an infinite difference, which JSON shows as null.
            with np.errstate(divide="ignore"):
                apart = np.abs(np.log(row["committed_probability"]) - row["committed_log_prob"])
            apart = apart[~np.isnan(apart)]
            worst, compared = max(worst, float(apart.max(initial=0.0))), compared + len(apart)
        *by_step, overall = self.summary()
        return {
            "about": self.about,
            "samples": len(samples),
            "tasks": len({task for task, _ in samples}),
            "spans": {
                how: list(samples.values()).count(how) for how in sorted({*samples.values()})
            },
            "agreement": {
                "compared": compared,
                "largest_log_prob_difference": worst if math.isfinite(worst) else None,
            },
            "steps": [each.to_record() for each in by_step],
            "all": overall.to_record(),
        }


def numbers_of(row: dict[str, Any], *, blocks: bool = False) -> dict[str, float]:
    """The quantities of one canvas: means over its points, NaN where it has none.

    blocks: with those that only runs with blocks have.
    """
    top = {name: known_mean(row[name][:TOP]) for name in ("mass", "loc", "entropy", "k_loc")}
    names = ("mass", "localisation", "k_loc")
    committed = {name: known_mean(row[f"committed_{name}"]) for name in names}
    within = {}
    if blocks:
        even = 1 / row["masked"]
        pairs = {"top_loc": top["loc"], "committed_localisation": committed["localisation"]}
        within = {
            "open": float(row["open"]),
            **{
                f"{name}_above_even": (value - even) / (1 - even) if even < 1 else math.nan
                for name, value in pairs.items()
            },
        }
    return {
        "masked": float(row["masked"]),
        **{f"top_{name}": value for name, value in top.items()},
        "even_loc": 1 / row["masked"],
        "even_k_loc": known_mean(copies(row["mass"][:TOP]) / row["masked"]),
        **{f"committed_{name}": value for name, value in committed.items()},
        "gap_loc": committed["localisation"] - top["loc"],
        "gap_k_loc": committed["k_loc"] - top["k_loc"],
        **within,
    }


def _summed(step: int | None, canvases: Sequence[_Canvas]) -> StepSummary:
    """Canvases to samples to tasks to an interval."""
    samples: dict[tuple[str, int], list[dict[str, float]]] = {}
    for canvas in canvases:
        samples.setdefault(canvas.sample, []).append(canvas.numbers)
    values = {}
    for name in canvases[0].numbers if canvases else ():
        tasks: dict[str, list[float]] = {}
        for (task, _), numbers in samples.items():
            tasks.setdefault(task, []).append(known_mean(each[name] for each in numbers))
        means = np.asarray([known_mean(each) for each in tasks.values()])
        values[name] = mean_interval(means[~np.isnan(means)], resamples=RESAMPLES)
    return StepSummary(step, len(canvases), values)


def _values(column: Any) -> list[Any]:
    """A column's entries; those of a list column as arrays, without an object per number."""
    return numpy_rows(column) if pa.types.is_list(column.type) else list(column.to_pylist())
