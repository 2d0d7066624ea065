"""The trees of ASTD, Coarse and TSED: the paper's example, and what every option changes."""

from __future__ import annotations

import ast
from itertools import pairwise

import pytest
from mutator import sources

from anyorder.measure import trees as syntax_grammar
from anyorder.measure.trees import (
    Tree,
    TreeOptions,
    ast_and_coarse,
    ast_tree,
    coarse_tree,
    grammar_tree,
)

PAPER = "def f(x):\n    y = x + 1\n    return y\n"


def full(source: str, **options: object) -> list[str]:
    return list(ast_tree(ast.parse(source), TreeOptions(**options)).labels)  # type: ignore[arg-type]


def coarse(source: str, **options: object) -> str:
    return str(coarse_tree(ast.parse(source), TreeOptions(**options)))  # type: ignore[arg-type]


def test_the_example_of_the_paper() -> None:
    tree, statements = ast_and_coarse(ast.parse(PAPER), TreeOptions())
    assert str(tree).split("\n") == [
        "Module",
        "  FunctionDef(v0)",
        "    arguments",
        "      arg(v1)",
        "    Assign",
        "      Name(v2)",
        "      BinOp",
        "        Name(v1)",
        "        Add",
        "        Constant(1)",
        "    Return",
        "      Name(v2)",
    ]
    assert str(statements) == "Module\n  FunctionDef\n    Assign\n    Return"
    grammar = grammar_tree(PAPER)
    assert grammar.size == 14
    assert set(grammar.labels) == {
        *("module", "function_definition", "identifier", "parameters", "block"),
        *("expression_statement", "assignment", "binary_operator", "return_statement", "integer"),
    }


SAME = {
    "other names": ("def f(x, y=1):\n    return x", "def g(a, b=1):\n    return a"),
    "spelling": ("x = 'a' + u'b'  # c", 'x = ("a" +\n "b")'),
    "docstrings at the top": (
        "'m'\ndef f():\n    'd'\n    return 1\nclass C:\n    'd'\n    x = 1",
        "def f():\n    return 1\nclass C:\n    x = 1",
    ),
    "names everywhere": (
        "import a as b\ntry:\n    pass\nexcept E as e:\n    global x, y",
        "import a as q\ntry:\n    pass\nexcept F as f:\n    global u, v",
    ),
    "patterns": (
        "match p:\n    case [a, *b]: pass\n    case {'k': c, **d}: pass",
        "match q:\n    case [s, *t]: pass\n    case {'k': u, **v}: pass",
    ),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_what_makes_no_difference(one: str, other: str) -> None:
    assert full(one) == full(other)


DIFFERENT = {
    "literals": ("x = 1", "x = 2"),
    "types of literals": ("x = 1", "x = 1.0"),
    "truth is not one": ("x = 1", "x = True"),
    "text and bytes": ("x = 'a'", "x = b'a'"),
    "operators": ("x = a + b", "x = a - b"),
    "which variable": ("f(a, b)", "f(a, a)"),
    "attributes": ("a.append(b)", "a.extend(b)"),
    "keywords": ("f(key=1)", "f(reverse=1)"),
    "modules": ("import re", "import os"),
    "levels of import": ("from . import a", "from .. import a"),
    "conversions": ("f'{x!r}'", "f'{x!s}'"),
    "nested docstrings": (
        "class C:\n    def f():\n        'd'\n        return 1",
        "class C:\n    def f():\n        return 1",
    ),
    "strings that are no docstrings": ("x = 1\n'd'", "x = 1"),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_makes_a_difference(one: str, other: str) -> None:
    assert full(one) != full(other)


def test_options() -> None:
    assert full("f(a, a)", placeholders="single") == full("f(a, b)", placeholders="single")
    assert full("x = 1", placeholders="single")[2] == "Name(v)"
    assert full("x = y", contexts=True) == [
        *("Module", "Assign", "Name(v0)", "Store", "Name(v1)", "Load")
    ]
    nested = DIFFERENT["nested docstrings"]
    assert len({tuple(full(source, nested_docstrings=False)) for source in nested}) == 1
    same = {tuple(full(source, attribute_names=False)) for source in ("a.b(c=d)", "a.e(f=d)")}
    assert len(same) == 1
    with pytest.raises(ValueError, match="indexed, single"):
        TreeOptions(placeholders="none")
    with pytest.raises(ValueError, match="kind, expression"):
        TreeOptions(statement_labels="all")


def test_empty_pieces_of_f_strings_are_no_nodes() -> None:
    module = ast.parse("f'{x}'")
    assert ast_tree(module).labels[2:] == ("JoinedStr", "FormattedValue(-1)", "Name(v0)")
    joined = module.body[0].value  # type: ignore[attr-defined]
    joined.values.append(ast.Constant(""))
    assert ast_tree(module) == ast_tree(ast.parse("f'{x}'"))


def test_long_integers_have_a_label() -> None:
    assert full("x = 0x" + "f" * 20_000)[-1].startswith("Constant(0xfff")


def test_coarse_keeps_statements_only() -> None:
    source = (
        "@d\ndef f(x):\n    try:\n        return lambda: x\n    except E:\n        y = 1\n"
        "    match x:\n        case 1:\n            pass\n    if x: a\n    elif y: b\n"
    )
    assert coarse(source).split("\n") == [
        *("Module", "  FunctionDef", "    Try", "      Return", "      Assign", "    Match"),
        *("      Pass", "    If", "      Expr", "      If", "        Expr"),
    ]
    assert coarse("x = 1") == coarse("y = f(2)")


def test_coarse_labels_may_hold_their_expressions() -> None:
    assert coarse("x = 1", statement_labels="expression") == coarse(
        "y = 1", statement_labels="expression"
    )
    labels = coarse("@d\ndef f(x):\n    y = x\n", statement_labels="expression").split("\n")
    assert labels[1] == "  FunctionDef(v0) 1arguments 2arg(v1) 1Name(v3)", (
        "the decorator is its own"
    )
    assert labels[2] == "    Assign 1Name(v2) 1Name(v1)"


def test_every_tree_is_one() -> None:
    for source in sources()[::10]:
        module = ast.parse(source)
        for tree in (*ast_and_coarse(module, TreeOptions()), grammar_tree(source)):
            assert len(tree.labels) == len(tree.depths) > 0 == tree.depths[0]
            assert all(1 <= b <= a + 1 for a, b in pairwise(tree.depths))
        walked = sum(not isinstance(node, ast.expr_context) for node in ast.walk(module))
        docstring = 2 * (ast.get_docstring(module.body[0], clean=False) is not None)  # type: ignore[arg-type]
        assert ast_tree(module).size == walked - docstring


def test_named_nodes_are_those_of_the_s_expression() -> None:
    parser = syntax_grammar._parser()
    for source in sources()[::10]:
        printed = str(parser.parse(source.encode()).root_node)
        assert grammar_tree(source).size == printed.count("(")


def test_comments_may_be_left_out() -> None:
    source = "x = 1  # c\n# d\n"
    bare = grammar_tree("x = 1\n")
    assert grammar_tree(source).size == bare.size + 2
    assert grammar_tree(source, TreeOptions(comments=False)) == bare
    assert isinstance(bare, Tree)


def test_the_grammar_has_a_fingerprint() -> None:
    assert len(syntax_grammar.fingerprint()) == 16
    assert "ERROR" not in grammar_tree(syntax_grammar.PROBE).labels
    ast.parse(syntax_grammar.PROBE)
