"""A policy, a task, a measure and a logger of the package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anyorder.bench.checks import Calls
from anyorder.bench.tasks import Benchmark, Problem, Wish
from anyorder.decode.policy import Items, Score
from anyorder.trace import Run
from anyorder.training.loggers import LoggedTraining


def _alternating(items: Items) -> Tensor:
    position = items.position.to(torch.float64)
    return -(position + 1e6 * (position % 2))


ALTERNATING = Score("alternating", _alternating, reads="nothing")


def load_fruit(trained_on: Mapping[str, Any], wish: Wish) -> Benchmark:
    """One problem, whatever is asked for."""
    problem = Problem(
        task_id="fruit/sum",
        prompt="Ana has some cherries and some peaches. How many does she have now?\n",
        entry_point="solve",
        checks=(Calls(function="solve", inputs=((3, 4),), expected=(7,)),),
        solution="def solve(a, b):\n    return a + b\n",
    )
    return Benchmark(
        name="fruit",
        digest="1",
        extraction="function",
        limits={"cpu_seconds": 5.0},
        template="{prompt}",
        found=(problem,),
    )


def lengths(run: Run) -> list[int]:
    """The number of tokens of each sample."""
    return [len(trace.pieces) for trace in run.traces()]


class Lines:
    """A logger: a line for each row, in a file."""

    def __init__(self, file: str) -> None:
        self.path = Path(file)

    def start(self, training: LoggedTraining) -> None:
        self.path.write_text(f"{training.name}\n")

    def row(self, step: int, row: Mapping[str, Any]) -> None:
        self._add(f"{step} {row['kind']}")

    def end(self, status: str) -> None:
        self._add(status)

    def _add(self, line: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{line}\n")
