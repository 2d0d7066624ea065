"""What a run writes down while it trains: metrics.jsonl, and the meter that its rows come from.

A row is one JSON object: `kind` "train" (means over the steps since the row before) or
"validation". Rows are a function of the run and not of its interruptions: on resuming, rows after
the checkpoint are cut off, and sums of an unfinished row travel in the checkpoint. Only
`TIME_FIELDS` differ between two equal runs. Nothing here decides when to log (loop.py) or shows
it to people (progress.py).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from anyorder.files import replacing

TIME_FIELDS = ("seconds", "tokens_per_second")
COLLECTED = frozenset({"loss", "nats", "tokens", "read", "grad_norm"})
"""Numbers that the loop collects at every step; a family's extras have other names."""


class MetricsFile:
    """metrics.jsonl, opened to go on after `step`."""

    def __init__(self, path: Path, step: int) -> None:
        kept = rows_up_to(path, step)
        with replacing(path) as file:
            file.write("".join(kept).encode())
        self._handle: IO[str] = path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        self._handle.write(json.dumps(row, allow_nan=False) + "\n")
        self._handle.flush()

    def sync(self) -> None:
        """On the disk before the checkpoint that counts on these rows."""
        os.fsync(self._handle.fileno())

    def close(self) -> None:
        self._handle.close()


class NoFile:
    """In the place of metrics.jsonl where another process writes it."""

    def write(self, row: Mapping[str, Any]) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


def rows_up_to(path: Path, step: int) -> list[str]:
    """The lines of metrics.jsonl whose step is at most `step`; a torn last line is dropped."""
    if not path.exists():
        return []
    kept = []
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
            kept.append(line)
    return kept


class Meter:
    """Collects each step's numbers as tensors and turns them into rows; reads them only then."""

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
        """Means over the steps since the last row, which they leave behind."""
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
        """Of the row to come, the numbers for people; None right after a row. Changes nothing."""
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
