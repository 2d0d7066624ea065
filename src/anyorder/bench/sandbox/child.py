"""The confined side: runs one program and answers questions about it with plain values.

This code shares its process with the program, which can change all of it. So nothing here is
trusted: what is sent is a claim, which the grader reads with `wire` and compares itself. No test
and no answer is ever in this process, only the arguments of the calls so far.

    grader -> child   ("run", program, console, builtins or None, longest message)
                      ("call", function, arguments)       ("calls", function, [arguments, ...])
                      ("ask", operation, arguments)
    child -> grader   ("value", value, arguments or None) ("raised", kind, type, bases, message)

Arguments are a message within the message (`(args, kwargs)`), so that the child can compare bytes
to tell whether a call changed them. Only then does it send them back.
"""

from __future__ import annotations

import builtins
import errno
import itertools
import operator
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from anyorder.bench.sandbox.limits import OUT_OF_MEMORY, SIZE
from anyorder.bench.sandbox.wire import TooLargeError, decode, encode

CHANNEL = 3
"""The descriptor of the one socket that a child has."""
# A program may raise an error with megabytes of text.
MESSAGE_CHARACTERS = 400

# The errors that confinement, not the program's logic, causes.
_CONFINED = {errno.EPERM, errno.EACCES, errno.EROFS, errno.EFBIG}
_MUTABLE = (list, dict, set, bytearray, deque)
_READ_BYTES = 1 << 16


def forget_the_server(name: str) -> None:
    """Remove our modules from `sys.modules`: tidiness, not security; frames still lead to them."""
    for known in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[known]


class Session:
    """The conversation about one program."""

    def __init__(self, read: Callable[[int], bytes], write: Callable[[bytes], int]) -> None:
        self._read = read
        self._write = write
        self._buffer = b""
        self._handles: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._longest = 0
        self._names: dict[str, Any] = {}

    def serve(self) -> None:
        """Answer until the grader hangs up."""
        self._run(decode(self._receive()))
        while True:
            request = self._receive()
            if not request:
                return
            kind, *details = decode(request)
            _ANSWERS[kind](self, *details)

    def _run(self, request: tuple[Any, ...]) -> None:
        _, program, console, allowed, self._longest = request
        name = "__main__" if console else "program"
        module = ModuleType(name)
        self._names = module.__dict__
        if allowed is not None:
            # exec adds all builtins unless this name is there.
            self._names["__builtins__"] = {key: getattr(builtins, key) for key in allowed}
        # dataclasses, pickle and typing look up the module of a class by its name.
        sys.modules[name] = sys.modules["__main__"] = module
        try:
            # dont_inherit: else the `from __future__` of this file would change the program.
            code = compile(program, "<program>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:  # ValueError: null bytes, lone surrogates
            self._raised(error, kind="syntax")
            return
        except BaseException as error:  # noqa: BLE001 - nested too deep, out of memory
            self._raised(error)
            return
        try:
            exec(code, self._names)  # noqa: S102 - what this process is for
            if console:
                finish()
        except SystemExit as error:
            if not console or error.code not in (None, 0):
                self._raised(error)
                return
            finish()
        except BaseException as error:  # noqa: BLE001 - a program may raise anything
            self._raised(error)
            return
        self._send(("value", None, None))

    def call(self, function: Any, arguments: bytes) -> None:
        """Call by name, by `Class.method` on a fresh instance, or by handle; answer once."""
        try:
            args, kwargs = decode(arguments, resolve=self._resolve)
            value = self._find(function)(*args, **kwargs)
            changed = None
            # Most arguments cannot change, and to encode them again would double the cost.
            if any(map(_may_change, (*args, *kwargs.values()))):
                after = encode((args, kwargs), remember=self._remember, limit=self._longest)
                changed = None if after == arguments else after
            self._send(("value", value, changed))
        except BaseException as error:  # noqa: BLE001 - a program may raise anything
            self._raised(error)

    def calls(self, function: Any, inputs: Sequence[bytes]) -> None:
        """`call` for each of many arguments, each answered at once."""
        for arguments in inputs:
            # An answer each: if a later call hangs, the earlier answers are there.
            self.call(function, arguments)

    def ask(self, operation: str, arguments: bytes) -> None:
        """Answer a question about an object that stayed here."""
        try:
            args, _ = decode(arguments, resolve=self._resolve)
            if operation == "names":
                value: Any = {
                    key: type(item).__name__
                    for key, item in self._names.items()
                    if not key.startswith("_")
                }
            else:
                value = OPERATIONS[operation](*args)
            self._send(("value", value, None))
        except BaseException as error:  # noqa: BLE001 - a program may raise anything
            self._raised(error)

    def _find(self, function: Any) -> Any:
        if not isinstance(function, str):
            return self._handles[function]
        name, _, method = function.partition(".")
        if name not in self._names:
            raise NameError(f"name {name!r} is not defined")
        return getattr(self._names[name](), method) if method else self._names[name]

    def _remember(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._handles)
            self._handles.append(value)  # keeps it alive, so that its id stays its own
        return number

    def _resolve(self, number: int, type_name: str) -> Any:
        return self._handles[number]

    def _raised(self, error: BaseException, kind: str | None = None) -> None:
        try:
            message = str(error)[:MESSAGE_CHARACTERS]
        except BaseException:  # noqa: BLE001 - the program's own __str__
            message = ""
        family = type(error).__mro__
        bases = [one.__name__ for one in family if one.__module__ == "builtins"][:-1]
        self._send(("raised", kind or _kind(error), type(error).__name__, bases, message))

    def _send(self, answer: tuple[Any, ...]) -> None:
        data = encode(answer, remember=self._remember, limit=self._longest)
        frame = SIZE.pack(len(data)) + data
        sent = self._write(frame)
        while sent < len(frame):
            sent += self._write(frame[sent:])

    def _receive(self) -> bytes:
        """The next request; nothing when the grader has hung up."""
        size = self._exactly(SIZE.size)
        return self._exactly(SIZE.unpack(size)[0]) if size else b""

    def _exactly(self, count: int) -> bytes:
        pieces, missing = [self._buffer], count - len(self._buffer)
        while missing > 0:
            # More than is missing: several small requests then cost one system call.
            piece = self._read(max(missing, _READ_BYTES))
            if not piece:
                return b""
            pieces.append(piece)
            missing -= len(piece)
        data = b"".join(pieces)
        self._buffer = data[count:]
        return data[:count]


def _may_change(value: Any) -> bool:
    """Whether a call can have changed this argument in place."""
    if isinstance(value, tuple):
        return any(map(_may_change, value))
    return isinstance(value, _MUTABLE) or type(value).__name__ == "ndarray"


def _kind(error: BaseException) -> str:
    """The kind of failure that an exception is."""
    if isinstance(error, MemoryError | TooLargeError):
        return "memory"
    if isinstance(error, OSError) and error.errno in _CONFINED:
        return "blocked"
    return "error"


def finish() -> None:
    """Do what the interpreter does when a script ends: wait for threads, run handlers, flush."""
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    if sys.__stdout__ is not None:  # the program may have put its own stream in place
        sys.__stdout__.flush()


def _first(iterable: Any, count: int) -> list[Any]:
    return list(itertools.islice(iterable, count))


# No comparisons: they would show the program what is expected, and let it answer as it likes.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "items": _first,
    "iterator": iter,
    "next": next,
    "attribute": getattr,
    "item": operator.getitem,
    "length": len,
    "text": str,
    "repr": repr,
    "contains": operator.contains,
}
_ANSWERS: dict[str, Callable[..., None]] = {
    "call": Session.call,
    "calls": Session.calls,
    "ask": Session.ask,
}


def serve_channel() -> None:
    """The life of a child, once it is confined. Does not return."""
    status = 1
    try:
        read, write = os.read, os.write  # an honest program may replace these
        Session(lambda count: read(CHANNEL, count), lambda data: write(CHANNEL, data)).serve()
        status = 0
    except MemoryError:
        status = OUT_OF_MEMORY
    finally:
        os._exit(status)  # no handlers or destructors of the program
