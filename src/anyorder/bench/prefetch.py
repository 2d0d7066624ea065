"""Test statements, rewritten so that neighbouring calls of the program are sent together.

    assert f(1) == 2                         __prefetch__(((f, (1,)), (f, (2,))), ())
    assert set(f(2)) == {3}        ->        assert f(1) == 2
                                             assert set(f(2)) == {3}

Nine in ten tests of HumanEval and MBPP are runs of asserts whose calls have constant arguments.
Before each such run a statement is inserted that names its calls in the order in which they will be
made; what it does about them is the caller's matter (judge_script.py: one batch, whose results
answer the calls). The test statements themselves stay as they are, so `is True`, `not`, `abs(...) <
eps`, `math.isclose` and the rest mean what they mean.

A run is broken by whatever could change the number, the order or the arguments of the calls:
anything but an assert, short circuits, comprehensions, arguments that are not constant. Tests that
could catch a failure and go on (`try`, `with`) are left as they are altogether. Which names
belong to the program is known only when the statements run, so all names of a run are handed over.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

PREFETCH = "__prefetch__"
"""What the inserted statements call: __prefetch__(((function, arguments), ...), others)."""

_CATCHING = re.compile(r"\b(?:try|with|except)\b")

FEWEST = 2
"""Calls that are worth a batch."""

_PLAIN = (
    *(ast.Constant, ast.List, ast.Tuple, ast.Set, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Call),
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.keyword),
    *(ast.expr_context, ast.operator, ast.unaryop, ast.cmpop),
)
"""Nodes whose parts are all evaluated, once each, in the order of the syntax tree."""


@dataclass
class _Asserts:
    """Neighbouring asserts, and what they call."""

    statements: list[ast.stmt] = field(default_factory=list)
    calls: list[ast.expr] = field(default_factory=list)
    """Tuples (function, arguments), each of a name and constants."""
    others: set[str] = field(default_factory=set)
    """All other names: were one of them the program's, the calls would not be all there are."""

    def with_prefetch(self) -> list[ast.stmt]:
        if len(self.calls) < FEWEST:
            return self.statements
        here = self.statements[0]
        names = [_name(name, here) for name in sorted(self.others)]
        arguments = [_tuple(self.calls, here), _tuple(names, here)]
        call = ast.copy_location(ast.Call(_name(PREFETCH, here), arguments, []), here)
        return [ast.copy_location(ast.Expr(call), here), *self.statements]


def compile_tests(code: str, filename: str, *, foresee: bool = True) -> CodeType:
    """The statements as a code object that calls `__prefetch__` before runs of plain asserts."""
    tree = ast.parse(code, filename)
    if foresee and not goes_on_after_failure(code):
        tree.body = list(_rewritten(tree.body))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                node.body = list(_rewritten(node.body))
    # Without these two, our own future import and -O would change what the tests say.
    return compile(tree, filename, "exec", dont_inherit=True, optimize=0)


def goes_on_after_failure(code: str) -> bool:
    """Whether the statements may catch what they raise; said too often rather than too rarely."""
    return _CATCHING.search(code) is not None


def _rewritten(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    run = _Asserts()
    for statement in body:
        found = _plain_assert(statement)
        if found is None:
            yield from run.with_prefetch()
            yield statement
            run = _Asserts()
        else:
            run.statements.append(statement)
            run.calls += found.calls
            run.others |= found.others
    yield from run.with_prefetch()


def _plain_assert(statement: ast.stmt) -> _Asserts | None:
    """What an assert calls; None if the statement is no assert, or one that breaks a run."""
    if not isinstance(statement, ast.Assert):
        return None
    if statement.msg is not None and not _is_constant(statement.msg):
        return None
    found = _Asserts()
    return found if _collect(statement.test, found) else None


def _collect(node: ast.AST, found: _Asserts) -> bool:
    """Add the calls below `node` in the order of evaluation; False if that is not certain."""
    if _is_constant(node):
        return True
    if not isinstance(node, _PLAIN) or (isinstance(node, ast.Compare) and len(node.ops) > 1):
        return False
    if isinstance(node, ast.Name):
        found.others.add(node.id)
        return True
    if isinstance(node, ast.Call):
        if not isinstance(_root(node.func), ast.Name):
            return False  # a method of something that a call returned may be the program's
        constant = not node.keywords and all(map(_is_constant, node.args))
        if constant and isinstance(node.func, ast.Name):
            arguments = _tuple(list(node.args), node)
            found.calls.append(_tuple([_name(node.func.id, node), arguments], node))
            return True
    return all(_collect(child, found) for child in ast.iter_child_nodes(node))


def _root(node: ast.expr) -> ast.expr:
    """What stands before all dots."""
    return _root(node.value) if isinstance(node, ast.Attribute) else node


def _is_constant(node: ast.AST | None) -> bool:
    """Whether an expression holds literals and operators only. Tests have long ones: by hand."""
    kind = type(node)
    if kind is ast.Constant:
        return True
    parts = _PARTS.get(kind)
    return parts is not None and all(map(_is_constant, parts(node)))


_PARTS: dict[type, Callable[[Any], Iterable[ast.AST | None]]] = {
    ast.List: lambda node: node.elts,
    ast.Tuple: lambda node: node.elts,
    ast.Set: lambda node: node.elts,
    ast.Dict: lambda node: [*node.keys, *node.values],
    ast.UnaryOp: lambda node: (node.operand,),
    ast.BinOp: lambda node: (node.left, node.right),
}
"""The expressions that are constant if their parts are; a dict's `**` has no key, hence is not."""


def _name(name: str, where: ast.stmt | ast.expr) -> ast.expr:
    return ast.copy_location(ast.Name(name, ast.Load()), where)


def _tuple(items: list[ast.expr], where: ast.stmt | ast.expr) -> ast.expr:
    return ast.copy_location(ast.Tuple(items, ast.Load()), where)
