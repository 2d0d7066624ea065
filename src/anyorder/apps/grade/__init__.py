"""`anyorder grade`: a run folder -> verdicts.parquet, and pass@k with intervals.

    samples -> programs (measure/extract.py) -> verdicts (bench/grade.py) -> a table in the run
    folder, written part by part -> rates and tables (results.py)

A killed command continues where it stopped; if all verdicts exist, it only reports. Several
extractions are several gradings in one table. Their union `any_of_4` is computed for a report and
never stored.

With `--shard i/n` several processes grade one run together. Each takes every n-th problem and
writes its own part files. The last process, which finds a verdict for every sample, merges the
parts and reports. A repeated command, with this n, another or none, does what is left.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from anyorder.apps.grade.results import (
    Graded,
    GradedSample,
    check_rates,
    print_graded,
    report,
    union,
)
from anyorder.apps.jobs import GradeJob, Share, progress_bar
from anyorder.bench.grade import Grading, Item, SampleKey, Verdict, VerdictTable, grade
from anyorder.bench.sandbox import Limits
from anyorder.bench.tasks import Problem, Task, find_task
from anyorder.files import COPY_IT, alone_if_free, alone_in, together_in
from anyorder.measure import published
from anyorder.measure.extract import ANY_OF_4, EXTRACTIONS, RELEASE_MODES
from anyorder.measure.passk import timing
from anyorder.trace import Run
from anyorder.trace.trace import filled_text

__all__ = ["Graded", "PartlyGraded", "grade_run", "grade_shard", "print_graded"]

SENSITIVITY = "sensitivity"

PART_ROWS, PART_SECONDS = 512, 5.0
"""A part is written at this many verdicts or seconds: the most that a kill can lose."""

GUARD_START, GUARD_SHARE = 10.0, 4.0
"""The wall-clock limit: GUARD_START + GUARD_SHARE * the limit of CPU seconds."""

REQUIRED_LEVEL, WEAK_LEVEL = 2, 1


@dataclass(frozen=True)
class GradePlan:
    """A grading job, resolved."""

    run: Run
    task: Task
    problems: dict[str, Problem]
    """The problems to grade by task id, in the task's order."""
    ungraded: dict[str, str]
    """Problems without checks: task id -> why. Their samples get no verdict."""
    unknown: int
    """Samples of problems that the task does not have."""
    keys: list[SampleKey]
    """The samples to grade, in the order of the run."""
    modes: tuple[str, ...]
    tables: dict[str, VerdictTable]
    """By extraction mode."""
    limits: Limits


def grade_run(folder: str | Path, job: GradeJob, *, progress: bool = True) -> Graded:
    """Grade a run, or the rest of it, and report."""
    run = Run.open(folder)
    with alone_in(run.folder, COPY_IT):
        plan = planned(run, job)
        if job.again:
            for table in plan.tables.values():
                table.discard_parts()
        give_verdicts(plan, job, progress)
        settle(plan)
    return reported(plan, job)


def settle(plan: GradePlan) -> None:
    """Merge the parts of every table, in the order of the run."""
    order = {key: number for number, key in enumerate(samples_of(plan.run))}
    for table in plan.tables.values():
        table.finish(order)


def planned(run: Run, job: GradeJob, *, together: bool = False) -> GradePlan:
    """The job, resolved and checked; `together`: other processes grade the same run."""
    config = run.card.config
    name = job.task or config.get("task")
    if name is None:
        raise ValueError(f"{run.folder} was not sampled from a task: name one with --task")
    # The data file and the limit of the card belong to the task that was sampled, to no other.
    same = name == config.get("task")
    data = job.data or (config.get("data") if same else None)
    task = find_task(name, config.get("trained_on") or {}, data=data)
    if same and job.data is None and run.card.data_digest not in (None, task.digest):
        print(f"the data of {task.name} is not what {run.folder} was sampled from", file=sys.stderr)
    limit = config.get("limit") if same else None
    everything = {problem.task_id: problem for problem in task.problems(limit)}
    keys = samples_of(run)
    unknown = sum(task_id not in everything for task_id, _ in keys)
    if unknown == len(keys):  # a few are only left out
        raise ValueError(
            f"{run.folder} has samples of {min(keys)[0]!r}, which {name} does not have, and none "
            "of its problems: name the right task with --task, and its file with --data"
        )
    chosen = _selected(everything, job, name)
    problems = {task_id: problem for task_id, problem in chosen.items() if problem.checks}
    keys = [key for key in keys if key[0] in problems]
    if not keys:
        raise ValueError(f"{run.folder} has no samples of these problems: choose others")
    limits = _limits(task, job)
    if problems[keys[0][0]].middle is not None and job.extraction not in (None, task.extraction):
        raise ValueError(f"{name} fills gaps, and --extraction has no effect: leave it out")
    modes = _modes(job.extraction or task.extraction)
    tables = {
        mode: VerdictTable(
            run.folder, Grading(task.name, task.digest, mode, asdict(limits)), together=together
        )
        for mode in modes
    }
    ungraded = {task_id: chosen[task_id].note for task_id in chosen if task_id not in problems}
    plan = GradePlan(run, task, problems, ungraded, unknown, keys, modes, tables, limits)
    check_rates(keys, job, _expected_samples(plan))
    return plan


def samples_of(run: Run) -> list[SampleKey]:
    return list(_columns(run, "task_id", "sample"))


def _columns(run: Run, *names: str) -> Iterator[tuple[Any, ...]]:
    """Some columns of the traces, row by row."""
    table = run.table(names)
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


def _selected(problems: dict[str, Problem], job: GradeJob, name: str) -> dict[str, Problem]:
    ids = job.ids()
    if ids is None:
        ids = list(problems)[: job.limit]
    missing = [each for each in ids if each not in problems]
    if missing:
        some = ", ".join(list(problems)[:3])
        raise ValueError(f"--only {missing[0]!r}: {name} has no such problem, but {some}, ...")
    return {each: problems[each] for each in ids}


def _limits(task: Task, job: GradeJob) -> Limits:
    """The published limits, or those of the command."""
    given: dict[str, Any] = dict(task.limits)
    if job.timeout is not None:
        given["cpu_seconds"] = job.timeout
        given.pop("wall_seconds", None)
    if job.memory is not None:
        given["memory_bytes"] = job.memory << 20
    limits = Limits(**given)
    if "wall_seconds" not in given:  # generous, because a busy machine delays programs
        limits = replace(limits, wall_seconds=GUARD_START + GUARD_SHARE * limits.cpu_seconds)
    return limits


def _modes(extraction: str) -> tuple[str, ...]:
    if extraction in (ANY_OF_4, SENSITIVITY):
        return RELEASE_MODES
    if extraction not in EXTRACTIONS:
        names = ", ".join((*EXTRACTIONS, ANY_OF_4, SENSITIVITY))
        raise ValueError(f"no extraction {extraction!r}: choose one of {names}")
    return (extraction,)


def give_verdicts(plan: GradePlan, job: GradeJob, progress: bool) -> None:
    """Grade every sample without a verdict, in all modes."""
    wanted, level = lacking(plan, job), least_level(job)
    total = len(plan.keys) * len(plan.modes)
    if len(wanted) < total and progress:
        state = f"{total - len(wanted)} of {total}" if wanted else f"all {total}"
        print(f"{plan.run.folder}: {state} verdicts exist already", file=sys.stderr)
    if not wanted:
        return
    stream = grade(
        _items(plan, set(wanted)),
        workers=job.workers,
        limits=plan.limits,
        minimum_level=level,
    )
    with progress_bar("grading", total, shown=progress) as advance, closing(stream):
        advance(total - len(wanted))
        _store(plan, stream, advance)


def lacking(plan: GradePlan, job: GradeJob) -> list[tuple[str, SampleKey]]:
    """The missing verdicts: (extraction, sample)."""
    level = least_level(job)
    done = {mode: set() if job.again else table.done(level) for mode, table in plan.tables.items()}
    return [(mode, key) for key in plan.keys for mode in plan.modes if key not in done[mode]]


def least_level(job: GradeJob) -> int:
    """The lowest sandbox level whose verdicts count."""
    return WEAK_LEVEL if job.allow_weak_isolation else REQUIRED_LEVEL


def _items(plan: GradePlan, wanted: set[tuple[str, SampleKey]]) -> Iterator[Item]:
    """The programs to judge, grouped by problem: a worker then prepares its checks once."""
    texts: dict[str, list[tuple[int, str]]] = {}
    for task_id, number, text in _texts(plan):
        texts.setdefault(task_id, []).append((number, text))
    for task_id, problem in plan.problems.items():
        for number, text in texts.pop(task_id, ()):
            for mode in plan.modes:
                key = (mode, (task_id, number))
                if key in wanted:
                    program = problem.program(text, mode)
                    yield Item(key, program, problem.checks, problem.prologue)


def _texts(plan: GradePlan) -> Iterator[tuple[str, int, str]]:
    """Task id, number and text of every sample; of gaps, only what was filled in."""
    if all(problem.middle is None for problem in plan.problems.values()):
        yield from _columns(plan.run, "task_id", "sample", "text")
        return
    columns = ("task_id", "sample", "text", "char_end", "reveal_step")
    for task_id, number, text, ends, steps in _columns(plan.run, *columns):
        yield task_id, number, filled_text(text, ends, steps)


def _store(plan: GradePlan, stream: Iterator[Verdict], advance: Callable[[int], None]) -> None:
    """Write verdicts in parts, including those that came before the stream broke off."""
    waiting: dict[str, list[Verdict]] = {mode: [] for mode in plan.modes}
    written = time.monotonic()

    def write() -> None:
        for mode, verdicts in waiting.items():
            if verdicts:
                plan.tables[mode].append(verdicts)
                verdicts.clear()

    try:
        for verdict in stream:
            advance(1)
            mode, key = verdict.key
            waiting[mode].append(replace(verdict, key=key))
            late = time.monotonic() - written > PART_SECONDS
            if late or sum(map(len, waiting.values())) >= PART_ROWS:
                write()
                written = time.monotonic()
    finally:
        write()


def _published_rates(run: Run, task: str) -> tuple[dict[str, Any], ...]:
    """The paper's rows beside a run that follows a published protocol."""
    if not run.card.config.get("preset"):
        return ()
    from anyorder.apps.measure import published_rates  # imports every measure

    return tuple(published_rates(run.card, task))


def reported(plan: GradePlan, job: GradeJob) -> Graded:
    chosen = set(plan.keys)
    position = {key: number for number, key in enumerate(plan.keys)}
    rows: dict[str, list[GradedSample]] = {}
    for mode, table in plan.tables.items():
        found = [GradedSample.of(stored) for stored in table.rows()]
        rows[mode] = sorted(
            (row for row in found if row.key in chosen), key=lambda row: position[row.key]
        )
        assert len(rows[mode]) == len(chosen), "every sample has one verdict"
    extraction = job.extraction or plan.task.extraction
    if extraction in (ANY_OF_4, SENSITIVITY):
        rows[ANY_OF_4] = union(rows)
    shown: Sequence[str] = [ANY_OF_4] if extraction == ANY_OF_4 else list(rows)
    expected = _expected_samples(plan)
    counts = Counter(task_id for task_id, _ in plan.keys)
    notes = {task_id: problem.note for task_id, problem in plan.problems.items() if problem.note}
    cost, untimed = None, ""
    try:
        cost = timing(plan.run)
    except ValueError as error:  # imported samples have no times: no reason to withhold the rates
        untimed = str(error)
    return Graded(
        run=plan.run.folder,
        task=plan.task.name,
        data_digest=plan.task.digest,
        reports=tuple(report(mode, rows[mode], job, expected, plan.problems) for mode in shown),
        missing={name: n - counts[name] for name, n in expected.items() if n > counts[name]},
        notes=notes | plan.ungraded,
        timing=cost,
        untimed=untimed,
        paper=_published_rates(plan.run, plan.task.name),
        beside=tuple(published("infilling", task=plan.task.name)),
        unknown=plan.unknown,
    )


def _expected_samples(plan: GradePlan) -> dict[str, int]:
    """The samples that each problem should have: by the run card, or the most of any problem."""
    counts = Counter(task_id for task_id, _ in plan.keys)
    most = max(plan.run.card.config.get("samples") or 0, *counts.values())
    return dict.fromkeys(plan.problems, most)


@dataclass(frozen=True)
class PartlyGraded:
    """The state of a run when a shard ends before the others."""

    run: Path
    shard: str
    verdicts: int
    of: int

    def to_record(self) -> dict[str, Any]:
        return {
            "run": str(self.run),
            "complete": False,
            "shard": self.shard,
            "verdicts_there": self.verdicts,
            "verdicts_in_all": self.of,
        }

    def __str__(self) -> str:
        return (
            f"{self.run}: shard {self.shard} is done; the run has {self.verdicts} of {self.of} "
            "verdicts. The last shard reports (or this command with --shard 0/1)"
        )


def grade_shard(
    folder: str | Path, job: GradeJob, share: Share, *, progress: bool = True
) -> Graded | PartlyGraded:
    """Grade a share of the problems, and report if no verdict is missing."""
    if job.again:
        raise ValueError(
            "--again would discard the verdicts of the other shards: leave --shard out, or delete "
            "verdicts.parquet and grade in shards"
        )
    run = Run.open(folder)
    with together_in(run.folder, COPY_IT):
        plan = planned(run, job, together=True)
        mine = dict(share.pick(list(plan.problems.items())))
        keys = [key for key in plan.keys if key[0] in mine]
        if keys:
            give_verdicts(replace(plan, problems=mine, keys=keys), job, progress)
    total = len(plan.keys) * len(plan.modes)
    missing = len(lacking(plan, job))
    # Only the last process merges. It counts again, because others wrote since the first count.
    with alone_if_free(run.folder) as alone:
        if alone:
            missing = len(lacking(plan, job))
            if not missing:
                settle(plan)
                return reported(plan, job)
    return PartlyGraded(run.folder, str(share), total - missing, total)
