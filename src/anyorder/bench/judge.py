"""A program and a problem's checks -> a verdict. The program runs in the sandbox, never here.

    Script    judge_script.py: the test statements run here, the program's names are remote
    Calls     one function, its results streamed back and compared one by one
    Console   one child for each case: standard input in, what it printed compared

Every check gets a child of its own (a Console one for each case), so limits count from check to
check and nothing leaks between them. The first check that does not pass decides. What is compared
are plain values in this process (comparisons.py); what the program says about itself is not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from anyorder.bench.checks import Calls, Check, Console, Script
from anyorder.bench.comparisons import compare
from anyorder.bench.judge_script import compile_script, run_script
from anyorder.bench.sandbox import Child, Failed, Limits, Remote, Sandbox
from anyorder.bench.verdicts import MEMORY, PASSED, WRONG, Judged, NotPassed

REFERENCE_PATIENCE = 4
"""A reference may take so many times what a program may: it is right, and is run once."""
REFERENCE_SHARE = 2
"""A program may take at least so many times what the reference took (evalplus has such a rule)."""


class Unfit(ValueError):
    """A problem cannot be graded: its own tests or reference fail."""


Awake = Callable[[float], None]
"""Told, before each child, how long it may take: whoever watches this process waits so long."""


@dataclass(frozen=True)
class Ready:
    """A check with its answers at hand."""

    check: Check
    limits: Limits


@dataclass
class Desk:
    """What is needed to run one program, and what it has cost so far."""

    sandbox: Sandbox
    program: str
    awake: Awake
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0

    @contextmanager
    def child(
        self, limits: Limits, *, stdin: str | None = None, builtins: Sequence[str] | None = None
    ) -> Iterator[Child]:
        """The program in a fresh child, its top level done."""
        self.awake(limits.wall_seconds)
        child = self.sandbox.start(self.program, limits, stdin=stdin, builtins=builtins)
        try:
            child.load()
            yield child
        finally:
            ended = child.end()
            self.cpu_seconds += ended.cpu_seconds
            self.wall_seconds += ended.wall_seconds


def _nobody(seconds: float) -> None:
    """Nobody watches."""


def prepare(
    sandbox: Sandbox, checks: Sequence[Check], limits: Limits, awake: Awake = _nobody
) -> tuple[Ready, ...]:
    """Checks to judge programs by; references run here, once, in the sandbox like all else."""
    ready = []
    for check in checks:
        if isinstance(check, Calls) and check.reference is not None:
            ready.append(_answered(sandbox, check, limits, awake))
            continue
        if isinstance(check, Script):
            try:
                compile_script(check)
            except (SyntaxError, ValueError) as error:
                raise Unfit(f"its tests are no Python ({error}): restore the data file") from None
        ready.append(Ready(check, limits))
    return tuple(ready)


def judge(
    sandbox: Sandbox, program: str, checks: Sequence[Ready], awake: Awake = _nobody
) -> Judged:
    """The verdict on a complete program."""
    desk = Desk(sandbox, program, awake)
    verdict, detail = PASSED, ""
    try:
        for ready in checks:
            _JUDGES[type(ready.check)](desk, ready.check, ready.limits)
    except NotPassed as reason:
        verdict, detail = reason.verdict, reason.detail
    except Failed as failed:
        verdict, detail = failed.kind, failed.detail
    except MemoryError:
        verdict, detail = MEMORY, "it returned more than there is room for"
    return Judged(verdict, detail, desk.cpu_seconds, desk.wall_seconds)


def _answered(sandbox: Sandbox, check: Calls, limits: Limits, awake: Awake) -> Ready:
    assert check.reference is not None
    desk = Desk(sandbox, check.reference, awake)
    try:
        with desk.child(_times(limits, REFERENCE_PATIENCE * limits.cpu_seconds)) as child:
            expected = tuple(child.calls(check.function, copy.deepcopy(check.inputs)))
    except Failed as failed:
        raise Unfit(
            f"the reference solution of {check.function} fails ({failed.detail}): restore the data "
            "file, or install the module that it needs"
        ) from None
    answered = replace(check, expected=expected, reference=None)
    return Ready(answered, _times(limits, REFERENCE_SHARE * desk.cpu_seconds))


def _times(limits: Limits, cpu_seconds: float) -> Limits:
    """The same limits with at least so much time, the guard in proportion."""
    factor = max(1.0, cpu_seconds / limits.cpu_seconds)
    return replace(
        limits,
        cpu_seconds=factor * limits.cpu_seconds,
        wall_seconds=factor * limits.wall_seconds,
    )


def _judge_calls(desk: Desk, check: Calls, limits: Limits) -> None:
    assert check.expected is not None
    with desk.child(limits, builtins=check.builtins) as child:
        # Copies: what a program does to its arguments is done to the caller's objects as well.
        results = child.calls(check.function, copy.deepcopy(check.inputs))
        for number, expected in enumerate(check.expected):
            got = next(results)
            if not compare(check.compare, got, expected, check.atol):
                place = f"call {number + 1} of {len(check.inputs)}"
                raise NotPassed(WRONG, f"{place}: {_brief(got)} instead of {_brief(expected)}")


def _judge_console(desk: Desk, check: Console, limits: Limits) -> None:
    for number, (given, wanted) in enumerate(check.cases):
        # Room for the right output, whatever its size, and as much again to see that it is wrong.
        room = max(limits.output_bytes, 2 * len(wanted.encode("utf-8", "surrogatepass")))
        with desk.child(replace(limits, output_bytes=room), stdin=given) as child:
            if not compare(check.compare, child.output, wanted):
                place = f"case {number + 1} of {len(check.cases)}"
                raise NotPassed(WRONG, f"{place}: printed {_brief(child.output)}")


def _judge_script(desk: Desk, check: Script, limits: Limits) -> None:
    with desk.child(limits) as child:
        run_script(child, check)


_JUDGES: dict[type, Callable[[Desk, Any, Limits], None]] = {
    Script: _judge_script,
    Calls: _judge_calls,
    Console: _judge_console,
}


_BRIEF = 60
_SIMPLE = (bool, int, float, str, type(None))


def _brief(value: Any) -> str:
    """A value in a few characters, without ever writing out a large one."""
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
