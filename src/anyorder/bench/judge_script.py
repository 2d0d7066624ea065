"""Test statements run in the grader, with the program's names remote.

The statements come from the task and are trusted; of the program they see plain values and handles
(remote.py). Their namespace is made anew for every program, and only the names that the check lists
come from it, so a program can replace neither a builtin nor a helper of the tests. Calls that can
be foreseen are sent in one batch (prefetch.py).

Statements that draw at random draw the same for every program.
"""

from __future__ import annotations

import builtins
import random
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from anyorder.bench.checks import Script
from anyorder.bench.prefetch import PREFETCH, compile_tests, goes_on_after_failure
from anyorder.bench.remote import Function, Session, failure_of
from anyorder.bench.sandbox import Child
from anyorder.bench.verdicts import WRONG, NotPassed

TESTS, SETUP = "<tests>", "<setup>"
MODULE = "tests"
"""What the statements take for the name of their module."""
SEED = 0


def run_script(child: Child, check: Script) -> None:
    """Return if the statements run through; else raise what stopped them (Failed or NotPassed)."""
    session = Session(child)
    functions = {name: Function(session, name) for name in check.remote}
    scope: dict[str, Any] = {"__name__": MODULE, "__builtins__": builtins.__dict__}
    # Before the setup, which may use them, and after it, which may define the stubs of a prompt.
    scope.update(functions)
    random.seed(SEED)
    setup, tests = compile_script(check)
    _run(setup, scope, session, check.setup)
    scope.update(functions)
    scope[PREFETCH] = _prefetcher(session)
    _run(tests, scope, session, check.code)
    if session.ended is not None:  # the tests caught it, and went on without the program
        raise session.ended
    # Tests that catch nothing can only have lost it: in `all(map(...))` a StopIteration looks like
    # the end of the cases.
    if session.raised is not None and not goes_on_after_failure(check.setup + check.code):
        raise session.raised


def compile_script(check: Script) -> tuple[CodeType, CodeType]:
    """Setup and statements, ready to run; kept for the next program."""
    foresee = not goes_on_after_failure(check.setup)
    return _compiled(check.setup, SETUP, False), _compiled(check.code, TESTS, foresee)


@lru_cache(maxsize=16)
def _compiled(code: str, filename: str, foresee: bool) -> CodeType:
    return compile_tests(code, filename, foresee=foresee)


def _prefetcher(session: Session) -> Any:
    def prefetch(calls: tuple[tuple[Any, tuple[Any, ...]], ...], others: tuple[Any, ...]) -> None:
        """Send the program's calls, if all are of one function and there are no others."""
        remote = [(function, given) for function, given in calls if isinstance(function, Function)]
        ours = (function for function, _ in calls if not isinstance(function, Function))
        names = {function.__name__ for function, _ in remote}
        if len(names) == 1 and not any(map(_may_call, (*others, *ours))):
            session.prefetch(names.pop(), [given for _, given in remote])

    return prefetch


def _may_call(value: Any) -> bool:
    """Whether the program may be called through it: it is the program's, or the tests made it."""
    if isinstance(value, type | FunctionType):
        return value.__module__ == MODULE
    return not isinstance(value, _HARMLESS)


_HARMLESS = (
    *(ModuleType, BuiltinFunctionType, type(None), int, float, complex, str, bytes),
    *(list, tuple, dict, set, frozenset, range),
)
"""What a name of the tests may stand for that calls nothing: libraries, builtins, data."""


def _run(code: CodeType, scope: dict[str, Any], session: Session, source: str) -> None:
    try:
        exec(code, scope)  # noqa: S102  (the task's own statements; samples never get here)
    except BaseException as error:  # noqa: BLE001  (whatever the statements raise is their answer)
        failed = failure_of(error) or session.ended
        if failed is not None:
            raise failed from None
        if isinstance(error, MemoryError):
            raise MemoryError from None
        where = _statement(error, source)
        said = (
            "" if isinstance(error, AssertionError) else f" ({type(error).__name__} in the tests)"
        )
        raise NotPassed(WRONG, f"{where}{said}") from None


def _statement(error: BaseException, source: str) -> str:
    """The line of the tests that raised."""
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in (TESTS, SETUP):
            line = trace.tb_lineno
        trace = trace.tb_next
    lines = source.splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else "the tests"
