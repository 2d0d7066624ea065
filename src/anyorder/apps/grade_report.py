"""What a grading found: rows, rates and counts, as JSON and as tables in a terminal.

Reads verdicts and nothing else; grading itself is apps/grading.py, the estimators are
measure/passk.py, the time accounting is bench/timing.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from anyorder.apps.grade_job import GradeJob
from anyorder.apps.published_beside import published_rates
from anyorder.bench.tasks import Task
from anyorder.bench.timing import Timing, timing
from anyorder.bench.verdict_table import Key
from anyorder.bench.verdicts import PASSED, VERDICTS, shown
from anyorder.measure.extract import ANY_OF_4
from anyorder.measure.passk import Rate, ks_up_to, pass_table, task_rates
from anyorder.trace import Run

SHOWN_DIGEST = 8
SHOWN_MISSING = 3


@dataclass(frozen=True)
class Row:
    """The verdict of one sample."""

    task_id: str
    sample: int
    verdict: str
    detail: str
    level: int | None
    cpu_seconds: float
    attempts: int

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Row:
        return cls(**{name: stored[name] for name in cls.__dataclass_fields__})

    @property
    def key(self) -> Key:
        return self.task_id, self.sample


@dataclass(frozen=True)
class Report:
    """One extraction: the verdicts and what they amount to."""

    extraction: str
    rows: tuple[Row, ...]
    rates: tuple[Rate, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How often each verdict was given; the most usual order, those that occur."""
        found = Counter(row.verdict for row in self.rows)
        return {verdict: found[verdict] for verdict in VERDICTS if found[verdict]}

    @property
    def level(self) -> int | None:
        """The weakest isolation in which a program ran; None where none ran."""
        return min((row.level for row in self.rows if row.level is not None), default=None)

    def to_record(self) -> dict[str, Any]:
        return {
            "extraction": self.extraction,
            "pass@k": {str(rate.k): rate.interval.to_record()["estimate"] for rate in self.rates},
            "rates": [rate.to_record() for rate in self.rates],
            "verdicts": self.counts,
            "level": self.level,
            "cpu_seconds": round(sum(row.cpu_seconds for row in self.rows), 3),
            "run_twice": sum(row.attempts > 1 for row in self.rows),
            "samples": [
                {
                    "task_id": row.task_id,
                    "sample": row.sample,
                    "verdict": row.verdict,
                    "detail": row.detail,
                }
                for row in self.rows
            ],
        }


@dataclass(frozen=True)
class Graded:
    """A graded run: a report for each extraction that was asked for."""

    run: Path
    task: str
    data_digest: str
    reports: tuple[Report, ...]
    missing: dict[str, int]
    """Task id -> samples that it lacks."""
    notes: dict[str, str]
    """Task id -> what the task says about it: why it is not graded, or that a test was repaired."""
    timing: Timing | None
    """What sampling cost; None where the run does not say."""
    untimed: str = ""
    """Why it does not say."""
    paper: tuple[dict[str, Any], ...] = ()
    """Rows of the paper, where the run followed its protocol."""
    strangers: int = 0
    """Samples of problems that the task does not have; they are in no rate."""

    def to_record(self) -> dict[str, Any]:
        """As JSON: one extraction at the top level, several below `gradings`."""
        records = [report.to_record() for report in self.reports]
        return {
            "run": str(self.run),
            "task": self.task,
            "data_digest": self.data_digest,
            "missing": self.missing,
            "notes": self.notes,
            "left_out": self.strangers,
            "paper": list(self.paper),
            "timing": None if self.timing is None else self.timing.to_record(),
            "untimed": self.untimed,
            **(records[0] if len(records) == 1 else {"gradings": records}),
        }


def graded(
    run: Run,
    task: Task,
    reports: Sequence[Report],
    expected: Mapping[str, int],
    notes: dict[str, str],
) -> Graded:
    """The reports together, with what is missing and what sampling cost."""
    there = Counter(row.task_id for row in reports[0].rows)
    missing = {
        task_id: count - there[task_id]
        for task_id, count in expected.items()
        if there[task_id] < count
    }
    cost, untimed = None, ""
    try:
        cost = timing(run)
    except ValueError as error:  # imported samples have no times: no reason to withhold the rates
        untimed = str(error)
    return Graded(
        run=run.folder,
        task=task.name,
        data_digest=task.digest,
        reports=tuple(reports),
        missing=missing,
        notes=notes,
        timing=cost,
        untimed=untimed,
        paper=tuple(published_rates(run.card, task.name)),
    )


def report(
    extraction: str, rows: Sequence[Row], job: GradeJob, expected: Mapping[str, int]
) -> Report:
    """The rates of one extraction; `expected` is how many samples each problem should have."""
    by_task: dict[str, list[Row]] = {}
    for row in rows:
        by_task.setdefault(row.task_id, []).append(row)
    correct = {  # in the order of their numbers, which any_of_k goes by
        task_id: [row.verdict == PASSED for row in sorted(same, key=lambda row: row.sample)]
        for task_id, same in by_task.items()
    }
    correct, ks, n = _asked(correct, job, expected)
    rates = pass_table(correct, ks, estimator=job.estimator, n=n)
    return Report(extraction, tuple(rows), tuple(rates))


def check_rates(keys: Sequence[Key], job: GradeJob, expected: Mapping[str, int]) -> None:
    """Refuse rates that these samples do not give, before anything is graded."""
    counts = Counter(task_id for task_id, _ in keys)
    correct = {task_id: [False] * count for task_id, count in counts.items()}
    correct, ks, n = _asked(correct, job, expected)
    task_rates(correct, max(ks), estimator=job.estimator, n=n)


def _asked(
    correct: dict[str, list[bool]], job: GradeJob, expected: Mapping[str, int]
) -> tuple[dict[str, list[bool]], list[int], int | None]:
    """Verdicts by task, the ks and, for fixed_n, n."""
    fewest, n = min(map(len, correct.values())), None
    if job.estimator == "fixed_n":
        fewest = n = max(expected.values())
        correct = {task_id: correct.get(task_id, []) for task_id in {**expected, **correct}}
    return correct, job.ks() or ks_up_to(fewest), n


def union(rows: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Sample by sample: passed if it passed under any mode, else what it got under the first."""
    together = []
    for same in zip(*rows.values(), strict=True):
        assert len({row.key for row in same}) == 1
        passed = [
            (mode, row) for mode, row in zip(rows, same, strict=True) if row.verdict == PASSED
        ]
        modes = ", ".join(mode for mode, _ in passed)
        first = passed[0][1] if passed else same[0]
        detail = f"under {modes}" if passed else f"{next(iter(rows))}: {first.detail}"
        together.append(Row(**{**vars(first), "detail": detail}))
    return together


def print_graded(graded: Graded) -> None:
    """The tables that people read."""
    console = Console(highlight=False)
    rates = Table(box=None, pad_edge=False)
    level = graded.reports[0].rates[0].interval.level
    for title in ("extraction", "", "", f"{level:.0%} interval"):
        rates.add_column(title, no_wrap=True)
    for each in graded.reports:
        for rate in each.rates:
            first = each.extraction if rate is each.rates[0] else ""
            found = rate.interval.times(100)
            one = math.isnan(found.low)  # one problem tells nothing about others
            bounds = "" if one else f"{found.low:.1f} to {found.high:.1f}"
            rates.add_row(first, f"pass@{rate.k}", f"{found.estimate:.1f} %", bounds)
    for row in graded.paper:
        for k, value in row["pass_at_k"].items():
            rates.add_row(f"paper, {row['model']}", f"pass@{k}", f"{value:.1f} %", "")
    console.print(rates)
    counts = Table(box=None, pad_edge=False)
    counts.add_column("extraction")
    names = [name for name in VERDICTS if any(name in each.counts for each in graded.reports)]
    for name in names:
        counts.add_column(shown(name), justify="right", no_wrap=True)
    for each in graded.reports:
        counts.add_row(each.extraction, *(str(each.counts.get(name, 0)) for name in names))
    console.print()
    console.print(counts)
    console.print()
    for line in _facts(graded):
        console.print(line, markup=False, soft_wrap=True)


_LEVELS = {None: "nothing ran", 1: "sandbox level 1: programs were limited, not confined"}


def _facts(graded: Graded) -> list[str]:
    first = graded.reports[0]
    rate = first.rates[0]
    level = _LEVELS.get(first.level, f"sandbox level {first.level}")
    lines = [
        f"{graded.task} (data {graded.data_digest[:SHOWN_DIGEST]}): {rate.interval.n} problems, "
        f"{len(first.rows)} samples; {rate.estimator}, intervals over problems; {level}"
    ]
    if any(each.extraction == ANY_OF_4 for each in graded.reports):
        lines.append("any_of_4 counts a sample that passes under any of the release's four modes")
    if graded.missing:
        some = ", ".join(list(graded.missing)[:SHOWN_MISSING])
        more = ", ..." if len(graded.missing) > SHOWN_MISSING else ""
        lines.append(
            f"{sum(graded.missing.values())} samples are missing, of {len(graded.missing)} "
            f"problems: {some}{more}"
        )
    if graded.strangers:
        lines.append(
            f"left out, because {graded.task} does not have their problems: "
            f"{graded.strangers} of the samples"
        )
    if graded.paper:
        lines.append("the paper counts a sample that passes under any of its four modes (any_of_4)")
    lines += [f"{task_id}: {note}" for task_id, note in graded.notes.items()]
    if graded.timing is not None:
        cost = graded.timing
        forwards = "" if cost.forwards is None else f", {cost.forwards.estimate:.1f} forwards"
        lines.append(f"sampling: {cost.seconds} s per sample{forwards}; in {graded.run}")
    else:
        lines.append(f"sampling: {graded.untimed}")
    return lines
