"""The longest run of lines that parses as Python, found without trying every run.

A module is a sequence of top-level statements, and whether one of them parses does not depend on
its neighbours. So from a line where a statement may begin, the run goes on statement by statement
until one fails; of that one the longest beginning that parses is still taken. What is known about a
line is kept, so each statement is parsed once, and not once for every run that holds it.

    range(i) = lines i .. e, where e = the end of the chain of statements that begins at line i
    result   = the range with the most lines that are not blank; of equals the first

That is the rule of the paper's release (trying all runs of at most 100 lines, some 5,000 parses),
with the same result. Nothing here runs a program or raises on any text.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator, Sequence

# What Python's parser says to texts that are no programs: null bytes and surrogates (ValueError),
# nesting beyond its limits (the last three).
UNPARSEABLE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)

_CONTINUES = frozenset({"else", "elif", "except", "finally"})
"""Words that go on with a statement although they stand at the margin."""
LONGEST_LINE = 10_000
"""Characters of the longest line that is looked at: nobody writes such lines, and Python's
tokenisers need minutes for some. A text that parses whole may have longer ones."""
_UNREADABLE = re.compile(r"[\0\ud800-\udfff]|^\s*\\\s*$")
"""Null and surrogates, which not even a comment may hold; and lines that are one backslash, which
Python's tokenisers read in different ways (a text that parses whole may have them)."""
_BETWEEN = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
)


def parse(source: str) -> ast.Module | None:
    """The syntax tree of a text, or None where it is no program."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd escapes in a sample are no concern of the user
            return ast.parse(source)
    except UNPARSEABLE:
        return None


def longest_range(lines: Sequence[str]) -> tuple[int, int]:
    """The first and one past the last line of the longest run that parses; (0, 0): there is none.

    `lines` have no line ends inside (as from `str.splitlines`); each counts as ended.
    """
    solid = [bool(line.strip()) for line in lines]
    if lines and parse("\n".join([*lines, ""])) is not None:
        return (0, len(lines)) if any(solid) else (0, 0)
    chains = _Chains(lines)
    best, most, left = (0, 0), 0, sum(solid)
    for first in range(len(lines)):
        if left <= most:
            break
        stop = chains.stop(first)
        count = sum(solid[first:stop])
        if count > most:
            best, most = (first, stop), count
        left -= solid[first]
    return best


class _Chains:
    """How far the statements go on from each line."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._walls = [
            number
            for number, line in enumerate(lines)
            if len(line) > LONGEST_LINE or _UNREADABLE.search(line)
        ]
        self._walls.append(len(lines))
        self._stops = {wall: wall for wall in self._walls}

    def stop(self, first: int) -> int:
        """One past the last line of the longest run that begins at `first`; `first`: none does."""
        path = []
        stop, whole = first, True
        while whole and stop not in self._stops:
            path.append(stop)
            stop, whole = self._step(stop)
        if whole:
            stop = self._stops[stop]
        for line in path:
            self._stops[line] = stop
        return stop

    def _step(self, first: int) -> tuple[int, bool]:
        """One past what begins at `first` (a comment, a statement), and whether it is whole."""
        line = self._lines[first]
        if _is_empty(line):
            return first + 1, True
        if line[0].isspace():
            return first, False  # nothing can begin with an indented line
        ends, whole = self._statement(first)
        for number, end in enumerate(reversed(ends)):
            if parse("\n".join([*self._lines[first:end], ""])) is not None:
                return (end, True) if whole and number == 0 else (self._over_empty(end), False)
        return first, False

    def _over_empty(self, first: int) -> int:
        while first not in self._walls and _is_empty(self._lines[first]):
            first += 1
        return first

    def _statement(self, first: int) -> tuple[list[int], bool]:
        """Where the statement that begins at `first` may end, and whether the last is its end."""
        ends: list[int] = []
        wall = next(wall for wall in self._walls if wall > first)
        complete = False  # not while there is nothing but decorators
        try:
            for text, column, end in _logical_lines(self._lines[first:wall]):
                if complete and column == 0 and text not in _CONTINUES:
                    return ends, True
                complete = complete or text != "@"
                if complete:
                    ends.append(first + end)
        except (tokenize.TokenError, SyntaxError, ValueError):
            return ends, False  # an open string or bracket, or indentation that fits nowhere
        return ends, True


def _logical_lines(lines: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """The first token, its column, and one past the last line, of each logical line."""
    started: tuple[str, int] | None = None
    source = io.StringIO("\n".join([*lines, ""]))
    for token in tokenize.generate_tokens(source.readline):
        if token.type == tokenize.NEWLINE:
            if started is not None:
                yield *started, token.start[0]
            started = None
        elif token.type == tokenize.ERRORTOKEN and token.string.isascii():
            raise tokenize.TokenError("not a token of Python", token.start)
        elif token.type == tokenize.ENDMARKER:
            return
        elif token.type not in _BETWEEN and started is None:
            started = token.string, token.start[1]


def _is_empty(line: str) -> bool:
    """Whether the line, outside strings, has no code."""
    text = line.strip()
    return not text or text.startswith("#")
