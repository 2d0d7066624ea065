"""Checks as data: through JSON and back, and what would pass anything is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.bench.checks import Calls, Check, Console, Script, from_record, to_record

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
