"""LatentMDM's tail rules stop and first against ar: time, calls and solved problems, interleaved.

    python benchmarks/latentmdm_tail.py --problems 200
    python benchmarks/latentmdm_tail.py runs/ar runs/latentmdm --task trails
    python benchmarks/latentmdm_tail.py --policy left_to_right random --temperature 1

The models are the shipped ones, or an ar and a latentmdm that are named; the task is the one of the
latentmdm's corpus, or one that is named. Every way decodes the same held-out problems, one problem
at a time (batch 1), greedily unless a temperature is given, in one thread of one process. The order
of the ways is shuffled for each problem, so that noise on the machine hits all alike. Programs are
run in the sandbox after the timed part. Times are medians of CPU time over problems; the share of
ar's time is the ratio of these medians. Intervals are over problems (95 %, bootstrap), problems
drawn together for both sides.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import torch

import anyorder
from anyorder.bench.checks import PASSED
from anyorder.bench.grade import Item, grade
from anyorder.bench.sandbox import Limits
from anyorder.bench.tasks import Problem, Task, find_task
from anyorder.data.keyed import Permutation
from anyorder.measure.extract import extract
from anyorder.measure.intervals import Interval, bootstrap, difference_interval, rate_interval
from anyorder.model import Model
from anyorder.trace import Trace
from tables import show

DOMINATES = """
Calls of small networks on one row dominate, and most of such a call is overhead: ar makes one for
each token, latentmdm one of the latent network for each step and a few of the decoder for its
candidates. The floor of the latent calls at k = 1 is one for each line and one for the end, about
seven. With the tail rule stop, average first reveals the empty slots that it is sure of, from any
side: nearly a call for each of the 12 slots. With first, the leftmost of them closes the others at
once. That comes to about nine calls, because the model is sure of the end only after some lines: it
first takes a slot behind the end, and the end itself later.
"""


@dataclass
class Way:
    """A model with options, and what came of each problem."""

    name: str
    model: Model
    options: dict[str, Any]
    base: Way | None = None
    """The way that its solved problems are compared with."""
    seconds: list[float] = field(default_factory=list)
    """CPU time."""
    traces: list[Trace] = field(default_factory=list)
    solved: list[float] = field(default_factory=list)

    def decode(self, prompt: str, seed: int) -> tuple[Trace, float]:
        """The trace of one problem, and the CPU time of decoding it."""
        requests, options = self.model.prepare(prompt, **self.options)
        before = time.process_time()
        [trace] = self.model.decode(requests, options, seed)
        return trace, time.process_time() - before

    def line(self, ar: Way) -> list[str]:
        share = bootstrap(
            lambda own, its: np.median(own, axis=-1) / np.median(its, axis=-1),
            [self.seconds, ar.seconds],
        )
        calls = np.mean([float(trace.forwards or 0) for trace in self.traces])
        gained = "" if self.base is None else percent(self.gained(self.base), "+")
        return [
            self.name,
            f"{calls:.1f}",
            f"{1000 * np.median(self.seconds):.0f}",
            f"{share.estimate:.2f} ({share.low:.2f} to {share.high:.2f})",
            percent(rate_interval(self.solved)),
            gained,
        ]

    def gained(self, base: Way) -> Interval:
        return difference_interval(self.solved, base.solved)


def percent(share: Interval, sign: str = "") -> str:
    low, middle, high = (
        f"{100 * value:{sign}.1f}" for value in (share.low, share.estimate, share.high)
    )
    return f"{middle} ({low} to {high})"


def ways_of(ar: Model, latent: Model, given: argparse.Namespace) -> list[Way]:
    """ar first; every other tail is compared with the first one of its policy and k."""
    drawing = {"temperature": given.temperature}
    ways = [Way("ar", ar, drawing)]
    for policy, k in product(given.policy, given.k):
        base = None
        for tail in given.tail:
            options = drawing | {"policy": policy, "k": k, "tail": tail}
            ways.append(Way(f"{policy}, k = {k}, {tail}", latent, options, base))
            base = base or ways[-1]
    return ways


def run(ways: Sequence[Way], task: Task, problems: Sequence[Problem], seed: int) -> None:
    """Decode every problem in every way, then judge the programs."""
    for way in ways:  # kernels and caches are set up once, and the first would pay for all
        way.decode(problems[0].prompt, seed)
    for number, problem in enumerate(problems):
        shuffled = Permutation(len(ways), "tail", seed, number)
        for place in range(len(ways)):
            way = ways[shuffled(place)]
            trace, seconds = way.decode(problem.prompt, seed)
            way.traces.append(trace)
            way.seconds.append(seconds)
    judge(ways, task, problems)


def judge(ways: Sequence[Way], task: Task, problems: Sequence[Problem]) -> None:
    items = []
    for row, way in enumerate(ways):
        for number, (problem, trace) in enumerate(zip(problems, way.traces, strict=True)):
            found = extract(
                trace.text,
                mode=task.extraction,
                entry_point=problem.entry_point,
                prefix=problem.prefix,
            )
            items.append(Item((row, number), found, problem.checks, problem.prologue))
    solved = np.zeros((len(ways), len(problems)))
    for verdict in grade(items, workers=1, limits=Limits(cpu_seconds=5.0)):
        solved[verdict.key] = verdict.verdict == PASSED
    for way, row in zip(ways, solved, strict=True):
        way.solved = row.tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description="The tail rules of a LatentMDM, beside an ar.")
    parser.add_argument("ar", nargs="?", default="ar")
    parser.add_argument("latentmdm", nargs="?", default="latentmdm")
    parser.add_argument("--task", help="unset: that of the latentmdm's corpus")
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--policy", nargs="+", default=["average"])
    parser.add_argument("--k", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--tail", nargs="+", default=["stop", "first"])
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    ar, latent = anyorder.load(given.ar), anyorder.load(given.latentmdm)
    name = given.task or latent.trained_on["source"]
    task = find_task(name, latent.trained_on)
    problems = task.problems(given.problems)
    ways = ways_of(ar, latent, given)
    run(ways, task, problems, given.seed)
    head = ["", "calls", "CPU ms", "share of ar's time", "solved, %", "against its first tail"]
    title = f"{latent.name} and {ar.name}, {name}, {len(problems)} held-out problems"
    show(title, head, [way.line(ways[0]) for way in ways])


if __name__ == "__main__":
    main()
