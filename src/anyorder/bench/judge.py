"""A program and a problem's checks -> a verdict. The program runs in the sandbox, never here.

    Script    test statements run here; the program's names are remote (remote.py)
    Calls     one function, its results streamed back and compared one by one
    Console   one child for each case: standard input in, what it printed compared

Every check gets a new child (a Console one for each case), so limits hold for each check alone and
nothing leaks between checks. The first check that does not pass decides. Plain values are compared
in this process (checks.py); what the program says about itself does not count.

Test statements come from the task and are trusted. Each program gets a new namespace, and only the
names that the check lists come from the program, so it can replace neither a builtin nor a helper
of the tests. Statements that draw at random draw the same for every program.
"""

from __future__ import annotations

import builtins
import copy
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from anyorder.bench.checks import (
    MEMORY,
    PASSED,
    WRONG,
    Calls,
    Check,
    Console,
    Judged,
    NotPassed,
    Script,
    compare,
)
from anyorder.bench.remote import (
    PREFETCH,
    Function,
    RemoteSession,
    compile_tests,
    failure_of,
    goes_on_after_failure,
)
from anyorder.bench.sandbox import Child, Failed, Limits, Remote, Sandbox

TESTS, SETUP = "<tests>", "<setup>"
MODULE = "tests"
"""The `__name__` of the test statements."""
SEED = 0


def run_script(child: Child, check: Script) -> None:
    """Return if all statements pass; else raise what stopped them (Failed or NotPassed)."""
    session = RemoteSession(child)
    functions = {name: Function(session, name) for name in check.remote}
    scope: dict[str, Any] = {"__name__": MODULE, "__builtins__": builtins.__dict__}
    # Before the setup, which may use them, and after it, which may define the stubs of a prompt.
    scope.update(functions)
    random.seed(SEED)
    setup, tests = compile_script(check)
    _run(setup, scope, session, check.setup)
    scope.update(functions)
    scope[PREFETCH] = partial(_prefetch, session)
    _run(tests, scope, session, check.code)
    if session.ended is not None:  # the tests caught it, and continued without the program
        raise session.ended
    # Tests without `try` can still lose an exception: in `all(map(...))` a StopIteration of the
    # program looks like the end of the cases.
    if session.raised is not None and not goes_on_after_failure(check.setup + check.code):
        raise session.raised


def compile_script(check: Script) -> tuple[CodeType, CodeType]:
    """Setup and statements, ready to run; kept for the next program."""
    foresee = not goes_on_after_failure(check.setup)
    return _compiled(check.setup, SETUP, False), _compiled(check.code, TESTS, foresee)


@lru_cache(maxsize=16)
def _compiled(code: str, filename: str, foresee: bool) -> CodeType:
    return compile_tests(code, filename, foresee=foresee)


def _prefetch(
    session: RemoteSession, calls: tuple[tuple[Any, tuple[Any, ...]], ...], others: tuple[Any, ...]
) -> None:
    """Send the program's calls, if all are of one function and there are no others."""
    remote = [(function, given) for function, given in calls if isinstance(function, Function)]
    ours = (function for function, _ in calls if not isinstance(function, Function))
    names = {function.__name__ for function, _ in remote}
    if len(names) == 1 and not any(map(_may_call, (*others, *ours))):
        session.prefetch(names.pop(), [given for _, given in remote])


def _may_call(value: Any) -> bool:
    """Whether a call of this value may call the program: it is remote, or the tests define it."""
    if isinstance(value, type | FunctionType):
        return value.__module__ == MODULE
    return not isinstance(value, _HARMLESS)


_HARMLESS = (
    *(ModuleType, BuiltinFunctionType, type(None), int, float, complex, str, bytes),
    *(list, tuple, dict, set, frozenset, range),
)
"""Types of values that never call the program: libraries, builtins, data."""


def _run(code: CodeType, scope: dict[str, Any], session: RemoteSession, source: str) -> None:
    try:
        exec(code, scope)  # noqa: S102  (the task's own statements; samples never get here)
    except BaseException as error:  # noqa: BLE001  (whatever the statements raise is their answer)
        failed = failure_of(error) or session.ended
        if failed is not None:
            raise failed from None
        if isinstance(error, MemoryError):
            raise MemoryError from None
        where = _statement(error, source)
        if not isinstance(error, AssertionError):
            where += f" ({type(error).__name__} in the tests)"
        raise NotPassed(where) from None


def _statement(error: BaseException, source: str) -> str:
    """The line of the tests that raised."""
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in (TESTS, SETUP):
            line = trace.tb_lineno
        trace = trace.tb_next
    lines = source.splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else "the tests"


REFERENCE_PATIENCE = 4
"""A reference may take this multiple of a program's time: it is right, and runs once."""
REFERENCE_SHARE = 2
"""A program may take at least this multiple of the reference's time (as in evalplus)."""


class CannotGrade(ValueError):
    """A problem cannot be graded: its own tests or reference fail."""


Awake = Callable[[float], None]
"""Called before each child with the seconds it may take, to restart a watchdog."""


@dataclass(frozen=True)
class PreparedCheck:
    """A check with its answers, and the limits for it."""

    check: Check
    limits: Limits


@dataclass
class JudgeContext:
    """What running one program needs, and what it has cost so far."""

    sandbox: Sandbox
    program: str
    awake: Awake
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0

    @contextmanager
    def child(
        self, limits: Limits, *, stdin: str | None = None, builtins: Sequence[str] | None = None
    ) -> Iterator[Child]:
        """The program in a fresh child, after its top level has run."""
        self.awake(limits.wall_seconds)
        child = self.sandbox.start(self.program, limits, stdin=stdin, builtins=builtins)
        try:
            child.load()
            yield child
        finally:
            ended = child.end()
            self.cpu_seconds += ended.cpu_seconds
            self.wall_seconds += ended.wall_seconds


def _no_watchdog(seconds: float) -> None:
    """The default."""


def prepare(
    sandbox: Sandbox, checks: Sequence[Check], limits: Limits, awake: Awake = _no_watchdog
) -> tuple[PreparedCheck, ...]:
    """Checks with their answers; references run once, in the sandbox."""
    ready = []
    for check in checks:
        if isinstance(check, Calls) and check.reference is not None:
            ready.append(_answered(sandbox, check, limits, awake))
            continue
        if isinstance(check, Script):
            try:
                compile_script(check)
            except (SyntaxError, ValueError) as error:
                raise CannotGrade(
                    f"its tests are not Python ({error}): restore the data file"
                ) from None
        ready.append(PreparedCheck(check, limits))
    return tuple(ready)


def judge(
    sandbox: Sandbox, program: str, checks: Sequence[PreparedCheck], awake: Awake = _no_watchdog
) -> Judged:
    """The verdict on a complete program."""
    context = JudgeContext(sandbox, program, awake)
    verdict, detail = PASSED, ""
    try:
        for ready in checks:
            _JUDGES[type(ready.check)](context, ready.check, ready.limits)
    except NotPassed as reason:
        verdict, detail = WRONG, str(reason)
    except Failed as failed:
        verdict, detail = failed.kind, failed.detail
    except MemoryError:
        verdict, detail = MEMORY, "it returned more than there is room for"
    return Judged(verdict, detail, context.cpu_seconds, context.wall_seconds)


def _answered(sandbox: Sandbox, check: Calls, limits: Limits, awake: Awake) -> PreparedCheck:
    assert check.reference is not None
    context = JudgeContext(sandbox, check.reference, awake)
    try:
        with context.child(_times(limits, REFERENCE_PATIENCE * limits.cpu_seconds)) as child:
            expected = tuple(child.calls(check.function, copy.deepcopy(check.inputs)))
    except Failed as failed:
        raise CannotGrade(
            f"the reference solution of {check.function} fails ({failed.detail}): restore the data "
            "file, or install the module that it needs"
        ) from None
    answered = replace(check, expected=expected, reference=None)
    return PreparedCheck(answered, _times(limits, REFERENCE_SHARE * context.cpu_seconds))


def _times(limits: Limits, cpu_seconds: float) -> Limits:
    """The limits with at least this processor time, and wall time in proportion."""
    factor = max(1.0, cpu_seconds / limits.cpu_seconds)
    return replace(
        limits,
        cpu_seconds=factor * limits.cpu_seconds,
        wall_seconds=factor * limits.wall_seconds,
    )


def _judge_calls(context: JudgeContext, check: Calls, limits: Limits) -> None:
    assert check.expected is not None
    with context.child(limits, builtins=check.builtins) as child:
        # Copies: `calls` repeats on these objects what the program does to its arguments, and the
        # next program must get the inputs as they were.
        results = child.calls(check.function, copy.deepcopy(check.inputs))
        for number, expected in enumerate(check.expected):
            got = next(results)
            if not compare(check.compare, got, expected, check.atol):
                place = f"call {number + 1} of {len(check.inputs)}"
                raise NotPassed(f"{place}: {_brief(got)} instead of {_brief(expected)}")


def _judge_console(context: JudgeContext, check: Console, limits: Limits) -> None:
    for number, (given, wanted) in enumerate(check.cases):
        # Room for the right output, whatever its size, and as much again to see that it is wrong.
        room = max(limits.output_bytes, 2 * len(wanted.encode("utf-8", "surrogatepass")))
        with context.child(replace(limits, output_bytes=room), stdin=given) as child:
            if not compare(check.compare, child.output, wanted):
                place = f"case {number + 1} of {len(check.cases)}"
                raise NotPassed(f"{place}: printed {_brief(child.output)}")


def _judge_script(context: JudgeContext, check: Script, limits: Limits) -> None:
    with context.child(limits) as child:
        run_script(child, check)


_JUDGES: dict[type, Callable[[JudgeContext, Any, Limits], None]] = {
    Script: _judge_script,
    Calls: _judge_calls,
    Console: _judge_console,
}


_BRIEF = 60
_SIMPLE = (bool, int, float, str, type(None))


def _brief(value: Any) -> str:
    """A value in a few characters; a large one is never written out, which could take minutes."""
    if isinstance(value, Remote):
        return "an object"
    if not isinstance(value, _SIMPLE):
        try:
            return f"a {type(value).__name__} of {len(value)}"
        except TypeError:  # has none; types and arrays without dimensions only seem to
            return f"a {type(value).__name__}"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str) and len(value) > _BRIEF:
        return f"{value[:_BRIEF]!r}..."
    return repr(value)
