"""The ask-again corrector: held-out problems before and after, broken programs, pass@16, diversity.

    python benchmarks/correct.py                                   the shipped flexmdm
    python benchmarks/correct.py flexmdm studies/tiny/models/flexmdm-layout1-s1 --first 3000
    python benchmarks/correct.py flexlatent --first 3000
    python benchmarks/correct.py trails/flexmdm trails/flexlatent --first 3000 --problems 300
    python benchmarks/correct.py trails/flexmdm trails/mdm --several 16 --problems 60

Problems are those of the model's corpus. The same decoded texts are graded before and after at most
--rounds corrections (programs run in the sandbox). Thresholds were chosen on stories 0 to 199;
other problems confirm them. A model without a corrector (mdm) has one row, for comparison.
`repaired` were wrong before, `broken` were right; intervals are at 95 %, over problems, by
bootstrap. CPU is time of this process, a sample. --several draws several samples of each problem at
temperature 1: their pass@1 and pass@n, and the shares of distinct texts and trees among the right
samples of a problem.
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
from anyorder.decode.canvas import Decoded
from anyorder.families.flexlatent.correct import correct_segments
from anyorder.families.flexmdm.correct import correct_tokens
from anyorder.measure.extract import extract
from anyorder.measure.intervals import Interval, difference_interval, rate_interval
from anyorder.measure.passk import pass_at_k
from anyorder.measure.programs import Programs, ProgramSample
from anyorder.measure.similarity_scores import diversity
from anyorder.model import Model
from anyorder.process.noise import key_of
from tables import show

DOMINATES = """
Calls of the network dominate. A text of n tokens is asked on 2n + 2 canvases: each token masked,
each deleted, the whole at two clocks; a few more follow for what may be deleted. That is about what
decoding takes (some 78 calls of a shorter canvas), and each change costs as much again. The floor
of a canvas is that of a decoding step (hot_paths).
"""

BATCH = 32
CORRECTORS: dict[str, Any] = {"flexmdm": correct_tokens, "flexlatent": correct_segments}


@dataclass(frozen=True)
class Texts:
    """The texts of all samples, problem by problem, and what became of them."""

    name: str
    programs: Programs
    right: np.ndarray[Any, np.dtype[np.float64]]  # problems, samples
    seconds: float
    """CPU time of a sample."""
    calls: float


def decoded(model: Model, problems: Sequence[Problem], job: Any) -> list[Texts]:
    """The samples as decoded and, where the family has a corrector, the same ones corrected."""
    corrector = CORRECTORS.get(model.family.name)
    clock = {"clock": "events"} if corrector else {}
    options = model.choose(clock | {"temperature": 1.0 if job.several else 0.0}, [])
    wanted = [(problem, sample) for problem in problems for sample in range(job.several or 1)]
    names = ["before", f"after, {job.rounds} rounds"] if corrector else ["as decoded"]
    rows: list[list[Decoded]] = [[] for _ in names]
    spent = [0.0 for _ in names]
    for start in range(0, len(wanted), BATCH):
        part = wanted[start : start + BATCH]
        keys = [key_of(job.seed, problem.prompt, sample) for problem, sample in part]
        canvases = [model.canvas(problem.prompt) for problem, _ in part]
        given = (model.net, model.vocab, canvases)
        began = time.process_time()
        made = [model.family.decode(*given, keys, options)]
        spent[0] += time.process_time() - began
        if corrector:
            with torch.inference_mode():
                made.append(corrector(*given, made[0], job.rounds))
            spent[1] += time.process_time() - began
        for found, part_of in zip(rows, made, strict=True):
            found.extend(part_of)
    return [
        judged(model, name, problems, wanted, found, seconds / len(wanted))
        for name, found, seconds in zip(names, rows, spent, strict=True)
    ]


def judged(
    model: Model,
    name: str,
    problems: Sequence[Problem],
    wanted: Sequence[tuple[Problem, int]],
    rows: Sequence[Decoded],
    seconds: float,
) -> Texts:
    items, samples = [], []
    for number, ((problem, sample), row) in enumerate(zip(wanted, rows, strict=True)):
        text = model.vocab.decode(row.token_ids)
        program = extract(text, mode="function", entry_point=problem.entry_point)
        items.append(Item(number, program, problem.checks, problem.prologue))
        samples.append(ProgramSample(problem.task_id, sample, program or text, program is not None))
    right = np.zeros(len(items))
    for verdict in grade(items, workers=1, limits=Limits(cpu_seconds=5.0)):
        right[verdict.key] = verdict.verdict == PASSED
    graded = [
        sample._replace(correct=bool(passed)) for sample, passed in zip(samples, right, strict=True)
    ]
    calls = sum(row.forwards for row in rows) / len(rows)
    shape = (len(problems), len(items) // len(problems))
    return Texts(name, Programs(name, tuple(graded)), right.reshape(shape), seconds, calls)


def spelled(interval: Interval, scale: float = 100.0) -> str:
    values = (interval.estimate, interval.low, interval.high)
    estimate, low, high = (f"{scale * value:.1f}" for value in values)
    return f"{estimate} ({low} to {high})"


def greedy(name: str, found: Sequence[Texts]) -> list[list[str]]:
    lines = []
    one = found[0].right[:, 0]
    for texts in found:
        about = ["", "", ""]
        if texts is not found[0]:
            two = texts.right[:, 0]
            repaired, broken = ((one == 0) & (two == 1)).sum(), ((one == 1) & (two == 0)).sum()
            about = [
                spelled(difference_interval(two, one)),
                f"{repaired} of {int((one == 0).sum())}",
                f"{broken} of {int(one.sum())}",
            ]
        cost = [f"{texts.calls:.0f}", f"{1000 * texts.seconds:.0f}"]
        rate = spelled(rate_interval(texts.right[:, 0]))
        lines.append([f"{name}, {texts.name}", rate, *about, *cost])
    return lines


def several(name: str, found: Sequence[Texts]) -> list[list[str]]:
    lines = []
    spread = diversity({texts.name: texts.programs for texts in found})
    rows = {row.policy: row for row in spread.rows if row.filter == "correct"}
    for texts in found:
        count = texts.right.shape[1]
        passed = [pass_at_k(count, int(right), count) for right in texts.right.sum(axis=1)]
        row = rows[texts.name]
        first = spelled(rate_interval(texts.right.mean(axis=1)))
        kinds = [spelled(row.distinct[kind]) for kind in ("texts", "trees")]
        lines.append([f"{name}, {texts.name}", first, spelled(rate_interval(passed)), *kinds])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="The ask-again corrector on held-out problems.")
    parser.add_argument("models", nargs="*", default=["flexmdm"])
    parser.add_argument("--first", type=int, default=0, help="the number of the first problem")
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--several", type=int, default=0, help="samples of a problem, drawn")
    parser.add_argument("--seed", type=int, default=0)
    job = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for name in job.models:
        model = anyorder.load(name)
        task = find_task(model.trained_on["source"], model.trained_on)
        problems = [task.problem_at(job.first + number) for number in range(job.problems)]
        found = decoded(model, problems, job)
        short = name.rsplit("/", 1)[-1]
        lines += several(short, found) if job.several else greedy(short, found)
    title = f"held-out problems {job.first} to {job.first + job.problems - 1}"
    if job.several:
        head = ["", "pass@1, %", f"pass@{job.several}, %", "distinct texts, %", "trees, %"]
        show(f"{title}, {job.several} samples at temperature 1", head, lines)
    else:
        head = ["", "solved, %", "gain", "repaired", "broken", "calls", "CPU ms"]
        show(f"{title}, greedy", head, lines)


if __name__ == "__main__":
    main()
