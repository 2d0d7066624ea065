"""Programs of the corpus `trails`: operations, their forms, program shapes, and the vocabulary.

A step of a chain makes one quantity (V) of another (U) by an operation. It is written as an
expression in one of three forms, or as two or three statements:

    plums = figs * 2        plums = figs + figs        plums = 0
                                                       for _ in range(2):
                                                           plums += figs

Form 0 of every operation has three tokens, so that at layout 0 each step is one line of seven
tokens, whatever the operation. The shape of a program is how its steps are put together:

    steps      one statement a step, from the start to the goal
    folded     the same, with two neighbouring steps in one expression
    helper     the same, with one step in a function of one argument
    top_down   a function for each quantity, from the goal to the start: the lines are reversed

PIECES are all pieces of text of a problem. In a prompt a name is one token together with its role
("The figs", " are the figs"), in a program it is a bare word. "\\n" is part of no other piece, so
that lines are runs of whole tokens. The longest match cuts every text into the pieces that it was
rendered from: a property of the lists, and tested.

Not here: chains, prompts, draws and answers (problems.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

NAMES = (
    *("apples", "pears", "plums", "figs", "limes", "lemons", "peaches", "cherries", "melons"),
    *("oranges", "guests", "friends", "children", "cousins", "neighbours", "players", "boxes"),
    *("bags", "jars", "baskets", "bowls", "trays", "days", "trips", "walks", "visits"),
)
"""Quantities. A problem takes arms x (hops + 1) different ones."""

INDENT = "    "
U, V = "U", "V"
"""Placeholders in forms: the quantity that a step reads, and the one that it makes."""
LOOP = "LOOP"
"""A placeholder for the variable of a loop, which no statement reads."""

Line = tuple[str, ...]
"""The pieces of one line, without its newline."""


@dataclass(frozen=True)
class Expression:
    """One form of an operation: pieces with `U`."""

    pieces: Line
    bracketed: bool = False
    """Whether another expression can stand for `U` without brackets around it."""


@dataclass(frozen=True)
class TrailOperation:
    """What makes one quantity of another."""

    name: str
    phrase: str
    """The end of its sentence: "The V are the U" and this."""
    rule: Callable[[int], int]
    """The arithmetic, which judges programs and never runs one."""
    forms: tuple[Expression, Expression, Expression]
    statements: tuple[Line, ...]
    """The form of several lines, for the dial `lines`."""


def _operation(
    name: str,
    phrase: str,
    rule: Callable[[int], int],
    forms: tuple[Expression, Expression, Expression],
    *statements: Line,
) -> TrailOperation:
    return TrailOperation(name, f" {phrase}. ", rule, forms, statements)


def _form(*pieces: str, bracketed: bool = False) -> Expression:
    return Expression(pieces, bracketed)


def _changed(test: str, value: str) -> tuple[Line, Line, Line]:
    """Take over a quantity, and replace it where a test holds."""
    return (
        (INDENT, V, " = ", U),
        (INDENT, "if ", V, test, ":"),
        (INDENT, INDENT, V, " = ", value),
    )


OPERATIONS: dict[str, TrailOperation] = {
    each.name: each
    for each in (
        _operation(
            "double",
            "doubled",
            lambda number: number * 2,
            (
                _form(U, " * ", "2"),
                _form(U, " + ", U),
                _form("sum([", U, ", ", U, "])", bracketed=True),
            ),
            (INDENT, V, " = ", "0"),
            (INDENT, "for ", LOOP, " in range(2):"),
            (INDENT, INDENT, V, " += ", U),
        ),
        _operation(
            "halve",
            "halved",
            lambda number: number // 2,
            (_form(U, " // ", "2"), _form("int(", U, " / ", "2", ")"), _form(U, " >> 1")),
            (INDENT, V, " = ", U),
            (INDENT, V, " //= ", "2"),
        ),
        _operation(
            "cap",
            "but at most twenty",
            lambda number: min(number, 20),
            (
                _form("min(", U, ", 20)", bracketed=True),
                _form(U, " if ", U, " < 20", " else ", "20"),
                _form("sorted([", U, ", ", "20", "])", "[0]", bracketed=True),
            ),
            *_changed(" > 20", "20"),
        ),
        _operation(
            "floor",
            "but at least six",
            lambda number: max(number, 6),
            (
                _form("max(", U, ", 6)", bracketed=True),
                _form(U, " if ", U, " > 6", " else ", "6"),
                _form("sorted([", U, ", ", "6", "])", "[-1]", bracketed=True),
            ),
            *_changed(" < 6", "6"),
        ),
        _operation(
            "more",
            "and three",
            lambda number: number + 3,
            (
                _form(U, " + ", "3"),
                _form("sum([", U, ", ", "3", "])", bracketed=True),
                _form("3 + ", U),
            ),
            (INDENT, V, " = ", U),
            (INDENT, V, " += ", "3"),
        ),
        _operation(
            "less",
            "less one",
            lambda number: number - 1,
            (
                _form(U, " - ", "1"),
                _form("sum([", U, ", ", "-1", "])", bracketed=True),
                _form("-1 + ", U),
            ),
            (INDENT, V, " = ", U),
            (INDENT, V, " -= ", "1"),
        ),
        _operation(
            "even",
            "made even",
            lambda number: number - number % 2,
            (
                _form(U, " & ", "-2"),
                _form(U, " // ", "2", " * ", "2"),
                _form(U, " - ", U, " % 2"),
            ),
            (INDENT, V, " = ", U),
            (INDENT, "if ", V, " % 2", ":"),
            (INDENT, INDENT, V, " -= ", "1"),
        ),
    )
}

COMMENTS = ("  # done", "  # next", "  # so far")
"""One token at the end of a line; the first one unless the dial `wording` draws another."""
LOOPS = ("_", "i", "turn")
HELPERS = ("part", "piece", "stage")
ARGUMENTS = ("x", "n", "some")
"""Words of programs that the prompt does not name; likewise."""

Shape = Literal["steps", "folded", "helper", "top_down"]
SHAPES: tuple[Shape, ...] = ("steps", "folded", "helper", "top_down")

STATEMENTS = 3
"""The number of the form that takes several lines; 0 to 2 are expressions."""


@dataclass(frozen=True)
class TrailLayout:
    """What decides where the tokens of a program are: its shape, and the form of each step."""

    shape: Shape
    forms: tuple[int, ...]
    """0 to 2: an expression; 3: statements."""
    comments: tuple[bool, ...]
    """Whether the step's last line ends in a comment."""
    at: int = 0
    """folded: the first of the two steps in one expression; helper: the step of the function."""


@dataclass(frozen=True)
class TrailWords:
    """The words of a program that the prompt does not name. None changes a length."""

    comment: str = COMMENTS[0]
    loop: str = LOOPS[0]
    helper: str = HELPERS[0]
    argument: str = ARGUMENTS[0]


Step = tuple[str, str, TrailOperation]
"""The quantity that is read, the one that is made, and how."""


def _fill(pieces: Line, read: Line, made: str = "", loop: str = "") -> Line:
    """The pieces with the placeholders replaced."""
    filled: list[str] = []
    for piece in pieces:
        filled += read if piece == U else ({V: made, LOOP: loop}.get(piece, piece),)
    return tuple(filled)


def _expression(operation: TrailOperation, form: int, read: Line) -> Line:
    """An operation on `read`, which is a quantity or the pieces of another expression."""
    chosen = operation.forms[form]
    if len(read) > 1 and not chosen.bracketed:
        read = ("(", *read, ")")
    return _fill(chosen.pieces, read)


def _step(step: Step, form: int, words: TrailWords) -> list[Line]:
    read, made, operation = step
    if form == STATEMENTS:
        return [_fill(line, (read,), made, words.loop) for line in operation.statements]
    return [(INDENT, made, " = ", *_expression(operation, form, (read,)))]


def write(steps: Sequence[Step], layout: TrailLayout, words: TrailWords) -> list[Line]:
    """The lines of the program, each with its newline but the last."""
    lines = (
        _top_down(steps, layout, words)
        if layout.shape == "top_down"
        else _down(steps, layout, words)
    )
    return [(*line, "\n") for line in lines[:-1]] + lines[-1:]


def _down(steps: Sequence[Step], layout: TrailLayout, words: TrailWords) -> list[Line]:
    """From the start to the goal, in one function."""
    lines: list[Line] = []
    if layout.shape == "helper":
        inner = _expression(steps[layout.at][2], layout.forms[layout.at], (words.argument,))
        lines += [
            ("def ", words.helper, "(", words.argument, "):"),
            (INDENT, "return ", *inner),
        ]
    lines.append(("def solve():",))
    folded = layout.at if layout.shape == "folded" else -2
    for number, (read, made, operation) in enumerate(steps):
        form, comment = layout.forms[number], layout.comments[number]
        if number == folded:
            continue  # its expression is part of the next line
        if number == folded + 1:
            before = steps[folded]
            inner = _expression(before[2], layout.forms[folded], (before[0],))
            written = [(INDENT, made, " = ", *_expression(operation, form, inner))]
        elif layout.shape == "helper" and number == layout.at:
            written = [(INDENT, made, " = ", words.helper, "(", read, ")")]
        else:
            written = _step((read, made, operation), form, words)
        if comment:
            written[-1] = (*written[-1], words.comment)
        lines += written
    return [*lines, (INDENT, "return ", steps[-1][1])]


def _top_down(steps: Sequence[Step], layout: TrailLayout, words: TrailWords) -> list[Line]:
    """A function for each quantity, the goal's first."""
    lines: list[Line] = [("def solve():",), (INDENT, "return ", steps[-1][1], "()")]
    for number in reversed(range(len(steps))):
        read, made, operation = steps[number]
        # The start of the chain is a quantity; every other name is a function here.
        source = (read,) if number == 0 else (read, "()")
        body = _fill(operation.forms[layout.forms[number]].pieces, source)
        comment = (words.comment,) if layout.comments[number] else ()
        lines += [("def ", made, "():"), (INDENT, "return ", *body, *comment)]
    return lines


def program_pieces() -> list[str]:
    """Every piece of a program but names: read off the forms, and those that `write` adds."""
    found = [INDENT, "\n", "def solve():", "def ", "return ", " = ", "(", ")", "():", "()", "):"]
    for operation in OPERATIONS.values():
        lines = [*(form.pieces for form in operation.forms), *operation.statements]
        found += [piece for line in lines for piece in line if piece not in (U, V, LOOP)]
    return [*found, *COMMENTS, *LOOPS, *HELPERS, *ARGUMENTS]
