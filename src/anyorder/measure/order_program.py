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

import numpy as np
from numpy.typing import NDArray

from anyorder.measure.order_nodes import Blocks
from anyorder.measure.order_tree import order_tree
from anyorder.measure.syntax import Parsed, parse_answer, parse_program
from anyorder.measure.syntax_statements import GENERATED_TESTS, Statement
from anyorder.trace import Trace

IntArray = NDArray[np.int64]

EXCLUDED_WORDS = ("generated tests", "test cases", "examples", "reference")
SPECIAL_SPELLINGS = ("<|beginoftext|>", "<|endoftext|>", "[M]")
FUNCTIONS = ("FunctionDef", "AsyncFunctionDef")

# (token, child) pairs beyond which a program is not measured: some seconds with all controls.
MOST_PAIRS = 1_000_000

TOO_LARGE = "too_large"


@dataclass(frozen=True)
class Scope:
    """Which part of a tree is looked at."""

    root: int
    excluded: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Parent:
    """A node, and those of its children that count in some scope."""

    number: int
    kind: str
    label: str
    depth: int
    children: tuple[int, ...]


@dataclass(frozen=True)
class ProgramFacts:
    """What a sample keeps of its program: no syntax tree and no tokens, which are large."""

    status: str
    """What became of the text: see syntax.Status; `too_large` also for too many pairs."""
    found: str | None = None
    """Which part of the text the program is; `continued` where the prompt begins it."""
    misaligned: bool = False
    """compat only: the release does not find the program in the text and takes it to start at 0."""
    parents: tuple[Parent, ...] = ()  # P
    excluded: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Per scope: the nodes that it leaves out."""


@dataclass(frozen=True)
class OrderProgram:
    """Everything about a text that does not depend on the order of its tokens."""

    facts: ProgramFacts
    spans: IntArray  # T 2
    """Of each Python token: its characters in the text, where the trace's tokens are looked up."""
    blocks: Blocks
    scopes: dict[str, IntArray | None]
    """Per scope: which of the parents are in it; None where there is no entry point."""
    extent: tuple[int, int]
    """[first, after the last) character of the program; negative if it begins in the prompt."""


def prepare(
    trace: Trace, scopes: Sequence[str], mode: str = "exact"
) -> OrderProgram | ProgramFacts:
    """The program in a trace's text, ready to be scored, or the facts where nothing can be.

    Never an exception because of the text.
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
    """The text, else the text as it goes on from its prompt, else the fallbacks."""
    parsed = parse_answer(trace.prompt, trace.text)
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
) -> tuple[tuple[Parent, ...], dict[str, IntArray | None]]:
    """The distinct (node, children that count) of all scopes, and which of them each scope has."""
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
    """The (child, token) pairs; None where there are too many."""
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
