"""The common way to judge a program: execute it and its tests together, in a forked process.

Nothing protects the tests from the program here. What the grader says must agree with this on
programs that do not cheat.
"""

from __future__ import annotations

import os
import random
import resource
import sys

from anyorder.bench.checks import Check, Script

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
                assert isinstance(check, Script)
                scope: dict[str, object] = {"__name__": "program"}
                for text in (check.setup, program, check.code):
                    exec(compile(text, "<plain>", "exec", dont_inherit=True), scope)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0
