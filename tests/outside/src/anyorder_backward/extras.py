"""A policy, a task and a measure of the package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from anyorder.bench.checks import Calls
from anyorder.bench.tasks import Benchmark, Problem, Wish
from anyorder.decode.policy import Items, Score
from anyorder.trace import Run


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
