"""Models on trails: which anchors they solve in which order of writing, and what layout costs.

    python benchmarks/trails_policies.py trails/latentmdm trails/mdm --out runs/trails

Every model decodes the same held-out problems under each policy and condition (docs/trails.md),
greedily and with the same seed, so that only the order differs. Each cell has its own run folder:
with `--out`, repeat an interrupted command to continue it. Programs are executed in the sandbox.
Intervals are at 95 %, over problems. `difference` is from the first policy of the same model, and
in the last table from the first condition, both paired by problem (measure/intervals.py). tau: the
order of the lines to their places and to their distance from the anchor (docs/order.md).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import torch

from anyorder import load
from anyorder.apps.grade import grade_run
from anyorder.apps.jobs import GradeJob, SampleJob
from anyorder.apps.report import command
from anyorder.apps.sample import sample_to_run
from anyorder.bench.checks import PASSED
from anyorder.families.descriptions import describe
from anyorder.measure.intervals import Interval, difference_interval, rate_interval
from anyorder.measure.order_anchors import ANCHORS, by_anchor
from anyorder.measure.order_scores import order
from anyorder.measure.order_table import AnchorCell
from tables import show

DOMINATES = """
Sampling takes most of the time: a call of the network for each token or line, on short rows. The
sandbox runs each program eight times.
"""

CONDITIONS = {
    "free": "trails",
    "strict": "trails:strict",
    "stated": "trails:stated",
    "told": "trails:told",
    "strict, told": "trails:strict,told",
}
FIXED = ("left_to_right", "right_to_left", "random")
ADAPTIVE = {"tokens": "confidence", "segments": "average"}


@dataclass(frozen=True)
class Cell:
    """One model under one policy and condition."""

    model: str
    policy: str
    condition: str
    passed: dict[str, float]
    """By problem: 1 if its program passed, else 0."""
    facts: Mapping[str, Mapping[str, Any]]
    taus: dict[str, tuple[float, float]]
    """By anchor: the tau of the lines to their places, and to their distance from the anchor."""
    forwards: float

    def rates(self) -> list[str]:
        """In percent, over all problems and by anchor."""
        parts = [self.passed, *by_anchor(self.passed, self.facts).values()]
        return [_percent(rate_interval(list(part.values()))) for part in parts]

    def orders(self) -> list[str]:
        return [
            f"{order:+.2f} / {outwards:+.2f}"
            for order, outwards in (self.taus.get(anchor, (nan, nan)) for anchor in ANCHORS)
        ]

    def less(self, other: Cell, anchor: str | None = None) -> str:
        """The paired difference; problems have the same numbers in all conditions."""
        mine, theirs = (_by_number(cell, anchor) for cell in (self, other))
        pairs = [(value, theirs[number]) for number, value in mine.items()]
        return _percent(difference_interval(*zip(*pairs, strict=True)), sign="+")


def _by_number(cell: Cell, anchor: str | None) -> dict[str, float]:
    chosen = cell.passed if anchor is None else by_anchor(cell.passed, cell.facts)[anchor]
    return {task_id.rpartition("/")[2]: value for task_id, value in chosen.items()}


def policies_of(model: str) -> list[str | None]:
    """The adaptive policy first; None: the family has no choice."""
    about = describe(load(model).family.name)
    if about.order != "chosen":
        return [None]
    return [ADAPTIVE[about.items], *FIXED]


def compute(job: SampleJob, condition: str, policy: str | None) -> Cell:
    """Sample, grade and measure one cell."""
    options = {} if policy is None else {"policy": policy}
    run = sample_to_run(job, options, command=command("sample", job, options))
    graded = grade_run(run.folder, GradeJob())
    cells: dict[str, AnchorCell] = {}
    if describe(load(job.model).family.name).order != "at_once":
        # At most one unit: segments where a model writes these, else lines.
        cells = next(iter(order(run, "exact", seeds=range(2)).anchors.values()), {})
    return Cell(
        model=job.model,
        policy=policy or "its own",
        condition=condition,
        passed={row.task_id: float(row.verdict == PASSED) for row in graded.reports[0].rows},
        facts=run.card.facts,
        taus={
            name: (cell.order.tau.estimate, cell.outwards.tau.estimate)
            for name, cell in cells.items()
        },
        forwards=float(run.table(["forwards"]).column("forwards").to_numpy().mean()),
    )


def compare(
    models: Sequence[str], conditions: Sequence[str], folder: Path, problems: int, batch: int
) -> list[Cell]:
    """All cells; runs go to `folder`."""
    cells = []
    for model in models:
        for policy in policies_of(model):
            for condition in conditions:
                name = "-".join([Path(model).name, policy or "own", condition.replace(", ", "-")])
                job = SampleJob(
                    model,
                    task=CONDITIONS[condition],
                    limit=problems,
                    batch=batch,
                    out=folder / name,
                )
                cells.append(compute(job, condition, policy))
    return cells


def print_cells(cells: Sequence[Cell]) -> None:
    """A table for each condition, and one of what the conditions cost."""
    conditions = list(dict.fromkeys(cell.condition for cell in cells))
    for condition in conditions:
        rows = []
        for cell in (each for each in cells if each.condition == condition):
            first = next(each for each in cells if _same(each, cell, "model", "condition"))
            taus = cell.orders() if cell.taus else [""] * len(ANCHORS)
            difference = "" if first is cell else cell.less(first)
            about = [cell.model, cell.policy, *cell.rates(), difference]
            rows.append([*about, *taus, f"{cell.forwards:.1f}"])
        heads = [f"tau {anchor}" for anchor in ANCHORS]
        show(
            f"condition {condition}, {len(cells[0].passed)} problems (tau: to the place, outwards)",
            ["model", "policy", "all", *ANCHORS, "difference", *heads, "calls"],
            rows,
        )
    rows = []
    for cell in (each for each in cells if each.condition != conditions[0]):
        first = next(each for each in cells if _same(each, cell, "model", "policy"))
        costs = [cell.less(first, anchor) for anchor in (None, *ANCHORS)]
        rows.append([cell.model, cell.policy, cell.condition, *costs])
    if rows:
        show(
            f"difference from the condition {conditions[0]}, paired",
            ["model", "policy", "condition", "all", *ANCHORS],
            rows,
        )


def _same(one: Cell, other: Cell, *names: str) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _percent(score: Interval, sign: str = "") -> str:
    low, middle, high = (
        f"{100 * value:{sign}.1f}" for value in (score.low, score.estimate, score.high)
    )
    return f"{middle} [{low}, {high}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", help="shipped models or folders, trained on a mixture")
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--conditions", nargs="+", choices=CONDITIONS, default=["free", "strict"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", type=Path, help="where the runs stay; unset: nowhere")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        out = given.out or Path(folder)
        print_cells(compare(given.models, given.conditions, out, given.problems, given.batch))


if __name__ == "__main__":
    main()
