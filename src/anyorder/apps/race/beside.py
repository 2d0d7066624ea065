"""Two measurements beside a race: the likelihood of held-out texts, and infilling. Not timed.

**Likelihood**, in nats per answer (families/likelihood.py), over the same texts for every entrant:
the task's problems with their solutions. Every text is evaluated with DRAWS stratified draws; the
interval is over texts, so it covers both the texts and the noise of the draws.

**Infilling.** The middle third of a correct program's lines, rounded up, is hidden; the model fills
it at temperature 0, and the program must pass its checks again. How much a family knows of the gap
depends on its canvas (apps/infilling.py); the tables say it. ar does not see the text to the right
of a gap, so it has no number. A text or program that some entrant cannot hold is left out for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from anyorder.apps.infilling import mark_of, told_of_gaps
from anyorder.apps.jobs import RaceJob
from anyorder.apps.train import batch_config
from anyorder.bench.checks import PASSED
from anyorder.bench.grade import Item, Verdict, grade
from anyorder.bench.sandbox import Limits
from anyorder.bench.tasks import Problem, Task
from anyorder.data.batches import Example, collate, tokenise
from anyorder.data.segments import SegmentConfig
from anyorder.decode.canvas import ANSWER
from anyorder.families.likelihood import likelihood_of, nats_per_answer
from anyorder.measure.intervals import Interval, mean_interval, rate_interval
from anyorder.model import Model
from anyorder.process.noise import Noise

DRAWS = 16
"""Draws for each text; an exact likelihood needs one."""
SEED = 0x11CE11
"""The seed of the draws, apart from the race's, so that races with other seeds compare."""
NONE = "none: its loss bounds no likelihood"
NO_TEXT = "none: no held-out text that all can hold"
NO_CUT = "none: its config.json does not say how its answers were cut"


@dataclass(frozen=True)
class Nats:
    """The likelihood that an entrant gives the texts."""

    name: str
    """Whether the number is exact, or which bound it is."""
    exact: bool
    interval: Interval | None
    """Mean nats per answer, over texts; None: the family has no likelihood."""

    def to_record(self) -> dict[str, Any]:
        mean = None if self.interval is None else self.interval.to_record()
        return {"name": self.name, "exact": self.exact, "nats_per_answer": mean}


def usable_texts(models: Sequence[Model], problems: Sequence[Problem]) -> list[Problem]:
    """The problems whose solution fits every model for which this can be checked."""
    known = [model for model in models if _cuts(model)]
    solved = [problem for problem in problems if problem.solution is not None]
    return [problem for problem in solved if all(_holds(model, problem) for model in known)]


def nats_of(
    model: Model, problems: Sequence[Problem], advance: Callable[[int], None] = lambda count: None
) -> Nats:
    """Mean nats per answer of these problems' solutions."""
    likelihood = likelihood_of(model.family.name)
    if likelihood is None or not _cuts(model):
        advance(len(problems))
        return Nats(NONE if likelihood is None else NO_CUT, False, None)
    draws = 1 if likelihood.exact else DRAWS
    frame, canvas = model.family.frame(model.config, model.vocab), model.card.max_new_tokens
    align = model.trained_on.get("align", "left")
    config = batch_config(model.family, frame, canvas, align, segments=_segments(model))
    found = []
    for number, problem in enumerate(problems):
        example = _example(model, problem)
        rows = [replace(example, index=number * draws + draw) for draw in range(draws)]
        batch = collate(rows, model.vocab, config).to(model.device)
        noise = Noise(SEED, number)
        try:
            found.append(nats_per_answer(likelihood, model.net, model.vocab, batch, noise))
        except ValueError as error:  # not finite: reported, so that the finished race is not lost
            advance(len(problems) - number)
            return Nats(f"none: {problem.task_id}: {error}", False, None)
        advance(1)
    return Nats(likelihood.name, likelihood.exact, mean_interval(found))


def _cuts(model: Model) -> bool:
    """Whether the config says how answers are cut into segments, if the family needs that."""
    return not model.family.counts_segments or "segments" in model.card.recipe


def _segments(model: Model) -> SegmentConfig | None:
    if not model.family.counts_segments:
        return None
    return SegmentConfig(**model.card.recipe["segments"])


def _example(model: Model, problem: Problem) -> Example:
    assert problem.solution is not None
    begun = bool(model.family.frame(model.config, model.vocab)[0])
    return tokenise(
        problem.prompt, problem.solution, 0, model.vocab, begun=begun, segments=_segments(model)
    )


def _holds(model: Model, problem: Problem) -> bool:
    """Whether the model could have been trained on this text."""
    try:
        example = _example(model, problem)
    except ValueError:  # its vocabulary cannot spell the text, or its segments cannot hold it
        return False
    length = len(example.prompt) + len(example.answer) + 1
    longest = model.card.max_length
    return (
        not example.truncated
        and len(example.answer) < model.card.max_new_tokens
        and (longest is None or length <= longest)
    )


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
    """The unit in which the family knew the gap's length: tokens, lines or nothing."""
    rate: Interval
    programs: tuple[tuple[str, str, str], ...]
    """(task id, the program, its verdict)"""

    def to_record(self) -> dict[str, Any]:
        names = ("task_id", "program", "verdict")
        rows = [dict(zip(names, row, strict=True)) for row in self.programs]
        return {"told": self.told, "rate": self.rate.to_record(), "programs": rows}


def gaps_of(problems: Sequence[Problem]) -> list[Gap]:
    """The problems with checks and a long enough solution, each with its middle hidden."""
    found = []
    for problem in problems:
        lines = (problem.solution or "").splitlines(keepends=True)
        if len(lines) >= FEWEST_LINES and problem.checks:
            first, last = len(lines) // 3, len(lines) - len(lines) // 3
            parts = (lines[:first], lines[first:last], lines[last:])
            found.append(Gap(problem, *("".join(part) for part in parts)))
    return found


def prompt_of(model: Model, gap: Gap) -> str:
    """The problem and its program, with the mark of the gap that this model reads."""
    mark = mark_of(model, gap.hidden, gap.after, told_of_gaps(model))
    return f"{gap.problem.prompt}{ANSWER}{gap.before}{mark}{gap.after}"


def usable_gaps(fillers: Mapping[Model, dict[str, Any]], gaps: Sequence[Gap]) -> list[Gap]:
    """The gaps that fit every model with its decoding options."""
    found = []
    for gap in gaps:
        with suppress(ValueError):  # too long, or its vocabulary or segments cannot hold it
            for model, options in fillers.items():
                model.prepare(prompt_of(model, gap), **options)
            found.append(gap)
    return found


def can_grade(problem: Problem, task: Task, job: RaceJob) -> None:
    """Refuse a machine that cannot run programs safely, before the race takes its time."""
    list(_run([Item(0, "", problem.checks, problem.prologue)], task, job))


def _run(items: Sequence[Item], task: Task, job: RaceJob) -> Iterator[Verdict]:
    level = 1 if job.allow_weak_isolation else 2
    limits = Limits(**dict(task.limits))  # type: ignore[arg-type]
    return grade(items, workers=job.workers, limits=limits, minimum_level=level)


def infilled(
    model: Model, task: Task, gaps: Sequence[Gap], options: dict[str, Any], job: RaceJob
) -> Infilled:
    """Fill the gaps, and run the programs against their problems' checks."""
    prompts = [prompt_of(model, gap) for gap in gaps]
    traces = model.sample(prompts, seed=job.seed, batch=BATCH, **options)
    programs = [
        (trace.prompt + trace.text)[len(gap.problem.prompt) :]
        for gap, trace in zip(gaps, traces, strict=True)
    ]
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
