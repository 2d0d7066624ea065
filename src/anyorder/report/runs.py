"""Run folders -> the facts that a report states about each run, and how runs compare.

A run's card and traces say what it is. Verdicts are those of `anyorder grade`, measures those of
`anyorder measure`. Where order, AR-ness or similarity were not measured, the same functions compute
them here; the folder does not change. Placement needs the model, so it is only read.

Similarity compares each run with the left-to-right run of its model: `anyorder measure RUN..
--reference LEFT_TO_RIGHT_RUN`. The two differ in their policy alone (`RunFacts.alike`).

Also here: choices that several sections share (which runs to draw, colours, commands). Not here:
drawing and wording (sections/), and the planned schedule, which needs the model (apps/report.py).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from anyorder.bench.checks import PASSED
from anyorder.families.config import Description
from anyorder.families.descriptions import BASELINE, describe
from anyorder.measure.arness_scores import arness
from anyorder.measure.intervals import Interval, difference_interval
from anyorder.measure.order_scores import order
from anyorder.measure.passk import Rate, Timing, ks_up_to, pass_table, timing
from anyorder.measure.placement_table import PlacementTable
from anyorder.measure.programs import (
    LANGUAGE,
    METRICS,
    PYTHON,
    Programs,
    SampleKey,
    is_code,
    stored_verdicts,
)
from anyorder.measure.similarity_scores import SimilarityOptions, similarity
from anyorder.measure.trees import TREE_MEASURES
from anyorder.report.charts import BarChart, BarGroup, BarPanel, Drawing, Series, bars, chart_colors
from anyorder.report.tables import Table, interval_of, labels_of, policy_title
from anyorder.trace import Run, Trace
from anyorder.trace.run import VERDICTS_FILE, open_runs

PLACEMENT_FILE = "placement.parquet"
MODE = "exact"

LEFT_TO_RIGHT, RANDOM = "left_to_right", "random"

_OF_POLICY = ("policy", "ties", "posterior", "candidates", "slot_temperature")
"""Options that belong to a policy, or do not change the output."""


@dataclass(frozen=True)
class RunFacts:
    """One run with its traces, verdicts, times and measures."""

    run: Run
    name: str
    """The shortest ending of its path that is unique in the report."""
    traces: tuple[Trace, ...]
    family: str
    policy: str
    label: str = ""
    """Its name in plain words, unique in the report."""
    verdicts: Mapping[SampleKey, str] = field(default_factory=dict)
    """(task id, sample) -> verdict; empty if the run was not graded."""
    timing: Timing | None = None
    measures: Mapping[str, Any] = field(default_factory=dict)
    """Records by measure: order (mode exact), arness, and those of measures.json as they are."""
    code: bool = True
    """Whether its texts are known to be programs: else nothing here reads their trees."""

    @property
    def config(self) -> Mapping[str, Any]:
        return self.run.card.config

    @property
    def options(self) -> Mapping[str, Any]:
        """Decoding options; none for imported runs."""
        return self.config.get("options") or {}

    @property
    def task(self) -> str:
        return str(self.config.get("task") or "")

    @property
    def model(self) -> str:
        return str(self.config.get("model") or "")

    @property
    def is_timed(self) -> bool:
        """Whether each sample was decoded alone: a share of a batch's seconds says little."""
        return self.config.get("batch") == 1

    @property
    def samples(self) -> int:
        """The largest number of samples of a problem."""
        return max((trace.sample for trace in self.traces), default=-1) + 1

    @property
    def sampled_here(self) -> bool:
        """Whether `anyorder sample` made it: then its command and its model's name work again."""
        return self.run.card.command.startswith("anyorder sample ")

    @property
    def folder(self) -> str:
        """Quoted for a command."""
        return shlex.quote(str(self.run.folder))

    @property
    def title(self) -> str:
        """The family's display name."""
        return self.description.title

    @property
    def description(self) -> Description:
        return describe(self.family)

    @property
    def left_to_right(self) -> bool:
        """Whether its family can write from left to right only."""
        return self.description.left_to_right

    @property
    def way(self) -> str:
        """The policy in words."""
        return policy_title(self.policy)

    @cached_property
    def correct(self) -> dict[str, list[bool]]:
        """Task id -> whether each graded sample passed, in the order of the samples."""
        found: dict[str, list[bool]] = {}
        for (task, _), verdict in sorted(self.verdicts.items(), key=lambda item: item[0]):
            found.setdefault(task, []).append(verdict == PASSED)
        return found

    @cached_property
    def rates(self) -> tuple[Rate, ...]:
        """pass@1, 2, 4, ... up to the samples that every problem has; empty: not graded."""
        if not self.correct:
            return ()
        return tuple(pass_table(self.correct, ks_up_to(min(map(len, self.correct.values())))))

    @cached_property
    def placement(self) -> PlacementTable | None:
        """The canvases of `anyorder measure --placement`; None if these traces have none."""
        # The measures are checked against the traces; the file alone may belong to older ones.
        if "placement" not in self.measures:
            return None
        return _placement(self.run, own=False)

    def alike(self, *but: str) -> tuple[Any, ...]:
        """A key that is equal for runs that differ only in their policy and the options `but`.

        It holds the model, the problems, the number of samples and the decoding options that all
        policies have.
        """
        ignored = {*but, *_OF_POLICY}
        options = sorted((k, repr(v)) for k, v in self.options.items() if k not in ignored)
        return (self.run.card.model_digest, self.model, self.data, self.samples, *options)

    @property
    def data(self) -> tuple[str, str | None]:
        """The problems: runs with equal `data` can be paired problem by problem."""
        return self.task, self.run.card.data_digest

    def command(self, verb: str, *flags: str) -> str:
        """A command line about this run."""
        return " ".join(["anyorder", verb, self.folder, *flags])


@dataclass(frozen=True)
class ReportRuns:
    """All runs of a report, in the order of the command line."""

    runs: tuple[RunFacts, ...]

    def __iter__(self) -> Iterator[RunFacts]:
        return iter(self.runs)

    def graded(self) -> list[RunFacts]:
        return [run for run in self.runs if run.rates]

    def of(self, wanted: Callable[[Description], bool]) -> list[RunFacts]:
        """The runs whose family has a property."""
        return [run for run in self.runs if wanted(run.description)]

    def gradable(self) -> list[RunFacts]:
        """The runs that `anyorder grade` takes as they are, by their task, or has taken."""
        return [run for run in self.runs if run.task or run.verdicts]

    @property
    def what(self) -> str:
        """What was written, in a word."""
        return "program" if all(run.code for run in self.runs) else "text"

    @property
    def tasks(self) -> list[str]:
        """The tasks, each once."""
        return list(dict.fromkeys(run.task for run in self.runs if run.task))

    @property
    def problems(self) -> int:
        return len({(*run.data, trace.task_id) for run in self.runs for trace in run.traces})

    @property
    def samples(self) -> int:
        return sum(len(run.traces) for run in self.runs)


def gather(
    folders: Sequence[Path],
    *,
    extraction: str | None = None,
    language: str | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> ReportRuns:
    """Read the runs. `extraction` selects one of several gradings; `advance` counts runs read.

    `language` python: all texts are programs, whatever the runs say.
    """
    if not folders:
        raise ValueError("name at least one run folder")
    found = []
    for name, run in open_runs(folders).items():
        found.append(_facts(name, run, extraction, language))
        advance(1)
    labels = labels_of([(each.family, each.policy, each.config, each.name) for each in found])
    return ReportRuns(
        tuple(replace(each, label=label) for each, label in zip(found, labels, strict=True))
    )


def _facts(name: str, run: Run, extraction: str | None, language: str | None) -> RunFacts:
    traces = tuple(run.traces())
    if not traces:
        raise ValueError(f"{run.folder} has no samples: leave it out")
    config = run.card.config
    family = config.get("family") or traces[0].family or ""
    policy = (config.get("options") or {}).get("policy") or traces[0].policy or ""
    stored = run.measures()
    # What `measure --language` said; an order alone says nothing, earlier versions took it of all.
    told = stored.pop(LANGUAGE, None)
    code = PYTHON in (language, told) or is_code(run)
    if not code:
        stored = {name: entry for name, entry in stored.items() if name not in TREE_MEASURES}
    measures = {**stored, "order": (stored.get("order") or {}).get(MODE)}
    if any(trace.reveal_step is not None for trace in traces):
        measures["arness"] = stored.get("arness") or arness(run).to_record(samples=False)
        if code:
            measures["order"] = measures["order"] or order(run, MODE).to_record(samples=False)
    # `anyorder.measure.placement`, the way for models without a name, writes the table alone.
    if "placement" not in measures and (table := _placement(run, own=True)) is not None:
        measures["placement"] = table.to_record()
    return RunFacts(
        run=run,
        name=name,
        traces=traces,
        family=str(family),
        policy=str(policy),
        verdicts=verdict_names(run, extraction),
        timing=_timing(run),
        measures={name: record for name, record in measures.items() if record},
        code=code,
    )


def _placement(run: Run, *, own: bool) -> PlacementTable | None:
    """The canvases of placement.parquet; None if there is no file, or if `own` and not of these
    traces."""
    path = run.folder / PLACEMENT_FILE
    if not path.is_file():
        return None
    found = PlacementTable.read(path)
    return found if not own or found.about.get("traces") == run.traces_digest else None


def verdict_names(run: Run, extraction: str | None = None) -> dict[SampleKey, str]:
    """(task id, sample) -> verdict of the run's only grading, or of the named one."""
    if not (run.folder / VERDICTS_FILE).is_file():
        return {}
    several = len(set(run.verdicts()["grading"].to_pylist())) > 1
    return stored_verdicts(run, extraction if several else None)


def _timing(run: Run) -> Timing | None:
    try:
        return timing(run)
    except ValueError:  # imported samples have no times; the report shows the rest
        return None


@dataclass(frozen=True)
class SimilarityToReference:
    """One run against its reference, under one filter (valid or correct)."""

    run: RunFacts
    filter: str
    scores: Mapping[str, Interval]
    """By metric."""
    prompts: int
    per_prompt: Mapping[str, Mapping[str, float]]

    def less(self, other: SimilarityToReference, metric: str) -> Interval | None:
        """This run minus another, paired over the prompts of both; None without such a prompt."""
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
    rows: tuple[SimilarityToReference, ...]

    @property
    def metrics(self) -> list[str]:
        return [name for name in METRICS if all(name in row.scores for row in self.rows)]

    @property
    def runs(self) -> list[RunFacts]:
        """The compared runs, each once."""
        return list({row.run.name: row.run for row in self.rows}.values())

    def row(self, policy: str, filter: str = "valid") -> SimilarityToReference | None:
        """The first row of a policy, or None."""
        found = (row for row in self.rows if (row.run.policy, row.filter) == (policy, filter))
        return next(found, None)

    def command(self) -> str:
        """The command that computes these numbers."""
        runs = " ".join(run.folder for run in self.runs)
        return f"anyorder measure {runs} --reference {self.reference.folder} --only similarity"


def comparisons(gathered: ReportRuns) -> list[Comparison]:
    """For each left-to-right run, the runs that differ from it in their policy alone.

    Other runs, such as that of a planner trained for the model, join if `anyorder measure` compared
    them with this reference.
    """
    found = []
    programs = [run for run in gathered if run.code]
    for reference in (run for run in programs if run.policy == LEFT_TO_RIGHT):
        others = [
            run
            for run in programs
            if (run.alike() == reference.alike() and run is not reference)
            or _measured_by(run, reference)
        ]
        rows = _rows([run for run in others if run.policy != LEFT_TO_RIGHT], reference)
        if rows:
            found.append(Comparison(reference, rows))
    return found


def _rows(runs: Sequence[RunFacts], reference: RunFacts) -> tuple[SimilarityToReference, ...]:
    # The filter "correct" needs the verdicts of both sides.
    graded = all(run.verdicts for run in (*runs, reference))
    stored = {run.name: _stored(run, reference, graded) for run in runs}
    missing = [run for run in runs if not stored[run.name]]
    if missing:
        *own, base = (_programs(run) for run in (*missing, reference))
        table = similarity(own, base, SimilarityOptions(ceiling=False))
        for run in missing:
            stored[run.name] = [row.to_record() for row in table.rows if row.policy == run.name]
    return tuple(
        SimilarityToReference(
            run,
            row["filter"],
            {name: interval_of(score) for name, score in row["scores"].items()},
            row["prompts"],
            row["per_prompt"],
        )
        for run in runs
        for row in stored[run.name]
        if row["prompts"]
    )


def _stored(run: RunFacts, reference: RunFacts, graded: bool) -> list[dict[str, Any]]:
    """The rows of measures.json; none if the reference differs or the grading came later."""
    if not _measured_by(run, reference):
        return []
    own = [row for row in run.measures["similarity"]["rows"] if not row["ceiling"]]
    return [] if graded and all(row["filter"] != "correct" for row in own) else own


def _measured_by(run: RunFacts, reference: RunFacts) -> bool:
    """Whether the run's folder holds its similarity to exactly these reference traces."""
    record = run.measures.get("similarity") or {}
    digest = reference.run.traces_digest
    return digest is not None and record.get("reference_traces") == digest


def _programs(run: RunFacts) -> Programs:
    verdicts = {key: verdict == PASSED for key, verdict in run.verdicts.items()}
    return Programs.of_run(run.run, run.name, verdicts=verdicts or None)


def shares_of(traces: Sequence[Trace]) -> dict[str, list[float]]:
    """Mean shares of the final text that are inserted, masked and clean after each step.

    Given text and empty answers do not count. Do not use it for the event clock, whose steps are
    network calls and no measure of time.
    """
    steps = max(trace.steps or 0 for trace in traces)
    step = np.arange(steps + 1)[:, None]  # S 1
    inserted, clean = [], []
    for trace in traces:
        insert, reveal = trace.timing()
        written = reveal > 0  # given text has step 0
        if written.any():
            inserted.append((insert[written] <= step).mean(axis=1))
            clean.append((reveal[written] <= step).mean(axis=1))
    if not inserted:
        raise ValueError("the traces hold no token that was written: sample some first")
    here, done = np.mean(inserted, axis=0), np.mean(clean, axis=0)
    return {
        "step": step[:, 0].tolist(),
        "inserted": here.tolist(),
        "masked": (here - done).tolist(),
        "clean": done.tolist(),
    }


CONFIDENT = ("confidence", "sampled", "margin", "entropy", "average", "minimum", "first", "planner")
"""Policies by which the model chooses the order, the usual one of each family first."""


@dataclass(frozen=True)
class Material:
    """The input of every section."""

    gathered: ReportRuns
    comparisons: tuple[Comparison, ...]


def color_of(run: RunFacts) -> str:
    """The colour of a run's family, the same in every chart."""
    return run.family if run.family in chart_colors() else BASELINE


def series_of(runs: Sequence[RunFacts]) -> tuple[Series, ...]:
    """A series for each run. The first of a family has its colour, others that of their policy."""
    firsts = {run.family: run.label for run in reversed(runs)}
    taken = {(color_of(run), False) for run in runs}
    known = chart_colors()
    found = []
    for run in runs:
        choice = (color_of(run), False)
        if firsts[run.family] != run.label:
            # A pale variant of any colour is the last resort, so that no two series look alike.
            own = [(run.policy, False)] if run.policy in known else []
            own += [(color_of(run), True), *((color, True) for color in known)]
            choice = next(each for each in own if each not in taken)
            taken.add(choice)
        found.append(Series(run.label, *choice))
    return tuple(found)


def family_series(runs: Sequence[RunFacts]) -> tuple[Series, ...]:
    """A series for each family."""
    return tuple(
        Series(*each) for each in dict.fromkeys((run.title, color_of(run)) for run in runs)
    )


def share_bars(
    name: str,
    alt: str,
    value_label: str,
    groups: Iterable[BarGroup],
    series: tuple[Series, ...],
    controls: tuple[str, ...] = (),
) -> Drawing:
    """Bars of shares from 0 to 1, in per cent."""
    panel = BarPanel(value_label, tuple(groups), limits=(0, 1), percent=True)
    return bars(BarChart(name, alt, series, (panel,), controls))


def family_mains(runs: Sequence[RunFacts]) -> list[RunFacts]:
    """The run that represents each family.

    It decides by confidence if there is a choice. Among equals it is the plainest: fewest samples a
    problem, lowest temperature, insertion temperature nearest to 1, one line a step.
    """
    families = dict.fromkeys(run.family for run in runs)
    return [
        min((run for run in runs if run.family == family), key=_plainness) for family in families
    ]


def _plainness(run: RunFacts) -> tuple[float, ...]:
    return (
        CONFIDENT.index(run.policy) if run.policy in CONFIDENT else len(CONFIDENT),
        run.samples,
        run.options.get("temperature") or 0,
        abs((run.options.get("insertion_temperature") or 1.0) - 1),
        run.options.get("k") or 1,
    )


def main_runs(runs: Sequence[RunFacts], most: int = 6) -> list[RunFacts]:
    """The main run of each family; of the first any-order model also left to right and random."""
    main = family_mains(runs)
    free = [run for run in main if not run.left_to_right]
    beside = [
        run
        for policy in (LEFT_TO_RIGHT, RANDOM)
        for run in runs
        if run.policy == policy and free and run.alike() == free[0].alike() and run not in main
    ]
    chosen = [*main, *beside][:most]
    return [run for run in runs if run in chosen]


MOST_BARS = 10
"""A figure with more runs than this shows the main ones only."""


def drawn_runs(runs: Sequence[RunFacts]) -> list[RunFacts]:
    """The runs that a figure with a bar for each run shows."""
    return list(runs) if len(runs) <= MOST_BARS else main_runs(runs, MOST_BARS)


def split_tables(
    make: Callable[[Sequence[RunFacts]], Table],
    chosen: Sequence[RunFacts],
    runs: Sequence[RunFacts],
) -> tuple[Table, ...]:
    """A table of the runs in the figure, and a folded table of the others."""
    others = [run for run in runs if run not in chosen]
    if not others:
        return (make(chosen),)
    return make(chosen), replace(make(others), title="The other runs", folded=True)


def sampling(runs: Sequence[RunFacts]) -> tuple[str, ...]:
    """The commands that made the samples, from the run cards."""
    return tuple(dict.fromkeys(run.run.card.command for run in runs))


def again(run: RunFacts, *flags: str) -> tuple[str, ...]:
    """The command that made a run, with other flags and another folder.

    None for a run that was imported or made in Python: no command of ours has its model.
    """
    if not run.sampled_here:
        return ()
    words = shlex.split(run.run.card.command)
    for flag in ("--out", *(word for word in flags if word.startswith("--"))):
        if flag in words:
            at = words.index(flag)
            has_value = at + 1 < len(words) and not words[at + 1].startswith("--")
            words[at : at + 1 + has_value] = []
    return (shlex.join([*words, *flags, "--out", "RUN"]),)


def grading(runs: Sequence[RunFacts]) -> tuple[str, ...]:
    """The commands that graded the runs."""
    return tuple(run.command("grade") for run in runs if run.verdicts)
