"""What people see of a run, on standard error: a bar on a terminal, plain lines elsewhere.

Both show the step, the loss, nats per token, tokens per second and the time left, which is the
time for the remaining steps at the pace so far, or what is left of the given minutes if that is
less. Numbers follow the log's rows, and come from the unfinished row when rows are rarer than
`QUIET_SECONDS`. Nothing here is kept or decides anything: programs read metrics.jsonl (log.py).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from anyorder.train.log import Meter

QUIET_SECONDS = 15.0
"""Between two plain lines, and the longest that a terminal shows the same numbers."""


class Reporter:
    """A progress bar on a terminal, a plain line now and then elsewhere, nothing when not asked."""

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, step: int, meter: Meter) -> None:
        """After each step; `meter` is read only where the log has not spoken for a while."""
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
        """A row of the log: validations are shown at once, training rows with the next step."""
        if row["kind"] == "validation":
            self.say(f"step {row['step']}: validation {_show(row['nats_per_token'])} nats/token")
        else:
            self._take(row)

    def say(self, text: str) -> None:
        """One line for people, when they asked to be told."""
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
        """Until the last step, or until the given minutes are over if that is sooner."""
        elapsed = monotonic() - self._began
        left = elapsed / max(step - self._start, 1) * (self._steps - step)
        if self._minutes is not None:
            left = min(left, max(60 * self._minutes - elapsed, 0.0))
        return f"{_clock(left)} left"


def how_to_go_on(step: int, steps: int, newest: Path, received: str | None) -> str:
    """What to tell about a run that stopped before its end."""
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
