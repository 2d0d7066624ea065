"""Who takes part: the models in words, the rules for the order, and the command of every run.

The main numbers of the main runs in one table, for the top of the page.
"""

from __future__ import annotations

from pathlib import PurePath

from anyorder.report.glossary import TERMS
from anyorder.report.runs import Material, RunFacts, main_runs, sampling
from anyorder.report.sections.order import leftmost, place, writes_lines
from anyorder.report.sections.similarity import METRIC
from anyorder.report.tables import (
    NOTHING,
    POLICIES_MEAN,
    Cell,
    Figure,
    Section,
    Table,
    apart,
    count,
    foldable,
    interval_of,
    label,
    missing,
    rate,
    score,
)

TITLE = "The models, and how they were made to write"


def section(material: Material) -> Section:
    """One line for each family, and a table of all runs."""
    gathered = material.gathered
    families = list(dict.fromkeys(run.title for run in gathered))
    told = [
        f"**{name}** ([[{name}|{_full(name)}]]). {TERMS[name].means}"
        for name in families
        if name in TERMS
    ]
    ways = {run.policy: run.way for run in gathered if run.policy in POLICIES_MEAN}
    figures = []
    if ways:
        told.append("Which place comes next is decided by a rule, the [[policy]].")
        rules = tuple((label(way), Cell(POLICIES_MEAN[policy])) for policy, way in ways.items())
        figures.append(
            Figure(
                title="The rules for the order",
                commands=sampling(gathered.runs),
                tables=(Table(("rule", "what it does"), rules),),
            )
        )
    rows = tuple(
        (
            label(run.label, run.name),
            Cell(PurePath(run.model).name or NOTHING),
            Cell(run.task or "imported"),
            count(len({trace.task_id for trace in run.traces})),
            count(run.samples),
            _temperature(run),
        )
        for run in gathered
    )
    heads = (
        "[[run]]",
        "model",
        "task",
        "[[problem|problems]]",
        "[[sample|samples]] each",
        "[[temperature]]",
    )
    return Section(
        slug="models",
        title=TITLE,
        short="The models",
        text=tuple(told),
        figures=(
            *figures,
            Figure(
                title="All runs of this report",
                commands=sampling(gathered.runs),
                tables=(foldable(heads, rows, f"{len(rows)} runs"),),
            ),
        ),
    )


def _temperature(run: RunFacts) -> Cell:
    value = run.options.get("temperature")
    return missing() if value is None else Cell(f"{value:g}", number=True)


def _full(name: str) -> str:
    """What an acronym stands for: what stands in brackets in the glossary's title."""
    return TERMS[name].title.partition("(")[2].rstrip(")")


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
