"""The trees of exact and compat, where they agree and where they do not, on any Python."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from anyorder.measure.order_program import order_tree

SOURCE = Path(__file__).resolve().parents[2] / "src"

CODE = "def f(x):\n    return x\n"


def drawn(source: str, mode: str) -> str:
    """A tree as nested kinds: Module(FunctionDef(Return))."""
    statements, _ = order_tree(ast.parse(source), source, mode)

    def draw(number: int) -> str:
        statement = statements[number]
        inside = ", ".join(draw(child) for child in statement.children)
        kind = statement.kind.replace("Generated Tests", "Tests")
        return f"{kind}({inside})" if inside else kind

    return draw(0)


def owners(source: str, mode: str) -> list[tuple[str, int]]:
    _, tokens = order_tree(ast.parse(source), source, mode)
    return [(source[token.start : token.end], token.node) for token in tokens]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (CODE, "Module(FunctionDef(Return))"),
        ('"""doc"""\n' + CODE, "Module(FunctionDef(Return))"),
        ('def f():\n    """doc"""\n    x = 1\n    "text"\n', "Module(FunctionDef(Assign, Expr))"),
        ("if a:\n    b\nelif c:\n    d\nelse:\n    e\n", "Module(If(Expr, If(Expr, Expr)))"),
        (
            "try:\n    a\nexcept E:\n    b\nelse:\n    c\nfinally:\n    d\n",
            "Module(Try(Expr, Expr, Expr, Expr))",
        ),
        ("match a:\n    case 1:\n        b\n    case _:\n        c\n", "Module(Match(Expr, Expr))"),
        (CODE + "print(f(1))\nassert f(2)\n", "Module(FunctionDef(Return), Tests)"),
        (CODE + "x = 1\nprint(f(x))\n", "Module(FunctionDef(Return), Tests)"),
        (CODE + "if __name__ == '__main__':\n    x = 1\n", "Module(FunctionDef(Return), Tests)"),
        (CODE + "x = 1\n", "Module(FunctionDef(Return), Assign)"),
        (CODE + "import os\nprint(f(1))\n", "Module(FunctionDef(Return), Import, Tests)"),
        ("print(1)\n", "Module(Expr)"),
        (
            "async def f():\n    async with a:\n        b\n",
            "Module(AsyncFunctionDef(AsyncWith(Expr)))",
        ),
    ],
)
def test_where_the_modes_agree(source: str, expected: str) -> None:
    assert drawn(source, "exact") == drawn(source, "compat") == expected


@pytest.mark.parametrize(
    ("source", "exact", "compat"),
    [
        # A string in a loop or an if is no docstring.
        (
            "for a in b:\n    'text'\n    c\nelse:\n    'text'\n",
            "Module(For(Expr, Expr, Expr))",
            "Module(For(Expr, Expr))",
        ),
        ("if a:\n    b\n    'text'\n", "Module(If(Expr, Expr))", "Module(If(Expr))"),
        # Groups of exceptions.
        (
            "try:\n    a\nexcept* E:\n    b\n",
            "Module(TryStar(Expr, Expr))",
            "Module(TryStar)",
        ),
        # Tests are trailing: a later definition is code.
        (
            CODE + "k = 3\ndef h():\n    return k\nprint(h())\n",
            "Module(FunctionDef(Return), Assign, FunctionDef(Return), Tests)",
            "Module(FunctionDef(Return), Tests)",
        ),
        (
            CODE + "assert f(1)\nclass A:\n    x = 1\n",
            "Module(FunctionDef(Return), Assert, ClassDef(Assign))",
            "Module(FunctionDef(Return), Tests)",
        ),
    ],
)
def test_where_they_differ(source: str, exact: str, compat: str) -> None:
    assert drawn(source, "exact") == exact
    assert drawn(source, "compat") == compat


def test_the_sign_of_a_decorator() -> None:
    source = "@cache\ndef f():\n    x = (a\n    @ b)\nclass C:\n    @d.e\n    def g(self): pass\n"
    exact = [owner for text, owner in owners(source, "exact") if text == "@"]
    compat = [owner for text, owner in owners(source, "compat") if text == "@"]
    assert drawn(source, "exact") == "Module(FunctionDef(Assign), ClassDef(FunctionDef(Pass)))"
    assert exact == [1, 2, 4]
    assert compat == [-1, 2, 3]
    assert [o for t, o in owners(source, "exact") if t in ("cache", "d", "e")] == [1, 4, 4]


def test_tokens_belong_to_the_innermost_statement() -> None:
    source = "def f(x):  # why\n    if x:\n        y = 1; z = 2\n    return y\n# end\n"
    # 1 def, 2 if, 3 and 4 the assignments, 5 return
    expected = [
        *[("def", 1), ("f", 1), ("(", 1), ("x", 1), (")", 1), (":", 1), ("# why", 1), ("\n", 1)],
        *[("    ", 1), ("if", 2), ("x", 2), (":", 2), ("\n", 2), ("        ", 2)],
        *[("y", 3), ("=", 3), ("1", 3), (";", 2), ("z", 4), ("=", 4), ("2", 4), ("\n", 1)],
        *[("return", 5), ("y", 5), ("\n", -1), ("# end", -1), ("\n", -1)],
    ]
    assert owners(source, "exact") == owners(source, "compat") == expected


F_STRINGS = [
    'def f(x):\n    y = f"{x!r:>{len(x)}} and {x + 1}"\n    return y\n',
    'def f(x):\n    s = f"""a\n{x}\n  é {x:02d}"""\n    return s, rf"\\d{x}" "b" f\'{{}}\'\n',
    'def f(é):\n    return f"é{é}é", é  # é\n',
]


@pytest.mark.parametrize("mode", ["exact", "compat"])
def test_an_f_string_is_one_token(mode: str) -> None:
    found = [(text, owner) for text, owner in owners(F_STRINGS[0], mode) if owner == 2]
    assert found == [("y", 2), ("=", 2), ('f"{x!r:>{len(x)}} and {x + 1}"', 2)]
    strings = [text for text, _ in owners(F_STRINGS[1], mode) if "f" in text and len(text) > 5]
    assert strings == ['f"""a\n{x}\n  é {x:02d}"""', 'rf"\\d{x}"', "f'{{}}'"]


VERSIONS = ("3.12", "3.13", "3.14")


def interpreter(version: str) -> str:
    """Another Python on this machine, beside the one that runs or on the path."""
    beside = sorted(Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python"))
    for program in [*map(str, beside), shutil.which(f"python{version}")]:
        if program and subprocess.run([program, "--version"], capture_output=True).returncode == 0:
            return program
    pytest.skip(f"no Python {version} here")


@pytest.mark.parametrize("version", VERSIONS)
def test_other_versions_of_python_see_the_same(version: str) -> None:
    """The standard library differs between versions; what is made of it must not."""
    program = interpreter(version)
    sources = [
        *F_STRINGS,
        "x = 1\r\nif x:\r\n    y = '''a\r\nb'''\r\n",
        "x = 1\rif x:\r\ty = 2\r",
        "if x:\n    a = 1\n\x0c\n    b = 2  # c\n\n# end",
        "def f(a·1):\n    ℘·x = a·1+1if a·1 else 2\n    return ℘·x\n",
        (SOURCE / "anyorder" / "measure" / "order_nodes.py").read_text(encoding="utf-8"),
        (SOURCE / "anyorder" / "cli" / "__init__.py").read_text(encoding="utf-8"),
    ]
    script = (
        "import ast, json, sys\n"
        f"sys.path.insert(0, {str(SOURCE)!r})\n"
        "from anyorder.measure.order_program import order_tree\n"
        "found = []\n"
        "for source in json.load(sys.stdin):\n"
        "    for mode in ('exact', 'compat'):\n"
        "        tree, tokens = order_tree(ast.parse(source), source, mode)\n"
        "        found.append([[s.kind, s.parent] for s in tree])\n"
        "        found.append([[t.start, t.end, t.node] for t in tokens])\n"
        "print(json.dumps(found))\n"
    )

    def run(python: str) -> str:
        done = subprocess.run(
            [python, "-c", script], input=json.dumps(sources), capture_output=True, text=True
        )
        if "No module named" in done.stderr:
            pytest.skip(f"{python} lacks what the package imports")
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(program) == run(sys.executable)
