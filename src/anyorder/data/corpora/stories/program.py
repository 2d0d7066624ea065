"""Programs of the corpus `stories`: operations, structures, vocabulary, and how lines are written.

An operation (or beginning) is a sentence, a few statements of Python and a rule of arithmetic on
the running number. A quantity is written by number: 0 is the first one that the sentence names.

A structure is a beginning and two operations, or a beginning with a helper function and one. Its
composition is the ordered pair of operations, or for the latter the beginning and its operation.
The compositions of a fixed list are held out: no structure with one of them is ever in `train`,
whatever its beginning, while each beginning and each operation is, and in each place.

PIECES are all pieces of text of a story. Names of quantities are bare words and the pieces around
them carry the spaces, so that a name is the same token in the prompt, in the parameter list and in
an expression. "\\n" is a separate piece and part of no other, so that lines are runs of whole
tokens. The longest match cuts a rendered story into the pieces it was rendered from: a property of
the lists, and tested.

How a statement is written depends on its names, on a `StoryLayout` (lengths) and on
`Words` (alternatives of the same length), both drawn in problem.py. All give the same function.

Not here: choosing names, values, layout or words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, cached_property
from typing import Literal, NamedTuple

from anyorder.vocab import Vocab

StatementKind = Literal["helper", "define", "set", "update", "if", "while", "for", "return"]
LinePart = int | str
Role = Literal["things", "people", "containers", "occasions"]

CALL = "call("
"""A placeholder for the name of the helper function and its opening bracket."""


@dataclass(frozen=True)
class StoryStatement:
    """One line of a program (a helper function: its two lines)."""

    kind: StatementKind
    operator: str = ""
    """The arithmetic of an update or a helper, the comparison of a branch."""
    operand: tuple[LinePart, ...] = ()
    """Pieces of text, and the numbers of quantities."""
    depth: int = 1
    alike: tuple[str, ...] = ()
    """Comparisons that mean the same here, this one included."""

    def shifted(self, offset: int) -> StoryStatement:
        """The same with its quantities counted from `offset`."""
        parts = tuple(part + offset if isinstance(part, int) else part for part in self.operand)
        return replace(self, operand=parts)


OperationRule = Callable[[int, Sequence[int]], "int | None"]


@dataclass(frozen=True)
class Operation:
    """A step of a story. A beginning is one that starts from nothing."""

    name: str
    sentences: tuple[str, ...]
    """Its wordings; {0} and {1} are quantities, {She} and {she} the person's pronoun."""
    statements: tuple[StoryStatement, ...]
    rule: OperationRule = field(compare=False)
    """The number afterwards; None if the values make no sensible story (half of seven)."""
    roles: tuple[Role, ...] = ()
    """The sort of noun that each quantity is."""
    ranges: tuple[tuple[int, int] | None, ...] = ()
    """The smallest and largest value of each quantity; None: near the number so far, on either side
    of it, so that branches go both ways."""
    branches: bool = False
    """Whether it may leave the number as it was."""
    helper: bool = False
    """A beginning whose program has a helper function."""


def _update(operator: str, *operand: LinePart, depth: int = 1) -> StoryStatement:
    return StoryStatement("update", operator, operand, depth)


def _positive(number: int) -> int | None:
    return number if number > 0 else None


def _until(number: int, values: Sequence[int]) -> int | None:
    limit, fewer = values
    while number > limit:
        number -= fewer
    return _positive(number)


def _helped(name: str, verb: str, operator: str, rule: OperationRule) -> Operation:
    return Operation(
        name,
        ("has some {0} and some {1} and " + verb + " both.",),
        (
            StoryStatement("helper", operator, ("2",)),
            StoryStatement("define"),
            StoryStatement("set", "", (CALL, 0, ")")),
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
            (StoryStatement("define"), StoryStatement("set", "", (0,))),
            lambda _, q: q[0],
            ("things",),
            ((12, 60),),
        ),
        Operation(
            "two",
            ("has some {0} and some {1}.", "picks some {0} and some {1}."),
            (StoryStatement("define"), StoryStatement("set", "", (0, " + ", 1))),
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
                StoryStatement("if", " > ", (0,), alike=(" > ", " >= ")),
                StoryStatement("set", "", (0,), 2),
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
                StoryStatement("if", " < ", (0,), alike=(" < ", " <= ")),
                StoryStatement("set", "", (0,), 2),
            ),
            lambda n, q: max(n, q[0]),
            ("people",),
            (None,),
            branches=True,
        ),
        Operation(
            "bonus",
            ("If they outnumber the {0}, {she} adds some {1}.",),
            (StoryStatement("if", " > ", (0,)), _update(" + ", 1, depth=2)),
            lambda n, q: n + q[1] if n > q[0] else n,
            ("people", "things"),
            (None, (3, 30)),
            branches=True,
        ),
        Operation(
            "daily",
            ("{She} finds some {0} on each of the {1}.", "{She} buys some {0} on each of the {1}."),
            (StoryStatement("for", "", (1,)), _update(" + ", 0, depth=2)),
            lambda n, q: n + q[0] * q[1],
            ("things", "occasions"),
            ((3, 12), (2, 6)),
        ),
        Operation(
            "until",
            ("While they outnumber the {0}, the {1} take one each.",),
            (StoryStatement("while", " > ", (0,)), _update(" - ", 1, depth=2)),
            _until,
            ("containers", "people"),
            (None, (2, 9)),
            branches=True,
        ),
    )
}


MAX_QUANTITIES = 4
"""So that the parameter list fits in a line of ten tokens."""

HELD_OUT: frozenset[tuple[str, str]] = frozenset(
    {
        ("gain", "share"),
        ("share", "gain"),
        ("lose", "double"),
        ("double", "lose"),
        ("half", "at_most"),
        ("at_most", "half"),
        ("fill", "rest"),
        ("rest", "fill"),
        ("at_least", "lose"),
        ("share", "at_least"),
        ("gain", "until"),
        ("until", "double"),
        ("bonus", "share"),
        ("half", "bonus"),
        ("daily", "rest"),
        ("lose", "daily"),
        ("double_both", "rest"),
        ("double_both", "until"),
        ("halve_both", "gain"),
        ("halve_both", "at_most"),
    }
)
"""The compositions that only the split `heldout` has, under every beginning they can follow."""

_SCALING = frozenset({"double", "half"})
"""These would be pointless next to one another, or after a helper that does the same."""


@dataclass(frozen=True)
class Structure:
    """A beginning and its operations."""

    begin: Operation
    operations: tuple[Operation, ...]

    @property
    def name(self) -> str:
        """Such as "two-lose-share"."""
        return "-".join(step.name for step in self.steps)

    @property
    def steps(self) -> tuple[Operation, ...]:
        """The beginning and the operations, in order."""
        return (self.begin, *self.operations)

    @property
    def composition(self) -> tuple[str, str]:
        """The pair that is in HELD_OUT or not."""
        names = [step.name for step in (self.steps if self.begin.helper else self.operations)]
        assert len(names) == 2
        return names[0], names[1]

    @cached_property
    def statements(self) -> tuple[StoryStatement, ...]:
        """The program's statements, quantities numbered in the order of the prompt."""
        lines: list[StoryStatement] = []
        quantities = 0
        for step in self.steps:
            lines += [statement.shifted(quantities) for statement in step.statements]
            quantities += len(step.roles)
        define = StoryStatement("define", operand=tuple(range(quantities)))
        lines = [define if line.kind == "define" else line for line in lines]
        return (*lines, StoryStatement("return"))


def _all_structures() -> list[Structure]:
    found = []
    for begin in BEGINNINGS.values():
        for first in OPERATIONS.values():
            if begin.helper:  # the helper has lines too, so only one operation follows
                if first.name not in _SCALING:
                    found.append(Structure(begin, (first,)))
                continue
            for second in OPERATIONS.values():
                quantities = sum(len(step.roles) for step in (begin, first, second))
                pointless = first is second or {first.name, second.name} == _SCALING
                if quantities <= MAX_QUANTITIES and not pointless:
                    found.append(Structure(begin, (first, second)))
    return found


@cache
def structures(split: str) -> dict[str, tuple[Structure, ...]]:
    """All structures of a split, by the name of their beginning."""
    table: dict[str, tuple[Structure, ...]] = {}
    for structure in _all_structures():
        if (structure.composition in HELD_OUT) == (split == "heldout"):
            table[structure.begin.name] = (*table.get(structure.begin.name, ()), structure)
    return table


NOUNS: dict[str, tuple[str, ...]] = {
    "things": (
        "apples", "pears", "plums", "figs", "limes",
        "lemons", "peaches", "cherries", "melons", "oranges",
    ),
    "people": ("guests", "friends", "children", "cousins", "neighbours", "players"),
    "containers": ("boxes", "bags", "jars", "baskets", "bowls", "trays"),
    "occasions": ("days", "trips", "walks", "visits"),
}  # fmt: skip
"""The names of quantities, by the sort of noun."""

WOMEN = ("Mia", "Ana", "Eva")
MEN = ("Tom", "Ben", "Leo")

PROSE = (
    " has", " picks", " buys", " finds", " sells", " gives", " doubles", " halves", " fills",
    " gets", " keeps", " makes", " adds", " take", " eat", " share", " outnumber", " does", " have",
    " She", " He", " she", " he", ", she", ", he", " they", " them", " both", " that", " many",
    " The ", " the ", ", the ", " some ", " each of the ", " each", " one", " half", " of",
    " away", "rest", " evenly", " sure", " at", " most", " least", " for", " with", " on", " and",
    " Then", " If", " While", " How many", " now?", ".",
)  # fmt: skip

LOCALS = ("total", "count", "amount", "tally", "stock", "pile", "heap", "store")
"""Names for the running number, the plain one first, as in the lists below."""

PARAMETERS = ("number", "value", "size", "given")
DOUBLING = ("twice(", "double(", "doubled(", "two_of(")
HALVING = ("half(", "halve(", "halved(", "half_of(")
LOOPS = tuple(f"    for {name} in range(" for name in ("_", "i", "k", "turn"))
EXTRA, ANSWER = "extra", "answer"

OPERATORS = (" + ", " - ", " * ", " // ", " % ")
AUGMENTED = {operator: f" {operator.strip()}= " for operator in OPERATORS}
COMPARISONS = (" > ", " < ", " >= ", " <= ")

DEFINE, DEFINE_HELPER, CLOSE, CLOSE_BLOCK = "def solve(", "def ", ")", "):"
INDENT, NEWLINE = {1: "    ", 2: "        "}, "\n"
RETURN, IF, WHILE = "    return ", "    if ", "    while "
ASSIGN, COMMA, COLON, TWO = " = ", ", ", ":", "2"

PROGRAM = (
    DEFINE, DEFINE_HELPER, CLOSE, CLOSE_BLOCK, *INDENT.values(), NEWLINE, RETURN, IF, WHILE,
    ASSIGN, COMMA, COLON, TWO, *OPERATORS, *AUGMENTED.values(), *COMPARISONS,
    *LOCALS, *PARAMETERS, *DOUBLING, *HALVING, *LOOPS, EXTRA, ANSWER,
)  # fmt: skip

SUFFIXES = ((), ("_now",), ("_so", "_far"), ("_up", "_to", "_now"))
"""Suffixes of the name of the running number, which makes it one to four tokens long."""

TAG, NOTE, REMARK = ("  # done",), ("  # as", " told"), ("# next", " step")
FREE = ("_now", "_so", "_far", "_up", "_to", *TAG, *NOTE, *REMARK)

STATED, NAME_LENGTHS = "Layout:", (" 1", " 2", " 3", " 4")

PIECES: tuple[str, ...] = (
    *(noun for nouns in NOUNS.values() for noun in nouns),
    *WOMEN, *MEN, *PROSE, *PROGRAM, *FREE, STATED, *NAME_LENGTHS,
    " plain", " tag", " note", " remark", " short", " spare",
)  # fmt: skip


@cache
def stories_vocab() -> Vocab:
    """The vocabulary of the corpus, the same for all dials."""
    return Vocab.words(PIECES)


MAX_LINE_TOKENS = 10

ProgramLine = list[str]


class Form(StrEnum):
    """The length of a statement. Only lengths differ: every added word is fixed."""

    PLAIN = "plain"
    TAG = "tag"
    """With a comment of one token at the end of the line."""
    NOTE = "note"
    """With a comment of two tokens at the end of the line."""
    REMARK = "remark"
    """With a line of comment above it."""
    SHORT = "short"
    """An augmented assignment instead of one written out."""
    SPARE = "spare"
    """With an intermediate variable on a separate line."""


@dataclass(frozen=True)
class StoryLayout:
    """The length of everything in one program."""

    suffix: int
    """Tokens after the name of the running number: 0 to 3."""
    forms: tuple[Form, ...]
    """One for each statement."""


@dataclass(frozen=True)
class Words:
    """The choices among words of the same length."""

    own: tuple[str, ...]
    """One for each statement: the name it gives the running number, the comparison it makes, the
    head of the loop, or the helper's parameter."""
    helper: str
    """The helper's name with its bracket; empty where there is no helper."""


class StoryScope(NamedTuple):
    """The names that a statement can use."""

    names: tuple[str, ...]
    suffix: tuple[str, ...]
    local: str
    word: str
    helper: str

    def fill(self, parts: Sequence[LinePart]) -> ProgramLine:
        """The pieces of an operand."""
        return [
            self.names[part] if isinstance(part, int) else self.helper if part == CALL else part
            for part in parts
        ]


def _written_update(
    statement: StoryStatement, form: Form, scope: StoryScope
) -> tuple[list[ProgramLine], str]:
    indent, operand = INDENT[statement.depth], scope.fill(statement.operand)
    # A name may change where it is assigned, but not in a block that may be skipped or repeated.
    name = scope.word if statement.depth == 1 else scope.local
    head = [indent, name, *scope.suffix, ASSIGN, scope.local, *scope.suffix, statement.operator]
    if form is Form.SHORT or len(head) + len(operand) + 1 > MAX_LINE_TOKENS:
        name = scope.local
        head = [indent, name, *scope.suffix, AUGMENTED[statement.operator]]
    if form is Form.SPARE:
        kept = [indent, EXTRA, ASSIGN, *operand, NEWLINE]
        return [kept, [*head, EXTRA, NEWLINE]], name
    return [[*head, *operand, NEWLINE]], name


def _return(form: Form, scope: StoryScope) -> list[ProgramLine]:
    local = [scope.local, *scope.suffix]
    if form is Form.SPARE:
        kept = [INDENT[1], ANSWER, ASSIGN, *local, NEWLINE]
        return [kept, [RETURN, ANSWER, NEWLINE]]
    return [[RETURN, *local, NEWLINE]]


def _bare(
    statement: StoryStatement, form: Form, scope: StoryScope
) -> tuple[list[ProgramLine], str]:
    local = [scope.local, *scope.suffix]
    operand = scope.fill(statement.operand)
    match statement.kind:
        case "update":
            return _written_update(statement, form, scope)
        case "set":
            name = scope.word if statement.depth == 1 else scope.local
            target = [INDENT[statement.depth], name, *scope.suffix]
            return [[*target, ASSIGN, *operand, NEWLINE]], name
        case "if" | "while":
            opener = IF if statement.kind == "if" else WHILE
            lines = [[opener, *local, scope.word, *operand, COLON, NEWLINE]]
        case "for":
            lines = [[scope.word, *operand, CLOSE_BLOCK, NEWLINE]]
        case "return":
            lines = _return(form, scope)
        case "define":
            listed = [piece for name in operand for piece in (name, COMMA)][:-1]
            lines = [[DEFINE, *listed, CLOSE_BLOCK, NEWLINE]]
        case "helper":
            lines = [
                [DEFINE_HELPER, scope.helper, scope.word, CLOSE_BLOCK, NEWLINE],
                [RETURN, scope.word, statement.operator, *operand, NEWLINE],
            ]
    return lines, scope.local


def write(
    statement: StoryStatement, form: Form, scope: StoryScope
) -> tuple[list[ProgramLine], str]:
    """The lines of one statement and the name that the running number has after it."""
    lines, local = _bare(statement, form, scope)
    if form is Form.REMARK:
        lines.insert(len(lines) - 1, [INDENT[statement.depth], *REMARK, NEWLINE])
    if form in (Form.TAG, Form.NOTE):
        comment = TAG if form is Form.TAG else NOTE
        lines[-1] = [*lines[-1][:-1], *comment, NEWLINE]
    return lines, local


def program(
    statements: Sequence[StoryStatement], names: tuple[str, ...], layout: StoryLayout, words: Words
) -> list[ProgramLine]:
    """The whole program; its last line has no newline."""
    lines: list[ProgramLine] = []
    suffix, local = SUFFIXES[layout.suffix], ""
    for statement, form, word in zip(statements, layout.forms, words.own, strict=True):
        written, local = write(
            statement, form, StoryScope(names, suffix, local, word, words.helper)
        )
        lines += written
    lines[-1].pop()
    return lines
