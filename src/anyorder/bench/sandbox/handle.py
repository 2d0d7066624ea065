"""A child as the grader sees it: a socket that answers with plain values, or fails.

Everything that arrives is a claim of a program that may be hostile. It is read with `wire`, bounded
in size and time, and believed only as a *value*. How the child ended is the fork-server's word, and
what counts as right is decided elsewhere. Not thread-safe.

`apply(before, after)` repeats on the caller's objects what a call did to its arguments. It changes
them in place as far as their types are mutable, and keeps the identity of inner containers.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from anyorder.bench.sandbox.limits import (
    CPU_LIMIT,
    DECODE_SECONDS,
    NAME_CHARACTERS,
    OUT_OF_MEMORY,
    SIZE,
    STOPPED,
    Broken,
    Ended,
    Failed,
    Kind,
    Limits,
    Record,
    one_line,
)
from anyorder.bench.sandbox.wire import Remote, WireError, decode, encode

if TYPE_CHECKING:
    from anyorder.bench.sandbox.client import Link


def apply(before: Any, after: Any) -> Any:
    """`before`, changed to `after` where it can be; else `after` itself."""
    if type(before) is not type(after):
        return after
    change = _CHANGES.get(type(before))
    if change is not None:
        return change(before, after)
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(before) is numpy.ndarray and before.shape == after.shape:
        before[...] = after
        return before
    return after


def _list(before: list[Any], after: list[Any]) -> list[Any]:
    common = min(len(before), len(after))
    before[:] = [*map(apply, before[:common], after[:common]), *after[common:]]
    return before


def _tuple(before: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(before) != len(after):
        return after
    return tuple(map(apply, before, after))


def _dict(before: dict[Any, Any], after: dict[Any, Any]) -> dict[Any, Any]:
    kind = OrderedDict if isinstance(before, OrderedDict) else dict  # a Counter's `update` adds
    merged = [
        (key, apply(before[key], item) if key in before else item) for key, item in after.items()
    ]
    before.clear()
    kind.update(before, merged)
    return before


def _set(before: set[Any], after: set[Any]) -> set[Any]:
    before.clear()
    before.update(after)
    return before


def _bytearray(before: bytearray, after: bytearray) -> bytearray:
    before[:] = after
    return before


def _deque(before: deque[Any], after: deque[Any]) -> deque[Any]:
    before.clear()
    before.extend(after)
    return before


_CHANGES: dict[type, Callable[[Any, Any], Any]] = {
    list: _list,
    tuple: _tuple,
    dict: _dict,
    Counter: _dict,
    defaultdict: _dict,
    OrderedDict: _dict,
    set: _set,
    bytearray: _bytearray,
    deque: _deque,
}


_KINDS = frozenset(get_args(Kind))
_READ_BYTES = 1 << 16
# A crash with at least this share of the memory in use is put down to the limit.
_FULL = 0.9


class Child:
    """One confined process with one program. `end` it, or use it in a `with` block."""

    def __init__(
        self, link: Link, number: int, channel: socket.socket, limits: Limits, printed: int | None
    ) -> None:
        self._link = link
        self._number = number
        self._channel = channel
        self._limits = limits
        self._printed = printed  # the reading end of what a console program prints
        self._begun = time.monotonic()
        self._deadline = self._begun + limits.wall_seconds
        self._buffer = bytearray()
        self._output = bytearray()
        self._loaded = False
        self._unread = 0
        self._failure: Failed | None = None
        self._ended: Ended | None = None
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        if printed is not None:
            self._poll.register(printed, select.POLLIN)

    def load(self) -> None:
        """Wait until the program's top level has run; a console program has ended then."""
        if not self._loaded:
            self._answer()
            self._loaded = True
            if self._printed is not None:
                self._read_output()

    def names(self) -> dict[str, str]:
        """The public names of the program, with the names of their types."""
        found = self.ask("names")
        return dict(found) if isinstance(found, dict) else {}

    def call(
        self,
        function: str | Remote,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """The result of one call; changes of mutable arguments are made to the caller's objects.

        `function` is a name, `Class.method` for a method of a fresh instance, or a handle.
        """
        arguments = self._arguments(args, kwargs)
        self._ask("call", self._target(function), arguments)
        return self._take(args, kwargs or {})

    def calls(self, function: str | Remote, inputs: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """The results of many calls, one by one: the child computes while the caller compares.

        Read them all, or end the child.
        """
        given = list(inputs)
        self._ask("calls", self._target(function), [self._arguments(args) for args in given])
        self._unread = len(given)
        for args in given:
            self._unread -= 1
            yield self._take(args, {})

    def ask(self, operation: str, *args: Any) -> Any:
        """Do something with a handle where it is: `child.OPERATIONS` has the operations."""
        self._ask("ask", operation, self._arguments(args))
        return self._answer()[0]

    @property
    def output(self) -> str:
        """The output of a console program so far."""
        return self._output.decode("utf-8", "replace")

    def end(self) -> Ended:
        """Kill the child if it lives, and say how it ended. May be called again."""
        if self._ended is None:
            try:
                self._close(self._link.end(self._number, closed=False))
            except Broken:
                self._close(None)
        assert self._ended is not None
        return self._ended

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _target(self, function: str | Remote) -> str | int:
        if isinstance(function, Remote):
            assert function.owner is self, "a handle of another child"
            return function.handle
        return function

    def _arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> bytes:
        return encode((args, dict(kwargs or {})), limit=self._limits.message_bytes)

    def _ask(self, *request: Any) -> None:
        self.load()
        assert not self._unread, "results of earlier calls have not been read"
        self.send(encode(request, limit=self._limits.message_bytes))

    def _take(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        value, changed = self._answer()
        if changed is not None:
            # Changed arguments are a copy, made here of exact types: the caller's objects take over
            # values, never an object with methods of the program.
            try:
                after = decode(changed, resolve=self._remote, seconds=self._patience())
                apply((args, dict(kwargs)), after)
            except (TypeError, WireError) as error:
                self._fail("error", f"broke the protocol: {error}")
        return value

    def _remote(self, handle: int, type_name: str) -> Remote:
        return Remote(handle, one_line(type_name), self)

    def _answer(self) -> tuple[Any, Any]:
        """The next answer: a value and changed arguments, or what the program raised."""
        data = self._frame()
        try:
            answer = decode(data, resolve=self._remote, seconds=self._patience())
            what, *details = answer
            if what == "value":
                value, changed = details
                if changed is not None and type(changed) is not bytes:
                    raise WireError("malformed message: changed arguments")
                return value, changed
            failure = _raised(*details)
        except (TypeError, ValueError) as error:  # WireError is a ValueError
            self._fail("error", f"broke the protocol: {error}")
        raise failure

    def _frame(self) -> bytes:
        """The bytes of the next message."""
        # The size is the child's claim, so it is bounded before anything of it is collected.
        while True:
            if len(self._buffer) >= SIZE.size:
                size = SIZE.unpack_from(self._buffer)[0]
                if size > self._limits.message_bytes:
                    self._fail("error", f"broke the protocol: a message of {size} bytes")
                if len(self._buffer) >= SIZE.size + size:
                    data = bytes(memoryview(self._buffer)[SIZE.size : SIZE.size + size])
                    del self._buffer[: SIZE.size + size]
                    return data
            self._wait(select.POLLIN)
            try:
                piece = self._channel.recv(_READ_BYTES)
            except BlockingIOError:
                continue
            except ConnectionError:
                piece = b""
            if not piece:
                self._died()
            self._buffer += piece

    def send(self, data: bytes) -> None:
        """Send one request, unless the child is gone."""
        frame = memoryview(SIZE.pack(len(data)) + data)
        while frame:
            if self._failure is not None:
                raise self._failure
            try:
                frame = frame[self._channel.send(frame) :]
            except BlockingIOError:
                self._wait(select.POLLOUT)
            except OSError:
                self._died()

    def _wait(self, event: int) -> None:
        """Wait until the channel is ready, or the time is up.

        Reads what is printed meanwhile: a full pipe would stop the program.
        """
        if self._failure is not None:
            raise self._failure
        self._poll.modify(self._channel, event)
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0:
                self._fail("timeout", f"more than {self._limits.wall_seconds:g} s on the clock")
            ready = dict(self._poll.poll(left * 1000 + 1))
            if self._printed in ready:
                self._read_output()
            if self._channel.fileno() in ready:
                return

    def _read_output(self) -> None:
        """Read what is in the pipe now."""
        assert self._printed is not None
        while True:
            try:
                piece = os.read(self._printed, _READ_BYTES)
            except BlockingIOError:
                return
            if not piece:
                self._poll.unregister(self._printed)
                os.close(self._printed)
                self._printed = None
                return
            self._output += piece
            if len(self._output) > self._limits.output_bytes:
                del self._output[self._limits.output_bytes :]
                self._fail("error", f"printed more than {self._limits.output_bytes} bytes")

    def _patience(self) -> float:
        return max(0.1, min(DECODE_SECONDS, self._deadline - time.monotonic()))

    def _fail(self, kind: Kind, detail: str) -> NoReturn:
        """End this child and raise why; every later question raises the same."""
        self._failure = Failed(kind, one_line(detail))
        self.end()
        raise self._failure

    def _died(self) -> NoReturn:
        """The channel closed: ask the server how."""
        if self._failure is not None:
            raise self._failure
        if self._ended is not None:
            raise Failed("error", "the child was ended")
        try:
            record = self._link.end(self._number, closed=True)
        except Broken:
            self._close(None)
            raise
        self._failure = _death(record, self._limits)
        if self._printed is not None:
            self._read_output()  # the pipe still holds what it printed last
        self._close(record)
        raise self._failure

    def _close(self, record: Record | None) -> None:
        if self._ended is None:
            seconds = time.monotonic() - self._begun
            if record is None:
                self._ended = Ended("the fork-server ended", 0.0, seconds, 0)
            else:
                self._ended = Ended(_how(record), record.cpu_seconds, seconds, record.memory_bytes)
            self._failure = self._failure or Failed("error", "the child was ended")
        self._channel.close()
        if self._printed is not None:
            os.close(self._printed)
            self._printed = None


def _raised(kind: Any, name: Any, bases: Any, message: Any) -> Failed:
    """The exception that the program reports; WireError if the report is malformed."""
    if not (type(kind) is type(name) is type(message) is str and type(bases) is list):
        raise WireError("malformed message: not an exception")
    known = tuple(base[:NAME_CHARACTERS] for base in bases[:20] if type(base) is str)
    detail = one_line(f"{name}: {message}" if message else name)
    kind = kind if kind in _KINDS else "error"
    return Failed(kind, detail, exception=one_line(name), bases=known)


def _how(record: Record) -> str:
    if record.why == CPU_LIMIT:
        return "cpu limit"
    if record.why == STOPPED:
        return "stopped"
    if os.WIFSIGNALED(record.status):
        return f"signal {signal.Signals(os.WTERMSIG(record.status)).name}"
    return f"exit {os.waitstatus_to_exitcode(record.status)}"


def _death(record: Record, limits: Limits) -> Failed:
    """What it means that a child ended before it answered."""
    how = _how(record)
    spent = f"{record.cpu_seconds:.2f} s of processor time"
    if record.why == CPU_LIMIT or how == "signal SIGXCPU":
        return Failed("timeout", spent)
    if record.why == STOPPED:
        return Failed("error", "closed its channel and went on")
    if how == "signal SIGKILL":
        if record.cpu_seconds >= limits.cpu_seconds:
            return Failed("timeout", spent)
        return Failed("memory", "killed by the system: out of memory")
    if how in ("signal SIGSYS", "signal SIGXFSZ"):
        return Failed("blocked", how)
    if how == f"exit {OUT_OF_MEMORY}":
        return Failed("memory", "no memory left to answer")
    if how.startswith("signal") and record.memory_bytes > _FULL * limits.memory_bytes:
        return Failed("memory", how)
    return Failed("error", f"ended before it answered: {how}")
