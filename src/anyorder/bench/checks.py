"""What a problem's tests are, the verdicts, and the rules by which results are compared.

Checks are plain frozen data of three kinds: a `Script` is test statements that the grader runs,
with the program's names remote; `Calls` is one function called many times; a `Console` is a whole
program with standard input and output. `to_record` and `from_record` carry them through JSON, with
inputs and answers in the sandbox's wire encoding, so tuples, sets and bytes keep their types.
docs/grading.md says what each verdict means.

Comparisons, each an entry in `COMPARISONS`; the task chooses one:

    equal        Python's ==
    close        evalplus: ==, else floats within atol + 1e-7 |expected| (atol 1e-6 where the
                 expected value is a float or a list or tuple of floats)
    number       GSM8K by program: both as numbers, integers equal, else within 1e-3
    set_equal    evalplus: the same elements, order and repetitions aside
    not_none     evalplus: whether something came back
    returned     LiveCodeBench, functions: == after a returned tuple is made a list
    lines        LiveCodeBench, printed text: line by line the same, or the same decimal numbers

Only the grader compares, on values of exact builtin types and bounded size. Comparisons never
raise: values that cannot be compared are not equal. Not here: running anything (judge.py), and the
table of verdicts (grade.py). Quick to import, because the workers need these names.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import Any

from anyorder.checks import refuse_unknown


@dataclass(frozen=True)
class Script:
    """Test statements that the grader runs; the names of the program are remote there."""

    code: str
    """The statements: lines such as `assert f(1) == 2`, or `def check(candidate): ...` and a call
    of it."""
    setup: str = ""
    """Trusted definitions that the tests need: imports, and helpers that the prompt defines. Run
    before `code` in the same namespace; never taken from the sample."""
    remote: tuple[str, ...] = ()
    """The only names that come from the program: the entry point, and what it alone can define."""

    def __post_init__(self) -> None:
        _require(bool(self.code.strip()), "a Script without statements would pass any program")


@dataclass(frozen=True)
class Calls:
    """One function called with given arguments, its results compared one by one."""

    function: str
    """A function of the program, such as "f", or "Solution.f": a method of a fresh instance."""
    inputs: tuple[tuple[Any, ...], ...]
    """The arguments of each call, plain values."""
    expected: tuple[Any, ...] | None = None
    """What each call must return; None where a reference gives it."""
    reference: str | None = None
    """A trusted complete program whose `function` gives the expected values. It runs once, in the
    sandbox."""
    compare: str = "equal"
    """How a result is compared: a name in COMPARISONS."""
    atol: float = 0.0
    """The absolute tolerance, for comparisons that have one."""
    builtins: tuple[str, ...] | None = None
    """The only builtins that the program has (a published restriction); None: all of them."""

    def __post_init__(self) -> None:
        _require(bool(self.inputs), "Calls without inputs would pass any program")
        one = (self.expected is None) != (self.reference is None)
        _require(one, "Calls have either expected values or a reference")
        if self.expected is not None:
            _require(len(self.expected) == len(self.inputs), "one expected value for each input")


@dataclass(frozen=True)
class Console:
    """A program that reads standard input and prints."""

    cases: tuple[tuple[str, str], ...]
    """Standard input, and what standard output must be."""
    compare: str = "lines"
    """How the output is compared: a name in COMPARISONS."""

    def __post_init__(self) -> None:
        _require(bool(self.cases), "a Console without cases would pass any program")


Check = Script | Calls | Console

KINDS: dict[str, type[Script] | type[Calls] | type[Console]] = {
    "script": Script,
    "calls": Calls,
    "console": Console,
}
_VALUES = ("inputs", "expected")
"""The fields that hold any plain value, and hence are wire-encoded."""


def to_record(check: Check) -> dict[str, Any]:
    """The check as an object for JSON."""
    kind = next(name for name, cls in KINDS.items() if type(check) is cls)
    record: dict[str, Any] = {"kind": kind}
    for field in fields(check):
        value = getattr(check, field.name)
        record[field.name] = _packed(value) if field.name in _VALUES else value
    return record


def from_record(record: Mapping[str, Any]) -> Check:
    """The check that `to_record` wrote, before or after JSON; anything else is an error."""
    kind = str(record.get("kind"))
    refuse_unknown("kind of check", kind, KINDS)
    cls = KINDS[kind]
    known = {field.name for field in fields(cls)}
    if wrong := (set(record) - {"kind"}) ^ known:
        raise ValueError(f"a {kind} check has wrong or missing fields: {', '.join(sorted(wrong))}")
    values = {name: record[name] for name in known}
    for name in known.intersection(_VALUES):
        values[name] = _unpacked(values[name])
    for name in known.intersection(("remote", "builtins")):
        values[name] = None if values[name] is None else tuple(values[name])
    if "cases" in known:
        values["cases"] = tuple((str(given), str(wanted)) for given, wanted in values["cases"])
    return cls(**values)


def _packed(value: Any) -> str | None:
    from anyorder.bench.sandbox.wire import encode

    return None if value is None else base64.b64encode(encode(value)).decode("ascii")


def _unpacked(text: str | None) -> Any:
    from anyorder.bench.sandbox.wire import decode

    return None if text is None else decode(base64.b64decode(text))


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


PASSED, WRONG, ERROR, TIMEOUT = "passed", "wrong", "error", "timeout"
MEMORY, SYNTAX, NO_CODE, BLOCKED = "memory", "syntax", "no_code", "blocked"

VERDICTS = (PASSED, WRONG, ERROR, TIMEOUT, MEMORY, SYNTAX, NO_CODE, BLOCKED)

DETAIL_CHARACTERS = 300


@dataclass(frozen=True)
class Judged:
    """One program's verdict, as the judge gives it."""

    verdict: str
    detail: str = ""
    """Why, in one line."""
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0

    def __post_init__(self) -> None:
        assert self.verdict in VERDICTS, self.verdict
        object.__setattr__(self, "detail", one_line(self.detail))


class NotPassed(Exception):
    """A program ran and did not pass its tests; the message says where."""


def shown(verdict: str) -> str:
    """The name as people read it."""
    return verdict.replace("_", " ")


def one_line(text: str) -> str:
    """Any text as one printable line of bounded length."""
    text = " ".join(text[: 4 * DETAIL_CHARACTERS].split())
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= DETAIL_CHARACTERS else text[: DETAIL_CHARACTERS - 3] + "..."


FLOAT_ATOL = 1e-6
RTOL = 1e-7

NEARLY_INTEGER = 1e-6
"""A float this near to an integer counts as that integer."""
ANSWER_TOLERANCE = 1e-3

# What Python itself raises on values that do not fit together: hashing a list, ordering a string
# and a number, an integer too large for a float, nesting too deep to compare.
UNCOMPARABLE = (TypeError, ValueError, ArithmeticError, RecursionError, MemoryError)

Compare = Callable[[Any, Any, float], bool]
"""(what came back, what was expected, absolute tolerance) -> whether they agree."""


def compare(name: str, got: Any, expected: Any, atol: float = 0.0) -> bool:
    """Whether two plain values agree by the rule of that name."""
    refuse_unknown("comparison", name, COMPARISONS)
    try:
        return COMPARISONS[name](got, expected, atol)
    except UNCOMPARABLE:
        return False


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
    """An answer as a number, whole ones as int; of a string its first number; else None.

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


def _not_none(got: Any, expected: Any, atol: float) -> bool:
    if isinstance(got, bool):
        return bool(got == expected)
    return bool(expected == (got is not None))


def _lines(got: Any, expected: Any, atol: float) -> bool:
    if not isinstance(got, str) or not isinstance(expected, str):
        return False
    left, right = ([line.strip() for line in text.strip().split("\n")] for text in (got, expected))
    return len(left) == len(right) and all(map(_same_line, left, right))


def _same_line(left: str, right: str) -> bool:
    if left == right:
        return True
    try:
        return list(map(Decimal, left.split())) == list(map(Decimal, right.split()))
    except InvalidOperation:
        return False


COMPARISONS: dict[str, Compare] = {
    "equal": lambda got, expected, atol: bool(got == expected),
    "close": _close,
    "number": _number,
    "set_equal": lambda got, expected, atol: set(got) == set(expected),
    "not_none": _not_none,
    "returned": lambda got, expected, atol: bool(
        (list(got) if isinstance(got, tuple) else got) == expected
    ),
    "lines": _lines,
}
