"""One worker of the grader: a process that holds tests and answers and owns one sandbox.

It takes jobs from a pipe, judges each (judge.py) and writes the verdict to another pipe. It never
runs a sample itself: the sandbox's confined children do. It ends when it gets a stop message, when
the grader is gone (its lifeline closes), and when the test statements are stuck on what a sample
returned (the alarm). Not here: which job goes where (pool.py), and what follows a death (grade.py).
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import warnings
from collections.abc import Iterator
from typing import Any

from anyorder.bench.checks import from_record
from anyorder.bench.judge import CannotGrade, PreparedCheck, judge, prepare
from anyorder.bench.pool import Inbox, frame, send
from anyorder.bench.sandbox import Limits, Sandbox

ALARM_GRACE = 10.0
"""Seconds beyond a child's wall-clock guard before test statements count as stuck."""

MEMORY_BYTES = 4 << 30
"""Address space of a worker: what a sample returns is of bounded size, what the test statements
make of it is not."""


def main(inbox: int, outbox: int, lifeline: int, minimum_level: int) -> None:
    """Serve jobs until a stop message."""
    _settle(inbox, outbox, lifeline)
    try:
        sandbox = Sandbox(minimum_level=minimum_level)
    except (ValueError, OSError) as error:
        send(outbox, frame({"refused": str(error)}))
        return
    with sandbox:
        send(outbox, frame({"level": sandbox.level}))
        _serve(sandbox, inbox, outbox)


def _settle(*handles: int) -> None:
    for handle in handles:
        os.set_inheritable(handle, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the grader's to handle
    # The default actions end this process even in a computation that never returns to Python: the
    # alarm when the test statements are stuck, SIGIO when the grader's end of the lifeline closes.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    lifeline = handles[-1]
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    try:
        if not os.read(lifeline, 1):
            os._exit(0)  # it closed before SIGIO was set up
    except BlockingIOError:
        pass
    warnings.simplefilter("ignore")
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    least = MEMORY_BYTES if most == resource.RLIM_INFINITY else min(MEMORY_BYTES, most)
    resource.setrlimit(resource.RLIMIT_AS, (least, most))


def _serve(sandbox: Sandbox, inbox: int, outbox: int) -> None:
    checks: tuple[PreparedCheck, ...] = ()
    for job in _arriving(inbox):
        if "stop" in job:
            return
        try:
            if "checks" in job:  # else those of the job before
                given = tuple(map(from_record, job["checks"]))
                checks = prepare(sandbox, given, Limits(**job["limits"]), _awake)
            reply = vars(judge(sandbox, job["program"], checks, _awake))
        except CannotGrade as error:
            reply = {"unfit": str(error)}
        _alarm(0)
        send(outbox, frame({"job": job["job"], **reply}))


def _arriving(inbox: int) -> Iterator[dict[str, Any]]:
    arriving = Inbox(inbox)
    while arriving.read():
        yield from arriving.messages()


def _awake(seconds: float) -> None:
    """Restart the alarm for a step that may take `seconds`."""
    _alarm(seconds + ALARM_GRACE)


def _alarm(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds)
