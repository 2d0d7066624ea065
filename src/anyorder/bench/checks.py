"""What a problem's tests are: plain frozen data that a grader can act on.

Three kinds. A `Script` is test statements that the grader runs itself, with the program's names
remote; `Calls` is one function called many times; a `Console` is a whole program with standard
input and output. `to_record` and `from_record` carry them through JSON: values inside inputs and
answers go through the wire encoding of the sandbox, so tuples, sets and bytes stay what they are.

What this file does not do: run or compare anything (the judge does), or hold a sample.

The verdicts: what can become of a program.

    passed    every check passed
    wrong     it ran, and a check did not pass
    error     it raised, or its process died
    timeout   it used up its processor time, or the clock ran out
    memory    it asked for more memory than it may have
    syntax    it is not Python
    no_code   the text held no program
    blocked   it tried what the sandbox forbids, and was ended for it

Quick to import: the workers need these names. The table of verdicts is verdict_table.py.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


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
    """What each call must return; None where a reference says it."""
    reference: str | None = None
    """A trusted complete program whose `function` gives the expected values. It is run once, by
    itself, in the sandbox."""
    compare: str = "equal"
    """How a result is compared: a name in bench/comparisons.py."""
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
    """How the output is compared: a name in bench/comparisons.py."""

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
    cls = KINDS.get(str(record.get("kind")))
    if cls is None:
        raise ValueError(f"a check of kind {record.get('kind')!r}: give one of {', '.join(KINDS)}")
    known = {field.name for field in fields(cls)}
    if wrong := (set(record) - {"kind"}) ^ known:
        raise ValueError(f"a {record['kind']} check with wrong fields: {', '.join(sorted(wrong))}")
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
    """Ends the judging of a program that has not failed by itself: the tests say no."""

    def __init__(self, verdict: str, detail: str) -> None:
        super().__init__(f"{verdict}: {detail}")
        self.verdict = verdict
        self.detail = detail


def shown(verdict: str) -> str:
    """The name as people read it."""
    return verdict.replace("_", " ")


def one_line(text: str) -> str:
    """Any text as one printable line of bounded length."""
    text = " ".join(text[: 4 * DETAIL_CHARACTERS].split())
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= DETAIL_CHARACTERS else text[: DETAIL_CHARACTERS - 3] + "..."
