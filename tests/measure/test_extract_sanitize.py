"""The published clean-up, rule by rule, quirks included."""

from __future__ import annotations

import pytest

from anyorder.measure.extract import sanitize

RULES = {
    "imports are all kept, and come first": (
        "x = 1\nimport os\ndef f():\n    return x\nfrom re import *",
        "import os\nfrom re import *\nx = 1\ndef f():\n    return x",
    ),
    "what the entry point does not reach goes": (
        "def other():\n    return 1\ndef f():\n    return 2\ny = 3",
        "def f():\n    return 2",
    ),
    "reached through others": (
        "def f():\n    return g()\ndef g():\n    return h\nh = 3\nk = 4",
        "def f():\n    return g()\ndef g():\n    return h\nh = 3",
    ),
    "a function without return goes": (
        "def g():\n    print(1)\ndef f():\n    g()\n    return 1",
        "def f():\n    g()\n    return 1",
    ),
    "a return anywhere inside is enough": (
        "def g():\n    def k():\n        return 1\n    yield k\ndef f():\n    return g",
        "def g():\n\n    def k():\n        return 1\n    yield k\ndef f():\n    return g",
    ),
    "only plain assignments are kept": (
        "a: int = 1\nb, c = 2, 3\nd = e = 4\nd += 1\ndef f():\n    return a, b, c, d, e",
        "d = e = 4\ndef f():\n    return (a, b, c, d, e)",
    ),
    "of two with one name the later, in the place of the earlier": (
        "def f():\n    return g()\ndef g():\n    return 1\ndef f():\n    return g() + 1",
        "def f():\n    return g() + 1\ndef g():\n    return 1",
    ),
    "a later one without return does not count": (
        "def f():\n    return 1\ndef f():\n    pass",
        "def f():\n    return 1",
    ),
    "the walk does not look inside attributes": (
        "def g(x):\n    return x\ny = 1\ndef f(x):\n    return g(x).y",
        "y = 1\ndef f(x):\n    return g(x).y",
    ),
    "classes are kept if reached": (
        "class A:\n    pass\nclass B:\n    pass\ndef f():\n    return A()",
        "class A:\n    pass\ndef f():\n    return A()",
    ),
    "top-level code goes": (
        "def f():\n    return 1\nprint(f())\nif True:\n    x = f()",
        "def f():\n    return 1",
    ),
    "asynchronous functions go": ("import re\nasync def f():\n    return 1", "import re"),
    "tabs are four spaces, line ends are one character": (
        "def f():\r\n\tx = '\t'\r    return x",
        "def f():\n    x = '    '\n    return x",
    ),
    "the first line loses its indentation": (
        "   \n  def f():\n      return 1",
        "def f():\n    return 1",
    ),
    "comments and layout are not kept": (
        "# why\ndef f( x ):  # what\n\n    return (x)",
        "def f(x):\n    return x",
    ),
    "the longest run counts": (
        "def f():\n    return 1\noops oops\ndef f():\n    x = 2\n    return x\nThe end.",
        "def f():\n    x = 2\n    return x",
    ),
    "nothing is reached": ("def g():\n    return 1", None),
    "nothing parses": ("!", None),
}


@pytest.mark.parametrize(("text", "expected"), RULES.values(), ids=RULES)
def test_rules(text: str, expected: str | None) -> None:
    assert sanitize(text, "f") == expected


def test_without_an_entry_point_all_definitions_stay() -> None:
    assert (
        sanitize("x = 1\nprint(x)\ndef g():\n    return 1", None) == "x = 1\ndef g():\n    return 1"
    )


def test_only_a_hundred_lines_are_looked_at() -> None:
    def text(before: int) -> str:
        return "y = 0\n" * before + "def f():\n    return 1"

    assert sanitize(text(98), "f") == "def f():\n    return 1"
    assert sanitize(text(99), "f") is None
