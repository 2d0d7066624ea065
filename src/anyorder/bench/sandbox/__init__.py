"""Runs generated programs safely: a grader outside, one confined process per program inside.

    with Sandbox() as sandbox, sandbox.start(program, Limits(cpu_seconds=5)) as child:
        child.load()
        result = child.call("add", (2, 3))

The grader's process holds tests and answers and never runs a sample. A warm fork-server, which
never sees them, forks one confined child per program. A child sends back plain values, and the
grader compares them. docs/sandbox.md says what is claimed and what is not.
"""

from __future__ import annotations

from anyorder.bench.sandbox.canaries import CanaryResult
from anyorder.bench.sandbox.client import PRELOAD, Probe, Sandbox, probe
from anyorder.bench.sandbox.handle import Child
from anyorder.bench.sandbox.limits import Broken, Ended, Failed, Limits
from anyorder.bench.sandbox.wire import Remote, WireError, decode, encode

__all__ = [
    "PRELOAD",
    "Broken",
    "CanaryResult",
    "Child",
    "Ended",
    "Failed",
    "Limits",
    "Probe",
    "Remote",
    "Sandbox",
    "WireError",
    "decode",
    "encode",
    "probe",
]
