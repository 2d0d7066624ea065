"""Text to a syntax tree, and to the statement-level tree. Every text gets a status; none raises.

The fallbacks are those of the paper's release (appendix D, "Parsing into trees"), tried in order,
first success wins:

    whole           the text, stripped
    fenced          the first fenced block, marked python, py or not at all
    before_fence    the text before the first fence
    longest_lines   the longest run of lines that parses, among the first 100 (by lines that are
                    not blank; of equals the first)

`parse_answer` also handles a text that continues a function which its prompt began: it parses both
together.

The statement-level tree: every statement is a node; expressions belong to their statement.
Children:

    def, class, module   the body, without its docstring
    for, while, if       body then else, under one node; strings in the body are left out anywhere;
                         `elif` is an If below its If
    with                 the body
    try, match           all bodies in order, under one node
    everything else      a leaf (`try ... except*` too: the release's choice)

Tests that a model appends to its answer become one leaf. It begins after the first def or class of
the module, at the first statement from which on some statement is an assert, a call, or an `if`
that guards or holds one, and it reaches to the end.

Not here: which token belongs to which statement (order_program.py), and the trees that similarity
compares (trees.py). Nothing here runs a program.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Any

from anyorder.measure.extract import longest_range

FENCE = "```"

# Names, operators, contexts and imports: nothing nests in them, so the depth check skips them.
_SHALLOW = {"ctx", "op", "ops", "id", "attr", "arg", "name", "names", "asname", "module", "level"}

_NEWLINE = re.compile(r"\r\n|\r|\n")  # where Python's parser begins a new line
_MARK = re.compile(r"(?:python|py)?", re.IGNORECASE)
_INDENTED = re.compile(r"(?:[ \t\f]*[\r\n])*[ \t]+\S")

CONTINUED = "continued"


class Status(StrEnum):
    """The outcome of parsing a text."""

    PARSED = "parsed"
    """The whole text is a program."""
    FALLBACK = "fallback"
    """A part of the text is a program; `Parsed.fallback` says which."""
    EMPTY = "empty"
    """No statement: nothing, blanks or comments."""
    UNPARSABLE = "unparsable"
    NULL_BYTES = "null_bytes"
    NOT_TEXT = "not_text"
    """It holds surrogates, which no file can."""
    TOO_DEEP = "too_deep"
    """Nested beyond our limit or that of Python's parser."""
    TOO_LARGE = "too_large"


@dataclass(frozen=True)
class ParseLimits:
    """Limits as counts, not seconds, so that every machine agrees."""

    characters: int = 100_000
    """A longer text is not parsed."""
    depth: int = 500
    """Levels of the syntax tree; Python's own limit differs between versions."""
    lines: int = 100
    """The lines that `longest_lines` reads."""


@dataclass(frozen=True)
class Parsed:
    """A text's program and how it was found."""

    status: Status
    source: str = ""
    """The program: `text[offset : offset + len(source)]`."""
    offset: int = 0
    """Negative where the program begins in the prompt."""
    tree: ast.Module | None = None
    """None if nothing parsed."""
    fallback: str = ""
    """The fallback that won, `whole` included; CONTINUED where the prompt begins the program."""
    detail: str = ""
    """Why the whole text was refused, in one line."""

    @property
    def valid(self) -> bool:
        """Whether there is a program with at least one statement."""
        return self.status in (Status.PARSED, Status.FALLBACK)


TextCandidate = tuple[str, int]
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
            if source in tried:  # fallbacks often give the same piece, and parsing is slow
                continue
            tried.add(source)
            status, tree, detail = parse_source(source, limits.depth)
            if tree is not None:
                if status is Status.PARSED and name != "whole":
                    status = Status.FALLBACK
                return Parsed(status, source, start + offset, tree, fallback=name)
            refused = refused or (status, detail)  # the first reason is about the whole text
    status, detail = refused or (Status.UNPARSABLE, "no part of the text to try")
    return Parsed(status, detail=detail)


def parse_answer(
    prompt: str,
    text: str,
    fallbacks: Sequence[str] | None = None,
    limits: ParseLimits = ParseLimits(),  # noqa: B008 - frozen
) -> Parsed:
    """The program in a text that was generated after a prompt: the text, or the prompt and the text
    together, or the part that a fallback finds.

    Indented text continues its prompt, even if it would parse without its first blanks.
    """
    if not prompt or (fallbacks is not None and "whole" not in fallbacks):
        return parse_program(text, fallbacks, limits)
    alone = parse_program(text, ["whole"], limits)
    goes_on = alone.valid and _INDENTED.match(text) is not None
    if goes_on or alone.status is Status.UNPARSABLE:
        both = parse_program(prompt + text, ["whole"], limits)
        offset = both.offset - len(prompt)
        # The program must reach from the prompt into the text; else the text added no code.
        if both.valid and offset < 0 < offset + len(both.source):
            return replace(both, offset=offset, fallback=CONTINUED)
    return alone if alone.valid else parse_program(text, fallbacks, limits)


def parse_source(
    source: str, depth: int = ParseLimits.depth
) -> tuple[Status, ast.Module | None, str]:
    """This text, unchanged, as a program: a status, the tree or None, and why it failed."""
    try:
        with warnings.catch_warnings():
            # Warnings about odd escapes in a sample must not become errors under -W.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (RecursionError, MemoryError) as error:
        return Status.TOO_DEEP, None, _one_line(error)
    except UnicodeEncodeError as error:
        return Status.NOT_TEXT, None, _one_line(error)
    except (SyntaxError, ValueError) as error:
        # On null bytes, patch releases of Python 3.11 differ in which of the two they raise.
        status = Status.NULL_BYTES if "\0" in source else Status.UNPARSABLE
        return status, None, _one_line(error)
    if _deeper_than(tree, depth):
        return Status.TOO_DEEP, None, f"more than {depth} levels"
    return (Status.PARSED if tree.body else Status.EMPTY), tree, ""


def _fenced(clean: str, limits: ParseLimits) -> Iterator[TextCandidate]:
    opened = clean.find(FENCE)
    if opened < 0:
        return
    begin = opened + len(FENCE)
    begin += len(_MARK.match(clean, begin)[0])  # type: ignore[index]  # matches even nothing
    closed = clean.find(FENCE, begin)
    if closed >= 0:
        source, start = _stripped(clean[begin:closed])
        yield source, begin + start


def _before_fence(clean: str, limits: ParseLimits) -> Iterator[TextCandidate]:
    source, start = _stripped(clean.split(FENCE, 1)[0])
    if source:
        yield source, start


def _longest_lines(clean: str, limits: ParseLimits) -> Iterator[TextCandidate]:
    spans = line_spans(clean)[: limits.lines]
    lines = [clean[begin:end] for begin, end in spans]
    first, stop = longest_range(lines)
    while stop > first and not lines[stop - 1].strip():
        stop -= 1
    if stop > first:
        yield clean[spans[first][0] : spans[stop - 1][1]], spans[first][0]


def line_spans(source: str) -> list[tuple[int, int]]:
    """[start, end) of each line without its line end; lines as Python's parser counts them."""
    ends = [match.span() for match in _NEWLINE.finditer(source)]
    starts = [0, *(end for _, end in ends)]
    stops = [*(start for start, _ in ends), len(source)]
    return list(zip(starts, stops, strict=True))


FALLBACKS: dict[str, Callable[[str, ParseLimits], Iterator[TextCandidate]]] = {
    "whole": lambda clean, limits: iter([(clean, 0)]),
    "fenced": _fenced,
    "before_fence": _before_fence,
    "longest_lines": _longest_lines,
}


def _stripped(text: str) -> TextCandidate:
    return text.strip(), len(text) - len(text.lstrip())


def _deeper_than(tree: ast.AST, depth: int) -> bool:
    """Level by level, because such a deep tree would overflow a recursion."""
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
    """The fields that may hold nodes with nodes below them."""
    fields: tuple[str, ...] = getattr(cls, "_fields", ())
    return tuple(name for name in fields if name not in _SHALLOW and cls is not ast.Constant)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:120]}" if text else type(error).__name__


GENERATED_TESTS = "Generated Tests"
GENERATED_TESTS_LABEL = "Generated Tests / Examples"

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
WITH_ELSE = (ast.For, ast.AsyncFor, ast.While, ast.If)

# The release cuts labels at these lengths, and its exclusions search the cut labels.
TARGET_LIMIT, LOOP_LIMIT, EXPRESSION_LIMIT, IMPORT_LIMIT = 48, 36, 56, 72


@dataclass(eq=False)
class Statement:
    """A node. `number` is its index in the tree: parents before children, in source order."""

    number: int
    kind: str
    """The name of the ast class, or GENERATED_TESTS."""
    parent: int | None
    depth: int
    nodes: tuple[ast.AST, ...]
    """Its syntax nodes: one, or all the statements of generated tests."""
    children: list[int] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The release's label, in which the exclusions of `compat` look for words."""
        if self.kind == GENERATED_TESTS:
            return GENERATED_TESTS_LABEL
        node = self.nodes[0]
        describe = _LABELS.get(self.kind)
        if describe is None:
            return f"{self.kind}@L{node.lineno}" if isinstance(node, ast.stmt) else self.kind
        try:
            return describe(node)
        except RecursionError:  # an expression too deep to print
            return f"{self.kind}@L{getattr(node, 'lineno', 0)}"


def statement_tree(module: ast.Module) -> list[Statement]:
    """The nodes of a program, parents before children; the first is the module."""
    return build_tree(module, _start_of_tests, child_statements)


def build_tree(
    module: ast.Module,
    start_of_tests: Callable[[Sequence[ast.stmt]], int],
    children: Callable[[ast.AST], list[ast.stmt]],
) -> list[Statement]:
    """The nodes by one's own rules for generated tests and for the children of a statement."""
    tree = [Statement(0, "Module", None, 0, (module,))]
    body = _without_docstring(module.body)
    split = start_of_tests(body)
    pending: list[tuple[tuple[ast.AST, ...], int]] = [((node,), 0) for node in body[:split]]
    if split < len(body):
        pending.append((tuple(body[split:]), 0))
    pending.reverse()  # a stack: the first statement must be popped first
    while pending:
        nodes, parent = pending.pop()
        is_tests = parent == 0 and split < len(body) and nodes[0] is body[split]
        kind = GENERATED_TESTS if is_tests else type(nodes[0]).__name__
        number = len(tree)
        tree.append(Statement(number, kind, parent, tree[parent].depth + 1, nodes))
        tree[parent].children.append(number)
        if not is_tests:
            pending += [((node,), number) for node in reversed(children(nodes[0]))]
    return tree


def child_statements(node: ast.AST) -> list[ast.stmt]:
    """The statements directly below a statement in the statement-level tree."""
    collect = _CHILDREN.get(type(node))
    return collect(node) if collect else []


def is_string(node: ast.AST) -> bool:
    """Whether a statement is a bare string."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _without_docstring(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    return list(body[1:] if body and is_string(body[0]) else body)


def try_statements(node: ast.Try | ast.TryStar) -> list[ast.stmt]:
    """All bodies of a try, in order."""
    handled = [item for handler in node.handlers for item in handler.body]
    return [*node.body, *handled, *node.orelse, *node.finalbody]


_CHILDREN: dict[type, Callable[..., list[ast.stmt]]] = {
    **dict.fromkeys(DEFINITIONS, lambda node: _without_docstring(node.body)),
    **dict.fromkeys(
        WITH_ELSE,
        lambda node: [*(item for item in node.body if not is_string(item)), *node.orelse],
    ),
    **dict.fromkeys((ast.With, ast.AsyncWith), lambda node: list(node.body)),
    ast.Try: try_statements,
    ast.Match: lambda node: [item for case in node.cases for item in case.body],
}


def _start_of_tests(body: Sequence[ast.stmt]) -> int:
    """The index of the first statement of the generated tests; the length if there are none."""
    last_marker = max((i for i, node in enumerate(body) if is_test_marker(node)), default=-1)
    defined = False
    for index, node in enumerate(body):
        if isinstance(node, DEFINITIONS):
            defined = True
        elif defined and not isinstance(node, IMPORTS) and index <= last_marker:
            return index
    return len(body)


def is_test_marker(node: ast.stmt) -> bool:
    """An assert, a call as a statement, or an `if` that guards `__main__` or holds one of these."""
    waiting = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, ast.Assert):
            return True
        if isinstance(item, ast.Expr) and isinstance(item.value, ast.Call):
            return True
        if isinstance(item, ast.If):
            if _guards_main(item.test):
                return True
            waiting += [*item.body, *item.orelse]
    return False


def _guards_main(test: ast.expr) -> bool:
    """Whether a condition holds both words, as the release finds them in its text."""
    words = []
    for node in ast.walk(test):
        if isinstance(node, ast.Name):
            words.append(node.id)
        elif isinstance(node, ast.Attribute):
            words.append(node.attr)
        elif isinstance(node, ast.keyword | ast.arg):
            words.append(node.arg or "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            words.append(repr(node.value))
    return all(any(mark in word for word in words) for mark in ("__name__", "__main__"))


def _cut(node: ast.AST, limit: int) -> str:
    text = ast.unparse(node)
    return text if len(text) <= limit else f"{text[: limit - 1]}..."


def _loop(node: ast.For | ast.AsyncFor) -> str:
    target, source = _cut(node.target, LOOP_LIMIT), _cut(node.iter, LOOP_LIMIT)
    return f"{type(node).__name__}: {target} in {source}"


_LABELS: dict[str, Callable[..., str]] = {
    **dict.fromkeys(
        ("FunctionDef", "AsyncFunctionDef", "ClassDef"),
        lambda node: f"{type(node).__name__}: {node.name}",
    ),
    **dict.fromkeys(
        ("If", "While"), lambda node: f"{type(node).__name__}: {_cut(node.test, TARGET_LIMIT)}"
    ),
    **dict.fromkeys(("For", "AsyncFor"), _loop),
    **dict.fromkeys(("Import", "ImportFrom"), lambda node: _cut(node, IMPORT_LIMIT)),
    "Assign": lambda node: f"Assign: {_cut(node.targets[0], TARGET_LIMIT)}",
    "AnnAssign": lambda node: f"AnnAssign: {_cut(node.target, TARGET_LIMIT)}",
    "AugAssign": lambda node: (
        f"AugAssign: {_cut(node.target, TARGET_LIMIT)} {type(node.op).__name__}"
    ),
    "Expr": lambda node: f"Expr: {_cut(node.value, EXPRESSION_LIMIT)}",
}
