"""Time accounting from traces alone: what a sample cost in seconds and in network calls.

A trace's `seconds` cover decoding only: from finished canvases to tokens in main memory, without
prompts, text, files and grading. The time of a batch is divided by its rows, hence

    batch of 1     seconds per sample is a latency: k samples take k times as long
    larger batch   it is a share of the batch's time (`shared`): the cost of many samples, not the
                   time that one takes

The first batch also pays for what is prepared once (kernels, memory, caches) and is reported apart,
not averaged in; where it is the only batch, `warm` is False. A resumed run pays again at each
start, and traces do not tell where. Intervals are over tasks, or over batches where samples share a
time. Nothing here measures: it reads the run folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from anyorder.measure.intervals import Interval, bootstrap, ratio_interval
from anyorder.measure.passk import Rate
from anyorder.trace import Run

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Timing:
    """What one sample of a run cost."""

    seconds: Interval
    """Mean per sample."""
    median_seconds: Interval
    """Median over the units of `seconds` (tasks or batches) of their seconds per sample."""
    forwards: Interval | None
    """Mean network calls that a sample needed; None: not recorded."""
    median_forwards: Interval | None
    """Median over tasks."""
    samples: int
    """Samples counted: without the first batch, if `warm`."""
    batch: int | None
    """Samples decoded together; None: not in the run card."""
    unit: str
    """What the intervals of `seconds` are over: task or batch."""
    warm: bool
    """Whether the first batch is left out."""
    first_batch: float | None
    """Seconds per sample of the first batch; None: batches are not known."""
    total_seconds: float
    """Of all samples, the first batch included."""
    device: str | None
    dtype: str | None

    @property
    def shared(self) -> bool | None:
        """Whether a sample's time is a share of a batch's; None: not known."""
        return None if self.batch is None else self.batch > 1

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        record = asdict(self) | {"shared": self.shared}
        for name in ("seconds", "median_seconds", "forwards", "median_forwards"):
            interval = getattr(self, name)
            record[name] = None if interval is None else interval.to_record()
        return record


@dataclass(frozen=True)
class TimingPoint:
    """One point of accuracy against time: k samples of each task."""

    rate: Rate
    seconds: Interval
    """Of k samples, one after another."""
    forwards: Interval | None

    def to_record(self) -> dict[str, Any]:
        return {
            "rate": self.rate.to_record(),
            "seconds": self.seconds.to_record(),
            "forwards": None if self.forwards is None else self.forwards.to_record(),
        }


def timing(run: Run) -> Timing:
    """The time accounting of a finished run."""
    table = run.table(["task_id", "seconds", "forwards"])
    if table.num_rows == 0:
        raise ValueError(f"{run.folder} has no samples, hence no times")
    if table.column("seconds").null_count:
        raise ValueError(
            f"{run.folder} has samples without seconds (imported traces have none): sample with "
            "anyorder to compare times"
        )
    seconds = table.column("seconds").to_numpy()
    codes = pc.dictionary_encode(table.column("task_id")).combine_chunks()
    tasks = np.asarray(codes.indices, dtype=np.int64)
    batch: int | None = run.card.config.get("batch")
    first = np.zeros(len(seconds), dtype=bool)
    units = tasks
    if batch is not None:
        batches = _batches(seconds, batch, str(run.folder))
        first = batches == 0
        units = batches if batch > 1 else tasks
    warm = bool(first.any() and not first.all())  # leaving it out must leave something in
    kept = ~first if warm else np.ones_like(first)
    mean, median = _per_sample(seconds[kept], units[kept])
    forwards = _forwards(table.column("forwards"), kept, tasks)
    return Timing(
        seconds=mean,
        median_seconds=median,
        forwards=forwards[0] if forwards else None,
        median_forwards=forwards[1] if forwards else None,
        samples=int(kept.sum()),
        batch=batch,
        unit="task" if units is tasks else "batch",
        warm=warm,
        first_batch=None if batch is None else float(seconds[0]),
        total_seconds=float(seconds.sum()),
        device=run.card.device,
        dtype=run.card.dtype,
    )


def against_time(rates: Sequence[Rate], cost: Timing) -> list[TimingPoint]:
    """pass@k beside what k samples cost, for every k of a table.

    The interval of the seconds is that of one sample's mean, k times; it is not joint with the
    rate's.
    """
    return [
        TimingPoint(
            rate,
            cost.seconds.times(rate.k),
            None if cost.forwards is None else cost.forwards.times(rate.k),
        )
        for rate in rates
    ]


def _batches(seconds: FloatArray, batch: int, folder: str) -> NDArray[np.int64]:
    """The number of each sample's batch; samples are stored batch by batch."""
    numbers = np.arange(len(seconds)) // batch
    if not np.array_equal(seconds, seconds[numbers * batch]):
        raise ValueError(
            f"{folder}: the samples of a batch of {batch} do not share one time, so its rows are "
            "not as `anyorder sample` wrote them: make the run again"
        )
    return numbers


def _per_sample(values: FloatArray, units: NDArray[np.int64]) -> tuple[Interval, Interval]:
    """(mean per sample, median over units of their mean), resampled by unit."""
    _, unit = np.unique(units, return_inverse=True)
    totals, counts = np.bincount(unit, weights=values), np.bincount(unit)
    median = bootstrap(lambda means: np.median(means, axis=-1), [totals / counts])
    return ratio_interval(totals, counts), median


def _forwards(
    column: Any, kept: NDArray[np.bool_], tasks: NDArray[np.int64]
) -> tuple[Interval, Interval] | None:
    if column.null_count:
        return None
    return _per_sample(column.to_numpy().astype(np.float64)[kept], tasks[kept])
