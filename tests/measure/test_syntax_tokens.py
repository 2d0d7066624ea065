"""Which token belongs to which statement: by hand, and against the rule applied literally."""

from __future__ import annotations

import ast

import pytest
from mutator import programs, sources

from anyorder.measure import order_program as syntax_tokens
from anyorder.measure.order_program import NO_STATEMENT, Token, assign_tokens
from anyorder.measure.syntax import Statement, parse_program, statement_tree


def owned(source: str, *, compat: bool = False) -> list[tuple[str, int]]:
    tokens = assign_tokens(source, statement_tree(ast.parse(source)), compat=compat)
    return [(source[token.start : token.end], token.node) for token in tokens]


def test_by_hand() -> None:
    source = (
        "# head\ndef f(x):\n    a = 1; b = 2  # tail\n    return (a +\n            b)\n# after\n"
    )
    assert owned(source) == [
        *[("# head", NO_STATEMENT), ("\n", NO_STATEMENT)],
        *[("def", 1), ("f", 1), ("(", 1), ("x", 1), (")", 1), (":", 1), ("\n", 1), ("    ", 1)],
        *[("a", 2), ("=", 2), ("1", 2), (";", 1), ("b", 3), ("=", 3), ("2", 3)],
        *[("# tail", 1), ("\n", 1)],
        *[("return", 4), ("(", 4), ("a", 4), ("+", 4), ("\n", 4), ("b", 4), (")", 4)],
        *[("\n", NO_STATEMENT), ("# after", NO_STATEMENT), ("\n", NO_STATEMENT)],
    ]


def test_headers_docstrings_and_decorators() -> None:
    source = "@d\ndef f():\n    'doc'\n    try:\n        a\n    except (E, F) as e:\n        b\n"
    found = owned(source)
    assert found[0] == ("@", NO_STATEMENT) and found[1] == ("d", 1)
    assert ("'doc'", 1) in found
    assert [node for text, node in found if text in ("try", "except", "as", "e", "E")] == [2] * 5
    assert [node for text, node in found if text in "ab"] == [3, 4]


def test_a_module_docstring_belongs_to_the_module() -> None:
    assert owned("'doc'\nx = 1\n")[:2] == [("'doc'", 0), ("\n", NO_STATEMENT)]


F_STRINGS = {
    "x = f'a{b}c'": ["x", "=", "f'a{b}c'"],
    "x = f'{a!r:>{w}}' + rf\"{b}\"": ["x", "=", "f'{a!r:>{w}}'", "+", 'rf"{b}"'],
    "x = f'''\n{a}\n'''\ny = 1": ["x", "=", "f'''\n{a}\n'''", "\n", "y", "=", "1"],
    "x = f'{{}}' 'b' f''": ["x", "=", "f'{{}}'", "'b'", "f''"],
    "x = f'{f\"{y}\"}'": ["x", "=", "f'{f\"{y}\"}'"],
}


@pytest.mark.parametrize(("source", "pieces"), F_STRINGS.items())
def test_an_f_string_is_one_token_on_every_python(source: str, pieces: list[str]) -> None:
    assert [text for text, _ in owned(source)] == pieces


def test_positions_are_characters() -> None:
    source = "é = 'ß' + 'λ中'  # é\nif é:\n    β = f'é{é}' + é\n"
    found = owned(source)
    assert ("'λ中'", 1) in found and ("# é", NO_STATEMENT) in found
    assert [text for text, node in found if node == 3] == ["β", "=", "f'é{é}'", "+", "é"]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends(newline: str) -> None:
    source = newline.join(["if x:", "    a = '''", "", "'''", "    b", ""])
    found = [(text, node) for text, node in owned(source) if text.strip()]
    assert [node for _, node in found] == [1, 1, 1, 2, 2, 2, 3]


def test_compat_lines_are_those_of_splitlines() -> None:
    plain, odd = "x = '  '\ny = 1\n", "x = '\u2028 '\ny = 1\n"
    assert owned(plain, compat=True) == owned(plain)
    assert ("y", 2) in owned(odd)
    assert ("y", 2) not in owned(odd, compat=True)


def test_tokens_of_generated_tests_belong_to_their_leaf() -> None:
    found = owned("def f():\n    pass\nfor i in x:\n    y\nassert f()\n")
    assert [node for text, node in found if text in ("for", "y", "assert", "f")] == [1, 3, 3, 3, 3]


def literal(source: str, tree: list[Statement], tokens: list[Token]) -> list[int]:
    """The deepest located node that overlaps, then the narrowest; up to the nearest statement."""
    columns = syntax_tokens._Columns(source, syntax_tokens._line_starts(source, False))
    numbers = {id(node): item.number for item in tree for node in item.nodes}
    found = []
    waiting = [(tree[0].nodes[0], 0, 0)]
    while waiting:
        node, depth, above = waiting.pop()
        number = numbers.get(id(node), above)
        if getattr(node, "end_lineno", None) is not None:
            start, end = columns.span(node)
            found.append((-depth, end - start, start, end, number))
        if not isinstance(node, ast.JoinedStr):
            waiting += [(child, depth + 1, number) for child in ast.iter_child_nodes(node)]
    found.sort()
    return [
        next(
            (n for _, _, start, end, n in found if start < item.end and end > item.start),
            NO_STATEMENT,
        )
        for item in tokens
    ]


def check(texts: list[str]) -> int:
    compared = 0
    for text in texts:
        parsed = parse_program(text)
        if parsed.tree is not None:
            tree = statement_tree(parsed.tree)
            tokens = assign_tokens(parsed.source, tree)
            expected = literal(parsed.source, tree, tokens)
            assert [item.node for item in tokens] == expected, parsed.source
            compared += len(tokens)
    return compared


def test_the_rule_applied_literally() -> None:
    assert check([text for text in sources() if len(text) < 1500][::12]) > 2000
    assert check(list(programs(seed=1, count=60))) > 1000
