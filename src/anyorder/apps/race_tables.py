"""A race in words: the same tables for a terminal (rich) and for a page (Markdown).

Every number carries its interval. Conditions that are not equal are said above each table, not in a
note below it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table as RichTable

from anyorder.apps.race_families import ONE, SEVERAL
from anyorder.apps.race_results import Results, Timed
from anyorder.measure.intervals import Interval

UNEQUAL = "NOT EQUAL CONDITIONS"
FRONT = "*"
NOTHING = "-"
WIDEST = 160


@dataclass(frozen=True)
class Table:
    """A titled table, and what stands below it."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def tables_of(results: Results) -> list[Table]:
    """All tables of a race."""
    found = [_entrants(results)]
    for way in (ONE, SEVERAL):
        lanes = results.of_way(way)
        if lanes:
            found.append(_race(results, way, lanes))
    return found


def print_tables(tables: Sequence[Table], console: Console | None = None) -> None:
    """To the terminal; a narrow one wraps rows, no number is cut."""
    console = console or Console(highlight=False, width=max(Console().width, WIDEST))
    for table in tables:
        drawn = RichTable(title=table.title, title_justify="left", box=None, pad_edge=False)
        for head in table.heads:
            drawn.add_column(head, no_wrap=True)
        for row in table.rows:
            drawn.add_row(*row)
        console.print(drawn)
        for note in table.notes:
            console.print(note, style="dim", soft_wrap=True, markup=False)
        console.print()


def markdown(tables: Sequence[Table], heading: str) -> str:
    """A page with all tables."""
    lines = [f"# {heading}", ""]
    for table in tables:
        lines += [f"**{table.title}**", "", _md_row(table.heads)]
        lines.append(_md_row(["---"] * len(table.heads)))
        lines += [_md_row(row) for row in table.rows]
        lines.append("")
        lines += [line for note in table.notes for line in (note, "")]
    return "\n".join(lines).rstrip() + "\n"


def _md_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _warning(results: Results) -> str:
    return "" if results.fairness.equal else f" ({UNEQUAL})"


def _entrants(results: Results) -> Table:
    """Who raced: size, training, likelihood, infilling."""
    rows = []
    for each in results.fairness.facts:
        nats, filled = results.nats.get(each.name), results.infill.get(each.name)
        bound = NOTHING if nats is None or nats.interval is None else _nats(nats.interval)
        rows.append(
            (
                each.name,
                each.family,
                f"{each.parameters:,}",
                "unknown" if each.texts is None else f"{each.texts:,}",
                bound if nats is None or nats.exact or nats.interval is None else f"<= {bound}",
                "not asked" if nats is None else nats.name,
                NOTHING if filled is None else _percent(filled.rate),
                NOTHING if filled is None else filled.told,
            )
        )
    heads = (
        *("model", "family", "parameters", "training texts", "nats per answer", "which is"),
        *("middle filled, %", "told of the gap"),
    )
    notes = [f"{UNEQUAL}: {line}" for line in results.fairness.differences]
    notes += [f"not known: {line}" for line in results.fairness.unknown]
    if results.nats:
        notes.append(
            f"nats per answer: {results.texts} held-out texts, less is better; what is <= is a "
            "bound, and the truth may be far below it"
        )
    if results.gaps or results.gaps_left_out:
        notes.append(
            f"middle filled: {results.gaps} held-out programs; {results.gaps_left_out} more are "
            "left out, which some model cannot hold"
        )
    return Table(f"The entrants{_warning(results)}", heads, tuple(rows), tuple(notes))


def _race(results: Results, way: str, lanes: Sequence[Timed]) -> Table:
    several, k = way == SEVERAL, lanes[0].rate.k
    about = results.conditions
    title = (
        f"{k} attempts at temperature {about.temperature:g}"
        if several
        else "One attempt at temperature 0"
    )
    setting = f" at {about.reference_setting}" if about.reference_setting else ""
    reference = f"x {about.reference}{setting}"
    heads = ["", "model", "setting", *(["pass@1, %"] if several else []), f"pass@{k}, %"]
    heads += [f"ms of {k}" if several else "ms", "median ms", "CPU ms", "calls", reference]
    rows = [_row(lane, several) for lane in lanes]
    notes = [
        f"{FRONT}: on the Pareto front, nothing else is both as fast and as often right; "
        f"{about.problems} problems, 95 % intervals over them",
        f"batch 1, {about.threads} {'thread' if about.threads == 1 else 'threads'} on "
        f"{about.device}, problem by problem in shuffled order, warm-up left out; median, CPU and "
        "calls are of one sample",
    ]
    if about.busy:
        notes.append(
            f"other work ran on this machine (mean load {about.load:.1f} on {about.processors} "
            "processors): read the ratios, not the milliseconds"
        )
    return Table(f"{title}{_warning(results)}", tuple(heads), tuple(rows), tuple(notes))


def _row(lane: Timed, several: bool) -> tuple[str, ...]:
    first = [_percent(lane.rates[0].interval)] if several else []
    return (
        FRONT if lane.front else "",
        lane.entrant,
        lane.setting or NOTHING,
        *first,
        _percent(lane.rate.interval),
        _ms(lane.total_seconds),
        f"{1000 * lane.median_seconds.estimate:.0f}",
        f"{1000 * lane.cpu_seconds.estimate:.0f}",
        f"{lane.forwards.estimate:.1f}",
        _between(lane.against, "{:.2f}"),
    )


def _percent(value: Interval) -> str:
    return _between(value.times(100), "{:.0f}")


def _ms(value: Interval) -> str:
    return _between(value.times(1000), "{:.0f}")


def _nats(value: Interval) -> str:
    return _between(value, "{:.2f}")


def _between(value: Interval, form: str) -> str:
    if math.isnan(value.low):
        return form.format(value.estimate)
    low, high = form.format(value.low), form.format(value.high)
    return f"{form.format(value.estimate)} ({low} to {high})"
