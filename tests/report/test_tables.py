"""One table and one way to write a number: on a page, in Markdown and in a terminal."""

from __future__ import annotations

import io
import math

from rich.console import Console

from anyorder.measure.intervals import Interval
from anyorder.report.tables import (
    Cell,
    Table,
    bounds,
    in_keyboard_signs,
    missing,
    plain,
    print_table,
    print_tables,
    score,
    shown,
    to_html,
    to_markdown,
    with_bounds,
)

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
BELOW = Interval(-0.25, -0.5, 0.0, 9, 0.95)
ALONE = Interval(0.5, math.nan, math.nan, 1, 0.95)
MADE = Table(
    ("run", "change"),
    (("a|[b]", score(BELOW, 2)), ("c", score(ALONE, 2)), (DASH, missing())),
    title="How much",
    notes=("a [note]",),
    align="lr",
)


def printed(table: Table, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_table(table, console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_an_estimate_carries_its_interval_where_it_has_one() -> None:
    assert with_bounds(BELOW) == f"{MINUS}0.25 ({MINUS}0.50 to 0.00)"
    assert in_keyboard_signs(with_bounds(BELOW)) == "-0.25 (-0.50 to 0.00)"
    assert with_bounds(ALONE) == "0.50"
    assert bounds(ALONE) == shown(math.nan) == DASH
    assert shown(-0.0001, 2) == "0.00"


def test_a_terminal_shows_keyboard_signs_and_no_markup() -> None:
    assert printed(MADE) == [
        "How much",
        "run                   change",
        "a|[b]  -0.25 (-0.50 to 0.00)",
        "c                       0.50",
        f"{DASH}                          -",  # a name stays as it is, a missing number does not
        "a [note]",
    ]


def test_columns_stand_to_the_left_unless_told() -> None:
    assert printed(Table(("a", "b"), (("long", plain(1.0)),))) == ["a     b", "long  1.000"]


def test_a_list_of_facts_has_no_heads_and_wraps() -> None:
    assert printed(Table((), (("name", "one two"), ("x", "3"))), width=10) == [
        "name  one",
        "      two",
        "x     3",
    ]


def test_several_tables_are_wide_and_apart() -> None:
    console = Console(file=io.StringIO(), width=80)
    print_tables([Table(("a",), (("1",),))] * 2, console)
    assert console.file.getvalue().split() == ["a", "1", "a", "1"]
    assert console.file.getvalue().endswith("1\n\n")


def test_markdown_is_as_short_or_as_even_as_asked() -> None:
    assert to_markdown(MADE).splitlines() == [
        "**How much**",
        "",
        "| run | change |",
        "| --- | --: |",
        "| a/[b] | -0.25 (-0.50 to 0.00) |",
        "| c | 0.50 |",
        f"| {DASH} | - |",
        "",
        "a [note]",
    ]
    assert to_markdown(Table(("a", "b"), (("long", "1"),), align="lr"), even=True) == (
        "| a    |   b |\n| ---- | --: |\n| long |   1 |"
    )


def test_a_page_has_small_print_and_typographic_signs() -> None:
    made = to_html(MADE, about="Figure")
    assert 'aria-label="Table: Figure"' in made
    assert f'class="number">{MINUS}0.25<small>{MINUS}0.50 to 0.00</small></td>' in made
    assert made.startswith('<p class="table-title">How much</p>')
    assert made.endswith("<p>a [note]</p>")
    folded = to_html(Table(("<",), ((Cell("&"),),), "More", folded=True))
    assert folded.startswith('<details class="more"><summary>More</summary>')
    assert "&lt;" in folded and '<th scope="row">&amp;</th>' in folded
