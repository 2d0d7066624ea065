"""LatentMDM's ablation table on stories: five policies, k = 1, 2, 4, by execution of the programs.

    python benchmarks/latentmdm_policies.py --problems 300 --out runs/policies

Uses the shipped model, or one that you name. Tokens are greedy, as in the paper's table. Every
policy and every k decodes the same problems with the same seed, so only the order differs. Each has
its own run folder: with `--out`, repeat an interrupted command to continue it. The programs are
executed in the sandbox. Intervals are at 95 %. Each rate is compared with that of the first policy
and k, problem by problem, by the paired bootstrap of measure/intervals.py.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from anyorder.apps.grade import grade_run
from anyorder.apps.jobs import GradeJob, SampleJob
from anyorder.apps.report import command
from anyorder.apps.sample import sample_to_run
from anyorder.bench.checks import PASSED
from anyorder.measure.intervals import Interval, difference_interval, rate_interval

DOMINATES = """
Most of the time is sampling in 15 runs, and grading their programs, each in a sandbox. Latent calls
are the cost of a policy, and the table counts them. Their floor is a call for every k lines and for
the end of the program, some seven at k = 1, if the slots behind that end close at once (the tail
rule). Left to right reaches it, random order comes near, and the policies with scores call nearly
once for each of the 12 slots. hot_paths has the time of a call and its floor (a LatentMDM step,
batch 24).
"""

POLICIES = ("average", "minimum", "first", "left_to_right", "random")
KS = (1, 2, 4)


@dataclass(frozen=True)
class Cell:
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
) -> list[Cell]:
    """All cells; the others are compared with the first. Runs go to `folder`."""
    if job.task is None or job.samples not in (None, 1):
        raise ValueError("the comparison is by problem: give a task, and one sample for each")
    cells: list[Cell] = []
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
            Cell(
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


def print_cells(cells: Sequence[Cell]) -> None:
    """The paper's table, a column for each k, with intervals; below it the paired differences."""
    console = Console()
    ks = list(dict.fromkeys(cell.k for cell in cells))
    at = {(cell.policy, cell.k): cell for cell in cells}
    best = f"{cells[0].policy}, k = {cells[0].k}"
    for title, text in (
        (f"accuracy, {cells[0].passed.n} problems", lambda cell: _percent(cell.passed)),
        (f"difference from {best}, paired", lambda cell: _percent(cell.difference, sign="+")),
        ("latent calls per sample", lambda cell: f"{cell.forwards:.1f}"),
    ):
        console.print(f"\n{title}:\n")
        table = Table(box=MARKDOWN)
        for head in ("policy", *(f"k = {k}" for k in ks)):
            table.add_column(head, no_wrap=True)
        for policy in dict.fromkeys(cell.policy for cell in cells):
            table.add_row(policy, *(text(at[policy, k]) for k in ks))
        console.print(table)


def _percent(score: Interval | None, sign: str = "") -> str:
    if score is None:
        return "-"
    low, middle, high = (
        f"{100 * value:{sign}.1f}" for value in (score.low, score.estimate, score.high)
    )
    return f"{middle} [{low}, {high}]"


def main() -> None:
    parser = argparse.ArgumentParser(description="Policies and k of a LatentMDM, by execution.")
    parser.add_argument("model", nargs="?", default="latentmdm")
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--out", type=Path, help="where the runs stay; unset: nowhere")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    job = SampleJob(
        arguments.model,
        task="stories",
        limit=arguments.problems,
        seed=arguments.seed,
        batch=arguments.batch,
    )
    with tempfile.TemporaryDirectory() as folder:
        out = arguments.out or Path(folder)
        cells = compare_policies(job, out, progress=not arguments.json)
    if arguments.json:
        print(json.dumps([cell.to_record() for cell in cells]))
    else:
        print_cells(cells)


if __name__ == "__main__":
    main()
