"""Whose a name is: what tests take from the program and what from the task."""

from __future__ import annotations

import pytest

from anyorder.bench.tasks.problem import entry_point, free_names, missing_names, needed_setup

PROMPT = """
import math
from os import path as p, sep
LIMIT = 3
OTHER = LIMIT + 1
def helper(x):
    return math.floor(x) + inner(OTHER)
def inner(x):
    return x
class Unused:
    pass
def entry(x):
    return helper(x)
"""


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("assert f(a) == b", {"f", "a", "b"}),
        ("for a in b: c = a\nprint(c)", {"b", "print"}),
        ("def g(a):\n    return a + h\n", {"h"}),
        ("def g(a):\n    b = a\n    return [c + d for c in b]\n", {"d"}),
        ("import math\nfrom os import path as p\nassert p and math", set()),
        ("try:\n    a\nexcept E as e:\n    e", {"a", "E"}),
        ("class A(B):\n    x = y\nA()", {"B", "y"}),
        ("lambda a: a + b", {"b"}),
        ("def g():\n    global k\n    k = 1\ng()\nk", set()),
    ],
)
def test_free_names(code: str, names: set[str]) -> None:
    assert free_names(code) == names


def test_the_setup_is_what_the_tests_need_and_no_more() -> None:
    setup = needed_setup("assert entry(1) == helper(1)", (PROMPT,), ("entry",))
    scope: dict[str, object] = {}
    exec(setup, scope)
    assert {"helper", "inner", "math", "LIMIT", "OTHER"} <= set(scope)
    assert not {"Unused", "entry", "p"} & set(scope)
    assert needed_setup("assert entry(1) == 1", (PROMPT,), ("entry",)) == ""
    # The word alone is not a use of the name.
    assert needed_setup("assert entry('helper') == 1", (PROMPT,), ("entry",)) == ""


def test_the_later_source_counts() -> None:
    setup = needed_setup("assert helper(1)", ("def helper(x): return 1", PROMPT), ())
    assert "floor" in setup and "return 1\n" not in setup


def test_missing_names() -> None:
    assert missing_names("assert f(Node(1)) == len(x)", "x = 1", ("f",)) == {"Node"}


def test_the_entry_point_is_the_first_function_that_the_tests_call() -> None:
    reference = "def a(): pass\ndef b(): pass\nclass c: pass\ndef d(): pass"
    assert entry_point(reference, "assert d(b()) == c()") == "b"
    assert entry_point(reference, "assert x.a() == c()") is None
