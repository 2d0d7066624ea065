"""The common way to judge a program: execute it and its tests together, in a forked process.

Nothing protects the tests from the program here. What the grader says must agree with this on
programs that do not cheat.
"""

from __future__ import annotations

import os
import random
import resource
import sys

from anyorder.bench.checks import Calls, Check, Script
from anyorder.bench.comparisons import compare

MEMORY_BYTES = 1 << 30


def passes_plainly(program: str, checks: tuple[Check, ...], cpu_seconds: int) -> bool:
    """Whether the program passes in one process with its tests, within the time."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            null = os.open(os.devnull, os.O_RDWR)
            for handle in (0, 1, 2):
                os.dup2(null, handle)
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
            random.seed(0)
            for check in checks:
                _execute(program, check)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def _execute(program: str, check: Check) -> None:
    scope: dict[str, object] = {"__name__": "program"}
    if isinstance(check, Script):
        exec(check.setup, scope)
        exec(program, scope)
        exec(check.code, scope)
        return
    assert isinstance(check, Calls)
    assert check.expected is not None
    exec(program, scope)
    function = scope[check.function]
    assert callable(function)
    for given, wanted in zip(check.inputs, check.expected, strict=True):
        assert compare(check.compare, function(*given), wanted, check.atol)
