"""Who takes part: the models in words, the rules for the order, and the command of every run."""

from __future__ import annotations

from pathlib import PurePath

from anyorder.report.glossary import TERMS
from anyorder.report.labels import POLICIES_MEAN
from anyorder.report.records import NOTHING
from anyorder.report.runs import RunFacts
from anyorder.report.sections.material import Material, sampling
from anyorder.report.sections.section import (
    Cell,
    Figure,
    Section,
    Table,
    count,
    foldable,
    label,
    missing,
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
