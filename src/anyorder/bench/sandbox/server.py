"""The fork-server: warm, confined, without tests or answers. It forks one child per program.

    grader -> server   a frame with the settings; then REQUEST records, with descriptors for START
    server -> grader   a frame with what was done; then a RECORD for every child that has ended

A child talks to the grader over its own socket, which came with the request, so the server sees
neither the program nor its answers. The server watches the processor time of its children and kills
those that have used it up: the kernel's own limit knows whole seconds only. When the grader's
socket closes, it kills all children.
"""

from __future__ import annotations

import gc
import math
import os
import random
import select
import signal
import site
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from anyorder.bench.sandbox import canaries
from anyorder.bench.sandbox.child import CHANNEL, Session, forget_the_server, serve_channel
from anyorder.bench.sandbox.confine import LINUX, Confinement
from anyorder.bench.sandbox.limits import (
    BY_ITSELF,
    COLLECT,
    CPU_LIMIT,
    NOT_STARTED,
    RECORD,
    REQUEST,
    SIZE,
    START,
    STOPPED,
)
from anyorder.bench.sandbox.wire import decode, encode

if LINUX:
    from anyorder.bench.sandbox.seccomp import bare_fork

# The shortest time between two checks of a clock; bounds how late a child on all cores is seen.
_SHORTEST_WAIT = 0.002
_DYING_SECONDS = 0.2
_DESCRIPTORS = 3
_WARM_RUNS = 20
_KILOBYTE = 1024 if LINUX else 1  # of ru_maxrss


@dataclass
class _Running:
    pid: int
    seconds: float
    look_at: float
    why: int = BY_ITSELF


def main() -> None:
    """Run a server whose socket to the grader is descriptor `CHANNEL`."""
    grader = socket.socket(fileno=CHANNEL)
    # A separate function: programs can see what is on the stack, and must not see the settings.
    confinement = _prepare(grader)
    if confinement is not None:
        _Server(grader, confinement).run()


def _prepare(grader: socket.socket) -> Confinement | None:
    """Everything until the first program; None if namespaces are refused."""
    settings = _receive(grader)
    # Before the change of user: the interpreter's files may be closed to other users.
    missing = _preload(settings["path"], settings["preload"])
    confinement = Confinement(settings["use"], settings["readable"], wrapped=settings["wrapped"])
    try:
        confinement.enter()
    except OSError as error:
        _send(grader, {"refused": f"{error.strerror}"})
        return None
    # Before `seal`, whose filter would refuse these attempts and hide whether namespaces hold.
    seen = canaries.from_the_server(settings["grader"])
    _settle()
    _warm_up()
    confinement.seal()
    report = {"applied": confinement.applied, "notes": confinement.notes}
    _send(grader, {**report, "seen": seen, "missing": missing})
    os.dup2(1, 2)  # no child may write to the pipe on which the grader read our errors
    return confinement


class _Server:
    def __init__(self, grader: socket.socket, confinement: Confinement) -> None:
        self.grader = grader
        self.confinement = confinement
        self.children: dict[int, _Running] = {}  # by the number that the grader gave them
        self.cores = os.cpu_count() or 1
        self.fork: Callable[[], int] = bare_fork if LINUX else os.fork

    def run(self) -> None:
        """Serve until the grader hangs up, then kill the children that are left."""
        forget_the_server(__name__.partition(".")[0])
        gc.collect()
        gc.freeze()  # a collection in a child would write to, hence copy, every page of objects
        poll = select.poll()
        poll.register(self.grader, select.POLLIN)
        while True:
            if poll.poll(self._patience()) and not self._take_request():
                break
            self._watch()
        for child in self.children.values():
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)

    def _patience(self) -> float | None:
        """Milliseconds until a clock must be checked."""
        if not self.children:
            return None
        first = min(child.look_at for child in self.children.values())
        return max(0.0, math.ceil((first - time.monotonic()) * 1000))

    def _take_request(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self.grader, REQUEST.size, _DESCRIPTORS)
        while data and len(data) < REQUEST.size:
            more = self.grader.recv(REQUEST.size - len(data))
            data = data + more if more else b""
        if not data:
            return False
        what, which, number, *limits = REQUEST.unpack(data)
        if what == START:
            self._start(number, which, descriptors, limits)
        elif number in self.children:
            self._end(number, patient=what == COLLECT)
        return True

    def _start(self, number: int, which: int, descriptors: list[int], limits: list[Any]) -> None:
        try:
            pid = self.fork()
        except OSError:
            pid = -1
        if pid == 0:
            self._be_a_child(which, descriptors, limits)
        for descriptor in descriptors:
            os.close(descriptor)
        if pid < 0:
            self.grader.sendall(RECORD.pack(NOT_STARTED, number, 0, 0.0, 0))
            return
        # A child that runs on all cores cannot use up its time before this.
        seconds = limits[0]
        look_at = time.monotonic() + seconds / self.cores
        self.children[number] = _Running(pid, seconds, look_at)

    def _be_a_child(self, which: int, descriptors: list[int], limits: list[Any]) -> None:
        """Does not return."""
        try:
            # Replaces the server's socket, so that a program cannot send records to the grader.
            os.dup2(descriptors[0], CHANNEL)
            if which:
                for descriptor, target in zip(descriptors[1:], (0, 1), strict=True):
                    os.dup2(descriptor, target)
            self.confinement.limit(*limits)
            serve_channel()
        finally:
            os._exit(1)  # whatever went wrong, no child may return into the server's loop

    def _end(self, number: int, *, patient: bool) -> None:
        """Report a child, and kill it if it lives.

        `patient`: its channel has closed, so it may be about to end; wait a moment first.
        """
        child = self.children.pop(number)
        until = time.monotonic() + _DYING_SECONDS
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        while not pid and patient and time.monotonic() < until:
            time.sleep(_SHORTEST_WAIT)
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if not pid:
            child.why = child.why or STOPPED
            os.kill(child.pid, signal.SIGKILL)
            pid, status, usage = os.wait4(child.pid, 0)
        seconds = usage.ru_utime + usage.ru_stime
        memory = usage.ru_maxrss * _KILOBYTE
        self.grader.sendall(RECORD.pack(child.why, number, status, seconds, memory))

    def _watch(self) -> None:
        """Kill the children that have used up their time; the grader sees their channels close."""
        now = time.monotonic()
        for child in self.children.values():
            if child.look_at > now:
                continue
            left = child.seconds - _processor_seconds(child.pid)
            if left <= 0 and not child.why:
                child.why = CPU_LIMIT
                os.kill(child.pid, signal.SIGKILL)
            child.look_at = now + max(left / self.cores, _SHORTEST_WAIT)


def _processor_seconds(pid: int) -> float:
    """Processor time of all threads of a process; zero on systems that do not tell."""
    if not LINUX:
        return 0.0
    try:
        return time.clock_gettime((~pid << 3) | 2)  # the kernel's name for that process's clock
    except OSError:
        return 0.0  # it has just ended


def _preload(path: list[str], modules: list[str]) -> list[str]:
    """Import what programs commonly import; returns what is not installed."""
    sys.path.extend(path)
    missing = []
    for name in modules:
        try:
            import_module(name)
        except ImportError:
            missing.append(name)
    site.setquit()  # `exit` and `quit`, which scripts use
    return missing


def _settle() -> None:
    """Seed the global generators, so that every run gives the same verdict."""
    random.seed(0)  # after the last fork through Python, which would seed it again
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(0)


def _warm_up() -> None:
    """Run a harmless program often, so that the interpreter specialises code before the forks."""
    program = "import math\ndef f(x, *, y=0):\n    return [x, math.sqrt(4), {'a': y}]\n"
    arguments = encode(((1, [2.0, "s"]), {}))
    once = encode((([1],), {"y": 2}))
    talk = [("run", program, False, None, 1 << 20), ("call", "f", once), ("call", "g", arguments)]
    frames = b"".join(SIZE.pack(len(data)) + data for data in map(encode, talk))
    main_module = sys.modules["__main__"]
    for _ in range(_WARM_RUNS):
        pieces = iter([frames, b""])
        Session(lambda count, left=pieces: next(left), len).serve()  # type: ignore[misc]
    sys.modules["__main__"] = main_module
    del sys.modules["program"]


def _receive(grader: socket.socket) -> Any:
    size = SIZE.unpack(grader.recv(SIZE.size, socket.MSG_WAITALL))[0]
    return decode(grader.recv(size, socket.MSG_WAITALL))


def _send(grader: socket.socket, report: Any) -> None:
    data = encode(report)
    grader.sendall(SIZE.pack(len(data)) + data)
