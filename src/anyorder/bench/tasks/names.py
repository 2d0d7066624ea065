"""Whose a name is: what tests may take from the program, and what must come from the task.

Read from the syntax tree alone, nothing is run. A test that calls `poly` where the prompt defines
`poly` must use the prompt's, or a sample could define its own and make the test say anything.

    remote   the entry point, and names that the program alone can define (a class it was shown)
    setup    imports and definitions of the task's own text that the tests need, and what these need
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import warnings
from collections.abc import Iterable
from functools import lru_cache

_DATA = re.compile(r"^[ \t]*(?:inputs|results) = \[.*$", re.MULTILINE)
_BUILTIN = frozenset(dir(builtins))
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@lru_cache(maxsize=16)  # the prologue is asked for with every problem; nobody changes a tree
def parsed(code: str) -> ast.Module:
    """The tree of a task's text; what Python finds odd in it is no news for the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


def free_names(code: str) -> set[str]:
    """Names that the code reads from its surroundings, builtins included."""
    read: set[str] = set()
    bound: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        top = symtable.symtable(code, "<task>", "exec")
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            at_top = table is top
            if symbol.is_referenced() and (at_top or symbol.is_global()):
                read.add(symbol.get_name())
            if (symbol.is_assigned() or symbol.is_imported()) and (at_top or symbol.is_global()):
                bound.add(symbol.get_name())
    return read - bound


def defined_names(code: str) -> list[str]:
    """Functions and classes at the top level, in order."""
    return [node.name for node in parsed(code).body if isinstance(node, _Definition)]


def called_names(code: str) -> set[str]:
    """Plain names that the code calls."""
    return {
        node.func.id
        for node in ast.walk(parsed(code))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def entry_point(reference: str, tests: str) -> str | None:
    """The first top-level function of the reference that the tests call."""
    called = called_names(tests)
    functions = (node.name for node in parsed(reference).body if isinstance(node, ast.FunctionDef))
    return next((name for name in functions if name in called), None)


def needed_setup(tests: str, sources: Iterable[str], without: Iterable[str]) -> str:
    """The statements of the trusted sources that the tests need, directly or not, in their order.

    Of two that bind one name the later counts. `without`: names that come from the program.
    """
    remote = set(without)
    statements = [node for source in sources for node in parsed(source).body]
    owner = {name: node for node in statements for name in _binds(node) if name not in remote}
    # Tests may be megabytes of literals, and most need nothing: leave out what evalplus writes in
    # one line each, and look for the words first.
    tests = _DATA.sub("", tests)
    if not re.search(rf"\b(?:{'|'.join(map(re.escape, owner))})\b", tests):
        return ""
    waiting = list(free_names(tests))
    kept: set[ast.stmt] = set()
    while waiting:
        node = owner.get(waiting.pop())
        if node is not None and node not in kept:
            kept.add(node)
            waiting += free_names(ast.unparse(node))
    return "".join(f"{ast.unparse(node)}\n" for node in statements if node in kept)


def missing_names(tests: str, setup: str, remote: Iterable[str]) -> set[str]:
    """Names that the tests read and nobody defines."""
    bound = _bound(ast.walk(parsed(setup)))
    return free_names(tests) - bound - set(remote) - _BUILTIN


def _binds(node: ast.stmt) -> set[str]:
    """What a top-level statement defines: a function, a class, an import, a plain assignment."""
    if isinstance(node, _Definition):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign):
        return _bound(ast.walk(node))
    return set()


def _bound(nodes: Iterable[ast.AST]) -> set[str]:
    names = set()
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name) | ast.arg(arg=name) | ast.alias(asname=str(name)):
                names.add(name)
            case ast.alias(name=name):
                names.add(name.split(".")[0])
            case ast.ExceptHandler(name=str(name)):
                names.add(name)
    return names
