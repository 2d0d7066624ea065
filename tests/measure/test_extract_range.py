"""The longest run of lines that parses: the same as by trying all runs, and quick."""

from __future__ import annotations

import ast
import random
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.measure import extract as extract_range
from anyorder.measure.extract import longest_range, parse

PROGRAM = '''\
import math
from typing import List


@decorated
def first(numbers: List[float]) -> float:
    """ Largest of them.
    >>> first([1.0, 2.0])
    2.0
    """
    best = numbers[
        0
    ]
    for number in numbers:
        if number > best:
            best = number
        elif number == best:
            pass
        else:
            continue
    else:
        best += 0
    return best


class Pair(object):
    def __init__(self, a, b):
        self.a, self.b = a, b

# a comment at the margin
try:
    value = first([1, 2])
except (ValueError, TypeError):
    # a comment inside
    value = 0
finally:
    text = """one
two
"""
if value: print(text); value = 1
'''.splitlines()
ODD = [
    "Here is the function:",
    "This works, doesn't it?",
    "",
    "   ",
    "```python",
    "```",
    "# comment",
    "    # indented comment",
    "else:",
    "except ValueError:",
    "finally:",
    "try:",
    "@decorator",
    "def g(a):",
    "    return a",
    "  z = 1",
    "'''",
    '"""doc',
    "foo(",
    "]",
    "x = '''a",
    "a = b \\",
    "$100",
    "x = [1,",
    "2]",
    "match x:",
    "    case 1:",
    "        pass",
    "\ud800",
    "# \0",
    "1 = x",
    "return 3",
    "e\u0301 = 1",
    "\ufeffx = 1",
    "with a as b, c as d:",
    "x = f'{y!r}'",
    "async def h():",
    "    await g()",
]
CHARACTERS = ["", "(", ")", "'", '"', '"""', ":", "#", " ", "=", "[", "]", "\\", "\t"]


def by_trying(lines: list[str]) -> tuple[int, int]:
    """The rule word for word."""
    best, most = (0, 0), 0
    for first in range(len(lines)):
        for last in range(first, len(lines)):
            count = sum(bool(line.strip()) for line in lines[first : last + 1])
            if count > most and parse("\n".join([*lines[first : last + 1], ""])) is not None:
                best, most = (first, last + 1), count
    return best


def mangled(draw: random.Random) -> list[str]:
    """A piece of a program with lines moved, put in and spoilt."""
    start = draw.randrange(len(PROGRAM))
    lines = PROGRAM[start : start + draw.randrange(1, 22)]
    for _ in range(draw.randrange(8)):
        place = draw.randrange(len(lines) + 1)
        spoilt = draw.randrange(len(lines))
        kind = draw.randrange(3)
        if kind == 0:
            lines.insert(place, draw.choice(ODD))
        elif kind == 1:
            lines.insert(place, lines[spoilt])
        elif lines[spoilt]:
            cut = draw.randrange(len(lines[spoilt]))
            lines[spoilt] = lines[spoilt][:cut] + draw.choice(CHARACTERS) + lines[spoilt][cut + 1 :]
    # A line that is one backslash is never part of a run: stated in the module.
    return [line for line in lines if line.strip() != "\\"]


def same(lines: list[str], left: tuple[int, int], right: tuple[int, int]) -> bool:
    """Ranges may differ in blank lines at their ends, which no tree shows."""
    if left == right:
        return True
    trees = []
    for first, stop in (left, right):
        tree = parse("\n".join([*lines[first:stop], ""]))
        trees.append(None if tree is None else ast.dump(tree))
    solid = [sum(bool(line.strip()) for line in lines[first:stop]) for first, stop in (left, right)]
    return left[0] == right[0] and trees[0] == trees[1] and solid[0] == solid[1]


@given(st.integers(0, 1 << 32))
def test_the_same_as_trying_all_runs(seed: int) -> None:
    lines = mangled(random.Random(seed))
    assert same(lines, longest_range(lines), by_trying(lines))


@pytest.mark.long
def test_the_same_as_trying_all_runs_of_many_texts() -> None:
    for seed in range(5_000):
        lines = mangled(random.Random(seed))
        assert same(lines, longest_range(lines), by_trying(lines)), lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\ny = 2", "x = 1\ny = 2"),
        ("Sure thing:\nx = 1", "x = 1"),
        ("x = 1\noops oops\ny = 2", "x = 1"),  # of equals the first
        ("x = 1\noops oops\n# why\ny = 2", "# why\ny = 2"),  # comments count
        ("def f():\n    a = 1\n    b = \n    c = 3", "def f():\n    a = 1"),
        ("try:\n    a\nexcept E:\n    b\nfinally\n    c", "try:\n    a\nexcept E:\n    b"),
        ("if a:\n    b\n# still\nelse\n    c", "if a:\n    b\n# still"),
        ("    a = 1\nb = 2", "b = 2"),
        ("x = '''\noops oops\ny = 1", "y = 1"),
        ("x = (\ndef f():\n    return 1", "def f():\n    return 1"),
        ("@d\n@e\ndef f():\n    return 1\nf(", "@d\n@e\ndef f():\n    return 1"),
        ("x = 1\n\0\ny = 1\nz = 1", "y = 1\nz = 1"),
        ("not python at all", ""),
        ("", ""),
        ("\n \n", ""),
    ],
)
def test_examples(text: str, expected: str) -> None:
    lines = text.splitlines()
    first, stop = longest_range(lines)
    assert "\n".join(lines[first:stop]).rstrip() == expected


def test_far_fewer_parses_than_by_trying_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counted(source: str) -> ast.Module | None:
        parsed.append(source)
        return parse(source)

    monkeypatch.setattr(extract_range, "parse", counted)
    prose = ["It is quite simple:", "- first this,", "1. then that.", "", "Let me explain why."]
    lines = [*PROGRAM, "```", *(prose * 5), "```python", *PROGRAM][:100]
    found = longest_range(lines)
    assert same(lines, found, by_trying(lines))
    assert 0 < len(parsed) <= len(lines), "there are 5,050 runs of a hundred lines"


def test_no_warning_of_a_sample_reaches_the_user() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert longest_range([r"x = '\d'", "1 is 1", "oops oops"]) == (0, 2)
