"""Verdicts to rates: what `anyorder grade` reports, as JSON and as tables.

A report is of one extraction: counts of verdicts, pass@k with intervals (measure/passk.py), and the
same by anchor. Rates are means over problems; where problems are gaps of a few programs
(`Problem.group`), the mean is over gaps and the interval over programs.

Not here: reading and grading a run (the package itself).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from anyorder.apps.jobs import GradeJob
from anyorder.bench.checks import PASSED, VERDICTS, shown
from anyorder.bench.grade import SampleKey
from anyorder.bench.tasks import Problem
from anyorder.measure.extract import ANY_OF_4
from anyorder.measure.order_anchors import by_anchor
from anyorder.measure.passk import Rate, Timing, ks_up_to, pass_table, task_rates
from anyorder.report.tables import Cell, Table, bounds, percent, print_tables, wide_console

SHOWN_DIGEST = 8
SHOWN_MISSING = 3


@dataclass(frozen=True)
class GradedSample:
    """The verdict of one sample."""

    task_id: str
    sample: int
    verdict: str
    detail: str
    level: int | None
    cpu_seconds: float
    attempts: int

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> GradedSample:
        return cls(**{name: stored[name] for name in cls.__dataclass_fields__})

    @property
    def key(self) -> SampleKey:
        return self.task_id, self.sample


@dataclass(frozen=True)
class Report:
    """The verdicts and rates of one extraction."""

    extraction: str
    rows: tuple[GradedSample, ...]
    rates: tuple[Rate, ...]
    anchors: dict[str, tuple[Rate, ...]]
    """The rates of the problems with each anchor; empty where the task names no anchors."""

    @property
    def counts(self) -> dict[str, int]:
        """How often each verdict occurs, in the order of VERDICTS."""
        found = Counter(row.verdict for row in self.rows)
        return {verdict: found[verdict] for verdict in VERDICTS if found[verdict]}

    @property
    def level(self) -> int | None:
        """The weakest isolation in which a program ran; None if none ran."""
        return min((row.level for row in self.rows if row.level is not None), default=None)

    def to_record(self) -> dict[str, Any]:
        anchors = {name: [rate.to_record() for rate in own] for name, own in self.anchors.items()}
        return {
            "extraction": self.extraction,
            "pass@k": {str(rate.k): rate.interval.to_record()["estimate"] for rate in self.rates},
            "rates": [rate.to_record() for rate in self.rates],
            **({"anchors": anchors} if anchors else {}),
            "verdicts": self.counts,
            "level": self.level,
            "cpu_seconds": round(sum(row.cpu_seconds for row in self.rows), 3),
            "run_twice": sum(row.attempts > 1 for row in self.rows),
            "samples": [
                {name: getattr(row, name) for name in ("task_id", "sample", "verdict", "detail")}
                for row in self.rows
            ],
        }


@dataclass(frozen=True)
class Graded:
    """A graded run: one report per requested extraction."""

    run: Path
    task: str
    data_digest: str
    reports: tuple[Report, ...]
    missing: dict[str, int]
    """Task id -> the number of missing samples."""
    notes: dict[str, str]
    """Task id -> the task's note: why it is not graded, or which test was repaired."""
    timing: Timing | None
    """What sampling cost; None if the run has no times."""
    untimed: str = ""
    """Why the run has no times."""
    paper: tuple[dict[str, Any], ...] = ()
    """Rows of the paper, if the run followed its protocol."""
    beside: tuple[dict[str, Any], ...] = ()
    """Results on this task that others published, whatever their protocol."""
    unknown: int = 0
    """Samples of problems that the task does not have; no rate counts them."""

    def to_record(self) -> dict[str, Any]:
        """As JSON: one extraction at the top level, several below `gradings`."""
        records = [report.to_record() for report in self.reports]
        return {
            "run": str(self.run),
            "task": self.task,
            "data_digest": self.data_digest,
            "missing": self.missing,
            "notes": self.notes,
            "left_out": self.unknown,
            "paper": list(self.paper),
            **({"published": list(self.beside)} if self.beside else {}),
            "timing": None if self.timing is None else self.timing.to_record(),
            "untimed": self.untimed,
            **(records[0] if len(records) == 1 else {"gradings": records}),
        }


def report(
    extraction: str,
    rows: Sequence[GradedSample],
    job: GradeJob,
    expected: Mapping[str, int],
    problems: Mapping[str, Problem],
) -> Report:
    """The rates of one extraction; `expected`: the samples that each problem should have."""
    facts = {task_id: problem.facts for task_id, problem in problems.items()}
    groups = {task_id: problem.group for task_id, problem in problems.items() if problem.group}
    by_task: dict[str, list[GradedSample]] = {}
    for row in rows:
        by_task.setdefault(row.task_id, []).append(row)
    correct = {  # sorted, because any_of_k takes the first k samples
        task_id: [row.verdict == PASSED for row in sorted(same, key=lambda row: row.sample)]
        for task_id, same in by_task.items()
    }
    correct, ks, n = _rate_inputs(correct, job, expected)
    rates = partial(pass_table, ks=ks, estimator=job.estimator, n=n, groups=groups)
    anchors = {name: tuple(rates(part)) for name, part in by_anchor(correct, facts).items()}
    return Report(extraction, tuple(rows), tuple(rates(correct)), anchors)


def check_rates(keys: Sequence[SampleKey], job: GradeJob, expected: Mapping[str, int]) -> None:
    """Refuse rates that need more samples than there are, before any program runs."""
    counts = Counter(task_id for task_id, _ in keys)
    correct = {task_id: [False] * count for task_id, count in counts.items()}
    correct, ks, n = _rate_inputs(correct, job, expected)
    task_rates(correct, max(ks), estimator=job.estimator, n=n)


def _rate_inputs(
    correct: dict[str, list[bool]], job: GradeJob, expected: Mapping[str, int]
) -> tuple[dict[str, list[bool]], list[int], int | None]:
    """The verdicts by task, the values of k and, for fixed_n, n."""
    fewest, n = min(map(len, correct.values())), None
    if job.estimator == "fixed_n":
        fewest = n = max(expected.values())
        correct = {task_id: correct.get(task_id, []) for task_id in {**expected, **correct}}
    return correct, job.ks() or ks_up_to(fewest), n


def union(rows: Mapping[str, Sequence[GradedSample]]) -> list[GradedSample]:
    """For each sample: passed if any mode passes, or else the verdict of the first mode."""
    found = []
    for same in zip(*rows.values(), strict=True):
        assert len({row.key for row in same}) == 1
        passed = [
            (mode, row) for mode, row in zip(rows, same, strict=True) if row.verdict == PASSED
        ]
        modes = ", ".join(mode for mode, _ in passed)
        first = passed[0][1] if passed else same[0]
        detail = f"under {modes}" if passed else f"{next(iter(rows))}: {first.detail}"
        found.append(replace(first, detail=detail))
    return found


def print_graded(graded: Graded) -> None:
    """Print the tables for people."""
    console = wide_console()
    tables = [_rates_table(graded), _counts_table(graded)]
    if any(each.anchors for each in graded.reports):
        tables.insert(1, _anchors_table(graded))
    print_tables(tables, console)
    for line in _facts(graded):
        console.print(line, markup=False, soft_wrap=True)


def _rates_table(graded: Graded) -> Table:
    level = graded.reports[0].rates[0].interval.level
    rows: list[tuple[Cell | str, ...]] = []
    for each in graded.reports:
        for rate in each.rates:
            first = each.extraction if rate is each.rates[0] else ""
            rows.append((first, *_rate_cells(rate)))
    for row in graded.paper:
        for k, value in row["pass_at_k"].items():
            rows.append((f"paper, {row['model']}", f"pass@{k}", _percent(value / 100), ""))
    rows += [
        (
            f"published, {row['model']}, {row['length']}",
            "pass@1",
            _percent(row["pass_at_1"] / 100),
            "",
        )
        for row in graded.beside
    ]
    return Table(("extraction", "rate", "estimate", f"{level:.0%} interval"), tuple(rows))


def _anchors_table(graded: Graded) -> Table:
    """The rate of the smallest k by anchor; all others are in the JSON."""
    rows = [
        (each.extraction, anchor, str(rate.interval.n), *_rate_cells(rate))
        for each in graded.reports
        for anchor, (rate, *_) in each.anchors.items()
    ]
    return Table(("extraction", "anchor", "problems", "rate", "estimate", "interval"), tuple(rows))


def _rate_cells(rate: Rate) -> tuple[Cell | str, ...]:
    found = rate.interval.times(100)
    # Intervals are over problems, so a single problem has none.
    ends = "" if math.isnan(found.low) else Cell(bounds(found, 1), number=True)
    return f"pass@{rate.k}", _percent(rate.interval.estimate), ends


def _counts_table(graded: Graded) -> Table:
    names = [name for name in VERDICTS if any(name in each.counts for each in graded.reports)]
    rows = [
        (each.extraction, *(str(each.counts.get(name, 0)) for name in names))
        for each in graded.reports
    ]
    return Table(("extraction", *map(shown, names)), tuple(rows), align="lr")


def _percent(value: float) -> Cell:
    return Cell(percent(value, 1), number=True)


_LEVELS = {None: "nothing ran", 1: "sandbox level 1: programs were limited, not confined"}


def _facts(graded: Graded) -> list[str]:
    first = graded.reports[0]
    rate = first.rates[0]
    level = _LEVELS.get(first.level, f"sandbox level {first.level}")
    # More tasks than drawn problems: those are gaps, several in each problem.
    gaps = len({row.task_id for row in first.rows})
    of_gaps = f"{gaps} gaps, " if gaps > rate.interval.n else ""
    mean = "mean over gaps, " if of_gaps else ""
    lines = [
        f"{graded.task} (data {graded.data_digest[:SHOWN_DIGEST]}): {rate.interval.n} problems, "
        f"{of_gaps}{len(first.rows)} samples; {rate.estimator}, {mean}intervals over problems; "
        f"{level}"
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
    if graded.unknown:
        lines.append(
            f"left out, because {graded.task} does not have their problems: "
            f"{graded.unknown} of the samples"
        )
    if graded.paper:
        lines.append("the paper counts a sample that passes under any of its four modes (any_of_4)")
    if graded.beside:
        sources = " and ".join(dict.fromkeys(row["source"] for row in graded.beside))
        lines.append(f"published by {sources}, each by a protocol of its own (docs/infilling.md)")
    lines += [f"{task_id}: {note}" for task_id, note in graded.notes.items()]
    if graded.timing is not None:
        cost = graded.timing
        forwards = "" if cost.forwards is None else f", {cost.forwards.estimate:.1f} forwards"
        lines.append(f"sampling: {cost.seconds} s per sample{forwards}; in {graded.run}")
    else:
        lines.append(f"sampling: {graded.untimed}")
    return lines
