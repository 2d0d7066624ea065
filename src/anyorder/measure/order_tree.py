"""The statement tree of the order metrics: as the paper says (exact), as the release does (compat).

compat is syntax_statements.py as it stands. exact differs where the release does something that
appendix D does not say:

    strings           only docstrings are collapsed into their owner; a bare string in the body of a
                      loop or an `if` is a statement like any other
    try ... except*   has children like every try
    generated tests   the statements after the *last* definition of the module, if one of them is a
                      test ("trailing generated tests"); the release takes everything from the first
                      statement after the *first* definition, later definitions included
    decorators        the `@` belongs to the function it decorates; in the release to nobody

Both give statements in the order of the source, parents before children, and tokens with owners.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from anyorder.measure.syntax_statements import (
    GENERATED_TESTS,
    Statement,
    child_statements,
    is_string,
    is_test_marker,
    statement_tree,
)
from anyorder.measure.syntax_tokens import NOBODY, Token, assign_tokens

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
WITH_ELSE = (ast.For, ast.AsyncFor, ast.While, ast.If)


def order_tree(module: ast.Module, source: str, mode: str) -> tuple[list[Statement], list[Token]]:
    """The statements of a program and its tokens, each with its statement's number."""
    return TREES[mode](module, source)


def _compat(module: ast.Module, source: str) -> tuple[list[Statement], list[Token]]:
    tree = statement_tree(module)
    return tree, assign_tokens(source, tree, compat=True)


def _exact(module: ast.Module, source: str) -> tuple[list[Statement], list[Token]]:
    tree = exact_tree(module)
    return tree, _with_decorators(source, tree, assign_tokens(source, tree))


def exact_tree(module: ast.Module) -> list[Statement]:
    """The statements, numbered parents first; the first is the module."""
    tree = [Statement(0, "Module", None, 0, (module,))]
    body = module.body[1:] if module.body and is_string(module.body[0]) else module.body
    tests = start_of_trailing_tests(body)
    waiting: list[tuple[tuple[ast.stmt, ...], int]] = [((node,), 0) for node in body[:tests]]
    if tests < len(body):
        waiting.append((tuple(body[tests:]), 0))
    waiting.reverse()
    while waiting:
        nodes, parent = waiting.pop()
        is_tests = parent == 0 and tests < len(body) and nodes[0] is body[tests]
        number = len(tree)
        kind = GENERATED_TESTS if is_tests else type(nodes[0]).__name__
        tree.append(Statement(number, kind, parent, tree[parent].depth + 1, nodes))
        tree[parent].children.append(number)
        if not is_tests:
            waiting += [((node,), number) for node in reversed(_children(nodes[0]))]
    return tree


def _children(node: ast.stmt) -> list[ast.stmt]:
    if isinstance(node, WITH_ELSE):
        return [*node.body, *node.orelse]
    if isinstance(node, ast.TryStar):
        handled = [item for handler in node.handlers for item in handler.body]
        return [*node.body, *handled, *node.orelse, *node.finalbody]
    return child_statements(node)


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
    """The `@` in front of a decorator gets the owner of the decorator."""
    if not any(getattr(statement.nodes[0], "decorator_list", None) for statement in tree):
        return tokens
    following = [token.node for token in tokens[1:]] + [NOBODY]
    return [
        token._replace(node=owner)
        if owner != NOBODY and _is_decorator_sign(source, token)
        else token
        for token, owner in zip(tokens, following, strict=True)
    ]


def _is_decorator_sign(source: str, token: Token) -> bool:
    """Whether it is an `@` that begins its line. One that multiplies may do so inside brackets, but
    then it has the owner of what follows it anyway."""
    if source[token.start : token.end] != "@":
        return False
    line = max(source.rfind(sign, 0, token.start) for sign in "\n\r") + 1
    return not source[line : token.start].strip()


TREES: dict[str, Callable[[ast.Module, str], tuple[list[Statement], list[Token]]]] = {
    "exact": _exact,
    "compat": _compat,
}
