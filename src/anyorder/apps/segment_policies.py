"""The paper's ablation of LatentMDM: which segment next, and how many at a time.

Every policy and every k decodes the same problems with the same seed into a run folder of its own
(repeating the command goes on where it stopped), the programs are executed in the sandbox, and each
rate is compared with that of the first policy and k problem by problem: the paired bootstrap of
measure/intervals.py. Five policies times three k on one model: nothing but the order differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from anyorder.apps.grade import grade_run
from anyorder.apps.jobs import GradeJob, SampleJob
from anyorder.apps.report import command
from anyorder.apps.sample import sample_to_run
from anyorder.bench.checks import PASSED
from anyorder.measure.intervals import Interval, difference_interval, rate_interval
from anyorder.report.tables import Cell, Table, missing, plain, score, to_markdown

POLICIES = ("average", "minimum", "first", "left_to_right", "random")
KS = (1, 2, 4)


@dataclass(frozen=True)
class PolicyCell:
    """One policy at one k."""

    policy: str
    k: int
    passed: Interval
    """The share of problems solved."""
    difference: Interval | None
    """From the first cell, problem by problem; None for that cell itself."""
    forwards: float
    """Calls of the latent transformer per sample."""
    seconds: float
    """Per sample, as decoded here, in batches."""
    command: str
    """What makes this cell's run by itself."""

    def to_record(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "k": self.k,
            "passed": self.passed.to_record(),
            "difference": None if self.difference is None else self.difference.to_record(),
            "forwards": self.forwards,
            "seconds": self.seconds,
            "command": self.command,
        }


def compare_policies(
    job: SampleJob,
    folder: Path,
    *,
    policies: Sequence[str] = POLICIES,
    ks: Sequence[int] = KS,
    options: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> list[PolicyCell]:
    """All cells, the first of which is what the others are compared with; runs go to `folder`."""
    if job.task is None or job.samples not in (None, 1):
        raise ValueError("the comparison is by problem: give a task, and one sample for each")
    cells: list[PolicyCell] = []
    first: dict[str, float] = {}
    for policy, k in _grid(policies, ks):
        own = replace(job, out=folder / f"{policy}-k{k}", samples=1)
        chosen = {**(options or {}), "policy": policy, "k": k}
        line = command("sample", own, chosen)
        run = sample_to_run(own, chosen, command=line, progress=progress)
        graded = grade_run(run.folder, GradeJob(), progress=progress)
        passed = {row.task_id: float(row.verdict == PASSED) for row in graded.reports[0].rows}
        first = first or passed
        cost = run.table(["forwards", "seconds"])
        mean = {name: float(np.mean(cost.column(name).to_numpy())) for name in cost.column_names}
        pairs = [(value, first[task_id]) for task_id, value in passed.items()]
        cells.append(
            PolicyCell(
                policy=policy,
                k=k,
                passed=rate_interval(list(passed.values())),
                difference=difference_interval(*zip(*pairs, strict=True)) if cells else None,
                forwards=mean["forwards"],
                seconds=mean["seconds"],
                command=line,
            )
        )
    return cells


def _grid(policies: Sequence[str], ks: Sequence[int]) -> Iterator[tuple[str, int]]:
    return ((policy, k) for k in ks for policy in policies)


def print_cells(cells: Sequence[PolicyCell]) -> None:
    """The paper's table, a column for each k, with intervals; below it the paired differences."""
    ks = list(dict.fromkeys(cell.k for cell in cells))
    at = {(cell.policy, cell.k): cell for cell in cells}
    best = f"{cells[0].policy}, k = {cells[0].k}"
    for title, text in (
        (f"accuracy, {cells[0].passed.n} problems", lambda cell: _percent(cell.passed)),
        (f"difference from {best}, paired", lambda cell: _percent(cell.difference)),
        ("latent calls per sample", lambda cell: plain(cell.forwards, 1)),
    ):
        rows: list[tuple[Cell | str, ...]] = [
            (policy, *(text(at[policy, k]) for k in ks))
            for policy in dict.fromkeys(cell.policy for cell in cells)
        ]
        table = Table(("policy", *(f"k = {k}" for k in ks)), tuple(rows))
        print(f"\n{title}:\n\n{to_markdown(table, even=True)}")


def _percent(found: Interval | None) -> Cell:
    return missing() if found is None else score(found.times(100), 1)
