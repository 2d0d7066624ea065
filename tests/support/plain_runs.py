"""Checks run plainly, program and tests in one process: for trusted programs in tests only.

A second reading of what checks mean, written without the judge and the sandbox, in a forked child
so that a program that exits, loops or changes the interpreter harms no other test.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterable
from typing import Any

from anyorder.bench.checks import Calls, Console, Script, compare
from anyorder.bench.tasks import Problem


def failures(programs: Iterable[tuple[Problem, str | None]], seconds: int = 250) -> dict[str, str]:
    """Which of the programs (without prologue) fail, and how; they run one after another."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            warnings.simplefilter("ignore")
            found = {
                problem.task_id: reason
                for problem, program in programs
                if (reason := _reason(problem, program))
            }
            with os.fdopen(writing, "w") as pipe:
                json.dump(found, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, how = os.waitpid(child, 0)
    assert said, f"the programs did not come to an end: {how}"
    answer: dict[str, str] = json.loads(said)
    return answer


def _reason(problem: Problem, program: str | None) -> str:
    if program is None:
        return "no code"
    try:
        for check in problem.checks:
            _RUNNERS[type(check)](f"{problem.prologue}{program}", check)
    except BaseException as error:  # noqa: BLE001  (whatever a program raises is its answer)
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} (line {last.lineno})"[:300]
    return ""


def _namespace(program: str) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "program"}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(program, "<program>", "exec", dont_inherit=True), scope)
    return scope


def _script(program: str, check: Script) -> None:
    own = _namespace(program)
    scope: dict[str, Any] = {"__name__": "tests"}
    exec(check.setup, scope)
    scope.update({name: own[name] for name in check.remote})
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(check.code, "<tests>", "exec", dont_inherit=True), scope)


def _results(program: str, check: Calls) -> list[Any]:
    scope = _namespace(program)
    first, _, method = check.function.partition(".")
    with contextlib.redirect_stdout(io.StringIO()):
        return [
            (getattr(scope[first](), method) if method else scope[first])(*copy.deepcopy(given))
            for given in check.inputs
        ]


def _calls(program: str, check: Calls) -> None:
    expected = check.expected
    if expected is None:
        assert check.reference is not None
        expected = tuple(_results(check.reference, check))
    for got, wanted in zip(_results(program, check), expected, strict=True):
        assert compare(check.compare, got, wanted, check.atol), f"{got!r} is not {wanted!r}"


def _console(program: str, check: Console) -> None:
    for given, wanted in check.cases:
        printed = io.StringIO()
        sys.stdin = io.StringIO(given)
        with contextlib.redirect_stdout(printed):
            exec(compile(program, "<program>", "exec", dont_inherit=True), {"__name__": "__main__"})
        assert compare(check.compare, printed.getvalue(), wanted), printed.getvalue()


_RUNNERS: dict[type, Any] = {Script: _script, Calls: _calls, Console: _console}
