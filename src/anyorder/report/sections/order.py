"""The order in which programs are written: AR-ness, and the tree metrics with their controls.

Paper: figure and table of the any-order metrics (appendix D); docs/order.md, docs/arness.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from anyorder.measure.intervals import Interval
from anyorder.report import charts
from anyorder.report.runs import (
    Material,
    RunFacts,
    drawn_runs,
    family_series,
    main_runs,
    sampling,
    series_of,
    share_bars,
    split_tables,
)
from anyorder.report.tables import (
    Absent,
    Cell,
    Figure,
    Section,
    Table,
    apart,
    bounds,
    interval_of,
    missing,
    number_of,
    percent,
    plain,
    rate,
    score,
    shown,
)

TITLE = "In which order does it write?"
SCOPE, PART = "full_output", "split_only"
CONTROLS = {"left_to_right": "left-to-right order", "random": "random order"}
LINES = {"segments": "random order of whole lines"}
"""A third control, for models that commit whole lines."""
METRICS = {
    "cbc": ("CBC", "previewed before the first is finished"),
    "rub": ("RUB", "left unfinished and returned to"),
    "rub_plus": ("RUB+", "returned to repeatedly"),
    "obw": ("OBW", "open at the same time"),
}
LEFTMOST, TAU = "global@1", "tau"


def section(material: Material) -> Section | Absent:
    """The leftmost-first share and the tree metrics of every run that recorded its steps."""
    runs = [run for run in material.gathered if cell(run, "cbc") is not None and leftmost(run)]
    if not runs:
        return Absent(
            TITLE,
            "No run says when its tokens came: traces of text alone have no steps.",
            ("anyorder sample MODEL --task TASK",),
        )
    return Section(
        slug="order",
        title=TITLE,
        short="Order of writing",
        text=(
            "Two questions. Token by token: is the next one simply the leftmost that is missing "
            "([[leftmost|leftmost-first share]])? And block by block, in the program's "
            "[[tree|statement tree]]: are the parts of a function or a loop written one after the "
            "other, or are several begun, left and returned to?",
            "A high score is not good by itself: random order scores highest. So every bar carries "
            "two [[control|controls]], the same finished programs with their steps dealt out "
            "strictly from left to right, and at random. Read where a bar lies between them.",
        ),
        figures=(_token_figure(runs), _tree_figure(runs)),
    )


def leftmost(run: RunFacts) -> dict[str, Any] | None:
    """The record of the leftmost-first share; None if no sample has one."""
    record = (run.measures.get("arness") or {}).get("aggregate", {}).get(LEFTMOST)
    return record if record and record["samples"] else None


def cell(run: RunFacts, metric: str) -> dict[str, Any] | None:
    """The record of a tree metric over nodes with a choice; None if no sample has one."""
    record = (run.measures.get("order") or {}).get("aggregate", {}).get(SCOPE)
    found = record[PART][metric] if record else None
    return found if found and found["samples"] else None


def _ends(run: RunFacts) -> tuple[Interval, dict[str, float]]:
    """The leftmost-first share of a run, and of its two controls."""
    record = leftmost(run)
    assert record is not None
    return interval_of(record["interval"]), {
        CONTROLS["left_to_right"]: number_of(record["left_to_right"]),
        CONTROLS["random"]: number_of(record["chance"]),
    }


def _token_table(runs: Sequence[RunFacts]) -> Table:
    rows = []
    for run in runs:
        interval, ends = _ends(run)
        tau = run.measures["arness"]["aggregate"][TAU]
        ties = number_of(run.measures["arness"].get("ties"))
        rows.append(
            (
                Cell(run.label, run.name),
                rate(interval),
                *(Cell(percent(value, 1), number=True) for value in ends.values()),
                score(interval_of(tau["interval"]), 2),
                _lines_cell(run),
                Cell(percent(ties, 1), number=True),
            )
        )
    heads = (
        "run",
        "[[leftmost|leftmost first]]",
        *CONTROLS.values(),
        "[[tau]] of tokens",
        "[[tau]] of lines",
        "[[tie|decided by a tie]]",
    )
    return Table(heads, tuple(rows))


def _token_figure(runs: Sequence[RunFacts]) -> Figure:
    drawn = drawn_runs(runs)
    drawing = share_bars(
        "leftmost-first",
        "How often each run reveals the leftmost missing token, with both controls.",
        "tokens that were the leftmost missing one",
        (charts.BarGroup(run.label, (charts.Bar(run.title, *_ends(run)),)) for run in drawn),
        family_series(drawn),
        tuple(CONTROLS.values()),
    )
    return Figure(
        title="How often the next token is the leftmost one that is missing",
        drawing=drawing,
        commands=(*sampling(runs), _measure(runs, "arness")),
        caption="Where several tokens come in one step, not all of them can be the leftmost, so "
        "the left-to-right [[control]] is below 100 %. [[tau|Kendall's tau]] of tokens in random "
        "order is 0; a long line ends late in a random order, so chance for lines may be below.",
        tables=split_tables(_token_table, drawn, runs),
    )


def _tree_figure(runs: Sequence[RunFacts]) -> Figure:
    chosen = main_runs(runs)
    return Figure(
        title="How the parts of a block are written",
        drawing=_tree_drawing(chosen),
        commands=(*sampling(runs), _measure(runs, "order")),
        caption="Over blocks with at least two parts. Place between the two: 0 is strict left to "
        "right, 1 is chance. Models that [[commit]] whole lines cannot leave a line unfinished, so "
        "they carry a third [[control]], the same lines in random order: compare them with that.",
        tables=split_tables(_tree_table, chosen, runs),
    )


def _tree_table(runs: Sequence[RunFacts]) -> Table:
    heads = ("run", *(f"[[{name}|{name}]]: {says}" for name, says in METRICS.values()))
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        records = [cell(run, metric) for metric in METRICS]
        known = [record for record in records if record is not None]
        rows.append((Cell(run.label), *(score(interval_of(r["interval"]), 2) for r in known)))
        for control, says in (CONTROLS | LINES).items():
            if all(control in record["controls"] for record in known):
                values = (number_of(record["controls"][control]) for record in known)
                rows.append((Cell("", says), *(plain(value, 2) for value in values)))
        if all(record["position"] for record in known):
            between = (apart(interval_of(record["position"]), 2) for record in known)
            rows.append((Cell("", "place between the two"), *between))
    return Table(heads, tuple(rows))


def _tree_drawing(runs: Sequence[RunFacts]) -> charts.Drawing:
    groups = []
    for metric, (_, says) in METRICS.items():
        own = []
        for run in runs:
            record = cell(run, metric)
            assert record is not None
            known = record["controls"]
            marks = {
                says: number_of(known[name])
                for name, says in (CONTROLS | LINES).items()
                if name in known
            }
            own.append(charts.Bar(run.label, interval_of(record["interval"]), marks))
        groups.append(charts.BarGroup(says, tuple(own)))
    return charts.bars(
        charts.BarChart(
            name="tree-order",
            alt="Four scores of how the parts of a block are written, with their controls.",
            series=series_of(runs),
            panels=(charts.BarPanel("share of a block's parts", tuple(groups), limits=(0, 1)),),
            controls=tuple((CONTROLS | LINES).values()),
        )
    )


def place(run: RunFacts, metric: str) -> Interval | None:
    """The place of a tree metric between its controls: 0 is left to right, 1 is random."""
    record = cell(run, metric)
    return interval_of(record["position"]) if record and record["position"] else None


def writes_lines(run: RunFacts) -> bool:
    """Whether it commits whole lines; then the place between the two controls says little."""
    return line_order(run)[0] == "segment"


def line_order(run: RunFacts) -> tuple[str, Interval, float] | tuple[None, None, float]:
    """("segment" or "line", Kendall's tau of their order, tau of a random order)."""
    found = (run.measures.get("order") or {}).get("segments") or {}
    for unit in ("segment", "line"):
        if unit in found:
            return unit, interval_of(found[unit]["tau"]), number_of(found[unit]["chance"])
    return None, None, math.nan


def _lines_cell(run: RunFacts) -> Cell:
    _, tau, chance = line_order(run)
    if tau is None:
        return missing()
    return Cell(shown(tau.estimate), f"{bounds(tau)}; chance {shown(chance)}", number=True)


def _measure(runs: Sequence[RunFacts], only: str) -> str:
    return f"anyorder measure {' '.join(run.folder for run in runs)} --only {only}"
