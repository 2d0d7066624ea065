"""The planner of a tiny mdm: does it do what the factor rule does, and what did tuning change?

    python benchmarks/planner.py                                       both, the shipped planner
    python benchmarks/planner.py agreement runs/planner-imitated
    python benchmarks/planner.py tuning runs/planner-imitated runs/planner-tuned

`agreement`: held-out stories are corrupted as in imitation (blocks of any length and place, with
any share masked). The table has the share of slots on which the planner (u > 1/2) and the factor
rule agree, by how much of the block is masked. Intervals are over stories, by bootstrap.

`tuning`: held-out problems are decoded by the planner before tuning and, if you name it, after; by
the factor rule; and by confidence with one slot per step. All use the same problems and noise, and
programs are run in the sandbox. The table has steps and solved problems, and their differences to
the first model as paired intervals over problems (95 %, bootstrap). One thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import anyorder
from anyorder.bench.checks import PASSED
from anyorder.bench.grade import Item, grade
from anyorder.bench.sandbox import Limits
from anyorder.bench.tasks import Problem, find_task
from anyorder.data import BatchConfig, Batches, StoriesConfig, StoriesSource
from anyorder.families.mdm.loss import corrupt_block, log_confidence
from anyorder.families.mdm.planner import PlannedNet
from anyorder.measure.extract import extract
from anyorder.measure.intervals import Interval, difference_interval, mean_interval, ratio_interval
from anyorder.model import Model
from anyorder.process.masking import factor_choice
from anyorder.process.noise import Noise
from tables import show

DOMINATES = """
Calls of the network dominate: one for each level and batch in the first table, one for each step in
the second, so the number of steps is the cost. A row and step take about 3 ms. The operations of a
row at the rate of a large product take about 0.6 (hot_paths, the floor of a FlexMDM step with 24
rows of a network of about this size). So it is at some five times the floor, in batches that shrink
as rows finish.
"""

LEVELS = tuple((i + 0.5) / 8 for i in range(8))
SEED = 0x9E11
"""Names the corruption; not the one of training or of its validation."""
BATCH = 32


@torch.inference_mode()
def agreement(model: Model, stories: int, least: int) -> None:
    net, vocab = model.net, model.vocab
    if not isinstance(net, PlannedNet):
        raise ValueError(f"{model.name} has no planner: name a model of tiny/planner")
    dials = {name: model.trained_on[name] for name in ("layout", "wording", "state_layout", "seed")}
    source = StoriesSource(StoriesConfig(split="heldout", **dials))
    deal = BatchConfig(size=BATCH, canvas=model.card.max_new_tokens, bucket=1)
    batches = Batches(source, vocab, deal)
    alike = np.zeros((len(LEVELS), stories))
    judged = np.zeros((len(LEVELS), stories))
    revealed = np.zeros(len(LEVELS))
    for number in range(stories // BATCH):
        batch = batches(number)
        at = slice(number * BATCH, (number + 1) * BATCH)
        for row, level in enumerate(LEVELS):
            noise = Noise(SEED, number, level)
            masked, eligible = corrupt_block(batch.answer, batch.index, noise, least)
            canvas = batch.ids.masked_fill(masked, vocab.mask_id)
            states = net.hidden(canvas, mask=batch.real)
            target = factor_choice(log_confidence(net, states, eligible, vocab))
            odds = net.plan(states, masked=masked, eligible=eligible, mask=batch.real)
            alike[row, at] = (((odds > 0) == target) & eligible).sum(dim=1)
            judged[row, at] = eligible.sum(dim=1)
            revealed[row] += int((target & eligible).sum())
    lines = []
    for row, level in enumerate(LEVELS):
        slots = judged[row].sum()
        shares = (revealed[row] / slots, alike[row].sum() / slots)
        lines.append([f"{level:.2f}", f"{slots:,.0f}", *(f"{share:.3f}" for share in shares)])
    whole = ratio_interval(alike.sum(axis=0), judged.sum(axis=0))
    share = f"{revealed.sum() / judged.sum():.3f}"
    lines.append(["all", f"{judged.sum():,.0f}", share, spelled(whole)])
    title = f"{model.name} and the factor rule, {stories} held-out stories"
    show(title, ["masked", "slots", "rule reveals", "agree"], lines)


def spelled(interval: Interval) -> str:
    return f"{interval.estimate:.4f} ({interval.low:.4f} to {interval.high:.4f})"


@dataclass(frozen=True)
class Way:
    """One way to decode, and its results, problem by problem."""

    name: str
    steps: np.ndarray[Any, np.dtype[np.float64]]
    solved: np.ndarray[Any, np.dtype[np.float64]]
    seconds: float
    """CPU time of a sample, its grading included where it ran in this process."""

    def line(self) -> list[str]:
        intervals = (spelled(mean_interval(each)) for each in (self.steps, self.solved))
        return [self.name, *intervals, f"{1000 * self.seconds:.0f}"]

    def line_beside(self, first: Way) -> list[str]:
        pairs = ((self.steps, first.steps), (self.solved, first.solved))
        return [self.name, *(spelled(difference_interval(*pair)) for pair in pairs)]


def decode(name: str, model: Model, problems: Sequence[Problem], job: Any, **options: Any) -> Way:
    """Mean steps and share of right programs of each problem's samples."""
    started = time.process_time()
    traces = model.sample(
        [problem.prompt for problem in problems],
        samples=job.samples,
        batch=BATCH,
        seed=job.seed,
        **options,
    )
    items = []
    for number, trace in enumerate(traces):
        problem = problems[number // job.samples]
        program = extract(
            trace.text, mode="function", entry_point=problem.entry_point, prefix=problem.prefix
        )
        items.append(Item(number, program, problem.checks, problem.prologue))
    passed = np.zeros(len(items))
    for verdict in grade(items, workers=1, limits=Limits(cpu_seconds=5.0)):
        passed[verdict.key] = verdict.verdict == PASSED
    steps = np.array([float(trace.steps or 0) for trace in traces])
    shape = (len(problems), job.samples)
    return Way(
        name,
        steps.reshape(shape).mean(axis=1),
        passed.reshape(shape).mean(axis=1),
        (time.process_time() - started) / len(traces),
    )


def tuning(before: Model, after: Model | None, job: Any) -> None:
    problems = find_task("stories", before.trained_on).problems(job.problems)
    planned = {"policy": "planner", "block": job.block}
    ways = [decode("planner, imitated", before, problems, job, **planned)]
    if after is not None:
        ways.append(decode("planner, tuned", after, problems, job, **planned))
    surest = {"policy": "confidence", "block": job.block}
    ways.append(decode("factor rule", before, problems, job, quota="factor", **surest))
    if job.confidence:
        ways.append(decode("confidence, one a step", before, problems, job, **surest))
    title = f"{job.problems} held-out problems, {job.samples} samples each"
    show(title, ["", "steps", "solved", "CPU ms"], [way.line() for way in ways])
    first, *others = ways
    lines = [way.line_beside(first) for way in others]
    show("difference to the first, paired by problem", ["", "steps", "solved"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="The planner of a tiny mdm.")
    parser.add_argument("what", nargs="?", choices=["agreement", "tuning"])
    parser.add_argument("models", nargs="*", default=["planner"])
    parser.add_argument("--stories", type=int, default=256, help="agreement: held-out stories")
    parser.add_argument("--least-block", type=int, default=16)
    parser.add_argument("--problems", type=int, default=150)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--block", type=int, default=None)
    parser.add_argument("--confidence", action="store_true", help="one slot a step as well: slow")
    job = parser.parse_args()
    torch.set_num_threads(1)
    models = [anyorder.load(name) for name in job.models]
    if job.what != "tuning":
        for model in models:
            agreement(model, job.stories, job.least_block)
    if job.what != "agreement":
        before, *after = models
        tuning(before, *after or [None], job)


if __name__ == "__main__":
    main()
