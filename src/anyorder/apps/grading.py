"""`anyorder grade`: a run folder -> verdicts.parquet, pass@k with intervals.

    samples -> programs (measure/extract.py) -> verdicts (bench/grade.py) -> a table in the run
    folder (bench/verdict_table.py), part by part -> rates (measure/passk.py)

A command that was killed goes on where it stopped, and one whose verdicts are all there only
reports. Several extractions are several gradings, side by side in one table; their union
`any_of_4` is computed for a report under its own name and is stored nowhere. Several processes with
a share of the problems each are grade_shards.py.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from anyorder.apps.grade_job import GradeJob
from anyorder.apps.grade_report import Graded, Row, check_rates, graded, report, union
from anyorder.apps.progress_bar import progress_bar
from anyorder.bench.grade import Item, Verdict, grade
from anyorder.bench.sandbox import Limits
from anyorder.bench.tasks import Problem, Task, find_task
from anyorder.bench.verdict_table import Grading, Key, VerdictTable
from anyorder.files import COPY_IT, alone_in
from anyorder.measure.extract import ANY_OF_4, EXTRACTIONS, RELEASE_MODES, extract
from anyorder.trace import Run

SENSITIVITY = "sensitivity"

PART_ROWS, PART_SECONDS = 512, 5.0
"""A part is written when it has so many verdicts, or after so long: what a kill can cost."""

GUARD_START, GUARD_SHARE = 10.0, 4.0
"""The guard: so many seconds on the clock, and so many more for each of the processor's limit."""

REQUIRED_LEVEL, WEAK_LEVEL = 2, 1


@dataclass(frozen=True)
class Plan:
    """A grading job, resolved."""

    run: Run
    task: Task
    problems: dict[str, Problem]
    """By task id, those to grade, in the task's order."""
    ungraded: dict[str, str]
    """Task id -> why: problems without checks, whose samples get no verdict and are in no rate."""
    strangers: int
    """Samples of problems that the task does not have."""
    keys: list[Key]
    """The samples to grade, in the order of the run."""
    modes: tuple[str, ...]
    tables: dict[str, VerdictTable]
    """By extraction mode."""
    limits: Limits


def grade_run(folder: str | Path, job: GradeJob, *, progress: bool = True) -> Graded:
    """Grade a run, or what is left of it, and report."""
    run = Run.open(folder)
    with alone_in(run.folder, COPY_IT):
        plan = planned(run, job)
        if job.again:
            for table in plan.tables.values():
                table.discard_parts()
        give_verdicts(plan, job, progress)
        settle(plan)
    return reported(plan, job)


def settle(plan: Plan) -> None:
    """Bring the parts of every table together, in the order of the run."""
    order = {key: number for number, key in enumerate(samples_of(plan.run))}
    for table in plan.tables.values():
        table.finish(order)


def planned(run: Run, job: GradeJob, *, together: bool = False) -> Plan:
    """The job, resolved and checked; `together`: beside others who grade the same run."""
    config = run.card.config
    name = job.task or config.get("task")
    if name is None:
        raise ValueError(f"{run.folder} was not sampled from a task: name one with --task")
    same = name == config.get("task")
    data = job.data or (config.get("data") if same else None)
    task = find_task(name, config.get("trained_on") or {}, data=data)
    if same and job.data is None and run.card.data_digest not in (None, task.digest):
        print(f"the data of {task.name} is not what {run.folder} was sampled from", file=sys.stderr)
    limit = config.get("limit") if same else None
    everything = {problem.task_id: problem for problem in task.problems(limit)}
    keys = samples_of(run)
    _refuse_strangers({task_id for task_id, _ in keys}, everything, run, name)
    strangers = sum(task_id not in everything for task_id, _ in keys)
    chosen = _selected(everything, job, name)
    problems = {task_id: problem for task_id, problem in chosen.items() if problem.checks}
    keys = [key for key in keys if key[0] in problems]
    if not keys:
        raise ValueError(f"{run.folder} has no samples of these problems: choose others")
    limits = _limits(task, job)
    modes = _modes(job.extraction or task.extraction)
    tables = {
        mode: VerdictTable(
            run.folder, Grading(task.name, task.digest, mode, asdict(limits)), together=together
        )
        for mode in modes
    }
    ungraded = {task_id: chosen[task_id].note for task_id in chosen if task_id not in problems}
    plan = Plan(run, task, problems, ungraded, strangers, keys, modes, tables, limits)
    check_rates(keys, job, _expected_samples(plan))
    return plan


def samples_of(run: Run) -> list[Key]:
    return list(_columns(run, "task_id", "sample"))


def _columns(run: Run, *names: str) -> Iterator[tuple[Any, ...]]:
    """Some columns of the traces, row by row."""
    table = run.table(names)
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


def _refuse_strangers(sampled: set[str], problems: dict[str, Problem], run: Run, name: str) -> None:
    """Some samples of other problems are left out and told; if all are, it is the wrong task."""
    if not sampled & set(problems):
        raise ValueError(
            f"{run.folder} has samples of {min(sampled)!r}, which {name} does not have, and none "
            "of its own: name the task that they answer with --task, and its file with --data"
        )


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
    """The published limits, or what the command says; the guard leaves room for a busy machine."""
    given: dict[str, Any] = dict(task.limits)
    if job.timeout is not None:
        given["cpu_seconds"] = job.timeout
        given.pop("wall_seconds", None)
    if job.memory is not None:
        given["memory_bytes"] = job.memory << 20
    limits = Limits(**given)
    if "wall_seconds" not in given:
        limits = replace(limits, wall_seconds=GUARD_START + GUARD_SHARE * limits.cpu_seconds)
    return limits


def _modes(extraction: str) -> tuple[str, ...]:
    if extraction in (ANY_OF_4, SENSITIVITY):
        return RELEASE_MODES
    if extraction not in EXTRACTIONS:
        names = ", ".join((*EXTRACTIONS, ANY_OF_4, SENSITIVITY))
        raise ValueError(f"no extraction {extraction!r}: choose one of {names}")
    return (extraction,)


def give_verdicts(plan: Plan, job: GradeJob, progress: bool) -> None:
    """Give every sample that lacks one its verdict, mode by mode."""
    wanted, level = lacking(plan, job), least_level(job)
    total = len(plan.keys) * len(plan.modes)
    if len(wanted) < total and progress:
        state = f"{total - len(wanted)} of {total}" if wanted else f"all {total}"
        print(f"{plan.run.folder}: {state} verdicts are there already", file=sys.stderr)
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
        _store(plan, _counted(stream, advance))


def lacking(plan: Plan, job: GradeJob) -> list[tuple[str, Key]]:
    """The verdicts that are not there yet: extraction and sample."""
    level = least_level(job)
    done = {mode: set() if job.again else table.done(level) for mode, table in plan.tables.items()}
    return [(mode, key) for key in plan.keys for mode in plan.modes if key not in done[mode]]


def least_level(job: GradeJob) -> int:
    """The isolation that a verdict must come from."""
    return WEAK_LEVEL if job.allow_weak_isolation else REQUIRED_LEVEL


def _items(plan: Plan, wanted: set[tuple[str, Key]]) -> Iterator[Item]:
    """The programs to judge, problem by problem: a worker prepares the checks of each once."""
    texts: dict[str, list[tuple[int, str]]] = {}
    for task_id, number, text in _columns(plan.run, "task_id", "sample", "text"):
        texts.setdefault(task_id, []).append((number, text))
    for task_id, problem in plan.problems.items():
        for number, text in texts.pop(task_id, ()):
            for mode in plan.modes:
                key = (mode, (task_id, number))
                if key in wanted:
                    program = extract(
                        text, mode=mode, entry_point=problem.entry_point, prefix=problem.prefix
                    )
                    yield Item(key, program, problem.checks, problem.prologue)


def _counted(stream: Iterable[Verdict], advance: Any) -> Iterator[Verdict]:
    for verdict in stream:
        advance(1)
        yield verdict


def _store(plan: Plan, stream: Iterator[Verdict]) -> None:
    """Write verdicts in parts; what has come when the stream breaks off is written as well."""
    waiting: dict[str, list[Verdict]] = {mode: [] for mode in plan.modes}
    written = time.monotonic()

    def write() -> None:
        for mode, verdicts in waiting.items():
            if verdicts:
                plan.tables[mode].append(verdicts)
                verdicts.clear()

    try:
        for verdict in stream:
            mode, key = verdict.key
            waiting[mode].append(replace(verdict, key=key))
            late = time.monotonic() - written > PART_SECONDS
            if late or sum(map(len, waiting.values())) >= PART_ROWS:
                write()
                written = time.monotonic()
    finally:
        write()


def reported(plan: Plan, job: GradeJob) -> Graded:
    chosen = set(plan.keys)
    position = {key: number for number, key in enumerate(plan.keys)}
    rows: dict[str, list[Row]] = {}
    for mode, table in plan.tables.items():
        found = [Row.of(stored) for stored in table.rows()]
        rows[mode] = sorted(
            (row for row in found if row.key in chosen), key=lambda row: position[row.key]
        )
        assert len(rows[mode]) == len(chosen), "every sample has one verdict"
    extraction = job.extraction or plan.task.extraction
    if extraction in (ANY_OF_4, SENSITIVITY):
        rows[ANY_OF_4] = union(rows)
    shown: Sequence[str] = [ANY_OF_4] if extraction == ANY_OF_4 else list(rows)
    expected = _expected_samples(plan)
    reports = [report(mode, rows[mode], job, expected) for mode in shown]
    notes = {task_id: problem.note for task_id, problem in plan.problems.items() if problem.note}
    result = graded(plan.run, plan.task, reports, expected, notes | plan.ungraded)
    return replace(result, strangers=plan.strangers)


def _expected_samples(plan: Plan) -> dict[str, int]:
    """How many samples each problem should have: those of the run card, or the most there are."""
    counts = Counter(task_id for task_id, _ in plan.keys)
    most = max(plan.run.card.config.get("samples") or 0, *counts.values())
    return dict.fromkeys(plan.problems, most)
