"""The statement-level tree of a program (appendix D, "Parsing into trees").

Every statement is a node; expressions belong to their statement. Children:

    def, class, module   the body, without a string that stands first (the docstring)
    for, while, if       body then else, under one node; strings in the body are left out anywhere;
                         `elif` is an If below its If
    with                 the body
    try, match           all bodies in order, under one node
    everything else      a leaf (`try ... except*` too: the release's choice)

Tests that a model appends to its answer become one leaf: after the first def or class of the
module, the first statement from which on some statement is an assert, a call, or an `if` that
guards or holds one, starts it, and it reaches to the end.

It does not say which token belongs to which node: see syntax_tokens.py.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

GENERATED_TESTS = "Generated Tests"
GENERATED_TESTS_LABEL = "Generated Tests / Examples"

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)

# The release cuts labels at these lengths.
TARGET_LIMIT, LOOP_LIMIT, EXPRESSION_LIMIT, IMPORT_LIMIT = 48, 36, 56, 72


@dataclass(eq=False)
class Statement:
    """A node. `number` is its place in the tree, parents before children, in source order."""

    number: int
    kind: str
    """The name of the ast class, or GENERATED_TESTS."""
    parent: int | None
    depth: int
    nodes: tuple[ast.AST, ...]
    """The syntax nodes it stands for: one, or all the statements of generated tests."""
    children: list[int] = field(default_factory=list)

    @property
    def label(self) -> str:
        """What the release prints for it; its `compat` exclusions look for words in this."""
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


def statement_tree(module: ast.Module, *, group_tests: bool = True) -> list[Statement]:
    """The nodes of a program, parents before children; the first is the module."""
    tree = [Statement(0, "Module", None, 0, (module,))]
    body = _without_docstring(module.body)
    split = _start_of_tests(body) if group_tests else len(body)
    pending: list[tuple[tuple[ast.AST, ...], int]] = [((node,), 0) for node in body[:split]]
    if split < len(body):
        pending.append((tuple(body[split:]), 0))
    pending.reverse()
    while pending:
        nodes, parent = pending.pop()
        is_tests = parent == 0 and split < len(body) and nodes[0] is body[split]
        kind = GENERATED_TESTS if is_tests else type(nodes[0]).__name__
        number = len(tree)
        tree.append(Statement(number, kind, parent, tree[parent].depth + 1, nodes))
        tree[parent].children.append(number)
        if not is_tests:
            below = child_statements(nodes[0])
            pending += [((node,), number) for node in reversed(below)]
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


def _definition(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[ast.stmt]:
    return _without_docstring(node.body)


def _branches(node: ast.For | ast.AsyncFor | ast.While | ast.If) -> list[ast.stmt]:
    return [item for item in node.body if not is_string(item)] + list(node.orelse)


def _with(node: ast.With | ast.AsyncWith) -> list[ast.stmt]:
    return list(node.body)


def _try(node: ast.Try) -> list[ast.stmt]:
    handled = [item for handler in node.handlers for item in handler.body]
    return [*node.body, *handled, *node.orelse, *node.finalbody]


def _match(node: ast.Match) -> list[ast.stmt]:
    return [item for case in node.cases for item in case.body]


_CHILDREN: dict[type, Callable[..., list[ast.stmt]]] = {
    **dict.fromkeys(_DEFINITIONS, _definition),
    **dict.fromkeys((ast.For, ast.AsyncFor, ast.While, ast.If), _branches),
    **dict.fromkeys((ast.With, ast.AsyncWith), _with),
    ast.Try: _try,
    ast.Match: _match,
}


def _start_of_tests(body: Sequence[ast.stmt]) -> int:
    """The index of the statement from which on the module's statements are generated tests."""
    last_marker = max((i for i, node in enumerate(body) if is_test_marker(node)), default=-1)
    defined = False
    for index, node in enumerate(body):
        if isinstance(node, _DEFINITIONS):
            defined = True
        elif defined and not isinstance(node, _IMPORTS) and index <= last_marker:
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
    """Whether the text of a condition has both words; every text of it shows in a leaf."""
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


def _added(node: ast.AugAssign) -> str:
    return f"AugAssign: {_cut(node.target, TARGET_LIMIT)} {type(node.op).__name__}"


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
    "AugAssign": _added,
    "Expr": lambda node: f"Expr: {_cut(node.value, EXPRESSION_LIMIT)}",
}
