"""Programs inside answers: is it Python, where is it, and what of it is only a demonstration.

Two ways to tell Python (`looks_like_python` by mode):

    compat   the published substring test: one of `def `, `class `, `import `, `from `, and none of
             eight marks of other languages. A docstring that says "using a stack" fails it
    exact    it parses, and defines or imports something

What is Python is decided by the interpreter that runs this. The programs are parsed, never run.
What this file does not do: read rows (corpora.py), strip demonstrations (demonstrations.py).
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable

FENCE = re.compile(r"```([^\n`]*)\n(.*?)```", re.DOTALL)
PYTHON_FENCES = ("py", "python")

_ANY_OF = ("def ", "class ", "import ", "from ")
_NONE_OF = (
    "#include",
    "public class",
    "using ",
    "func ",
    "package ",
    "namespace ",
    "std::",
    "System.out",
)
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def parsed(code: str) -> ast.Module | None:
    """The program's tree; None where it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a string is its author's affair
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def has_marks_of_python(code: str) -> bool:
    """The published substring test."""
    return any(mark in code for mark in _ANY_OF) and not any(mark in code for mark in _NONE_OF)


def is_python(code: str) -> bool:
    """Whether it parses and holds a definition or an import, at any depth."""
    tree = parsed(code)
    return tree is not None and any(isinstance(node, _DEFINING) for node in ast.walk(tree))


LOOKS_LIKE_PYTHON: dict[str, Callable[[str], bool]] = {
    "compat": has_marks_of_python,
    "exact": is_python,
}


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """The language and the content of each block between fences."""
    return [(match[1].strip().lower(), match[2]) for match in FENCE.finditer(text)]


def extract_python(text: str, mode: str) -> str | None:
    """The program of an answer: the last Python block, else the last block, else the whole text.

    exact looks further where that is no program: among all blocks, Python ones first, the last
    that is one, and then the whole text.
    """
    blocks = fenced_blocks(text)
    python = [block for language, block in blocks if language in PYTHON_FENCES]
    others = [block for language, block in blocks if language not in PYTHON_FENCES]
    if mode == "compat":
        candidates = [*python[-1:], *others[-1:], *([] if blocks else [text])][:1]
    else:
        candidates = [*reversed(python), *reversed(others), text]
    fits = LOOKS_LIKE_PYTHON[mode]
    return next((code.strip() for code in candidates if fits(code.strip())), None)


def whole_program(text: str) -> str | None:
    """A program that may stand between one pair of fences; None where it does not parse."""
    text = text.strip()
    match = FENCE.fullmatch(text)
    if match is not None and match[1].strip().lower() in ("", *PYTHON_FENCES):
        text = match[2].strip()
    return text if text and parsed(text) is not None else None


def without_docstring(code: str) -> str:
    """The lines of the first function's docstring taken out; what does not parse stays as it is."""
    tree = parsed(code)
    functions = [] if tree is None else [node for node in ast.walk(tree) if _is_function(node)]
    if not functions:
        return code
    first = functions[0].body[0]  # type: ignore[attr-defined]
    if not (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        return code
    lines = code.split("\n")
    assert first.end_lineno is not None
    shorter = "\n".join([*lines[: first.lineno - 1], *lines[first.end_lineno :]])
    # A docstring that is all of the body, or shares its line with code, has to stay.
    return shorter if parsed(shorter) is not None else code


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def without_blank_lines(code: str) -> str:
    """Lines of white space alone taken out."""
    return "\n".join(line for line in code.split("\n") if line.strip())
