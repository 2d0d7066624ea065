"""Models on trails: which anchors they solve in which order of writing, and what layout costs.

    python benchmarks/trails_policies.py trails/latentmdm trails/mdm --out runs/trails
    python benchmarks/trails_policies.py studies/trails/models/block-s0 --conditions free

Every model decodes the same held-out problems under each policy and condition (docs/trails.md),
greedily and with the same seed, so that only the order differs. A model that writes blocks does so
for each block size of `--blocks`. Each cell has its own run folder: with `--out`, repeat an
interrupted command to continue it. Programs are executed in the sandbox. Intervals are at 95 %,
over problems. `difference` is from the first policy of the same model and block size, in the last
tables from the first block size or condition, all paired by problem (measure/intervals.py). tau:
the order of the lines to their places and to their distance from the anchor (docs/order.md).
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
from anyorder.model import Model
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
CANVAS = "canvas"
"""The block size of one block for all slots."""
BLOCKS = ("1", "4", "16", CANVAS)


@dataclass(frozen=True)
class Way:
    """How a model decodes."""

    policy: str | None = None
    """None: the family has no choice."""
    block: str | None = None
    """Slots of a block, or canvas; None: the family has no blocks."""

    def options(self, model: Model) -> dict[str, Any]:
        slots = model.card.max_new_tokens if self.block == CANVAS else self.block
        chosen = {"policy": self.policy, "block": slots and int(slots)}
        return {name: value for name, value in chosen.items() if value is not None}

    def words(self) -> list[str]:
        return [self.policy or "own", *([f"block-{self.block}"] if self.block else [])]


@dataclass(frozen=True)
class Cell:
    """One model under one policy, block size and condition."""

    model: str
    policy: str
    block: str
    condition: str
    passed: dict[str, float]
    """By problem: 1 if its program passed, else 0."""
    facts: Mapping[str, Mapping[str, Any]]
    taus: dict[str, tuple[float, float]]
    """By anchor: the tau of the lines to their places, and to their distance from the anchor."""
    forwards: float

    def rates(self) -> list[str]:
        """In percent, over all problems and by anchor."""
        found = by_anchor(self.passed, self.facts)
        parts = [self.passed, *(found.get(anchor, {}) for anchor in ANCHORS)]
        return [_percent(rate_interval(list(part.values()))) if part else "" for part in parts]

    def orders(self) -> list[str]:
        return [
            f"{order:+.2f} / {outwards:+.2f}"
            for order, outwards in (self.taus.get(anchor, (nan, nan)) for anchor in ANCHORS)
        ]

    def less(self, other: Cell, anchor: str | None = None) -> str:
        """The paired difference; problems have the same numbers in all conditions."""
        mine, theirs = (_by_number(cell, anchor) for cell in (self, other))
        pairs = [(value, theirs[number]) for number, value in mine.items()]
        if not pairs:
            return ""
        return _percent(difference_interval(*zip(*pairs, strict=True)), sign="+")


def _by_number(cell: Cell, anchor: str | None) -> dict[str, float]:
    chosen = cell.passed if anchor is None else by_anchor(cell.passed, cell.facts).get(anchor, {})
    return {task_id.rpartition("/")[2]: value for task_id, value in chosen.items()}


def ways_of(model: Model, blocks: Sequence[str]) -> list[Way]:
    """The adaptive policy first. Blocks of one slot leave a policy nothing to choose."""
    about = describe(model.family.name)
    if about.order != "chosen":
        return [Way()]
    policies = [ADAPTIVE[about.items], *FIXED]
    if not hasattr(model.config, "block_size"):
        return [Way(policy) for policy in policies]
    return [Way(each, size) for size in blocks for each in policies[: 1 if size == "1" else None]]


def compute(job: SampleJob, condition: str, way: Way) -> Cell:
    """Sample, grade and measure one cell."""
    model = load(job.model)
    options = way.options(model)
    run = sample_to_run(job, options, command=command("sample", job, options))
    graded = grade_run(run.folder, GradeJob())
    cells: dict[str, AnchorCell] = {}
    if describe(model.family.name).order != "at_once":
        # At most one unit: segments where a model writes these, else lines.
        cells = next(iter(order(run, "exact", seeds=range(2)).anchors.values()), {})
    return Cell(
        model=job.model,
        policy=way.policy or "its own",
        block=way.block or "",
        condition=condition,
        passed={row.task_id: float(row.verdict == PASSED) for row in graded.reports[0].rows},
        facts=run.card.facts,
        taus={
            name: (cell.order.tau.estimate, cell.outwards.tau.estimate)
            for name, cell in cells.items()
        },
        forwards=float(run.table(["forwards"]).column("forwards").to_numpy().mean()),
    )


def compare(asked: argparse.Namespace, folder: Path) -> list[Cell]:
    """All cells; runs go to `folder`."""
    cells = []
    for model in asked.models:
        for way in ways_of(load(model), asked.blocks):
            for condition in asked.conditions:
                name = "-".join([Path(model).name, *way.words(), condition.replace(", ", "-")])
                job = SampleJob(
                    model,
                    task=CONDITIONS[condition],
                    limit=asked.problems,
                    batch=asked.batch,
                    out=folder / name,
                )
                cells.append(compute(job, condition, way))
    return cells


def print_cells(cells: Sequence[Cell]) -> None:
    """A table for each condition, and what block sizes and conditions change."""
    conditions = list(dict.fromkeys(cell.condition for cell in cells))
    blocks = ["block"] if any(cell.block for cell in cells) else []
    for condition in conditions:
        rows = []
        for cell in (each for each in cells if each.condition == condition):
            first = _first(cells, cell, "model", "block", "condition")
            taus = cell.orders() if cell.taus else [""] * len(ANCHORS)
            difference = "" if first is cell else cell.less(first)
            about = [cell.model, *(cell.block for _ in blocks), cell.policy, *cell.rates()]
            rows.append([*about, difference, *taus, f"{cell.forwards:.1f}"])
        heads = [f"tau {anchor}" for anchor in ANCHORS]
        show(
            f"condition {condition}, {len(cells[0].passed)} problems (tau: to the place, outwards)",
            ["model", *blocks, "policy", "all", *ANCHORS, "difference", *heads, "calls"],
            rows,
        )
    # Blocks of one slot have one policy only, so all others are compared with that one.
    print_changes(cells, "block", ["model", "policy", "condition"], ["model", "condition"])
    about = ["model", "policy", *blocks]
    print_changes(cells, "condition", about, about)


def print_changes(
    cells: Sequence[Cell], what: str, about: Sequence[str], same: Sequence[str]
) -> None:
    """Differences from the first cell that agrees in `same`, where it has another `what`."""
    rows = []
    for cell in cells:
        first = _first(cells, cell, *same)
        if getattr(first, what) != getattr(cell, what):
            costs = [cell.less(first, anchor) for anchor in (None, *ANCHORS)]
            rows.append([*(getattr(cell, name) for name in (*about, what)), *costs])
    if rows:
        name = getattr(cells[0], what)
        show(
            f"difference from the {what} {name}, paired",
            [*about, what, "all", *ANCHORS],
            rows,
        )


def _first(cells: Sequence[Cell], cell: Cell, *names: str) -> Cell:
    return next(each for each in cells if _same(each, cell, *names))


def _same(one: Cell, other: Cell, *names: str) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _percent(score: Interval, sign: str = "") -> str:
    low, middle, high = (
        f"{100 * value:{sign}.1f}" for value in (score.low, score.estimate, score.high)
    )
    return f"{middle} [{low}, {high}]"


def block_size(words: str) -> str:
    """A number of slots, or canvas."""
    if words != CANVAS and not (words.isdecimal() and int(words)):
        raise argparse.ArgumentTypeError(f"{words}: give a number from 1 on, or {CANVAS}")
    return words


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", help="shipped models or folders, trained on a mixture")
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--conditions", nargs="+", choices=CONDITIONS, default=["free", "strict"])
    parser.add_argument("--blocks", nargs="+", type=block_size, default=BLOCKS, metavar="SLOTS")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", type=Path, help="where the runs stay; unset: nowhere")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        print_cells(compare(given, given.out or Path(folder)))


if __name__ == "__main__":
    main()
