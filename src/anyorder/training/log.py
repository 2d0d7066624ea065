"""The log of a run: metrics.jsonl for programs, a progress bar or plain lines for people.

A row of metrics.jsonl is one JSON object: `kind` "train" (means over the steps since the last row)
or "validation". Rows do not depend on interruptions: resumption cuts off rows after the checkpoint,
and the checkpoint holds the sums of an unfinished row. Only `seconds` and `tokens_per_second`
differ between equal runs.

The reporter writes to standard error: step, loss, nats per token, tokens per second, and the time
left (of the remaining steps at the speed so far, or of the given minutes if that is less). Its
numbers are those of the last row, or of the unfinished row if rows are rarer than `QUIET_SECONDS`.
When to log is decided in loop.py. `Followers` passes rows on to loggers (loggers.py), and keeps
their failures from the training.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from time import monotonic
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from torch import Tensor

from anyorder.files import replacing
from anyorder.training.loggers import LoggedTraining, Logger, MetricsRow

COLLECTED = frozenset({"loss", "nats", "tokens", "read", "grad_norm"})
"""Numbers that the loop collects at every step; a family's extras need other names."""


class MetricsFile:
    """metrics.jsonl, opened to continue after `step`."""

    def __init__(self, path: Path, step: int) -> None:
        self._path = path
        rows = rows_up_to(path, step)
        # Replaced as a whole, so that a kill here loses no rows.
        with replacing(path) as file:
            file.write("".join(rows).encode())
        self._handle: IO[str] = path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        self._handle.write(json.dumps(row, allow_nan=False) + "\n")
        self._handle.flush()

    def rows(self) -> list[dict[str, Any]]:
        """The rows in the file."""
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]

    def sync(self) -> None:
        """Write to disk; called before the checkpoint that these rows belong to."""
        os.fsync(self._handle.fileno())

    def close(self) -> None:
        self._handle.close()


def rows_up_to(path: Path, step: int) -> list[str]:
    """The lines of metrics.jsonl whose step is at most `step`; a torn last line is dropped."""
    if not path.exists():
        return []
    found = []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        if number == len(lines) and not line.endswith("\n"):
            break
        try:
            row_step = json.loads(line)["step"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number} is not a metrics row: repair or delete the file to go on"
            ) from error
        if row_step <= step:
            found.append(line)
    return found


class Meter:
    """Collects each step's numbers and turns them into rows.

    Tensors are read as late as possible, because reading one waits for the GPU.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        """Wall clock of the whole run, over all its processes."""
        self.busy = 0.0
        """Seconds spent in training steps since the last row."""
        self._steps: list[Mapping[str, Tensor | float]] = []

    def add(self, numbers: Mapping[str, Tensor | float], busy: float) -> None:
        """One step: loss, nats, tokens, read (tokens read), grad_norm and further sums."""
        self._steps.append(numbers)
        self.busy += busy

    def first_non_finite(self, step: int) -> tuple[int, str, float] | None:
        """The first step whose loss or gradient is not finite; `step` numbers the newest one."""
        self._read()
        for number, numbers in enumerate(self._steps, start=step - len(self._steps) + 1):
            for name in ("loss", "grad_norm"):
                if not math.isfinite(numbers[name]):
                    return number, name, float(numbers[name])
        return None

    def row(self, step: int, learning_rate: float) -> dict[str, Any]:
        """A row of means over the steps since the last row; starts the next row."""
        count, sums = len(self._steps), self._sums()
        tokens, read = max(sums.pop("tokens"), 1.0), sums.pop("read")
        row = {
            "kind": "train",
            "step": step,
            "loss": sums.pop("loss") / count,
            "nats_per_token": _finite(sums.pop("nats") / tokens),
            "grad_norm": sums.pop("grad_norm") / count,
            "lr": learning_rate,
            **{name: _finite(value / tokens) for name, value in sums.items()},
            "tokens_per_second": round(read / max(self.busy, 1e-9), 1),
            "seconds": round(self.seconds, 3),
        }
        self._steps, self.busy = [], 0.0
        return row

    def so_far(self) -> dict[str, float | None] | None:
        """The numbers of the unfinished row for the reporter; None right after a row."""
        if not self._steps:
            return None
        sums = self._sums()
        return {
            "loss": sums["loss"] / len(self._steps),
            "nats_per_token": _finite(sums["nats"] / max(sums["tokens"], 1.0)),
            "tokens_per_second": sums["read"] / max(self.busy, 1e-9),
        }

    def state(self) -> dict[str, Any]:
        """JSON for a checkpoint; Python writes floats so that they read back exactly."""
        self._read()
        steps = [dict(numbers) for numbers in self._steps]
        return {"seconds": self.seconds, "busy": self.busy, "steps": steps}

    @staticmethod
    def is_state(state: Mapping[str, Any]) -> bool:
        """Whether `restore` can read it."""
        steps = state.get("steps")
        if not isinstance(steps, list) or not all(isinstance(numbers, dict) for numbers in steps):
            return False
        values = [value for numbers in steps for value in numbers.values()]
        values += [state.get("seconds"), state.get("busy")]
        complete = all(numbers.keys() >= COLLECTED for numbers in steps)
        return complete and all(isinstance(value, int | float) for value in values)

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seconds, self.busy = float(state["seconds"]), float(state["busy"])
        self._steps = [dict(numbers) for numbers in state["steps"]]

    def _sums(self) -> dict[str, float]:
        self._read()
        sums: dict[str, float] = {}
        for numbers in self._steps:
            for name, value in numbers.items():
                sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    def _read(self) -> None:
        self._steps = [
            {name: float(value) for name, value in numbers.items()} for numbers in self._steps
        ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


QUIET_SECONDS = 15.0
"""Seconds between two plain lines, and the longest time that a terminal shows old numbers."""


class Reporter:
    """A progress bar on a terminal, occasional plain lines elsewhere; silent without `progress`."""

    def __init__(
        self, steps: int, start: int, *, progress: bool, minutes: float | None = None
    ) -> None:
        self._lines = progress and not sys.stderr.isatty()
        self._bar: Progress | None = None
        self._steps, self._start, self._minutes = steps, start, minutes
        self._began = self._last_line = self._last_numbers = monotonic()
        self._numbers = ""
        if progress and sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("training"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[numbers]}"),
                TextColumn("{task.fields[left]}"),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(
                "training", total=steps, completed=start, numbers="", left=""
            )

    def __enter__(self) -> Reporter:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, step: int, meter: Meter) -> None:
        """Called after each step; reads `meter` only if the last row is old."""
        if self._bar is None and not self._lines:
            return
        now = monotonic()
        if now - self._last_numbers >= QUIET_SECONDS and (recent := meter.so_far()):
            self._take(recent)
        if self._bar is not None:
            self._bar.update(
                self._task, completed=step, numbers=self._numbers, left=self._left(step)
            )
        elif self._numbers and now - self._last_line >= QUIET_SECONDS:
            self._last_line = now
            self.say(f"step {step}/{self._steps}: {self._numbers}  {self._left(step)}")

    def row(self, row: Mapping[str, Any]) -> None:
        """Show a validation row at once, a training row with the next step."""
        if row["kind"] == "validation":
            self.say(f"step {row['step']}: validation {_show(row['nats_per_token'])} nats/token")
        else:
            self._take(row)

    def say(self, text: str) -> None:
        """Print one line, unless `progress` is off."""
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
        elif self._lines:
            print(text, file=sys.stderr, flush=True)

    def _take(self, numbers: Mapping[str, Any]) -> None:
        self._last_numbers = monotonic()
        self._numbers = (
            f"loss {numbers['loss']:.4f}  {_show(numbers['nats_per_token'])} nats/token  "
            f"{numbers['tokens_per_second']:,.0f} tokens/s"
        )

    def _left(self, step: int) -> str:
        elapsed = monotonic() - self._began
        left = elapsed / max(step - self._start, 1) * (self._steps - step)
        if self._minutes is not None:
            left = min(left, max(60 * self._minutes - elapsed, 0.0))
        return f"{_clock(left)} left"


class Followers:
    """The loggers of a training, each until it fails."""

    def __init__(self, loggers: Sequence[Logger]) -> None:
        self._loggers = list(loggers)

    def start(self, training: LoggedTraining) -> None:
        self._each(lambda logger: logger.start(training))

    def row(self, row: MetricsRow) -> None:
        self._each(lambda logger: logger.row(row["step"], dict(row)))

    def end(self, status: str) -> None:
        self._each(lambda logger: logger.end(status))

    def _each(self, call: Callable[[Logger], None]) -> None:
        for logger in tuple(self._loggers):
            try:
                with redirect_stdout(sys.stderr):  # standard output is the answer of a command
                    call(logger)
            except Exception as error:  # noqa: BLE001  (a logger may raise anything)
                self._loggers.remove(logger)
                shown = getattr(logger, "function", logger)
                name = getattr(shown, "__name__", type(shown).__name__)
                print(
                    f"The logger {name} failed and is left out ({type(error).__name__}: {error}). "
                    "The training goes on; metrics.jsonl has every row.",
                    file=sys.stderr,
                    flush=True,
                )


def how_to_go_on(step: int, steps: int, newest: Path, received: str | None) -> str:
    """The message about a run that stopped before its end."""
    why = f"on {received}" if received else "after the given minutes"
    return (
        f"Stopped {why} at step {step} of {steps}; saved {newest}. "
        "Run the same command again to go on."
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _show(value: float | None) -> str:
    return "no finite" if value is None else f"{value:.4f}"
