"""The published clean-up of a generated program: keep what the entry point needs.

The rule of the paper's release and of Dream-Coder's evaluation, step by step:

    1. tabs become four spaces, line ends "\\n"; blanks at both ends go
    2. of the first 100 lines, the longest run that parses, by lines that are not blank (the first
       among equals)
    3. keep imports, classes, functions that hold a `return`, and assignments to a plain name; of
       two with one name the later one, in the place of the earlier
    4. drop what the entry point does not reach by name. The walk does not look inside attributes:
       in `helper(x).y` it sees `y` alone, so `helper` is dropped (a quirk that is kept)
    5. write the trees out again, imports first

A function that only prints, top-level code, annotated and tuple assignments are lost by this rule,
honest programs among them: measure/extract.py has other modes. Nothing here runs a program.
"""

from __future__ import annotations

import ast

from anyorder.measure.extract_range import longest_range, parse

MAX_LINES = 100

_Definition = ast.ClassDef | ast.FunctionDef | ast.Assign


def sanitize(text: str, entry_point: str | None) -> str | None:
    """The cleaned program, or None where no line of the text parses or nothing is kept."""
    text = text.replace("\t", "    ").replace("\r\n", "\n").replace("\r", "\n").strip()
    lines = text.splitlines()[:MAX_LINES]
    first, stop = longest_range(lines)
    tree = parse("\n".join([*lines[first:stop], ""]))
    if tree is None:
        return None
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    definitions = _definitions(tree)
    if entry_point:
        reached = _reached(entry_point, definitions)
        definitions = {name: node for name, node in definitions.items() if name in reached}
    kept = [_written(node, lines[first:stop]) for node in (*imports, *definitions.values())]
    return "\n".join(kept) or None


def _definitions(tree: ast.Module) -> dict[str, _Definition]:
    found: dict[str, _Definition] = {}
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                found[name] = node
            case ast.FunctionDef(name=name):
                if any(isinstance(inner, ast.Return) for inner in ast.walk(node)):
                    found[name] = node
            case ast.Assign(targets=[ast.Name(id=name), *_]):
                found[name] = node
    return found


def _reached(entry_point: str, definitions: dict[str, _Definition]) -> set[str]:
    reached: set[str] = set()
    waiting = [entry_point]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            if name in definitions:
                waiting += _names_in(definitions[name])
    return reached


def _names_in(definition: ast.AST) -> set[str]:
    """Names that the walk sees; below an attribute it sees the attribute's name only."""
    names: set[str] = set()
    waiting = [definition]
    while waiting:
        for child in ast.iter_child_nodes(waiting.pop()):
            match child:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    names.add(name)
                case _:
                    waiting.append(child)
    return names


def _written(node: ast.stmt, lines: list[str]) -> str:
    try:
        return ast.unparse(node)
    except RecursionError:
        # Too deep to write out again: the statement's own lines say the same.
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        return "\n".join(lines[first - 1 : node.end_lineno])
