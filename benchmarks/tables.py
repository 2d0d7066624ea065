"""Tables for the benchmarks: Markdown that also reads well in a terminal. A library of the scripts.

Numbers are given as text: each script knows how many digits it can stand for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table: names on the left, everything else to the right."""
    lines = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(_line(row, widths) for row in (lines[0], rule, *lines[1:]))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(row, widths, strict=True)
    cells = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]
    return f"| {' | '.join(cells)} |"


def show(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table below its title."""
    print(f"\n{title}:\n\n{table(head, rows)}", flush=True)
