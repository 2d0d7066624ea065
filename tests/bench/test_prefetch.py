"""Rewritten tests: the same statements, and an announcement that names their calls in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anyorder.bench.remote import PREFETCH, compile_tests


class Program:
    """Stands for the program's function; remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        return sum(arguments)


def announced(code: str, **names: Any) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The calls of `f` that the inserted statements name, and those that are made."""
    program = Program()
    told: list[tuple[Any, ...]] = []

    def prefetch(calls: Any, others: tuple[Any, ...]) -> None:
        if program not in others:
            told.extend(given for function, given in calls if function is program)

    scope = {"f": program, PREFETCH: prefetch, **names}
    exec(compile_tests(code, "<tests>"), scope)
    return told, program.calls


@pytest.mark.parametrize(
    "code",
    [
        "assert f(1) == 1\nassert f(2) == 2",
        "assert f(1) == 1, 'text'\nassert not f(0)\nassert f(3)",
        "assert f(1) is not None\nassert abs(f(2, 0.5) - 2.5) < 1e-9",
        "assert f(3 * 7, -2) == 19\nassert set((f(1), f(2))) == {1, 2}",
        "assert f(1) == f(0, 1)\nassert f(1) != f(2)\nassert f(2) in [2, 3]",
        "import math\nassert math.isclose(f(1), 1.0, rel_tol=0.1)\nassert tuple([f(2)]) == (2,)",
        "def check(g):\n    assert g(1) == 1\n    assert g(2) == f(2)\ncheck(f)",
    ],
)
def test_calls_are_announced_in_the_order_in_which_they_are_made(code: str) -> None:
    told, made = announced(code)
    assert told == made
    assert len(made) >= 2


@pytest.mark.parametrize(
    "code",
    [
        "assert f(1) == 1 or f(9) == 0\nassert f(2) == 2 or f(9) == 0",  # may stop half-way
        "assert f(1) == 1 == f(1)\nassert 2 == f(2) == 2",
        "assert [f(x) for x in (1, 2)] == [1, 2]\nassert [f(x) for x in (1, 2)] == [1, 2]",
        "x = 1\nassert f(x) == 1\nassert f(x) == 1",  # arguments that may change
        "assert f(f(1)) == 1\nassert f(f(2)) == 2",
        "assert (lambda: f(1))() == 1\nassert (lambda: f(2))() == 2",
        "for x in (1, 2):\n    assert f(x) == x",
        "try:\n    assert f(1) == 1\n    assert f(2) == 2\nfinally:\n    pass",
        "assert f(1) == 1, f(7)\nassert f(2) == 2, f(7)",  # the message is made on failure only
        "assert {1: f(1), 2: f(2)} == {1: 1, 2: 2}\nassert {f(1): f(2)}",
        "assert f(1).bit_length() == 1\nassert f(2).bit_length() == 2",
        "assert f(1) == 1",  # not worth it
        "def check(c):\n    assert c(1)\n    assert c(2)\ntry:\n    check(f)\nfinally:\n    pass",
    ],
)
def test_what_cannot_be_foreseen_is_not_announced(code: str) -> None:
    told, made = announced(code)
    assert told == []
    assert made


def test_a_run_is_broken_by_other_statements() -> None:
    seen: list[Any] = []
    code = "assert f(1) == 1\nassert f(2) == 2\nseen.append(len(f.calls))\nassert f(3)\nassert f(4)"
    told, made = announced(code, seen=seen)
    assert told == made == [(1,), (2,), (3,), (4,)]
    assert seen == [2]


def test_a_failing_assert_says_its_line() -> None:
    with pytest.raises(AssertionError) as caught:
        announced("assert f(1) == 1\nassert f(2) == 2\n\nassert f(3) == 4")
    line = caught.value.__traceback__
    while line is not None and line.tb_next is not None:
        line = line.tb_next
    assert line is not None
    assert line.tb_lineno == 4


def test_annotations_and_asserts_are_as_python_reads_them() -> None:
    """Neither our future import nor an optimising interpreter may change the tests."""
    scope: dict[str, Any] = {}
    exec(compile_tests("def g(x: int): pass\nkind = g.__annotations__['x']", "<tests>"), scope)
    assert scope["kind"] is int
    failing: Callable[[], Any] = lambda: exec(compile_tests("assert False", "<tests>"), {})  # noqa: E731
    with pytest.raises(AssertionError):
        failing()
