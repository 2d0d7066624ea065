"""Infilling: the middle lines of a right program are blanked, and filled so that it passes again.

Of n lines the middle third is hidden, rounded up; what stands around stays. What a family is told
of the gap depends on its canvas, and is said beside the number:

    tokens    the number of hidden tokens: a fixed canvas has no other way (mdm, duo, sflm)
    lines     the number of hidden lines (latentmdm, where a segment is a line)
    nothing   the gap finds its own length (flexmdm, flexlatent)

ar cannot look to the right of a gap, and has no number. Programs that some entrant cannot hold are
left out for all. Decoding is at temperature 0 and the family's default steps, and is not timed.
Programs run in the sandbox, as in grading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anyorder.apps.race_job import RaceJob
from anyorder.bench.grade import Item, Verdict, grade
from anyorder.bench.sandbox import Limits
from anyorder.bench.tasks import Problem, Task
from anyorder.bench.verdicts import PASSED
from anyorder.decode.fill import ANSWER
from anyorder.measure.intervals import Interval, rate_interval
from anyorder.model import Model

TOLD = {"canvas": "tokens", "bare": "nothing", "slots": "lines", "segments": "nothing"}
"""By what a family's answers are (families.py); a family that is not here cannot fill."""
FEWEST_LINES = 3
BATCH = 32


@dataclass(frozen=True)
class Gap:
    """A program with a hole."""

    problem: Problem
    before: str
    hidden: str
    after: str


@dataclass(frozen=True)
class Infilled:
    """How often a family restored a program."""

    told: str
    """What it knew of the gap's length: tokens, lines or nothing."""
    rate: Interval
    programs: tuple[tuple[str, str, str], ...]
    """(task id, the program, its verdict)"""

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        rows = [
            {"task_id": task_id, "program": program, "verdict": verdict}
            for task_id, program, verdict in self.programs
        ]
        return {"told": self.told, "rate": self.rate.to_record(), "programs": rows}


def gaps_of(problems: Sequence[Problem]) -> list[Gap]:
    """The problems that have a solution of enough lines, each with its middle hidden."""
    found = []
    for problem in problems:
        lines = (problem.solution or "").splitlines(keepends=True)
        if len(lines) >= FEWEST_LINES and problem.checks:
            first, last = len(lines) // 3, len(lines) - len(lines) // 3
            parts = (lines[:first], lines[first:last], lines[last:])
            found.append(Gap(problem, *("".join(part) for part in parts)))
    return found


def can_fill(model: Model) -> bool:
    """Whether the family can be asked at all."""
    return model.family.answers in TOLD


def told_of_gaps(model: Model) -> str:
    """What it is told of a gap: tokens, lines or nothing."""
    told = TOLD[model.family.answers]
    if told == "lines" and model.config.segment_by != "line":  # type: ignore[union-attr]
        return "nothing"  # how many statements or pieces are hidden does not follow from the lines
    return told


def prompt_of(model: Model, gap: Gap) -> str:
    """The text with its mark, as this model reads it."""
    marks: dict[str, Callable[[], str]] = {
        "tokens": lambda: f"<fill:{len(model.vocab.encode(gap.hidden))}>",
        "lines": lambda: f"<fill:{len(gap.hidden.splitlines())}>",
        "nothing": lambda: "<fill>",
    }
    mark = marks[told_of_gaps(model)]()
    return f"{gap.problem.prompt}{ANSWER}{gap.before}{mark}{gap.after}"


def usable_gaps(fillers: Mapping[Model, dict[str, Any]], gaps: Sequence[Gap]) -> list[Gap]:
    """The gaps that every model can be asked to fill, with its decoding options."""
    return [
        gap
        for gap in gaps
        if all(_holds(model, gap, options) for model, options in fillers.items())
    ]


def _holds(model: Model, gap: Gap, options: dict[str, Any]) -> bool:
    try:
        model.prepare(prompt_of(model, gap), **options)
    except ValueError:  # too long, or what its vocabulary or segments cannot hold
        return False
    return True


def can_grade(problem: Problem, task: Task, job: RaceJob) -> None:
    """Refuse a machine that cannot run programs safely, before anything takes its time."""
    list(_run([Item(0, "", problem.checks, problem.prologue)], task, job))


def _run(items: Sequence[Item], task: Task, job: RaceJob) -> Iterator[Verdict]:
    level = 1 if job.allow_weak_isolation else 2
    limits = Limits(**dict(task.limits))  # type: ignore[arg-type]
    return grade(items, workers=job.workers, limits=limits, minimum_level=level)


def fill_all(model: Model, gaps: Sequence[Gap], options: dict[str, Any], seed: int) -> list[str]:
    """The programs, filled."""
    prompts = [prompt_of(model, gap) for gap in gaps]
    traces = model.sample(prompts, seed=seed, batch=BATCH, **options)
    return [
        (trace.prompt + trace.text)[len(gap.problem.prompt) :]
        for gap, trace in zip(gaps, traces, strict=True)
    ]


def judged(
    model: Model, task: Task, gaps: Sequence[Gap], programs: Sequence[str], job: RaceJob
) -> Infilled:
    """Run the filled programs against their problems' checks."""
    items = [
        Item(number, program, gap.problem.checks, gap.problem.prologue)
        for number, (gap, program) in enumerate(zip(gaps, programs, strict=True))
    ]
    verdicts = {each.key: each.verdict for each in _run(items, task, job)}
    rows = tuple(
        (gap.problem.task_id, programs[number], verdicts[number]) for number, gap in enumerate(gaps)
    )
    rate = rate_interval([float(verdict == PASSED) for _, _, verdict in rows])
    return Infilled(told_of_gaps(model), rate, rows)
