"""A text made ready for the order metrics: its tree, its tokens, and the blocks to compare.

Text -> program (syntax.py) -> statements -> Python tokens -> blocks: which tokens lie below which
child of which parent. None of it depends on the order in which the tokens came, so equal texts and
all controls share it. A text that goes on where the prompt stopped inside a function is no program
by itself: exact then reads both together, and what the prompt gave is given.

Scopes, each a root and the nodes that are left out with all below them:

    full_output    the whole tree
    code_only      exact: without the node of generated tests. compat: without every node whose
                   label contains one of EXCLUDED_WORDS, the release's undocumented rule
    entry_only     the first top-level function of the entry point's name, with the exclusions of
                   code_only. exact also finds a method by its dotted name, such as `Solution.f`

A child that is left out does not count in its parent's k; its tokens still belong to the blocks
above. Steps and scores are not here: see order_nodes.py and order.py.

Letters: T Python tokens, C children, P parents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from anyorder.measure.order_nodes import Blocks
from anyorder.measure.order_tree import order_tree
from anyorder.measure.syntax import Parsed, Status, parse_program
from anyorder.measure.syntax_statements import GENERATED_TESTS, Statement
from anyorder.trace import Trace

IntArray = NDArray[np.int64]

EXCLUDED_WORDS = ("generated tests", "test cases", "examples", "reference")
SPECIAL_SPELLINGS = ("<|beginoftext|>", "<|endoftext|>", "[M]")
FUNCTIONS = ("FunctionDef", "AsyncFunctionDef")

# (token, child) pairs beyond which a program is not measured: some seconds with all controls.
MOST_PAIRS = 1_000_000

TOO_LARGE = "too_large"
EMPTY_SPANS = np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class Scope:
    """Which part of a tree is looked at."""

    root: int
    excluded: frozenset[int] = frozenset()


@dataclass(frozen=True)
class OrderProgram:
    """Everything about a text that does not depend on the order of its tokens."""

    status: str
    """What became of the text: see syntax.Status; `too_large` also for too many pairs."""
    parsed: Parsed
    offset: int = 0
    """Where the program begins in the text; negative if it begins in the prompt."""
    misaligned: bool = False
    """compat only: the release does not find the program in the text and takes it to start at 0."""
    statements: tuple[Statement, ...] = ()
    spans: IntArray = field(default_factory=EMPTY_SPANS.copy)  # T 2
    """Of each Python token: its characters in the text, where the trace's tokens are looked up."""
    blocks: Blocks | None = None
    """None where nothing can be scored."""
    parents: tuple[tuple[int, tuple[int, ...]], ...] = ()  # P
    """Per parent: its number, and those of the children that count."""
    scopes: dict[str, tuple[int, ...] | None] = field(default_factory=dict)
    """Per scope: which of the parents are in it; None where there is no entry point."""
    excluded: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def child_numbers(self) -> tuple[int, ...]:  # C
        """The statement that each child of `blocks` is."""
        return tuple(number for _, children in self.parents for number in children)

    @cached_property
    def extent(self) -> tuple[int, int]:
        """[first, after the last) character of the program in the text."""
        return self.offset, self.offset + len(self.parsed.source)

    @property
    def how(self) -> str | None:
        """Which part of the text the program is; `continued` where the prompt begins it."""
        return "continued" if self.offset < 0 else self.parsed.fallback or None


def prepare(trace: Trace, scopes: Sequence[str], mode: str = "exact") -> OrderProgram:
    """The program in a trace's text, ready to be scored; never an exception because of the text."""
    parsed, offset = FINDERS[mode](trace)
    if not parsed.valid or parsed.tree is None:
        return OrderProgram(str(parsed.status), parsed)
    statements, tokens = order_tree(parsed.tree, parsed.source, mode)
    views = {name: SCOPES[name](statements, trace.entry_point, mode) for name in scopes}
    parents, members = _parents(statements, views)
    owner = np.array([token.node for token in tokens], dtype=np.int64)
    blocks = _blocks(statements, parents, owner)
    program = OrderProgram(
        str(parsed.status) if blocks else TOO_LARGE,
        parsed,
        offset=offset or 0,
        misaligned=offset is None,
        statements=tuple(statements),
    )
    if blocks is None:
        return program
    places = np.array([(token.start, token.end) for token in tokens], dtype=np.int64)
    hidden = {name: sorted(view.excluded) if view else [] for name, view in views.items()}
    return replace(
        program,
        spans=places.reshape(-1, 2) + program.offset,
        blocks=blocks,
        parents=parents,
        scopes=members,
        excluded={name: tuple(numbers) for name, numbers in hidden.items()},
    )


def _find_exact(trace: Trace) -> tuple[Parsed, int | None]:
    """The text, else the text as it goes on from its prompt, else the fallbacks."""
    parsed = parse_program(trace.text, ["whole"])
    if parsed.valid or parsed.status is Status.EMPTY:
        return parsed, parsed.offset
    if parsed.status is Status.UNPARSABLE and trace.prompt:
        both = parse_program(trace.prompt + trace.text, ["whole"])
        offset = both.offset - len(trace.prompt)
        if both.valid and offset < 0 < offset + len(both.source):
            return both, offset
    parsed = parse_program(trace.text)
    return parsed, parsed.offset


def _find_compat(trace: Trace) -> tuple[Parsed, int | None]:
    """As the release: spelled special tokens taken out, then the first place that has the text."""
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
) -> tuple[tuple[tuple[int, tuple[int, ...]], ...], dict[str, tuple[int, ...] | None]]:
    """The distinct (node, children that count) of all scopes, and which of them each scope has."""
    ends = subtree_ends(statements)
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    members: dict[str, tuple[int, ...] | None] = {}
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
        members[name] = tuple(found)
    return tuple(numbers), members


def _blocks(
    statements: Sequence[Statement],
    parents: Sequence[tuple[int, tuple[int, ...]]],
    owner: IntArray,
) -> Blocks | None:
    """The (child, token) pairs; None where there are too many. Subtrees are ranges of numbers."""
    by_owner = np.argsort(owner, kind="stable")
    ordered = owner[by_owner]
    children = np.array([number for _, kept in parents for number in kept], dtype=np.int64)
    ends = np.array(subtree_ends(statements), dtype=np.int64)[children]
    first = np.searchsorted(ordered, children)
    count = np.searchsorted(ordered, ends) - first
    if int(count.sum()) > MOST_PAIRS:
        return None
    child = np.repeat(np.arange(len(children)), count)
    before = np.cumsum(count) - count
    place = np.arange(len(child)) - before[child] + first[child]
    return Blocks(
        parent=np.repeat(np.arange(len(parents)), [len(kept) for _, kept in parents]),
        parents=len(parents),
        child=child,
        token=by_owner[place],
    )


def subtree_ends(statements: Sequence[Statement]) -> list[int]:
    """Per statement: one past the last below it. Parents come first, so subtrees are ranges."""
    ends = [item.number + 1 for item in statements]
    for item in reversed(statements):
        if item.parent is not None:
            ends[item.parent] = max(ends[item.parent], ends[item.number])
    return ends


def _with_subtrees(statements: Sequence[Statement], tops: Iterator[int]) -> frozenset[int]:
    ends = subtree_ends(statements)
    return frozenset(number for top in tops for number in range(top, ends[top]))


def _excluded_exact(statement: Statement) -> bool:
    return statement.kind == GENERATED_TESTS


def _excluded_compat(statement: Statement) -> bool:
    label = statement.label.lower()
    return any(word in label for word in EXCLUDED_WORDS)


EXCLUSIONS: dict[str, Callable[[Statement], bool]] = {
    "exact": _excluded_exact,
    "compat": _excluded_compat,
}


def _full_output(statements: Sequence[Statement], entry_point: str | None, mode: str) -> Scope:
    return Scope(0)


def _code_only(statements: Sequence[Statement], entry_point: str | None, mode: str) -> Scope:
    tops = (item.number for item in statements if EXCLUSIONS[mode](item))
    return Scope(0, _with_subtrees(statements, tops))


def _entry_only(
    statements: Sequence[Statement], entry_point: str | None, mode: str
) -> Scope | None:
    if entry_point is None:
        return None
    root = 0
    path = [entry_point] if mode == "compat" else entry_point.split(".")
    for depth, name in enumerate(path, 1):
        kinds = FUNCTIONS if depth == len(path) else ("ClassDef",)
        found = [c for c in statements[root].children if _is_named(statements[c], kinds, name)]
        if not found:
            return None
        root = found[0]
    inside = range(root, subtree_ends(statements)[root])
    return Scope(root, _code_only(statements, entry_point, mode).excluded.intersection(inside))


def _is_named(statement: Statement, kinds: Sequence[str], name: str) -> bool:
    return statement.kind in kinds and getattr(statement.nodes[0], "name", None) == name


SCOPES: dict[str, Callable[[Sequence[Statement], str | None, str], Scope | None]] = {
    "full_output": _full_output,
    "code_only": _code_only,
    "entry_only": _entry_only,
}
