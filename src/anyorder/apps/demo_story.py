"""What the demo tells in the terminal: a table of runs, one of likeness, and plain sentences.

All numbers are read from the run folders, as the report does (report/runs.py); every rate has its
interval, and the order stands between its two controls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anyorder.apps.reporting import Reported
from anyorder.report.likeness import Comparison
from anyorder.report.records import bounds, interval_of, percent, percent_bounds, shown
from anyorder.report.runs import RunFacts

ORDER, LIKENESS = "tau", "ASTD"
FAMILIES = ("ar", "mdm", "planner", "flexmdm", "latentmdm", "flexlatent", "duo", "sflm")


def tell(console: Console, reported: Reported) -> None:
    """Print the story of a report's runs, and its sentences."""
    material = reported.material
    console.print("\nWho is right, and in which order was it written?", style="bold")
    console.print(_runs_table(list(material.gathered)))
    console.print(
        "right: programs that pass all tests in the sandbox, with a 95 % interval.\n"
        "order: Kendall's tau of place and time; 1 is left to right, 0 is random.\n",
        style="dim",
    )
    if material.comparisons:
        console.print("Does the order change the program?", style="bold")
        console.print(_likeness_table(material.comparisons))
        console.print(
            "likeness: of syntax trees with those the same model writes from left to right.\n",
            style="dim",
        )
    for finding in reported.findings:
        head = in_terminal(f"**{finding.topic}.** {finding.says}")
        console.print(Text("* ").append_text(head))
        for detail in finding.details:
            console.print(Padding(in_terminal(detail), (0, 0, 0, 2)), style="dim")


def _runs_table(runs: Sequence[RunFacts]) -> Table:
    table = _table("run", "right", "", "order", "")
    for run in runs:
        order = run.measures.get("arness")
        if order is None or not _is_main(run):
            continue
        tau = interval_of(order["aggregate"][ORDER]["interval"])
        rate = run.rates[0].interval
        table.add_row(
            run.name,
            percent(rate.estimate),
            percent_bounds(rate),
            shown(tau.estimate),
            bounds(tau),
        )
    return table


def story_place(folder: Path) -> tuple[int, bool]:
    """By family, in the order of the story; what was drawn several times comes last."""
    family, _, way = folder.name.partition("-")
    return FAMILIES.index(family), way == "drawn"


def _is_main(run: RunFacts) -> bool:
    """Whether a run is told of here; those of several segments a step are for the report."""
    return bool(run.rates) and run.options.get("k") in (None, 1)


def _likeness_table(found: Sequence[Comparison]) -> Table:
    table = _table("run", "likeness", "")
    for comparison in found:
        for row in comparison.rows:
            if row.filter == "valid" and _is_main(row.run) and LIKENESS in row.scores:
                score = row.scores[LIKENESS]
                table.add_row(row.run.name, shown(score.estimate), bounds(score))
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


_MARKS = re.compile(
    r"\*\*(?P<bold>[^*]+)\*\*|\[\[(?:[^\]|]*\|)?(?P<term>[^\]]+)\]\]|`(?P<code>[^`]+)`"
)


def in_terminal(sentence: str) -> Text:
    """A sentence of the report: its terms plain, its heading bold."""
    text, end = Text(), 0
    for mark in _MARKS.finditer(sentence):
        text.append(sentence[end : mark.start()])
        kind = mark.lastgroup
        assert kind is not None
        text.append(mark[kind], style="bold" if kind == "bold" else "")
        end = mark.end()
    return text.append(sentence[end:])
