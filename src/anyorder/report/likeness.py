"""How much alike the programs of runs are: each run beside the left-to-right run of its model.

The numbers are those of `anyorder measure RUN.. --reference LEFT_TO_RIGHT_RUN`: read from the
folder where they are there and of that very reference, computed by the same function where not.
Runs are compared that differ in their policy alone (runs.py: RunFacts.alike).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anyorder.measure.intervals import Interval, difference_interval
from anyorder.measure.programs import METRICS, Programs
from anyorder.measure.similarity import SimilarityOptions, similarity
from anyorder.report.records import interval_of
from anyorder.report.runs import LEFT_TO_RIGHT, Gathered, RunFacts


@dataclass(frozen=True)
class Likeness:
    """One run against its reference, under one filter (valid or correct)."""

    run: RunFacts
    filter: str
    scores: Mapping[str, Interval]
    """By metric."""
    prompts: int
    per_prompt: Mapping[str, Mapping[str, float]]

    def less(self, other: Likeness, metric: str) -> Interval | None:
        """This run less another, paired over the prompts that both have; None where none is."""
        both = [task for task in self.per_prompt if task in other.per_prompt]
        if not both:
            return None
        return difference_interval(
            [self.per_prompt[task][metric] for task in both],
            [other.per_prompt[task][metric] for task in both],
        )


@dataclass(frozen=True)
class Comparison:
    """The runs of one model and task beside their left-to-right run."""

    reference: RunFacts
    rows: tuple[Likeness, ...]

    @property
    def metrics(self) -> list[str]:
        return [name for name in METRICS if all(name in row.scores for row in self.rows)]

    @property
    def runs(self) -> list[RunFacts]:
        """The runs that are compared, each once."""
        return list({row.run.name: row.run for row in self.rows}.values())

    def row(self, policy: str, filter: str = "valid") -> Likeness | None:
        """The first row of a policy, where there is one."""
        found = (row for row in self.rows if (row.run.policy, row.filter) == (policy, filter))
        return next(found, None)

    def command(self) -> str:
        """What gives these numbers."""
        runs = " ".join(run.folder for run in self.runs)
        return f"anyorder measure {runs} --reference {self.reference.folder} --only similarity"


def comparisons(gathered: Gathered) -> list[Comparison]:
    """For each left-to-right run, the runs that differ from it in their policy alone.

    Others, such as a planner that was trained for the model, join where they were measured by it.
    """
    found = []
    for reference in (run for run in gathered if run.policy == LEFT_TO_RIGHT):
        others = [
            run
            for run in gathered
            if (run.alike() == reference.alike() and run is not reference)
            or _measured_by(run, reference)
        ]
        rows = _rows([run for run in others if run.policy != LEFT_TO_RIGHT], reference)
        if rows:
            found.append(Comparison(reference, rows))
    return found


def _rows(runs: Sequence[RunFacts], reference: RunFacts) -> tuple[Likeness, ...]:
    graded = all(run.verdicts for run in (*runs, reference))
    stored = {run.name: _stored(run, reference, graded) for run in runs}
    missing = [run for run in runs if not stored[run.name]]
    if missing:
        records = _computed(missing, reference)
        for run in missing:
            stored[run.name] = [row for row in records if row["policy"] == run.name]
    by_name = {run.name: run for run in runs}
    rows = (_likeness(by_name[name], row) for name in by_name for row in stored[name] or ())
    return tuple(row for row in rows if row.prompts)


def _stored(run: RunFacts, reference: RunFacts, graded: bool) -> list[dict[str, Any]]:
    """The rows of measures.json; none where they are not of this reference and these verdicts."""
    if not _measured_by(run, reference):
        return []
    own = [row for row in run.measures["similarity"]["rows"] if not row["ceiling"]]
    return [] if graded and all(row["filter"] != "correct" for row in own) else own


def _measured_by(run: RunFacts, reference: RunFacts) -> bool:
    """Whether its folder holds its likeness with these very traces."""
    record = run.measures.get("similarity") or {}
    return reference.digest is not None and record.get("reference_traces") == reference.digest


def _computed(runs: Sequence[RunFacts], reference: RunFacts) -> list[dict[str, Any]]:
    programs = [_programs(run) for run in (*runs, reference)]
    table = similarity(programs[:-1], programs[-1:], SimilarityOptions(ceiling=False))
    return [row.to_record() for row in table.rows]


def _programs(run: RunFacts) -> Programs:
    verdicts = {key: verdict == "passed" for key, verdict in run.verdicts.items()}
    return Programs.of_run(run.run, run.name, verdicts=verdicts or None)


def _likeness(run: RunFacts, row: Mapping[str, Any]) -> Likeness:
    scores = {name: interval_of(score) for name, score in row["scores"].items()}
    return Likeness(run, row["filter"], scores, row["prompts"], row["per_prompt"])
