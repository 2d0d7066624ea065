"""`anyorder measure`: runs -> order, AR-ness, diversity, similarity, placement -> measures.json.

Each measure is a function of measure/ (or, for placement, of apps/placement.py); this file calls
them for some runs and keeps what they find in the run folders. measures.json holds the digest of
the traces and one entry per measure of them (order: per mode); a measure taken again replaces its
own entry and leaves the others. What can be refused is refused before the work begins,
and a run's own measures are kept as soon as they are there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anyorder.apps.measure_job import MeasureJob
from anyorder.apps.progress_bar import progress_bar
from anyorder.files import COPY_IT, alone_in, replacing
from anyorder.measure.arness import ArnessTable, arness
from anyorder.measure.diversity import DiversityTable, diversity
from anyorder.measure.order import order
from anyorder.measure.order_table import OrderTable
from anyorder.measure.placement_table import PlacementTable
from anyorder.measure.programs import ProgramOptions, Programs
from anyorder.measure.similarity import SimilarityOptions, similarity
from anyorder.measure.similarity_table import SimilarityTable
from anyorder.measure.stored import MEASURES_FILE, SCHEMA, stored_measures, traces_digest
from anyorder.trace import Run
from anyorder.trace.card import installed_versions
from anyorder.trace.run import open_runs


@dataclass
class Measured:
    """What was found, by the names of the runs."""

    runs: dict[str, Run]
    mode: str
    order: dict[str, OrderTable] = field(default_factory=dict)
    arness: dict[str, ArnessTable] = field(default_factory=dict)
    diversity: DiversityTable | None = None
    similarity: SimilarityTable | None = None
    reference_traces: str | None = None
    """The digest of the traces that similarity is to."""
    placement: dict[str, PlacementTable] = field(default_factory=dict)

    def to_record(self, *, nodes: bool = True) -> dict[str, Any]:
        """As JSON: per run and measure, with every sample and, if asked for, every node."""
        return {
            "runs": {
                name: {"run": str(run.folder), **self.of_run(name, nodes=nodes)}
                for name, run in self.runs.items()
            }
        }

    def of_run(self, name: str, *, nodes: bool) -> dict[str, Any]:
        """The entries of one run's measures.json."""
        found: dict[str, Any] = {}
        if name in self.order:
            found["order"] = {self.mode: self.order[name].to_record(nodes=nodes)}
        if name in self.arness:
            found["arness"] = self.arness[name].to_record()
        if self.diversity is not None:
            found["diversity"] = _part(self.diversity.to_record(), name)
        if self.similarity is not None:
            record = _part(self.similarity.to_record(), name)
            found["similarity"] = {**record, "reference_traces": self.reference_traces}
        if name in self.placement:
            found["placement"] = self.placement[name].to_record()
        return found


def measure_runs(job: MeasureJob, *, progress: bool = True) -> Measured:
    """Take the measures, write measures.json into every run, and return what was found."""
    measured, wanted = Measured(open_runs(job.runs), job.mode), job.chosen()
    for run in measured.runs.values():
        stored_measures(run)
    programs, references = _compared(measured, job)
    options = SimilarityOptions(programs=ProgramOptions(trees=job.tree))
    per_run: dict[str, Callable[[str, Run], None]] = {
        # First what may still be refused: a model that did not make the run.
        "placement": lambda name, run: measured.placement.update(
            {name: _placement(run, job, progress)}
        ),
        "order": lambda name, run: measured.order.update(
            {name: order(run, job.mode, seeds=range(job.seeds))}
        ),
        "arness": lambda name, run: measured.arness.update({name: arness(run)}),
    }
    steps = len(measured.runs) * len(set(wanted) & set(per_run)) + len(set(wanted) - set(per_run))
    with progress_bar("measuring", steps, shown=progress) as advance:
        for name, run in measured.runs.items():
            for measure in (each for each in per_run if each in wanted):
                per_run[measure](name, run)
                advance(1)
            _store(run, measured.of_run(name, nodes=False))
        if "diversity" in wanted:
            measured.diversity = diversity(programs, options)
            advance(1)
        if "similarity" in wanted:
            measured.similarity = similarity(programs, references, options)
            advance(1)
    for name, run in measured.runs.items():
        _store(run, measured.of_run(name, nodes=False))
    return measured


def _compared(measured: Measured, job: MeasureJob) -> tuple[list[Programs], list[Programs]]:
    """The programs of the runs, and those of the reference, as far as they are compared."""
    if not {"diversity", "similarity"} & {*job.chosen()}:
        return [], []
    base = {} if job.reference is None else open_runs((job.reference,))
    measured.reference_traces = next((traces_digest(run) for run in base.values()), None)
    programs, references = (
        [Programs.of_run(run, name, extraction=job.extraction) for name, run in runs.items()]
        for runs in (measured.runs, base)
    )
    return programs, references


def _placement(run: Run, job: MeasureJob, progress: bool) -> PlacementTable:
    from anyorder.apps.placement import placement  # torch, which nothing else here needs

    assert job.placement is not None
    return placement(
        run,
        job.placement,
        progress=progress,
        stride=job.stride,
        region=job.region,
        any_model=job.any_model,
    )


def _part(record: dict[str, Any], name: str) -> dict[str, Any]:
    """Of a table over several runs, what concerns one of them; its ceiling stays."""

    def concerns(row: Mapping[str, Any]) -> bool:
        return row.get("ceiling") or name in (row.get("policy"), row.get("left"), row.get("right"))

    return {
        key: [row for row in rows if concerns(row)] if key in ("rows", "differences") else rows
        for key, rows in record.items()
    }


def _store(run: Run, found: dict[str, Any]) -> None:
    with alone_in(run.folder, COPY_IT):
        record = stored_measures(run)
        for measure, entry in found.items():
            kept = record.get(measure, {}) if measure == "order" else {}
            record[measure] = {**kept, **entry}
        head = {"schema": SCHEMA, "traces": traces_digest(run), "versions": installed_versions()}
        with replacing(run.folder / MEASURES_FILE) as file:
            file.write(json.dumps(head | record, allow_nan=False).encode() + b"\n")
