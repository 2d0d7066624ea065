"""Run folders -> what a report says about each of them: what it is, verdicts, times, measures.

What a run is stands in its card and its traces. Verdicts are those of `anyorder grade`, measures
those of `anyorder measure`; where order and AR-ness were not measured they are computed here by the
same functions, and the folder is left as it is. Placement needs the model and is only read.

Comparing runs with one another is likeness.py; drawing and wording is for sections/.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from anyorder.bench.timing import Timing, timing
from anyorder.bench.verdicts import PASSED
from anyorder.measure.arness import arness
from anyorder.measure.order import order
from anyorder.measure.passk import Rate, ks_up_to, pass_table
from anyorder.measure.placement_table import PlacementTable
from anyorder.measure.programs import Key, stored_verdicts
from anyorder.measure.stored import stored_measures, traces_digest
from anyorder.report.labels import family_title, labels_of, policy_title
from anyorder.trace import Run, Trace
from anyorder.trace.run import VERDICTS_FILE, open_runs

PLACEMENT_FILE = "placement.parquet"
MODE = "exact"

LEFT_TO_RIGHT, RANDOM = "left_to_right", "random"

_OF_POLICY = ("policy", "ties", "posterior", "candidates", "slot_temperature")
"""Options that belong to a policy, or change nothing."""


@dataclass(frozen=True)
class RunFacts:
    """One run, and all that is known about it."""

    run: Run
    name: str
    """The shortest ending of its path that no other run of the report has."""
    traces: tuple[Trace, ...]
    family: str
    policy: str
    label: str = ""
    """What the report calls it, in plain words; no other run of the report has the same."""
    verdicts: Mapping[Key, str] = field(default_factory=dict)
    """(task id, sample) -> verdict; empty where the run was not graded."""
    timing: Timing | None = None
    measures: Mapping[str, Any] = field(default_factory=dict)
    """Records by measure: order (mode exact), arness, and those of measures.json as they are."""

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
        """Whether a sample's seconds are its own: of a batch it has a share, which says little."""
        return self.config.get("batch") == 1

    @property
    def samples(self) -> int:
        """The most samples that a problem has."""
        return max((trace.sample for trace in self.traces), default=-1) + 1

    @property
    def folder(self) -> str:
        """As it stands in a command."""
        return shlex.quote(str(self.run.folder))

    @property
    def digest(self) -> str | None:
        return traces_digest(self.run)

    @property
    def title(self) -> str:
        """The family, as people write it."""
        return family_title(self.family)

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
        """pass@1, 2, 4, ... as far as every problem has the samples; empty: not graded."""
        if not self.correct:
            return ()
        return tuple(pass_table(self.correct, ks_up_to(min(map(len, self.correct.values())))))

    @cached_property
    def placement(self) -> PlacementTable | None:
        """The canvases of `anyorder measure --placement`, where they are of these traces."""
        path = self.run.folder / PLACEMENT_FILE
        if "placement" not in self.measures or not path.is_file():
            return None
        return PlacementTable.read(path)

    def alike(self, *but: str) -> tuple[Any, ...]:
        """Equal for runs that differ in their policy alone, and in the options named.

        Model, problems, number of samples and decoding options, without those that only some
        policies have.
        """
        ignored = {*but, *_OF_POLICY}
        options = sorted((k, repr(v)) for k, v in self.options.items() if k not in ignored)
        return (self.run.card.model_digest, self.model, self.data, self.samples, *options)

    @property
    def data(self) -> tuple[str, str | None]:
        """Which problems: runs can be paired problem by problem where this is equal."""
        return self.task, self.run.card.data_digest

    def command(self, verb: str, *flags: str) -> str:
        """A command line about this run."""
        return " ".join(["anyorder", verb, self.folder, *flags])


@dataclass(frozen=True)
class Gathered:
    """All runs of a report, in the order in which they were named."""

    runs: tuple[RunFacts, ...]

    def __iter__(self) -> Iterator[RunFacts]:
        return iter(self.runs)

    def graded(self) -> list[RunFacts]:
        return [run for run in self.runs if run.rates]

    def of(self, *families: str) -> list[RunFacts]:
        return [run for run in self.runs if run.family in families]

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
    advance: Callable[[int], None] = lambda count: None,
) -> Gathered:
    """Read the runs; `extraction` chooses among several gradings, `advance` is told of each run."""
    if not folders:
        raise ValueError("name at least one run folder")
    found = []
    for name, run in open_runs(folders).items():
        found.append(_facts(name, run, extraction))
        advance(1)
    labels = labels_of([(each.family, each.policy, each.config, each.name) for each in found])
    return Gathered(
        tuple(replace(each, label=label) for each, label in zip(found, labels, strict=True))
    )


def _facts(name: str, run: Run, extraction: str | None) -> RunFacts:
    traces = tuple(run.traces())
    if not traces:
        raise ValueError(f"{run.folder} has no samples: leave it out")
    config = run.card.config
    family = config.get("family") or traces[0].family or ""
    policy = (config.get("options") or {}).get("policy") or traces[0].policy or ""
    stored = stored_measures(run)
    measures = {**stored, "arness": stored.get("arness") or _computed_arness(run, traces)}
    measures["order"] = (stored.get("order") or {}).get(MODE) or _computed_order(run, traces)
    return RunFacts(
        run=run,
        name=name,
        traces=traces,
        family=str(family),
        policy=str(policy),
        verdicts=verdict_names(run, extraction),
        timing=_timing(run),
        measures={name: record for name, record in measures.items() if record},
    )


def _has_steps(traces: Sequence[Trace]) -> bool:
    return any(trace.reveal_step is not None for trace in traces)


def _computed_order(run: Run, traces: Sequence[Trace]) -> dict[str, Any] | None:
    return order(run, MODE).to_record(samples=False) if _has_steps(traces) else None


def _computed_arness(run: Run, traces: Sequence[Trace]) -> dict[str, Any] | None:
    return arness(run).to_record(samples=False) if _has_steps(traces) else None


def verdict_names(run: Run, extraction: str | None = None) -> dict[Key, str]:
    """(task id, sample) -> verdict of the run's one grading, or of the one that is named."""
    if not (run.folder / VERDICTS_FILE).is_file():
        return {}
    several = extraction if len(set(run.verdicts()["grading"].to_pylist())) > 1 else None
    chosen = stored_verdicts(run, several)  # refuses where it is not clear which is meant
    rows = run.verdicts().to_pylist()
    return {
        key: row["verdict"]
        for row in rows
        if (key := (row["task_id"], row["sample"])) in chosen
        and (several is None or several in (row["grading"], row["task"], row["extraction"]))
    }


def _timing(run: Run) -> Timing | None:
    try:
        return timing(run)
    except ValueError:  # imported samples have no times, which is no reason to withhold the rest
        return None
