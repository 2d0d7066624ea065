"""What can happen in a story: the operations, and the ways to begin.

Each is a sentence, a few statements of Python and a rule of arithmetic on the running number.
A quantity is written by number: 0 is the first one that the sentence names.

What this file does not do: put them together (structures.py), choose names or values, render text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Kind = Literal["helper", "define", "set", "update", "if", "while", "for", "return"]
Part = int | str
Role = Literal["things", "people", "containers", "occasions"]

CALL = "call("
"""Stands for the name of the helper function and its opening bracket."""


@dataclass(frozen=True)
class Statement:
    """One line of a program (a helper function: its two lines)."""

    kind: Kind
    operator: str = ""
    """The arithmetic of an update or a helper, the comparison of a branch."""
    operand: tuple[Part, ...] = ()
    """Pieces of text, and the numbers of quantities."""
    depth: int = 1
    alike: tuple[str, ...] = ()
    """Comparisons that mean the same here, this one included."""

    def shifted(self, offset: int) -> Statement:
        """The same with its quantities counted from `offset`."""
        parts = tuple(part + offset if isinstance(part, int) else part for part in self.operand)
        return replace(self, operand=parts)


Rule = Callable[[int, Sequence[int]], "int | None"]


@dataclass(frozen=True)
class Operation:
    """A step of a story. A beginning is one that starts from nothing."""

    name: str
    sentences: tuple[str, ...]
    """The ways to say it; {0} and {1} are quantities, {She} and {she} the person's pronoun."""
    statements: tuple[Statement, ...]
    rule: Rule = field(compare=False)
    """The number afterwards; None where the values make no sensible story (half of seven)."""
    roles: tuple[Role, ...] = ()
    """The sort of noun that each quantity is."""
    ranges: tuple[tuple[int, int] | None, ...] = ()
    """The smallest and largest value of each quantity; None: near the number so far, on either side
    of it, so that branches go both ways."""
    branches: bool = False
    """Whether it may leave the number as it was."""
    helper: bool = False
    """A beginning whose program has a helper function."""


def _update(operator: str, *operand: Part, depth: int = 1) -> Statement:
    return Statement("update", operator, operand, depth)


def _positive(number: int) -> int | None:
    return number if number > 0 else None


def _until(number: int, values: Sequence[int]) -> int | None:
    limit, fewer = values
    while number > limit:
        number -= fewer
    return _positive(number)


def _helped(name: str, verb: str, operator: str, rule: Rule) -> Operation:
    return Operation(
        name,
        ("has some {0} and some {1} and " + verb + " both.",),
        (
            Statement("helper", operator, ("2",)),
            Statement("define"),
            Statement("set", "", (CALL, 0, ")")),
            _update(" + ", CALL, 1, ")"),
        ),
        rule,
        ("things", "things"),
        ((6, 40), (6, 40)),
        helper=True,
    )


BEGINNINGS: dict[str, Operation] = {
    begin.name: begin
    for begin in (
        Operation(
            "one",
            ("has some {0}.", "picks some {0}."),
            (Statement("define"), Statement("set", "", (0,))),
            lambda _, q: q[0],
            ("things",),
            ((12, 60),),
        ),
        Operation(
            "two",
            ("has some {0} and some {1}.", "picks some {0} and some {1}."),
            (Statement("define"), Statement("set", "", (0, " + ", 1))),
            lambda _, q: q[0] + q[1],
            ("things", "things"),
            ((6, 40), (6, 40)),
        ),
        _helped("double_both", "doubles", " * ", lambda _, q: 2 * q[0] + 2 * q[1]),
        _helped(
            "halve_both",
            "halves",
            " // ",
            lambda _, q: None if q[0] % 2 or q[1] % 2 else q[0] // 2 + q[1] // 2,
        ),
    )
}

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation(
            "gain",
            ("{She} buys some {0}.", "Then {she} finds some {0}."),
            (_update(" + ", 0),),
            lambda n, q: n + q[0],
            ("things",),
            ((3, 30),),
        ),
        Operation(
            "lose",
            ("The {0} take one each.", "The {0} eat one each."),
            (_update(" - ", 0),),
            lambda n, q: _positive(n - q[0]),
            ("people",),
            ((2, 9),),
        ),
        Operation(
            "double", ("Then {she} doubles them.",), (_update(" * ", "2"),), lambda n, _: n * 2
        ),
        Operation(
            "half",
            ("{She} sells half of them.", "{She} gives half of them away."),
            (_update(" // ", "2"),),
            lambda n, _: None if n % 2 else n // 2,
        ),
        Operation(
            "fill",
            ("{She} fills the {0} with that many each.",),
            (_update(" * ", 0),),
            lambda n, q: n * q[0],
            ("containers",),
            ((2, 6),),
        ),
        Operation(
            "share",
            ("The {0} share them evenly and {she} gets one share.",),
            (_update(" // ", 0),),
            lambda n, q: None if n % q[0] else n // q[0],
            ("people",),
            ((2, 9),),
        ),
        Operation(
            "rest",
            ("The {0} share them evenly and {she} keeps the rest.",),
            (_update(" % ", 0),),
            lambda n, q: _positive(n % q[0]),
            ("people",),
            ((3, 12),),
        ),
        Operation(
            "at_most",
            ("{She} keeps at most one for each of the {0}.",),
            (
                Statement("if", " > ", (0,), alike=(" > ", " >= ")),
                Statement("set", "", (0,), 2),
            ),
            lambda n, q: min(n, q[0]),
            ("containers",),
            (None,),
            branches=True,
        ),
        Operation(
            "at_least",
            ("{She} makes sure of at least one for each of the {0}.",),
            (
                Statement("if", " < ", (0,), alike=(" < ", " <= ")),
                Statement("set", "", (0,), 2),
            ),
            lambda n, q: max(n, q[0]),
            ("people",),
            (None,),
            branches=True,
        ),
        Operation(
            "bonus",
            ("If they outnumber the {0}, {she} adds some {1}.",),
            (Statement("if", " > ", (0,)), _update(" + ", 1, depth=2)),
            lambda n, q: n + q[1] if n > q[0] else n,
            ("people", "things"),
            (None, (3, 30)),
            branches=True,
        ),
        Operation(
            "daily",
            ("{She} finds some {0} on each of the {1}.", "{She} buys some {0} on each of the {1}."),
            (Statement("for", "", (1,)), _update(" + ", 0, depth=2)),
            lambda n, q: n + q[0] * q[1],
            ("things", "occasions"),
            ((3, 12), (2, 6)),
        ),
        Operation(
            "until",
            ("While they outnumber the {0}, the {1} take one each.",),
            (Statement("while", " > ", (0,)), _update(" - ", 1, depth=2)),
            _until,
            ("containers", "people"),
            (None, (2, 9)),
            branches=True,
        ),
    )
}
