"""The table of placement: what the canvases of a run say together.

A summary gives means with bootstrap intervals over tasks: of a canvas over its points, of a sample
over its canvases, of a task over its samples. Beside LOC and k-LOC stands what the same masses
would give if they were spread evenly over the masked positions: the floor of both. The gap is
committed minus top, on canvases that have both.

Not here: the mathematics (placement.py), the file (placement_rows.py), reading runs
(apps/placement.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anyorder.measure.intervals import Interval, mean_interval
from anyorder.measure.placement import TOP, copies
from anyorder.measure.placement_rows import (
    SCHEMA,
    CanvasRow,
    read_about,
    read_batches,
    to_table,
)
from anyorder.measure.pooling import known_mean

RESAMPLES = 2_000
PAPER_STEPS = (0, 16, 32, 48, 64, 80)
"""The canvases of the paper's step series, of runs of 256 steps."""
_NUMBERS = [name for name in SCHEMA.names if not name.startswith("profile")]


@dataclass(frozen=True)
class StepSummary:
    """Means over the canvases after one number of steps; `step` None: over all of them."""

    step: int | None
    canvases: int
    """With something masked inside."""
    values: dict[str, Interval]
    """By quantity, over the tasks that have it (`n` says how many)."""

    def to_record(self) -> dict[str, Any]:
        plain = {name: value.to_record() for name, value in self.values.items()}
        return {"step": self.step, "canvases": self.canvases} | plain


class _Canvas(NamedTuple):
    """What a summary needs of one canvas."""

    step: int
    sample: tuple[str, int]
    numbers: dict[str, float]


class PlacementTable:
    """All canvases of a run, read piece by piece: its profiles need not fit in memory."""

    def __init__(
        self,
        batches: Callable[[Sequence[str] | None], Iterator[pa.RecordBatch]],
        about: dict[str, Any],
    ) -> None:
        self.batches = batches
        """(columns, or None for all) -> the rows, some at a time."""
        self.about = about
        """What was measured, on what, and how."""

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
        """The rows as an Arrow table, whole or some columns."""
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
        """A line for each step, or for those asked for, and last one over all of these."""
        # Only the means of a canvas are kept: its tokens would hold the whole file in memory.
        found = [
            _Canvas(row["step"], (row["task_id"], row["sample"]), numbers_of(row))
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


def numbers_of(row: dict[str, Any]) -> dict[str, float]:
    """The quantities of one canvas: means over its points, NaN where it has none."""
    top = {name: known_mean(row[name][:TOP]) for name in ("mass", "loc", "entropy", "k_loc")}
    names = ("mass", "localisation", "k_loc")
    committed = {name: known_mean(row[f"committed_{name}"]) for name in names}
    return {
        "masked": float(row["masked"]),
        **{f"top_{name}": value for name, value in top.items()},
        "even_loc": 1 / row["masked"],
        "even_k_loc": known_mean(copies(row["mass"][:TOP]) / row["masked"]),
        **{f"committed_{name}": value for name, value in committed.items()},
        "gap_loc": committed["localisation"] - top["loc"],
        "gap_k_loc": committed["k_loc"] - top["k_loc"],
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
    """A column's entries; those of a list column as arrays."""
    if not pa.types.is_list(column.type):
        return list(column.to_pylist())
    flat, bounds = column.values.to_numpy(zero_copy_only=False), column.offsets.to_numpy()
    return [flat[bounds[row] : bounds[row + 1]] for row in range(len(column))]
