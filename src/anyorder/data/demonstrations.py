"""Example calls at the end of a program, taken off as the published pipeline does.

With "keep" a top-level definition or import whose name is not that of a demonstration, and "tail"
the statements after the last keep, the program is left as it is if

    it does not parse, it has no keep or no tail, or something else stands before the last keep;
    it is a Flask app, or reads `sys.argv` or `input()`; or the prompt asks for a script

and otherwise loses its tail if all of that is demonstration (demo-named definitions, a main guard,
calls, assignments, loops over such), or if it prints more than twice. Banner comments such as
`# Example usage:` before the tail go too. A Flask app whose tail has a main guard drops the row.

Names of demonstrations: test*, example*, demo*, sample*, usage, driver, main, run, *_test,
*_example, *_demo, *_usage, *_sample; not where the prompt has the name.
"""

from __future__ import annotations

import ast
import re

from anyorder.data.python_code import parsed

MOST_PRINTS = 2

_DEMO_NAME = re.compile(
    r"(?:test|example|demo|sample)\w*|usage|driver|main|run|\w*_(?:tests?|examples?|demo|usage|sample)",
    re.IGNORECASE,
)
_BANNER = re.compile(
    r"\s*#.*\b(?:examples?|usage|tests?|testing|demo|demonstration|sample|driver)\b", re.IGNORECASE
)
_SCRIPT = re.compile(
    r"\b(?:scripts?|programs?|command[- ]line|cli|argparse|argv|standard input)\b", re.IGNORECASE
)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


class FlaskApp(ValueError):
    """A web application that would be served by its main guard: the row is left out."""


def without_demonstration(code: str, prompt: str) -> str:
    """The program without its tail of example calls, ending with a newline; or as it is."""
    tree = parsed(code)
    if tree is None:
        return code
    keeps = [at for at, node in enumerate(tree.body) if _is_kept(node, prompt)]
    if not keeps:
        return code
    tail = tree.body[keeps[-1] + 1 :]
    flask = _uses_flask(tree)
    if flask and any(_is_main_guard(node) for node in tail):
        raise FlaskApp("a Flask app with a main guard")
    elsewhere = len(keeps) <= keeps[-1]  # something that is no keep stands before the last one
    if not tail or elsewhere or flask or _reads_input(tree) or _SCRIPT.search(prompt):
        return code
    if not all(_is_demo(node, prompt) for node in tail) and _prints(tail) <= MOST_PRINTS:
        return code
    lines = code.split("\n")[: _first_line(tail[0]) - 1]
    while lines and (not lines[-1].strip() or _BANNER.match(lines[-1])):
        lines.pop()
    shorter = "\n".join(lines) + "\n"
    return shorter if parsed(shorter) is not None else code


def _is_kept(node: ast.stmt, prompt: str) -> bool:
    if isinstance(node, _IMPORTS):
        return True
    return isinstance(node, _DEFINITIONS) and not _is_demo_name(node.name, prompt)


def _is_demo_name(name: str, prompt: str) -> bool:
    return _DEMO_NAME.fullmatch(name) is not None and name not in prompt


def _is_demo(node: ast.stmt, prompt: str) -> bool:
    """Whether a statement of the tail only demonstrates."""
    if isinstance(node, _DEFINITIONS):
        return _is_demo_name(node.name, prompt)
    if _is_main_guard(node):
        assert isinstance(node, ast.If)
        return not node.orelse and all(_is_demo(inner, prompt) for inner in node.body)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.For | ast.While):
        return all(_is_demo(inner, prompt) for inner in (*node.body, *node.orelse))
    return isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)


def _is_main_guard(node: ast.stmt) -> bool:
    if not isinstance(node, ast.If):
        return False
    condition = ast.unparse(node.test)
    return "__name__" in condition and "__main__" in condition


def _uses_flask(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func) in ("Flask", "flask.Flask")
        for node in ast.walk(tree)
    )


def _reads_input(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.argv":
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "input":
            return True
    return False


def _prints(tail: list[ast.stmt]) -> int:
    return sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        for statement in tail
        for node in ast.walk(statement)
    )


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
