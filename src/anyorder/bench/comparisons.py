"""How a result is compared with what was expected: named rules on plain values.

    equal        Python's ==
    close        evalplus: ==, else floats within atol + 1e-7 |expected| (atol 1e-6 where the
                 expected value is a float or a list or tuple of floats)
    number       GSM8K by program: both as numbers, integers equal, else within 1e-3
    set_equal    evalplus: the same elements, order and repetitions aside
    not_none     evalplus: whether something came back
    returned     LiveCodeBench, functions: == after a returned tuple is made a list
    lines        LiveCodeBench, printed text: line by line the same, or the same decimal numbers

The grader alone runs these, on values that a sample cannot have tampered with: exact builtin types,
of bounded size. They never raise: what cannot be compared is not equal. A new rule is one more
entry in `COMPARISONS`. Which rule a task uses is the task's choice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

FLOAT_ATOL = 1e-6
RTOL = 1e-7

NEARLY_INTEGER = 1e-6
"""A float so near to an integer is that integer."""
ANSWER_TOLERANCE = 1e-3

# What Python itself raises on values that do not fit together: hashing a list, ordering a string
# and a number, an integer too large for a float, nesting too deep to compare.
UNCOMPARABLE = (TypeError, ValueError, ArithmeticError, RecursionError, MemoryError)

Comparison = Callable[[Any, Any, float], bool]
"""(what came back, what was expected, absolute tolerance) -> whether they agree."""


def compare(name: str, got: Any, expected: Any, atol: float = 0.0) -> bool:
    """Whether two plain values agree by the rule of that name."""
    rule = find_comparison(name)
    try:
        return rule(got, expected, atol)
    except UNCOMPARABLE:
        return False


def find_comparison(name: str) -> Comparison:
    """The rule of that name."""
    if name not in COMPARISONS:
        raise ValueError(f"no comparison {name!r}: choose one of {', '.join(COMPARISONS)}")
    return COMPARISONS[name]


def _equal(got: Any, expected: Any, atol: float) -> bool:
    return bool(got == expected)


def _close(got: Any, expected: Any, atol: float) -> bool:
    if got == expected:
        return True
    if atol == 0 and _is_floats(expected):
        atol = FLOAT_ATOL
    return atol != 0 and type(got) is type(expected) and _all_close(got, expected, atol)


def _is_floats(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(item, float) for item in value)
    return isinstance(value, float)


_NUMBERS = (int, float, complex)


def _all_close(got: Any, expected: Any, atol: float) -> bool:
    """As numpy's allclose on nested sequences of the same shape."""
    if isinstance(expected, list | tuple):
        return (
            isinstance(got, list | tuple)
            and len(got) == len(expected)
            and all(_all_close(*pair, atol) for pair in zip(got, expected, strict=True))
        )
    if not isinstance(got, _NUMBERS) or not isinstance(expected, _NUMBERS):
        return False
    if got == expected:  # infinities, whose difference is not a number
        return True
    finite = not (isinstance(expected, float) and math.isinf(expected))
    return finite and abs(got - expected) <= atol + RTOL * abs(expected)


def _number(got: Any, expected: Any, atol: float) -> bool:
    left, right = as_number(got), as_number(expected)
    if left is None or right is None:
        return False
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    return abs(left - right) <= ANSWER_TOLERANCE


_FIRST_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)


def as_number(value: Any) -> int | float | None:
    """An answer as a number, whole ones as int; a string's first number; None if it is none.

    Truth values are no answers, although Python counts with them; nor are infinities and NaN.
    """
    if isinstance(value, str):
        found = _FIRST_NUMBER.search(value)
        if found is None:
            return None
        digits = found[0].replace(",", "")
        try:
            value = int(digits)
        except ValueError:  # has a point or an exponent, or more digits than Python reads
            value = float(digits)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value
    if not math.isfinite(value):
        return None
    whole = round(value)
    return whole if abs(value - whole) <= NEARLY_INTEGER else value


def _set_equal(got: Any, expected: Any, atol: float) -> bool:
    return set(got) == set(expected)


def _not_none(got: Any, expected: Any, atol: float) -> bool:
    if isinstance(got, bool):
        return bool(got == expected)
    return bool(expected == (got is not None))


def _returned(got: Any, expected: Any, atol: float) -> bool:
    return bool((list(got) if isinstance(got, tuple) else got) == expected)


def _lines(got: Any, expected: Any, atol: float) -> bool:
    if not isinstance(got, str) or not isinstance(expected, str):
        return False
    left, right = _stripped_lines(got), _stripped_lines(expected)
    return len(left) == len(right) and all(map(_same_line, left, right))


def _stripped_lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_line(left: str, right: str) -> bool:
    if left == right:
        return True
    try:
        return list(map(Decimal, left.split())) == list(map(Decimal, right.split()))
    except InvalidOperation:
        return False


COMPARISONS: dict[str, Comparison] = {
    "equal": _equal,
    "close": _close,
    "number": _number,
    "set_equal": _set_equal,
    "not_none": _not_none,
    "returned": _returned,
    "lines": _lines,
}
