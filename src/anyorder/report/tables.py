"""Tables and numbers as people read them: on a page, in Markdown and in a terminal.

There is one `Table` and one way to write a number. `to_html`, `to_markdown` and `print_table` draw
the same table. A page writes numbers with a real minus sign, a dash for a missing number and
no-break spaces; Markdown and terminals get the plain signs of a keyboard.

Also here: the parts of a section as plain data (page.py turns them into HTML), the names of
policies and tasks, and a label for every run.

Texts of the report use three marks: [[term]] or [[term|as it reads]] for a glossary term,
`backticks` for code and **stars** for emphasis. Everything else is literal. Only `to_html` renders
the marks, through the function that it gets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from rich.box import Box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from anyorder.measure.intervals import Interval

if TYPE_CHECKING:
    from anyorder.report.charts import Drawing

NOTHING = "\N{EN DASH}"
MOST_DIGITS = 4
EXACT = 1e-9
"""Numbers closer than this count as equal."""
WIDEST = 160
"""The least width of a table; a narrower terminal wraps its lines."""
_PLAIN_SIGNS = str.maketrans({NOTHING: "-", "\N{MINUS SIGN}": "-", "\N{NO-BREAK SPACE}": " "})


def interval_of(record: Mapping[str, Any]) -> Interval:
    """The inverse of `Interval.to_record`."""
    numbers = {name: number_of(record[name]) for name in ("estimate", "low", "high")}
    return Interval(**numbers, n=record["n"], level=record["level"], method=record["method"])


def number_of(value: float | None) -> float:
    """A stored number; null is NaN."""
    return math.nan if value is None else float(value)


def shown(value: float, digits: int = 2) -> str:
    """A number in a table."""
    if math.isnan(value):
        return NOTHING
    text = f"{value:.{digits}f}"
    if not any(figure in text for figure in "123456789"):
        text = text.removeprefix("-")  # a zero has no sign
    return text.replace("-", "\N{MINUS SIGN}")


def percent(value: float, digits: int = 0) -> str:
    """A share from 0 to 1 in per cent, with a no-break space."""
    return NOTHING if math.isnan(value) else f"{shown(100 * value, digits)}\N{NO-BREAK SPACE}%"


def bounds(interval: Interval, digits: int = 2) -> str:
    """The ends of an interval, or a dash if they are unknown."""
    if math.isnan(interval.low):
        return NOTHING
    return f"{shown(interval.low, digits)} to {shown(interval.high, digits)}"


def percent_bounds(interval: Interval, digits: int = 0) -> str:
    """The same in per cent."""
    if math.isnan(interval.low):
        return NOTHING
    low, high = shown(100 * interval.low, digits), shown(100 * interval.high, digits)
    return f"{low} to {high}\N{NO-BREAK SPACE}%"


def with_bounds(interval: Interval, digits: int = 2) -> str:
    """An estimate and its interval, if known: 0.52 (0.41 to 0.63)."""
    return _with_small(shown(interval.estimate, digits), bounds(interval, digits))


def in_keyboard_signs(text: str) -> str:
    """A written number with the signs of a keyboard only."""
    return text.translate(_PLAIN_SIGNS)


def _with_small(text: str, small: str) -> str:
    return f"{text} ({small})" if small not in ("", NOTHING) else text


def is_different(interval: Interval) -> bool:
    """Whether the interval of a difference excludes zero."""
    return not math.isnan(interval.low) and (interval.low > 0 or interval.high < 0)


def digits_of(interval: Interval, digits: int = 2) -> int:
    """The digits that a difference needs so that rounding does not contradict it.

    It adds digits, up to `MOST_DIGITS`, while a nonzero end reads as zero, or while the estimate
    reads like an end that differs from it.
    """
    ends = (interval.low, interval.high)
    if any(math.isnan(value) for value in (*ends, interval.estimate)):
        return digits
    while digits < MOST_DIGITS:
        zero, middle = shown(0.0, digits), shown(interval.estimate, digits)
        misread = any(
            (abs(end) > EXACT and shown(end, digits) == zero)
            or (abs(end - interval.estimate) > EXACT and shown(end, digits) == middle)
            for end in ends
        )
        if not misread:
            break
        digits += 1
    return digits


def difference(interval: Interval, digits: int = 2) -> str:
    """A difference and its interval, with the digits that they need."""
    enough = digits_of(interval, digits)
    estimate, low, high = (
        "0" if abs(value) <= EXACT else shown(value, enough)
        for value in (interval.estimate, interval.low, interval.high)
    )
    return f"{estimate} ({NOTHING if math.isnan(interval.low) else f'{low} to {high}'})"


def points(interval: Interval, digits: int = 0) -> str:
    """A difference of two shares in percentage points, with its interval."""
    return f"{difference(interval.times(100), digits)} percentage points"


@dataclass(frozen=True)
class Cell:
    """One entry of a table: a text, and its interval or a note in small print."""

    text: str
    small: str = ""
    number: bool = False


@dataclass(frozen=True)
class Table:
    """Heads, rows, a title above and notes below. A plain string is a cell without small print."""

    heads: tuple[str, ...]
    """Empty: a list of facts, each a name and a value."""
    rows: tuple[tuple[Cell | str, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    align: str = "l"
    """A letter for each column, l(eft) or r(ight), in Markdown and terminals. The last letter holds
    for all further columns. A page aligns by cell instead: numbers are on the right."""
    folded: bool = False
    """A page hides it until the reader unfolds it."""

    def is_right(self, column: int) -> bool:
        return self.align[min(column, len(self.align) - 1)] == "r"


def to_html(table: Table, text: Callable[[str], str] = escape, about: str = "") -> str:
    """A table in a box that scrolls sideways; page.js adds a hint if it does.

    `text` turns heads, cells and notes into HTML; `about` names the box for screen readers.
    """
    heads = "".join(f'<th scope="col">{text(head)}</th>' for head in table.heads)
    rows = "".join(_html_row(tuple(map(_cell, row)), text) for row in table.rows)
    inside = (
        f'<div class="scroll" role="region" aria-label="Table: {escape(about or table.title)}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
        + "".join(f"<p>{text(note)}</p>" for note in table.notes)
    )
    said = text(table.title)
    if table.folded:
        return f'<details class="more"><summary>{said}</summary>{inside}</details>'
    return (f'<p class="table-title">{said}</p>' if said else "") + inside


def _html_row(row: Sequence[Cell], text: Callable[[str], str]) -> str:
    first, *rest = row
    cells = f'<th scope="row">{_html_cell(first, text)}</th>'
    for cell in rest:
        kind = ' class="number"' if cell.number else ""
        cells += f"<td{kind}>{_html_cell(cell, text)}</td>"
    part = ' class="is-part"' if not first.text else ""
    return f"<tr{part}>{cells}</tr>"


def _html_cell(cell: Cell, text: Callable[[str], str]) -> str:
    small = f"<small>{text(cell.small)}</small>" if cell.small else ""
    return text(cell.text) + small


def to_markdown(table: Table, *, even: bool = False) -> str:
    """The title, the table and its notes, a blank line between them.

    `even` pads all cells to the width of their column, so that the source reads as a table.
    """
    # A bar would end the cell.
    lines = [[_line(cell).replace("|", "/") for cell in row] for row in (table.heads, *table.rows)]
    rule = []
    for at in range(len(table.heads)):
        width = max(3, *(len(line[at]) for line in lines)) if even else 3
        right = table.is_right(at)
        rule.append("-" * (width - 1) + ":" if right else "-" * width)
        for line in lines if even else ():
            line[at] = line[at].rjust(width) if right else line[at].ljust(width)
    drawn = "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:]))
    title = [f"**{table.title}**"] if table.title else []
    return "\n\n".join([*title, drawn, *table.notes])


def print_table(table: Table, console: Console, box: Box | None = None) -> None:
    """Print the title, the table and its notes to a terminal.

    Columns with heads do not wrap: use a console that is wide enough (`wide_console`).
    """
    # `Text` throughout: rich would read brackets in a plain string as its own markup.
    title = Text(table.title, style="table.title") if table.title else None
    drawn = RichTable(
        title=title, title_justify="left", box=box, pad_edge=False, show_header=bool(table.heads)
    )
    for at, head in enumerate(table.heads or [""] * len(table.rows[0])):
        drawn.add_column(
            Text(head),
            justify="right" if table.is_right(at) else "left",
            no_wrap=bool(table.heads),
        )
    for row in table.rows:
        drawn.add_row(*(Text(_line(cell)) for cell in row))
    console.print(drawn)
    for note in table.notes:
        console.print(note, style="dim", soft_wrap=True, markup=False)


def print_tables(tables: Iterable[Table], console: Console | None = None) -> None:
    """Several tables, a blank line after each."""
    console = console or wide_console()
    for table in tables:
        print_table(table, console)
        console.print()


def wide_console() -> Console:
    """A console that cuts no cell; a narrow terminal wraps whole lines."""
    return Console(highlight=False, width=max(Console().width, WIDEST))


def _cell(given: Cell | str) -> Cell:
    return Cell(given) if isinstance(given, str) else given


def _line(given: Cell | str) -> str:
    """A cell in one line, small print in brackets."""
    cell = _cell(given)
    text = _with_small(cell.text, cell.small)
    return in_keyboard_signs(text) if cell.number else text


@dataclass(frozen=True)
class Figure:
    """A drawing, or tables alone, with a title and the commands that made it."""

    title: str
    commands: tuple[str, ...]
    """The commands that made it, in order."""
    drawing: Drawing | None = None
    caption: str = ""
    """How to read it."""
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Section:
    """A question and its answer."""

    slug: str
    title: str
    short: str
    """The title in the contents list."""
    text: tuple[str, ...]
    """Two or three plain sentences a paragraph."""
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Absent:
    """A section for which these runs hold no data."""

    title: str
    why: str
    commands: tuple[str, ...]
    """The commands that would create the data."""


MOST_ROWS = 12
"""Longer tables are folded."""


def foldable(heads: tuple[str, ...], rows: tuple[tuple[Cell, ...], ...], title: str) -> Table:
    """A table, folded if it is long."""
    return Table(heads, rows, title, folded=len(rows) > MOST_ROWS)


def rate(interval: Interval) -> Cell:
    """A share in per cent with its interval."""
    return Cell(percent(interval.estimate, 1), percent_bounds(interval, 1), number=True)


def score(interval: Interval, digits: int = 3) -> Cell:
    """A score with its interval."""
    return Cell(shown(interval.estimate, digits), bounds(interval, digits), number=True)


def apart(interval: Interval, digits: int = 3) -> Cell:
    """A difference, with the digits that its interval needs."""
    return score(interval, digits_of(interval, digits))


def plain(value: float, digits: int = 3) -> Cell:
    """A number without an interval, such as a control."""
    return Cell(shown(value, digits), number=True)


def missing() -> Cell:
    """A missing number."""
    return Cell(NOTHING, number=True)


def count(value: int) -> Cell:
    """A whole number."""
    return Cell(f"{value:,}".replace(",", "\N{NO-BREAK SPACE}"), number=True)


POLICIES = {
    "left_to_right": "left to right",
    "right_to_left": "right to left",
    "random": "random order",
    "confidence": "surest token first",
    "sampled": "surest draw first",
    "margin": "clearest winner first",
    "entropy": "least doubt first",
    "planner": "as its planner says",
    "ancestral": "all places at once",
    "flow": "all places settle together",
    "average": "best line first",
    "minimum": "best weakest token first",
    "first": "surest start first",
}

# Settings that may distinguish two runs of the same family and policy, in words.
_SETTINGS: dict[str, str] = {
    "k": "{} at a time",
    "insertion_temperature": "insertion temperature {}",
    "temperature": "temperature {}",
    "top_p": "top-p {}",
    "steps": "{} steps",
    "block": "blocks of {}",
    "remask": "remasking {}",
    "correct": "at most {} corrections",
    "clock": "{}",
    "mode": "mode {}",
    "quota": "quota {}",
    "slots": "{} slots",
    "tail": "tail {}",
    "velocity": "velocity {}",
    "insertion_schedule": "insertion schedule {}",
    "task": "{}",
    "samples": "{} samples",
    "batch": "batch {}",
    "seed": "seed {}",
    "model": "{}",
}

# Defaults, which a label does not mention.
_USUAL = {"temperature": 0.0, "samples": 1, "top_p": 1.0, "quota": "thinned", "correct": 0}

_VALUES = {"events": "one change at a time", "steps": "in fixed steps"}
"""Values of the clock, in words."""

POLICIES_MEAN = {
    "left_to_right": "the leftmost open slot comes next",
    "right_to_left": "the rightmost open slot comes next",
    "random": "the next slot is drawn at random",
    "confidence": "the slot whose most likely token has the highest probability comes next",
    "sampled": "the slot whose drawn token has the highest probability comes next",
    "margin": "the slot whose most likely token leads the second by most comes next",
    "entropy": "the slot with the least spread-out probabilities comes next",
    "planner": "a small second network, the [[planner]], says which slots are ready to be revealed",
    "ancestral": "nothing is chosen: in every step every place may change",
    "flow": "nothing is chosen: all places move from noise towards tokens together",
    "average": "the line whose tokens have the best [[log-probability]] on average comes next",
    "minimum": "the line whose weakest token has the best [[log-probability]] comes next",
    "first": "the line whose first token has the best [[log-probability]] comes next",
}
"""Marked text."""

TASKS = {
    "stories": "small word problems, each answered by a short Python function",
    "trails": "shuffled facts, of which a short Python function follows one chain",
    "humaneval": "Python functions to be completed from their description",
    "humaneval+": "Python functions to be completed from their description, with more tests",
    "humaneval-infilling": "gaps in Python functions to be filled in",
    "mbpp": "short Python functions asked for in a sentence",
    "mbpp+": "short Python functions asked for in a sentence, with more tests",
    "livecodebench": "problems of programming contests",
    "gsm8k": "school word problems, answered by a program",
}
"""Tasks in a few words."""


def policy_title(policy: str) -> str:
    """The policy in words; empty for a model without one."""
    return POLICIES.get(policy, policy.replace("_", " "))


def labels_of(runs: Sequence[tuple[str, str, Mapping[str, Any], str]]) -> list[str]:
    """A unique label for each (family, policy, config, name).

    It names only the settings that differ among runs of the same family and policy.
    """
    # Here, because tables of the command line need no descriptions of families.
    from anyorder.families.descriptions import describe

    bases = []
    for family, policy, _, _ in runs:
        known = describe(family)
        way = "" if known.left_to_right else policy_title(policy)
        bases.append(", ".join(word for word in (known.title, way) if word))
    labels = []
    for (_, _, config, _), base in zip(runs, bases, strict=True):
        rivals = [other for (_, _, other, _), same in zip(runs, bases, strict=True) if same == base]
        words = [
            says.format(_shown(_setting(config, setting)))
            for setting, says in _SETTINGS.items()
            if _setting(config, setting) not in (None, _USUAL.get(setting))
            and any(_setting(other, setting) != _setting(config, setting) for other in rivals)
        ]
        labels.append(", ".join([base, *words]))
    return [
        f"{label} ({name})" if labels.count(label) > 1 else label
        for label, (_, _, _, name) in zip(labels, runs, strict=True)
    ]


def _setting(config: Mapping[str, Any], name: str) -> Any:
    options = config.get("options") or {}
    return options[name] if name in options else config.get(name)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else _VALUES.get(str(value), str(value))
