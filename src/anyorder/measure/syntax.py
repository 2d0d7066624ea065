"""Text to a syntax tree: every program gets a status, never an exception.

The fallbacks are those of the paper's release (appendix D, "Parsing into trees"), tried in order,
first success wins:

    whole           the text, stripped
    fenced          the first fenced block, marked python, py or not at all
    before_fence    what stands before the first fence
    longest_lines   the longest run of lines that parses, among the first 100 (by lines that are
                    not blank; of equals the first)

A text that goes on where its prompt stopped, inside a function, is no program by itself:
`parse_answer` then reads both together.

What follows from the tree is elsewhere: syntax_statements.py (statement-level tree),
syntax_tokens.py (which token belongs to which statement), syntax_ast.py and syntax_grammar.py
(the trees that similarity compares). Nothing here runs a program.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any

from anyorder.measure.extract_range import longest_range

FENCE = "```"

# Names, operators, contexts and imports: nothing nests in them.
_SHALLOW = {"ctx", "op", "ops", "id", "attr", "arg", "name", "names", "asname", "module", "level"}

_NEWLINE = re.compile(r"\r\n|\r|\n")  # where Python's parser begins a new line
_MARK = re.compile(r"(?:python|py)?", re.IGNORECASE)
_INDENTED = re.compile(r"(?:[ \t\f]*[\r\n])*[ \t]+\S")

CONTINUED = "continued"


class Status(StrEnum):
    """What became of a text."""

    PARSED = "parsed"
    """The whole text is a program."""
    FALLBACK = "fallback"
    """A part of the text is one; `Parsed.fallback` says which."""
    EMPTY = "empty"
    """No statement in it: nothing, blanks or comments."""
    UNPARSABLE = "unparsable"
    NULL_BYTES = "null_bytes"
    NOT_TEXT = "not_text"
    """It has surrogates, which no file can hold."""
    TOO_DEEP = "too_deep"
    """Nested beyond the limit, or beyond what Python's parser takes."""
    TOO_LARGE = "too_large"


@dataclass(frozen=True)
class ParseLimits:
    """How far parsing goes, in counts and not in seconds: the same on every machine."""

    characters: int = 100_000
    """A longer text is not tried."""
    depth: int = 500
    """Levels of the syntax tree. Python's own limit differs between versions; this one does not."""
    lines: int = 100
    """How many lines `longest_lines` looks at."""


@dataclass(frozen=True)
class Parsed:
    """A text's program and how it was found."""

    status: Status
    source: str = ""
    """The program: `text[offset : offset + len(source)]`."""
    offset: int = 0
    """Negative where the program begins in the prompt."""
    tree: ast.Module | None = None
    """None where nothing parsed."""
    fallback: str = ""
    """The fallback that won, `whole` included; CONTINUED where the prompt begins the program."""
    detail: str = ""
    """Why the whole text was refused, in one line."""

    @property
    def valid(self) -> bool:
        """Whether there is a program with at least one statement."""
        return self.status in (Status.PARSED, Status.FALLBACK)


Candidate = tuple[str, int]
"""A piece of text and where it begins."""


def parse_program(
    text: str,
    fallbacks: Sequence[str] | None = None,
    limits: ParseLimits = ParseLimits(),  # noqa: B008 - frozen
) -> Parsed:
    """The program in a text; `fallbacks` are tried in the given order (default: all)."""
    names = tuple(FALLBACKS) if fallbacks is None else tuple(fallbacks)
    unknown = [name for name in names if name not in FALLBACKS]
    if unknown or not names:
        choices = ", ".join(FALLBACKS)
        what = f"there is no fallback {unknown[0]!r}" if unknown else "no fallback was given"
        raise ValueError(f"{what}: choose some of {choices}")
    if len(text) > limits.characters:
        detail = f"{len(text)} characters, the limit is {limits.characters}"
        return Parsed(Status.TOO_LARGE, detail=detail)
    clean, start = _stripped(text)
    tried: set[str] = set()
    refused: tuple[Status, str] | None = None
    for name in names:
        for source, offset in FALLBACKS[name](clean, limits):
            if source in tried:
                continue
            tried.add(source)
            status, tree, detail = parse_source(source, limits.depth)
            if tree is not None:
                if status is Status.PARSED and name != "whole":
                    status = Status.FALLBACK
                return Parsed(status, source, start + offset, tree, fallback=name)
            refused = refused or (status, detail)
    status, detail = refused or (Status.UNPARSABLE, "no part of the text to try")
    return Parsed(status, detail=detail)


def parse_answer(
    prompt: str,
    text: str,
    fallbacks: Sequence[str] | None = None,
    limits: ParseLimits = ParseLimits(),  # noqa: B008 - frozen
) -> Parsed:
    """The program in a text that was generated after a prompt: the text, or the text as it goes on
    from its prompt, or what the fallbacks find.

    Indented text goes on, even if it would be a program without its first blanks.
    """
    if not prompt or (fallbacks is not None and "whole" not in fallbacks):
        return parse_program(text, fallbacks, limits)
    alone = parse_program(text, ["whole"], limits)
    goes_on = alone.valid and _INDENTED.match(text) is not None
    if goes_on or alone.status is Status.UNPARSABLE:
        both = parse_program(prompt + text, ["whole"], limits)
        offset = both.offset - len(prompt)
        if both.valid and offset < 0 < offset + len(both.source):
            return replace(both, offset=offset, fallback=CONTINUED)
    return alone if alone.valid else parse_program(text, fallbacks, limits)


def parse_source(
    source: str, depth: int = ParseLimits.depth
) -> tuple[Status, ast.Module | None, str]:
    """Exactly this text as a program: a status, the tree if there is one, else why not."""
    try:
        with warnings.catch_warnings():
            # Odd escapes in a sample concern nobody here, and must not become errors under -W.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (RecursionError, MemoryError) as error:
        return Status.TOO_DEEP, None, _one_line(error)
    except UnicodeEncodeError as error:
        return Status.NOT_TEXT, None, _one_line(error)
    except (SyntaxError, ValueError) as error:
        # Python 3.11 says so with a ValueError, or not, depending on its patch release.
        status = Status.NULL_BYTES if "\0" in source else Status.UNPARSABLE
        return status, None, _one_line(error)
    if _deeper_than(tree, depth):
        return Status.TOO_DEEP, None, f"more than {depth} levels"
    return (Status.PARSED if tree.body else Status.EMPTY), tree, ""


def _whole(clean: str, limits: ParseLimits) -> Iterator[Candidate]:
    yield clean, 0


def _fenced(clean: str, limits: ParseLimits) -> Iterator[Candidate]:
    opened = clean.find(FENCE)
    if opened < 0:
        return
    begin = opened + len(FENCE)
    begin += len(_MARK.match(clean, begin)[0])  # type: ignore[index]  # matches even nothing
    closed = clean.find(FENCE, begin)
    if closed >= 0:
        source, start = _stripped(clean[begin:closed])
        yield source, begin + start


def _before_fence(clean: str, limits: ParseLimits) -> Iterator[Candidate]:
    source, start = _stripped(clean.split(FENCE, 1)[0])
    if source:
        yield source, start


def _longest_lines(clean: str, limits: ParseLimits) -> Iterator[Candidate]:
    ends = [match.span() for match in _NEWLINE.finditer(clean)]
    begins = [0, *(end for _, end in ends)]
    stops = [*(begin for begin, _ in ends), len(clean)]
    spans = list(zip(begins, stops, strict=True))[: limits.lines]
    lines = [clean[begin:end] for begin, end in spans]
    first, stop = longest_range(lines)
    while stop > first and not lines[stop - 1].strip():
        stop -= 1
    if stop > first:
        yield clean[spans[first][0] : spans[stop - 1][1]], spans[first][0]


FALLBACKS: dict[str, Callable[[str, ParseLimits], Iterator[Candidate]]] = {
    "whole": _whole,
    "fenced": _fenced,
    "before_fence": _before_fence,
    "longest_lines": _longest_lines,
}


def _stripped(text: str) -> Candidate:
    return text.strip(), len(text) - len(text.lstrip())


def _deeper_than(tree: ast.AST, depth: int) -> bool:
    """Level by level, because a tree as deep as this would overflow a recursion."""
    level: list[ast.AST] = [tree]
    for _ in range(depth):
        below: list[ast.AST] = []
        for node in level:
            kind: Any = node.__class__
            for name in _inner_fields(kind):
                value = getattr(node, name, None)
                if value.__class__ is list:
                    below += value
                elif value is not None:
                    below.append(value)
        if not below:
            return False
        level = below
    return True


@cache
def _inner_fields(cls: type) -> tuple[str, ...]:
    """The fields that may hold nodes with nodes below them; other values have no fields at all."""
    fields: tuple[str, ...] = getattr(cls, "_fields", ())
    return tuple(name for name in fields if name not in _SHALLOW and cls is not ast.Constant)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:120]}" if text else type(error).__name__
