"""Tables for the benchmarks: Markdown that also reads well in a terminal. A library of the scripts.

Numbers are given as text: each script knows how many digits it can stand for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anyorder.report.tables import Table, to_markdown


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table: names are left-aligned, everything else is right-aligned."""
    lines = tuple(tuple(map(str, row)) for row in rows)
    return to_markdown(Table(tuple(head), lines, align="lr"), even=True)


def show(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table below its title."""
    print(f"\n{title}:\n\n{table(head, rows)}", flush=True)
