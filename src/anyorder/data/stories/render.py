"""Statements -> the program's lines, each a list of pieces.

How a statement is written depends on its names, on a `Layout` (the length of things, layout.py) and
on `Words` (alternatives of the same length, wording.py). All of them give the same function.

What this file does not do: make those choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from anyorder.data.stories import pieces as p
from anyorder.data.stories.operations import CALL, Part, Statement

MAX_LINE_TOKENS = 10

Line = list[str]


class Form(StrEnum):
    """How long a statement is written. Only lengths differ: every added word is fixed."""

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
    """With an intermediate variable on a line of its own."""


@dataclass(frozen=True)
class Layout:
    """The length of everything in one program."""

    suffix: int
    """Tokens after the name of the running number: 0 to 3."""
    forms: tuple[Form, ...]
    """One for each statement."""


@dataclass(frozen=True)
class Words:
    """What stands in the places where a word of the same length could stand."""

    own: tuple[str, ...]
    """One for each statement: the name it gives the running number, the comparison it makes, the
    head of the loop, or the helper's parameter."""
    helper: str
    """The helper's name with its bracket; empty where there is no helper."""


class Scope(NamedTuple):
    """What a statement can see."""

    names: tuple[str, ...]
    suffix: tuple[str, ...]
    local: str
    word: str
    helper: str

    def fill(self, parts: Sequence[Part]) -> Line:
        """The pieces of an operand."""
        return [
            self.names[part] if isinstance(part, int) else self.helper if part == CALL else part
            for part in parts
        ]


def _update(statement: Statement, form: Form, scope: Scope) -> tuple[list[Line], str]:
    indent, operand = p.INDENT[statement.depth], scope.fill(statement.operand)
    # A name may change where it is assigned, but not in a block that may be skipped or repeated.
    name = scope.word if statement.depth == 1 else scope.local
    head = [indent, name, *scope.suffix, p.ASSIGN, scope.local, *scope.suffix, statement.operator]
    if form is Form.SHORT or len(head) + len(operand) + 1 > MAX_LINE_TOKENS:
        name = scope.local
        head = [indent, name, *scope.suffix, p.AUGMENTED[statement.operator]]
    if form is Form.SPARE:
        kept = [indent, p.EXTRA, p.ASSIGN, *operand, p.NEWLINE]
        return [kept, [*head, p.EXTRA, p.NEWLINE]], name
    return [[*head, *operand, p.NEWLINE]], name


def _return(form: Form, scope: Scope) -> list[Line]:
    local = [scope.local, *scope.suffix]
    if form is Form.SPARE:
        kept = [p.INDENT[1], p.ANSWER, p.ASSIGN, *local, p.NEWLINE]
        return [kept, [p.RETURN, p.ANSWER, p.NEWLINE]]
    return [[p.RETURN, *local, p.NEWLINE]]


def _bare(statement: Statement, form: Form, scope: Scope) -> tuple[list[Line], str]:
    local = [scope.local, *scope.suffix]
    operand = scope.fill(statement.operand)
    match statement.kind:
        case "update":
            return _update(statement, form, scope)
        case "set":
            name = scope.word if statement.depth == 1 else scope.local
            target = [p.INDENT[statement.depth], name, *scope.suffix]
            return [[*target, p.ASSIGN, *operand, p.NEWLINE]], name
        case "if" | "while":
            opener = p.IF if statement.kind == "if" else p.WHILE
            lines = [[opener, *local, scope.word, *operand, p.COLON, p.NEWLINE]]
        case "for":
            lines = [[scope.word, *operand, p.CLOSE_BLOCK, p.NEWLINE]]
        case "return":
            lines = _return(form, scope)
        case "define":
            listed = [piece for name in operand for piece in (name, p.COMMA)][:-1]
            lines = [[p.DEFINE, *listed, p.CLOSE_BLOCK, p.NEWLINE]]
        case "helper":
            lines = [
                [p.DEFINE_HELPER, scope.helper, scope.word, p.CLOSE_BLOCK, p.NEWLINE],
                [p.RETURN, scope.word, statement.operator, *operand, p.NEWLINE],
            ]
    return lines, scope.local


def write(statement: Statement, form: Form, scope: Scope) -> tuple[list[Line], str]:
    """The lines of one statement and the name that the running number has after it."""
    lines, local = _bare(statement, form, scope)
    if form is Form.REMARK:
        lines.insert(len(lines) - 1, [p.INDENT[statement.depth], *p.REMARK, p.NEWLINE])
    if form in (Form.TAG, Form.NOTE):
        comment = p.TAG if form is Form.TAG else p.NOTE
        lines[-1] = [*lines[-1][:-1], *comment, p.NEWLINE]
    return lines, local


def program(
    statements: Sequence[Statement], names: tuple[str, ...], layout: Layout, words: Words
) -> list[Line]:
    """The whole program; its last line has no newline."""
    lines: list[Line] = []
    suffix, local = p.SUFFIXES[layout.suffix], ""
    for statement, form, word in zip(statements, layout.forms, words.own, strict=True):
        written, local = write(statement, form, Scope(names, suffix, local, word, words.helper))
        lines += written
    lines[-1].pop()
    return lines
