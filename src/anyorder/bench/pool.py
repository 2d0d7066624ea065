"""The grader's worker processes: started when there is work, replaced when they die.

    pool.hand(job)      give a job to the worker that has least to do
    pool.wait()         what became of some jobs: a verdict, or lost with its worker

A worker has at most two jobs, one it works on and one in its pipe, so it never waits for the
grader. Messages are JSON with its length in front, over pipes. Both ends are ours: what a sample
returns is decoded (sandbox/wire.py) before any of it gets here. Programs may hold lone surrogates,
which JSON's escapes carry.

A worker (`main`) holds tests and answers and owns one sandbox. It judges each job (judge.py), but
never runs a sample itself: the sandbox's confined children do. It ends when it gets a stop message,
when the grader is gone (its lifeline closes), and when the test statements are stuck on what a
sample returned (the alarm). Not here: which jobs there are, and what follows a lost one (grade.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

from anyorder.bench.checks import from_record
from anyorder.bench.judge import CannotGrade, PreparedCheck, judge, prepare
from anyorder.bench.sandbox import Limits, Sandbox

_LENGTH = struct.Struct(">Q")
READ_BYTES = 1 << 16


def frame(message: dict[str, Any], **written: str) -> bytes:
    """A message as the bytes to send; `written` are further fields, as JSON text already."""
    fields = {name: json.dumps(value) for name, value in message.items()} | written
    text = ",".join(f"{json.dumps(name)}:{value}" for name, value in fields.items())
    body = f"{{{text}}}".encode("ascii")
    return _LENGTH.pack(len(body)) + body


def send(handle: int, data: bytes) -> None:
    """Write all of some frames; BrokenPipeError if the reader is gone."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


class Inbox:
    """Cuts the bytes of a pipe into messages."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._buffer = bytearray()

    def read(self) -> bool:
        """Wait for bytes and take them; False at the end of the stream."""
        data = os.read(self.handle, READ_BYTES)
        self._buffer += data
        return bool(data)

    def messages(self) -> Iterator[dict[str, Any]]:
        """The messages that have arrived in full since the last call."""
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield json.loads(body)

    def arriving(self) -> Iterator[dict[str, Any]]:
        """All messages until the end of the stream."""
        while self.read():
            yield from self.messages()


BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from anyorder.bench.pool import main; main(*map(int, sys.argv[2:]))"
)
"""The program of a worker. It finds our modules where the grader found them, and needs no main
module: scripts without a guard, notebooks and test runners can all grade."""

DEPTH = 2
"""Jobs of one worker: the one it works on, and the next."""

SMALL_FRAME = 1 << 15
"""Bytes that surely fit into an empty pipe. Only an idle worker gets a larger job: a stuck one
would not read it, and the grader would block on the write."""

STOP_SECONDS = 10.0
"""Time for a worker to end after it was asked to; then it is killed."""

DEATH_CHARACTERS = 300
"""Characters kept of a dead worker's last error line."""


@dataclass(frozen=True)
class PoolJob:
    """One program to judge, under the grader's number for it."""

    number: int
    program: str
    checks_key: str
    """Digest of the checks: they are not sent again to a worker that has just used them."""
    checks: str
    """The checks as records, in JSON."""
    limits: dict[str, Any]
    """Sent with the checks: the same for all jobs of a pool."""


@dataclass(frozen=True)
class JobOutcome:
    """What became of a job."""

    job: PoolJob
    reply: dict[str, Any]
    """The verdict; or "unfit": the problem cannot be graded; or "lost": what died over it."""
    level: int | None
    stuck: bool = False
    """Lost, because the test statements did not come to an end and an alarm ended the worker."""


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    outbox: int
    inbox: Inbox
    lifeline: int
    """Held open and never written to: when it closes, for whatever reason, the worker ends."""
    errors: IO[bytes]
    jobs: deque[PoolJob] = field(default_factory=deque)
    level: int | None = None
    checks_key: str = ""

    def hand(self, job: PoolJob) -> None:
        message: dict[str, Any] = {"job": job.number, "program": job.program}
        checks = {}
        if job.checks_key != self.checks_key:
            self.checks_key = job.checks_key
            message["limits"] = job.limits
            checks = {"checks": job.checks}
        self.jobs.append(job)
        with suppress(BrokenPipeError):  # it died: `_hear` sees its other pipe close
            send(self.outbox, frame(message, **checks))

    def bury(self) -> tuple[str, bool]:
        """Wait for its end: how it died, and whether its own alarm ended it."""
        code = self.process.wait()
        self.errors.seek(0)
        last = self.errors.read().decode(errors="replace").strip().splitlines()[-1:]
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self.release()
        return ": ".join([how, *last])[:DEATH_CHARACTERS], code == -signal.SIGALRM

    def release(self) -> None:
        for handle in (self.outbox, self.inbox.handle, self.lifeline):
            os.close(handle)
        self.errors.close()


class Pool:
    """Some workers; a context manager that ends them."""

    def __init__(self, workers: int, minimum_level: int) -> None:
        self.most = workers
        self.minimum_level = minimum_level
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(kill=kind is not None)

    @property
    def busy(self) -> bool:
        """Whether any job is with a worker."""
        return any(worker.jobs for worker in self._workers)

    def room(self, job: PoolJob) -> bool:
        """Whether a worker can take this job now."""
        return self._chosen(job) is not None or len(self._workers) < self.most

    def hand(self, job: PoolJob) -> None:
        """Give the job to a worker; there must be room."""
        worker = self._chosen(job)
        if worker is None or (worker.jobs and len(self._workers) < self.most):
            assert len(self._workers) < self.most
            worker = self._start()
        worker.hand(job)

    @staticmethod
    def fits_beside(job: PoolJob) -> bool:
        """Whether it surely fits into the pipe of a busy worker: a character may take 12 bytes."""
        room = SMALL_FRAME - len(job.checks)
        return len(job.program) <= room and len(json.dumps(job.program)) <= room

    def wait(self) -> list[JobOutcome]:
        """Wait for the outcome of at least one job; a worker must have one."""
        assert self.busy
        outcomes: list[JobOutcome] = []
        while not outcomes:
            for key, _ in self._selector.select():
                outcomes += self._hear(key.data)
        return outcomes

    def close(self, *, kill: bool = False) -> None:
        """End the workers: those that have nothing to do are asked, the others are killed."""
        for worker in self._workers:
            if kill or worker.jobs:
                worker.process.kill()
            else:
                with suppress(BrokenPipeError):
                    send(worker.outbox, frame({"stop": True}))
        for worker in self._workers:
            try:
                worker.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.release()
        self._workers = []
        self._selector.close()

    def _chosen(self, job: PoolJob) -> _Worker | None:
        """The worker with the fewest jobs, of those that can take this one."""
        depth = DEPTH if self.fits_beside(job) else 1
        free = [worker for worker in self._workers if len(worker.jobs) < depth]
        # Among the idle, one that has these checks already.
        return min(
            free,
            key=lambda worker: (len(worker.jobs), worker.checks_key != job.checks_key),
            default=None,
        )

    def _start(self) -> _Worker:
        errors = tempfile.TemporaryFile()  # noqa: SIM115
        to_worker, from_worker, lifeline = os.pipe(), os.pipe(), os.pipe()
        theirs = (to_worker[0], from_worker[1], lifeline[0])
        words = [json.dumps(sys.path), *map(str, theirs), str(self.minimum_level)]
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", BOOTSTRAP, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=theirs,
            start_new_session=True,  # an interrupt from the keyboard is for the grader alone
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        for handle in theirs:
            os.close(handle)
        worker = _Worker(process, to_worker[1], Inbox(from_worker[0]), lifeline[1], errors)
        self._workers.append(worker)
        self._selector.register(worker.inbox.handle, selectors.EVENT_READ, worker)
        return worker

    def _hear(self, worker: _Worker) -> Iterator[JobOutcome]:
        alive = worker.inbox.read()
        for message in worker.inbox.messages():
            if "refused" in message:
                raise ValueError(
                    f"{message['refused']} (on the command line: --allow-weak-isolation)"
                )
            if "level" in message and "job" not in message:
                worker.level = message["level"]
                continue
            job, number = worker.jobs.popleft(), message.pop("job")
            assert job.number == number
            yield JobOutcome(job, message, worker.level)
        if not alive:
            yield from self._bury(worker)

    def _bury(self, worker: _Worker) -> Iterator[JobOutcome]:
        """Report the job that a dead worker had begun as lost; hand its next job to another."""
        self._selector.unregister(worker.inbox.handle)
        self._workers.remove(worker)
        death, stuck = worker.bury()
        if worker.level is None:
            raise ValueError(f"a grading process could not start ({death}): run `anyorder doctor`")
        why = (
            "the tests did not end on what it returned"
            if stuck
            else f"the grading process died ({death})"
        )
        waiting = list(worker.jobs)
        for job in waiting[:1]:
            yield JobOutcome(job, {"lost": why}, worker.level, stuck)
        for job in waiting[1:]:
            self.hand(job)


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
    for job in Inbox(inbox).arriving():
        if "stop" in job:
            return
        try:
            if "checks" in job:  # else those of the job before
                given = tuple(map(from_record, job["checks"]))
                checks = prepare(sandbox, given, Limits(**job["limits"]), _awake)
            reply = vars(judge(sandbox, job["program"], checks, _awake))
        except CannotGrade as error:
            reply = {"unfit": str(error)}
        signal.setitimer(signal.ITIMER_REAL, 0)
        send(outbox, frame({"job": job["job"], **reply}))


def _awake(seconds: float) -> None:
    """Restart the alarm for a step that may take `seconds`."""
    signal.setitimer(signal.ITIMER_REAL, seconds + ALARM_GRACE)
