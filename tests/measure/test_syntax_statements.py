"""The statement-level tree, drawn by hand."""

from __future__ import annotations

import ast

import pytest

from anyorder.measure.syntax import GENERATED_TESTS, statement_tree


def shape(source: str, **options: bool) -> list[tuple[int, str]]:
    return [(item.depth, item.kind) for item in statement_tree(ast.parse(source), **options)][1:]


SHAPES = {
    "docstrings of owners": (
        '"""m"""\ndef f():\n    """d"""\n    "kept"\nclass C:\n    "d"\n    x = 1\n',
        [(1, "FunctionDef"), (2, "Expr"), (1, "ClassDef"), (2, "Assign")],
    ),
    "strings in branches": (
        "if x:\n    a\n    'gone'\nelse:\n    'kept'\nfor i in y:\n    'gone'\nelse:\n    b\n",
        [(1, "If"), (2, "Expr"), (2, "Expr"), (1, "For"), (2, "Expr")],
    ),
    "elif is below": (
        "if a:\n    b\nelif c:\n    d\nelse:\n    e\n",
        [(1, "If"), (2, "Expr"), (2, "If"), (3, "Expr"), (3, "Expr")],
    ),
    "try is flat": (
        "try:\n    a\nexcept E:\n    b\nexcept F:\n    c\nelse:\n    d\nfinally:\n    'kept'\n",
        [(1, "Try"), *[(2, "Expr")] * 5],
    ),
    "except* is a leaf": ("try:\n    a\nexcept* E:\n    b\n", [(1, "TryStar")]),
    "match is flat": (
        "match x:\n    case 1:\n        a\n    case _:\n        b = 1\n",
        [(1, "Match"), (2, "Expr"), (2, "Assign")],
    ),
    "with and async": (
        "async def f():\n    async with a:\n        async for b in c:\n            await d\n",
        [(1, "AsyncFunctionDef"), (2, "AsyncWith"), (3, "AsyncFor"), (4, "Expr")],
    ),
    "expressions hold nothing": ("x = [lambda: (yield) for y in z]\n", [(1, "Assign")]),
}


@pytest.mark.parametrize(("source", "expected"), SHAPES.values(), ids=SHAPES)
def test_shapes(source: str, expected: list[tuple[int, str]]) -> None:
    assert shape(source) == expected


F = "def f():\n    return 1\n"
TESTS = {
    "asserts": (f"{F}assert f()\nassert f() == 1\n", ["FunctionDef", GENERATED_TESTS]),
    "from the first statement on": (f"{F}k = 3\nprint(k)\n", ["FunctionDef", GENERATED_TESTS]),
    "later functions too": (f"{F}k = 3\n{F}print(k)\n", ["FunctionDef", GENERATED_TESTS]),
    "a guard": (f"{F}if __name__ == '__main__':\n    x = 1\n", ["FunctionDef", GENERATED_TESTS]),
    "inside an if": (f"{F}if x:\n    pass\nelse:\n    f()\n", ["FunctionDef", GENERATED_TESTS]),
    "imports stay": (f"{F}import os\nf()\n", ["FunctionDef", "Import", GENERATED_TESTS]),
    "no marker": (f"{F}k = 3\n", ["FunctionDef", "Assign"]),
    "a loop is no marker": (f"{F}for i in x:\n    print(i)\n", ["FunctionDef", "For"]),
    "before any function": ("print(1)\nx = 1\n", ["Expr", "Assign"]),
}  # fmt: skip


@pytest.mark.parametrize(("source", "expected"), TESTS.values(), ids=TESTS)
def test_generated_tests(source: str, expected: list[str]) -> None:
    tree = statement_tree(ast.parse(source))
    assert [item.kind for item in tree if item.depth == 1] == expected
    leaf = tree[-1]
    assert leaf.kind != GENERATED_TESTS or not leaf.children


def test_numbers_parents_and_children_agree() -> None:
    tree = statement_tree(ast.parse("def f():\n    if x:\n        a\n    b\nc = 1\n"))
    assert [item.number for item in tree] == list(range(len(tree)))
    assert [item.parent for item in tree] == [None, 0, 1, 2, 1, 0]
    assert [item.children for item in tree] == [[1, 5], [2, 4], [3], [], [], []]


LABELS = {
    "def f(): pass": "FunctionDef: f",
    "class C: pass": "ClassDef: C",
    "a = b = 1": "Assign: a",
    "a: int = 1": "AnnAssign: a",
    "a.b += 1": "AugAssign: a.b Add",
    "while x > 1: pass": "While: x > 1",
    "for a, b in enumerate(c): pass": "For: (a, b) in enumerate(c)",
    "print('x')": "Expr: print('x')",
    "from a import b as c": "from a import b as c",
    "return_ = 1; del return_": "Assign: return_",
    "\n\nraise X": "Raise@L3",
    f"if {'x' * 60}: pass": "If: " + "x" * 47 + "...",
}


@pytest.mark.parametrize(("source", "label"), LABELS.items())
def test_labels(source: str, label: str) -> None:
    assert statement_tree(ast.parse(source))[1].label == label


def test_an_expression_too_deep_to_print_has_a_label() -> None:
    tree = statement_tree(ast.parse("-" * 400 + "x"))
    assert tree[1].label.startswith("Expr")
