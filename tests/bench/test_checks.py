"""Checks as data: through JSON and back, and what would pass anything is refused."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.bench.checks import (
    COMPARISONS,
    Calls,
    Check,
    Console,
    Script,
    as_number,
    compare,
    from_record,
    to_record,
)

hashable = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
values = st.recursive(
    hashable | st.floats(allow_nan=False) | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(hashable, max_size=3)
        | st.dictionaries(hashable, inner, max_size=3)
    ),
    max_leaves=8,
)


def types_of(value: Any) -> Any:
    """The value with its types, since 1 == True == 1.0 and a record must keep them apart."""
    if isinstance(value, list | tuple):
        return type(value), [types_of(item) for item in value]
    if isinstance(value, dict):
        return dict, [(types_of(key), types_of(item)) for key, item in value.items()]
    if isinstance(value, set | frozenset):
        return type(value), sorted(repr(types_of(item)) for item in value)
    return type(value), repr(value)


@given(st.lists(values, min_size=1, max_size=3), st.booleans())
def test_calls_survive_json(answers: list[Any], with_reference: bool) -> None:
    inputs = tuple((answer, [answer]) for answer in answers)
    check: Check = Calls("f", inputs, expected=tuple(answers), atol=1e-4)
    if with_reference:
        check = Calls("A.f", inputs, reference="def f(x, y): return x", builtins=("abs",))
    again = from_record(json.loads(json.dumps(to_record(check))))
    assert again == check
    assert types_of(again.inputs) == types_of(inputs)


@pytest.mark.parametrize(
    "check",
    [
        Script("assert f(1) == 2"),
        Script("check(f)", setup="import math\n", remote=("f", "Pair")),
        Console((("1 2\n", "3\n"), ("", "\n"))),
    ],
)
def test_other_checks_survive_json(check: Check) -> None:
    assert from_record(json.loads(json.dumps(to_record(check)))) == check
    assert hash(check) == hash(from_record(to_record(check)))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Script(" \n"), "without statements"),
        (lambda: Calls("f", ()), "without inputs"),
        (lambda: Calls("f", ((),)), "either expected values or a reference"),
        (lambda: Calls("f", ((),), (1,), "def f(): return 1"), "either expected values"),
        (lambda: Calls("f", ((), ()), (1,)), "one expected value for each input"),
        (lambda: Console(()), "without cases"),
        (lambda: from_record({"kind": "vibes"}), "choose one of script, calls, console"),
        (
            lambda: from_record({"kind": "console", "cases": [], "extra": 1}),
            "missing fields: compare, extra",
        ),
    ],
)
def test_what_would_pass_anything_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()


# Named comparisons: what agrees and what does not; nothing that a sample returns breaks one.


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


HOSTILE = [
    None,
    math.nan,
    math.inf,
    -math.inf,
    1 << 100_000,
    -(10**400),
    "9" * 10_000,
    "1e999999999",
    "nan sNaN",
    "\x00\ud800",
    nested(100_000),
    [[1], {2}, {3: 4}],
    {frozenset({1}): math.nan},
    b"\xff",
    complex(1, math.nan),
    Decimal("sNaN"),
    np.arange(3),
    object(),
    int,
]

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("name", COMPARISONS)
def test_no_pair_of_values_makes_a_comparison_fail(name: str) -> None:
    for left in HOSTILE:
        for right in HOSTILE:
            for atol in (0.0, 1e-3):
                assert compare(name, left, right, atol) in (True, False)


@given(left=PLAIN, right=PLAIN)
def test_no_plain_value_makes_a_comparison_fail(left: Any, right: Any) -> None:
    for name in COMPARISONS:
        assert compare(name, left, right) in (True, False)


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(ValueError, match="no comparison 'near'"):
        compare("near", 1, 1)


@pytest.mark.parametrize(
    ("got", "expected", "atol", "agree"),
    [
        (1, 1, 0, True),
        (1.0 + 5e-7, 1.0, 0, True),  # a float is expected, so it need not be exact
        (1.0 + 5e-6, 1.0, 0, False),
        (1 + 1e-9, 1, 0, False),  # an integer is
        ([1.0, 2.0 + 5e-7], [1.0, 2.0], 0, True),
        ([1.0, 2.0 + 5e-7, 3.0], [1.0, 2.0], 0, False),
        ((1.0, 2.0 + 5e-7), [1.0, 2.0], 0, False),  # another type, and not equal
        ([1.0 + 5e-7, 2], [1.0, 2], 0, False),  # not all expected values are floats
        ([1.0 + 5e-7, 2], [1.0, 2], 1e-6, True),  # the task asks for a tolerance
        ([[1.0], [2.0 + 5e-5]], [[1.0], [2.0]], 1e-4, True),
        ([[1.0], [2.0 + 5e-4]], [[1.0], [2.0]], 1e-4, False),
        (1e9 * (1 + 5e-8), 1e9, 0, True),  # the relative tolerance
        (1e9 * (1 + 5e-7), 1e9, 0, False),
        (math.inf, math.inf, 0, True),
        (5.0, math.inf, 0, False),
        (math.nan, math.nan, 0, False),
        ("1.0", 1.0, 0, False),
        (None, 1.0, 0, False),
        (True, 1.0, 0, True),  # equal in Python
        (10**400, 1.0, 0, False),
    ],
)
def test_close(got: Any, expected: Any, atol: float, agree: bool) -> None:
    assert compare("close", got, expected, atol) is agree


@given(
    st.lists(st.floats(-1e6, 1e6), max_size=5),
    st.sampled_from([0.0, 1e-9, 3e-7, 9e-7, 3e-6, 1e-3]),
    st.sampled_from([0.0, 1e-4]),
)
def test_close_is_allclose_on_floats(values: list[float], shift: float, atol: float) -> None:
    moved = [value + shift for value in values]
    tolerance = atol or 1e-6
    agree = moved == values or bool(np.allclose(moved, values, rtol=1e-7, atol=tolerance))
    assert compare("close", moved, values, atol) is agree


@pytest.mark.parametrize(
    ("got", "expected", "agree"),
    [
        (18, "18", True),
        (18.0, "18", True),
        (18.0000005, "18", True),  # nearly an integer is that integer
        (18.0004, "18", True),  # within 1e-3, one of them being a float
        (18.002, "18", False),
        (18.5, "18.5", True),
        (18.5, "18.5004", True),
        (17, "18", False),
        ("18", "18", True),
        ("the answer is 1,800 dollars", "1800", True),
        ("$-3.50", "-3.5", True),
        ("none", "18", False),
        (None, "18", False),
        (True, "1", False),  # a truth value is no answer
        ([18], "18", False),
        (math.nan, "18", False),
        (math.inf, "18", False),
        (10**400, "18", False),
        (10**400, 10**400, True),
        ("9" * 5000, "9" * 5000, False),  # more digits than Python reads
    ],
)
def test_number(got: Any, expected: Any, agree: bool) -> None:
    assert compare("number", got, expected) is agree


def test_as_number_makes_whole_floats_integers() -> None:
    assert as_number(3.0000001) == 3
    assert isinstance(as_number(3.0000001), int)
    assert isinstance(as_number(3.1), float)
    assert as_number("1.5e3") == 1500


@pytest.mark.parametrize(
    ("name", "got", "expected", "agree"),
    [
        ("equal", [1, 2], [1, 2], True),
        ("equal", (1, 2), [1, 2], False),
        ("equal", {"a": {1}}, {"a": {1}}, True),
        ("equal", [math.nan], [float("nan")], False),
        ("set_equal", [2, 1, 1], (1, 2), True),
        ("set_equal", [2, 1], (1, 2, 3), False),
        ("set_equal", [[1]], [[1]], False),  # lists have no place in a set
        ("set_equal", None, [], False),
        ("not_none", "anything", True, True),
        ("not_none", None, False, True),
        ("not_none", None, True, False),
        ("not_none", False, True, False),
        ("not_none", False, False, True),
        ("returned", (1, 2), [1, 2], True),
        ("returned", [(1, 2)], [[1, 2]], False),  # only the outermost
        ("returned", [1, 2], [1, 2], True),
        ("lines", " 1 2 \n3\n\n", "1 2\n3", True),
        ("lines", "1 2\n3", "1 2\n4", False),
        ("lines", "1 2", "1 2\n3", False),
        ("lines", "1.0 2", "1 2.000", True),
        ("lines", "1.0 x", "1 x", False),
        ("lines", "1\n\n2", "1\n2", False),
        ("lines", "nan", "nan", True),  # the same text
        ("lines", "NaN", "nan", False),
        ("lines", "", "", True),
        ("lines", None, "", False),
    ],
)
def test_other_rules(name: str, got: Any, expected: Any, agree: bool) -> None:
    assert compare(name, got, expected) is agree
