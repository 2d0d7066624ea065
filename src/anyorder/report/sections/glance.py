"""The main numbers of the main runs in one table, for the top of the page."""

from __future__ import annotations

from anyorder.report.records import interval_of
from anyorder.report.runs import RunFacts
from anyorder.report.sections.material import Material, main_runs
from anyorder.report.sections.order import leftmost, place, writes_lines
from anyorder.report.sections.section import Cell, Table, apart, label, missing, rate, score
from anyorder.report.sections.similarity import METRIC

ROWS = 9


def glance(material: Material) -> Table:
    """A row for each main run; a column that no run has is left out."""
    runs = main_runs(material.gathered.runs, ROWS)
    columns = {
        "[[passed|pass all tests]]": [_passed(run) for run in runs],
        "[[leftmost|leftmost token first]]": [_leftmost(run) for run in runs],
        "[[CBC|blocks previewed]], 0 strict to 1 random": [_place(run) for run in runs],
        "[[ASTD|like left to right]]": [_like(run, material) for run in runs],
        "[[network call|network calls]]": [_calls(run) for run in runs],
    }
    known = {name: cells for name, cells in columns.items() if any(cells)}
    rows = tuple(
        (label(run.label), *(cells[at] or missing() for cells in known.values()))
        for at, run in enumerate(runs)
    )
    return Table(("run", *known), rows)


def _passed(run: RunFacts) -> Cell | None:
    return rate(run.rates[0].interval) if run.rates else None


def _leftmost(run: RunFacts) -> Cell | None:
    record = leftmost(run)
    return rate(interval_of(record["interval"])) if record else None


def _place(run: RunFacts) -> Cell | None:
    found = None if writes_lines(run) else place(run, "cbc")
    return apart(found, 2) if found else None


def _like(run: RunFacts, material: Material) -> Cell | None:
    for each in material.comparisons:
        for row in each.rows:
            if row.run is run and row.filter == "valid":
                return score(row.scores[METRIC], 2)
    return None


def _calls(run: RunFacts) -> Cell | None:
    calls = run.timing.forwards if run.timing else None
    return score(calls, 1) if calls else None
