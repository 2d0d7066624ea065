"""Which Python token belongs to which statement (appendix D, "Parsing into trees").

Tokens are those of the standard `tokenize`, as character spans of the source; those without width
(DEDENT, the newline after the last line) do not count. A token belongs to the deepest syntax node
that overlaps it, hence to the statement that holds this node. So a statement's own newline and
indentation belong to the compound statement around it, `except`, `case` and `else` to their Try,
Match and If, a docstring to its owner; comments and newlines at the top belong to nobody.

The same on every Python: from 3.12 on an f-string comes in pieces, which are joined again, and
what stands inside one is not looked at (before 3.12 its positions are wrong); names that earlier
releases break up are whole.

Only statements and the outermost expressions below them are looked at: an expression never holds
a statement, and inside it everything has the same owner.
"""

from __future__ import annotations

import ast
import io
import re
import token as kinds
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from anyorder.measure.syntax_statements import Statement

NOBODY = -1

_NEWLINE = re.compile(r"\r\n|\r|\n")
_LONE_RETURN = re.compile(r"\r(?!\n)")
_ENDS = {"FSTRING_START": "FSTRING_END", "TSTRING_START": "TSTRING_END"}


class Token(NamedTuple):
    """A token with width: `source[start:end]`."""

    start: int
    end: int
    kind: str
    """The name that `tokenize` gives; an f-string is a STRING."""
    node: int
    """The number of its statement, or NOBODY."""


def assign_tokens(source: str, tree: Sequence[Statement], *, compat: bool = False) -> list[Token]:
    """The tokens of a program, each with the statement it belongs to.

    `compat` takes the beginnings of lines from `str.splitlines`, as the release does: form feeds
    and other rare separators then shift everything after them.
    """
    starts = _line_starts(source, compat)
    owner = _owners(source, tree, starts)
    return [
        Token(start, end, kind, max(owner[start:end])[1])
        for start, end, kind in _whole_names(_spans(source, starts))
    ]


def _spans(source: str, starts: list[int]) -> Iterator[tuple[int, int, str]]:
    """(start, end, kind) of the tokens with width; after an error, those before it."""
    size = len(source)
    # A lone carriage return ends a line for the parser, but not for every release of tokenize.
    readable = _LONE_RETURN.sub("\n", source)
    opened: list[tuple[str, tuple[int, int]]] = []
    try:
        for item in tokenize.generate_tokens(io.StringIO(readable, newline="\n").readline):
            kind, begin = kinds.tok_name[item.type], item.start
            if kind in _ENDS:
                opened.append((_ENDS[kind], begin))
                continue
            if opened:
                if kind != opened[-1][0]:
                    continue
                begin = opened.pop()[1]
                if opened:
                    continue
                kind = "STRING"
            start = _place(starts, *begin, size)
            if begin is item.start and source.startswith(item.string, start):
                end = start + len(item.string)  # early releases of 3.12 misplace some ends
            else:
                end = _place(starts, *item.end, size)
            blank = kind == "ERRORTOKEN" and item.string.isspace()
            if end > start and not blank and kind not in ("ENCODING", "ENDMARKER"):
                yield start, end, kind
    except (tokenize.TokenError, SyntaxError):
        return


def _whole_names(spans: Iterable[tuple[int, int, str]]) -> Iterator[tuple[int, int, str]]:
    """The same with every name in one piece.

    Before 3.12 a character such as the middle dot breaks a name up and is an ERRORTOKEN itself, as
    is the blank before it (which `_spans` leaves out); a program that parses has no others.
    """
    held: tuple[int, int, str] | None = None
    for start, end, kind in spans:
        if held is not None and held[1] == start and _goes_on(held[2], kind):
            held = held[0], end, "NAME"
            continue
        if held is not None:
            yield held
        held = start, end, kind
    if held is not None:
        yield held


def _goes_on(kind: str, following: str) -> bool:
    return kind in ("NAME", "ERRORTOKEN") and following in ("NAME", "ERRORTOKEN", "NUMBER")


def _place(starts: list[int], line: int, column: int, size: int) -> int:
    return min(starts[line - 1] + column, size) if line <= len(starts) else size


def _owners(source: str, tree: Sequence[Statement], starts: list[int]) -> list[tuple[int, int]]:
    """Per character: (rank, statement number) of the deepest node over it; (0, NOBODY) for none.

    Nodes are painted from shallow to deep and, at one depth, from wide to narrow.
    """
    numbers = {id(node): statement.number for statement in tree for node in statement.nodes}
    columns = _Columns(source, starts)
    found = []  # (depth, -width, start, end, owner)
    waiting: list[tuple[ast.AST, int, int]] = [(tree[0].nodes[0], 0, 0)]
    while waiting:
        node, depth, above = waiting.pop()
        number = numbers.get(id(node), above)
        if getattr(node, "end_lineno", None) is not None:
            start, end = columns.span(node)
            if end > start:
                found.append((depth, start - end, start, end, number))
            if isinstance(node, ast.expr):
                continue
        waiting += [(child, depth + 1, number) for child in ast.iter_child_nodes(node)]
    owner = [(0, NOBODY)] * len(source)
    # Equal in depth and width: the one that comes first in the source stays on top.
    found.sort(key=lambda item: (item[0], item[1], -item[2]))
    for rank, (_, _, start, end, number) in enumerate(found, 1):
        owner[start:end] = [(rank, number)] * (end - start)
    return owner


class _Columns:
    """Places of syntax nodes in characters; the parser counts the bytes of UTF-8."""

    def __init__(self, source: str, starts: list[int]) -> None:
        self.source, self.starts = source, starts
        self.ascii = source.isascii()
        self.lines: dict[int, bytes] = {}

    def span(self, node: ast.AST) -> tuple[int, int]:
        start = self._place(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end = self._place(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        size = len(self.source)
        return min(start, size), min(end, size)

    def _place(self, line: int, column: int) -> int:
        if line > len(self.starts):
            return len(self.source)
        if not self.ascii:
            column = self._characters(line, column)
        return self.starts[line - 1] + column

    def _characters(self, line: int, column: int) -> int:
        if line not in self.lines:
            end = self.starts[line] if line < len(self.starts) else len(self.source)
            text = self.source[self.starts[line - 1] : end]
            self.lines[line] = text.encode("utf-8", "surrogatepass")
        return len(self.lines[line][:column].decode("utf-8", "ignore"))


def _line_starts(source: str, compat: bool) -> list[int]:
    if not compat:
        return [0, *(match.end() for match in _NEWLINE.finditer(source))]
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts
