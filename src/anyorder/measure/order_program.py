"""A text made ready for the order metrics: its statements, its tokens, and the blocks to compare.

Text -> program (syntax.py) -> statements -> Python tokens -> blocks: which tokens lie below which
child of which parent. None of it depends on the order of the tokens, so equal texts and all
controls share it. Where a text continues a function that its prompt began, exact parses both
together, and the prompt's tokens count as given.

Statements: compat is `syntax.statement_tree`, the release's. exact differs where the release does
something that appendix D does not say:

    strings           only docstrings are collapsed into their owner; a bare string in the body of a
                      loop or an `if` is a statement like any other
    try ... except*   has children like every try
    generated tests   the statements after the *last* definition of the module, if one of them is a
                      test ("trailing generated tests"); the release takes everything from the first
                      statement after the *first* definition, later definitions included
    decorators        the `@` belongs to the function it decorates; in the release to no statement

Tokens (appendix D, "Parsing into trees") are those of `tokenize`, as character spans of the source;
tokens without width do not count. A token belongs to the deepest syntax node that overlaps it,
hence to the statement that holds this node. So a statement's newline and indentation belong to the
compound statement around it, `except`, `case` and `else` to their Try, Match and If, a docstring to
its owner; comments and newlines at the top belong to no statement. All Pythons agree: f-strings,
which come in pieces from 3.12 on, and names that earlier releases break up are joined.

Scopes, each a root and the nodes that are left out with all below them:

    full_output    the whole tree
    code_only      exact: without the node of generated tests. compat: without every node whose
                   label contains one of EXCLUDED_WORDS, the release's undocumented rule
    entry_only     the first top-level function of the entry point's name, with the exclusions of
                   code_only. exact also finds a method by its dotted name, such as `Solution.f`

A child that is left out does not count in its parent's k; its tokens still belong to the blocks
above. Not here: steps and scores (order_nodes.py, order_scores.py).

Letters: T Python tokens, C children, P parents.
"""

from __future__ import annotations

import ast
import io
import re
import token as kinds
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anyorder.measure.order_nodes import Blocks
from anyorder.measure.syntax import (
    DEFINITIONS,
    GENERATED_TESTS,
    IMPORTS,
    WITH_ELSE,
    Parsed,
    Statement,
    build_tree,
    child_statements,
    is_test_marker,
    line_spans,
    parse_answer,
    parse_program,
    statement_tree,
    try_statements,
)
from anyorder.trace import Trace

NO_STATEMENT = -1

_LONE_RETURN = re.compile(r"\r(?!\n)")
_ENDS = {"FSTRING_START": "FSTRING_END", "TSTRING_START": "TSTRING_END"}


class Token(NamedTuple):
    """A token with width: `source[start:end]`."""

    start: int
    end: int
    kind: str
    """The name in `tokenize`; an f-string is a STRING."""
    node: int
    """The number of its statement, or NO_STATEMENT."""


def assign_tokens(source: str, tree: Sequence[Statement], *, compat: bool = False) -> list[Token]:
    """The tokens of a program, each with the statement it belongs to.

    `compat` finds line starts by `str.splitlines`, as the release does: form feeds and other rare
    separators then shift everything after them.
    """
    starts = _line_starts(source, compat)
    owner = _owners(source, tree, starts)
    return [
        Token(start, end, kind, max(owner[start:end])[1])
        for start, end, kind in _whole_names(_spans(source, starts))
    ]


def _spans(source: str, starts: list[int]) -> Iterator[tuple[int, int, str]]:
    """(start, end, kind) of the tokens with width, up to the first error."""
    size = len(source)
    # A lone carriage return ends a line for the parser, but not in every release of `tokenize`.
    readable = _LONE_RETURN.sub("\n", source)
    opened: list[tuple[str, tuple[int, int]]] = []
    try:
        for item in tokenize.generate_tokens(io.StringIO(readable, newline="\n").readline):
            kind, begin = kinds.tok_name[item.type], item.start
            if kind in _ENDS:
                opened.append((_ENDS[kind], begin))
                continue
            if opened:
                # Tokens inside an f-string are skipped: before 3.12 their positions are wrong.
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
    """Join names that a release of Python breaks up.

    Before 3.12 a character such as the middle dot breaks a name up and is an ERRORTOKEN, as is the
    blank before it (which `_spans` leaves out). A program that parses has no other ERRORTOKENs.
    """
    held: tuple[int, int, str] | None = None
    for start, end, kind in spans:
        goes_on = held is not None and held[1] == start and held[2] in ("NAME", "ERRORTOKEN")
        if held is not None and goes_on and kind in ("NAME", "ERRORTOKEN", "NUMBER"):
            held = held[0], end, "NAME"
            continue
        if held is not None:
            yield held
        held = start, end, kind
    if held is not None:
        yield held


def _place(starts: list[int], line: int, column: int, size: int) -> int:
    return min(starts[line - 1] + column, size) if line <= len(starts) else size


def _owners(source: str, tree: Sequence[Statement], starts: list[int]) -> list[tuple[int, int]]:
    """Per character: (rank, statement number) of the deepest node over it, if there is one.

    Nodes are painted from shallow to deep and, at equal depth, from wide to narrow.
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
            # An expression never holds a statement, so all below it has the same owner.
            if isinstance(node, ast.expr):
                continue
        waiting += [(child, depth + 1, number) for child in ast.iter_child_nodes(node)]
    owner = [(0, NO_STATEMENT)] * len(source)
    # At equal depth and width the first in the source is painted last, so it stays on top.
    found.sort(key=lambda item: (item[0], item[1], -item[2]))
    for rank, (_, _, start, end, number) in enumerate(found, 1):
        owner[start:end] = [(rank, number)] * (end - start)
    return owner


class _Columns:
    """Syntax nodes as character spans: the parser counts bytes of UTF-8."""

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
        return [start for start, _ in line_spans(source)]
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def order_tree(module: ast.Module, source: str, mode: str) -> tuple[list[Statement], list[Token]]:
    """The statements of a program, parents first, and its tokens with their statements."""
    if mode == "compat":
        tree = statement_tree(module)
        return tree, assign_tokens(source, tree, compat=True)
    tree = build_tree(module, start_of_trailing_tests, _children)
    return tree, _with_decorators(source, tree, assign_tokens(source, tree))


def _children(node: ast.AST) -> list[ast.stmt]:
    if isinstance(node, WITH_ELSE):
        return [*node.body, *node.orelse]
    return try_statements(node) if isinstance(node, ast.TryStar) else child_statements(node)


def start_of_trailing_tests(body: Sequence[ast.stmt]) -> int:
    """The index of the first statement of the trailing tests; the length if there are none."""
    defined = [index for index, node in enumerate(body) if isinstance(node, DEFINITIONS)]
    if not defined:
        return len(body)
    start = defined[-1] + 1
    while start < len(body) and isinstance(body[start], IMPORTS):
        start += 1
    return start if any(is_test_marker(node) for node in body[start:]) else len(body)


def _with_decorators(source: str, tree: Sequence[Statement], tokens: list[Token]) -> list[Token]:
    """Give the `@` in front of a decorator the owner of the decorator."""
    if not any(getattr(statement.nodes[0], "decorator_list", None) for statement in tree):
        return tokens
    following = [token.node for token in tokens[1:]] + [NO_STATEMENT]
    return [
        token._replace(node=owner)
        if owner != NO_STATEMENT and _is_decorator_sign(source, token)
        else token
        for token, owner in zip(tokens, following, strict=True)
    ]


def _is_decorator_sign(source: str, token: Token) -> bool:
    """Whether it is an `@` that begins its line. A matrix product may do so inside brackets, but
    then both sides have one owner anyway."""
    if source[token.start : token.end] != "@":
        return False
    line = max(source.rfind(sign, 0, token.start) for sign in "\n\r") + 1
    return not source[line : token.start].strip()


IntArray = NDArray[np.int64]

EXCLUDED_WORDS = ("generated tests", "test cases", "examples", "reference")
SPECIAL_SPELLINGS = ("<|beginoftext|>", "<|endoftext|>", "[M]")
FUNCTIONS = ("FunctionDef", "AsyncFunctionDef")

# A program with more (token, child) pairs is not measured: it would take seconds with all controls.
MOST_PAIRS = 1_000_000

TOO_LARGE = "too_large"


@dataclass(frozen=True)
class Scope:
    """A part of a tree: a root, less some nodes."""

    root: int
    excluded: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Parent:
    """A node and those of its children that count in a scope."""

    number: int
    kind: str
    label: str
    depth: int
    children: tuple[int, ...]


@dataclass(frozen=True)
class ProgramFacts:
    """The part of a program that its sample keeps; syntax tree and tokens are large."""

    status: str
    """See syntax.Status; `too_large` also for too many pairs."""
    found: str | None = None
    """Which part of the text the program is; `continued` where the prompt begins it."""
    misaligned: bool = False
    """compat only: the release does not find the program in the text and assumes offset 0."""
    parents: tuple[Parent, ...] = ()  # P
    excluded: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Per scope: the nodes left out."""


@dataclass(frozen=True)
class OrderProgram:
    """All of a text that does not depend on the order of its tokens."""

    facts: ProgramFacts
    spans: IntArray  # T 2
    """The characters of each Python token in the trace's text."""
    blocks: Blocks
    scopes: dict[str, IntArray | None]
    """Per scope: the parents in it; None where there is no entry point."""
    extent: tuple[int, int]
    """[first, after the last) character of the program; negative if it begins in the prompt."""


def prepare(
    trace: Trace, scopes: Sequence[str], mode: str = "exact"
) -> OrderProgram | ProgramFacts:
    """The program in a trace's text, ready to be scored; only facts where it cannot be.

    The text never raises.
    """
    parsed, offset = FINDERS[mode](trace)
    start = offset or 0
    facts = ProgramFacts(
        str(parsed.status),
        parsed.fallback or None,
        misaligned=offset is None,
    )
    if not parsed.valid or parsed.tree is None:
        return facts
    statements, tokens = order_tree(parsed.tree, parsed.source, mode)
    views = {name: SCOPES[name](statements, trace.entry_point, mode) for name in scopes}
    parents, members = _parents(statements, views)
    owner = np.array([token.node for token in tokens], dtype=np.int64)
    blocks = _blocks(statements, [parent.children for parent in parents], owner)
    if blocks is None:
        return replace(facts, status=TOO_LARGE)
    hidden = {name: sorted(view.excluded) if view else [] for name, view in views.items()}
    places = np.array([(token.start, token.end) for token in tokens], dtype=np.int64)
    return OrderProgram(
        replace(
            facts,
            parents=parents,
            excluded={name: tuple(numbers) for name, numbers in hidden.items()},
        ),
        spans=places.reshape(-1, 2) + start,
        blocks=blocks,
        scopes=members,
        extent=(start, start + len(parsed.source)),
    )


def _find_exact(trace: Trace) -> tuple[Parsed, int | None]:
    """The text, else the prompt and the text together, else the fallbacks."""
    parsed = parse_answer(trace.prompt, trace.text)
    return parsed, parsed.offset


def _find_compat(trace: Trace) -> tuple[Parsed, int | None]:
    """As the release: remove spelled special tokens, then take the first place of the program."""
    clean = trace.text
    for spelling in SPECIAL_SPELLINGS:
        clean = clean.replace(spelling, "")
    parsed = parse_program(clean)
    for candidate in (trace.text, trace.text.replace("\r\n", "\n")):
        at = candidate.find(parsed.source)
        if at >= 0:
            return parsed, at
    return parsed, None


FINDERS: dict[str, Callable[[Trace], tuple[Parsed, int | None]]] = {
    "exact": _find_exact,
    "compat": _find_compat,
}


def _parents(
    statements: Sequence[Statement], views: dict[str, Scope | None]
) -> tuple[tuple[Parent, ...], dict[str, IntArray | None]]:
    """The distinct (node, children that count) of all scopes, and the indices in each scope."""
    ends = subtree_ends(statements)
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    members: dict[str, IntArray | None] = {}
    for name, view in views.items():
        if view is None:
            members[name] = None
            continue
        found = []
        for number in range(view.root, ends[view.root]):
            if number in view.excluded:
                continue
            kept = tuple(c for c in statements[number].children if c not in view.excluded)
            if kept:
                found.append(numbers.setdefault((number, kept), len(numbers)))
        members[name] = np.array(found, dtype=np.int64)
    parents = []
    for number, kept in numbers:
        node = statements[number]
        parents.append(Parent(number, node.kind, node.label, node.depth, kept))
    return tuple(parents), members


def _blocks(
    statements: Sequence[Statement], families: Sequence[Sequence[int]], owner: IntArray
) -> Blocks | None:
    """The (child, token) pairs; None if there are too many."""
    # Subtrees are ranges of statement numbers, so with tokens sorted by owner each child's block is
    # one slice. Count the pairs before building them: their number can be quadratic.
    by_owner = np.argsort(owner, kind="stable")
    ordered = owner[by_owner]
    children = np.array([number for kept in families for number in kept], dtype=np.int64)
    ends = np.array(subtree_ends(statements), dtype=np.int64)[children]
    first = np.searchsorted(ordered, children)
    count = np.searchsorted(ordered, ends) - first
    if int(count.sum()) > MOST_PAIRS:
        return None
    child = np.repeat(np.arange(len(children)), count)
    before = np.cumsum(count) - count
    place = np.arange(len(child)) - before[child] + first[child]
    return Blocks(
        parent=np.repeat(np.arange(len(families)), [len(kept) for kept in families]),
        parents=len(families),
        child=child,
        token=by_owner[place],
    )


def subtree_ends(statements: Sequence[Statement]) -> list[int]:
    """Per statement: one past the last one below it. Parents come first, so subtrees are ranges."""
    ends = [item.number + 1 for item in statements]
    for item in reversed(statements):
        if item.parent is not None:
            ends[item.parent] = max(ends[item.parent], ends[item.number])
    return ends


EXCLUSIONS: dict[str, Callable[[Statement], bool]] = {
    "exact": lambda item: item.kind == GENERATED_TESTS,
    "compat": lambda item: any(word in item.label.lower() for word in EXCLUDED_WORDS),
}


def _full_output(statements: Sequence[Statement], entry_point: str | None, mode: str) -> Scope:
    return Scope(0)


def _code_only(statements: Sequence[Statement], entry_point: str | None, mode: str) -> Scope:
    ends = subtree_ends(statements)
    tops = (item.number for item in statements if EXCLUSIONS[mode](item))
    return Scope(0, frozenset(number for top in tops for number in range(top, ends[top])))


def _entry_only(
    statements: Sequence[Statement], entry_point: str | None, mode: str
) -> Scope | None:
    if entry_point is None:
        return None
    root = 0
    path = [entry_point] if mode == "compat" else entry_point.split(".")
    for depth, name in enumerate(path, 1):
        kinds = FUNCTIONS if depth == len(path) else ("ClassDef",)
        named = (child for child in statements[root].children if statements[child].kind in kinds)
        found = [c for c in named if getattr(statements[c].nodes[0], "name", None) == name]
        if not found:
            return None
        root = found[0]
    inside = range(root, subtree_ends(statements)[root])
    return Scope(root, _code_only(statements, entry_point, mode).excluded.intersection(inside))


SCOPES: dict[str, Callable[[Sequence[Statement], str | None, str], Scope | None]] = {
    "full_output": _full_output,
    "code_only": _code_only,
    "entry_only": _entry_only,
}
