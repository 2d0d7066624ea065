"""What grader and sandbox share: limits of a program, failures, wire formats and their bounds.

Plain frozen data, structs and exceptions, read by both sides. Nothing here enforces anything:
`confine` sets the limits, `server` watches the clock, `wire` and `wire_write` keep the bounds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

Kind = Literal["error", "timeout", "memory", "syntax", "blocked"]

# The four mechanisms that confine a program, in the order of every list of them.
RLIMITS, SECCOMP, LANDLOCK, NAMESPACES = "rlimits", "seccomp", "landlock", "namespaces"
MECHANISMS = (RLIMITS, SECCOMP, LANDLOCK, NAMESPACES)

# One line of a verdict's detail. A sample chooses its text, so its length is bounded.
DETAIL_CHARACTERS = 200


@dataclass(frozen=True)
class Limits:
    """The bounds of one program, from its first statement to the last call."""

    cpu_seconds: float = 30.0
    """Processor time of all its threads together: this decides a timeout."""
    wall_seconds: float = 60.0
    """Time on the clock, a guard against programs that sleep."""
    memory_bytes: int = 1 << 30
    """Address space, the interpreter included."""
    stack_bytes: int = 64 << 20
    """How far the main thread's stack may grow."""
    message_bytes: int = 64 << 20
    """The longest message in either direction: one result, or one set of arguments."""
    output_bytes: int = 1 << 20
    """How much of what a console program prints is kept; more is a failure."""
    open_files: int = 64
    """Open descriptors."""
    threads: int = 64
    """Threads of the program, the first included."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"{field.name} must be positive, not {getattr(self, field.name)}")


class Failed(Exception):
    """The program gave no result: it raised, died, or hit a limit.

    After a raised exception (`exception` is set) the child still answers calls.
    """

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        exception: str | None = None,
        bases: tuple[str, ...] = (),
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        """What happened, one word."""
        self.detail = detail
        """One line, mostly `ExceptionType: message`."""
        self.exception = exception
        """The type's name if the program raised; None if it died."""
        self.bases = bases
        """The builtin exception types that it is an instance of, the nearest first."""


class Broken(RuntimeError):
    """The fork-server died or stopped answering: no verdict on the program.

    The sandbox starts another server with the next program. If this happens twice while the same
    program runs, blame the program.
    """


@dataclass(frozen=True)
class Ended:
    """How a child ended, and what it used."""

    how: str
    """`ended`, `exit 3`, `signal SIGSEGV`, `cpu limit`, or `stopped` by the grader."""
    cpu_seconds: float
    """Processor time, kernel included, as the system counted it."""
    wall_seconds: float
    """From the request to the end."""
    memory_bytes: int
    """The most memory that was resident."""


def one_line(text: str) -> str:
    """`text` on one line, without control characters and not longer than a detail may be."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:2000]).split())
    if len(line) > DETAIL_CHARACTERS:
        line = line[: DETAIL_CHARACTERS - 3] + "..."
    return line


MESSAGE_BYTES = 64 << 20
"""The longest encoding, unless the caller says otherwise."""
VALUES = 1 << 22
"""The most values in one message; a container and each of its items count one."""
DEPTH = 250
"""How deep containers may nest: well inside the interpreter's own recursion limit."""
DECODE_SECONDS = 20.0
"""The longest time to read a message: keys made to collide take quadratic time."""
NUMBER_BYTES = 1 << 12
"""The longest integer in a range or a fraction: reading those divides, in quadratic time."""
NAME_CHARACTERS = 100
"""The longest type name of a handle."""
ARRAY_DIMENSIONS = 32

SIZE = struct.Struct("<I")
INT64 = struct.Struct("<q")
FLOAT64 = struct.Struct("<d")
SPAN = struct.Struct("<iii")  # days, seconds, microseconds; or year, month, day
CLOCK = struct.Struct("<BBBIB?i")  # hour, minute, second, microsecond, fold, has offset, offset

# numpy's fixed-size numbers, little-endian; wider floats differ from machine to machine.
ARRAY_TYPES = frozenset(
    {
        *("|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8"),
        *("<f2", "<f4", "<f8", "<c8", "<c16"),
    }
)

# Types that are values themselves, as `type(x)` may give.
BUILTIN_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict),
        *(range, object, type, type(None), Exception, ValueError, TypeError, KeyError, IndexError),
    )
}


class WireError(ValueError):
    """Bytes that no encoder of ours writes, or a value that cannot be written."""


class TooLargeError(WireError):
    """A value with more bytes or more parts than a message may have."""


class Remote:
    """A handle on an object in the program's process; equal only to handles on the same one.

    Equality never asks the program, whose own `__eq__` could agree with everything.
    """

    __slots__ = ("handle", "owner", "type_name")

    def __init__(self, handle: int, type_name: str, owner: object = None) -> None:
        self.handle = handle
        self.type_name = type_name
        self.owner = owner
        """The child whose handle it is: the handles of every child count from 0."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not Remote:
            return NotImplemented
        return self.owner is other.owner and self.handle == other.handle

    def __hash__(self) -> int:
        return hash((id(self.owner), self.handle))

    def __repr__(self) -> str:
        return f"<remote {self.type_name} {self.handle}>"


REQUEST = struct.Struct("<BBxxIdQQII")
"""What, which descriptors, child's number; for START: seconds, memory, stack, files, threads."""
RECORD = struct.Struct("<BxxxIidQ")
"""The fields of a `Record`."""


class Record(NamedTuple):
    """A server's record of a child that has ended."""

    why: int
    number: int
    """The child's."""
    status: int
    """As `wait` gives it."""
    cpu_seconds: float
    memory_bytes: int
    """The most that was resident."""


START, STOP, COLLECT = 1, 2, 3
"""A new child; kill one; say how one ended whose channel has closed."""
CONSOLE = 1
"""With the channel come standard input and standard output."""
BY_ITSELF, CPU_LIMIT, STOPPED, NOT_STARTED = 0, 1, 2, 3
OUT_OF_MEMORY = 86
"""The exit code of a child that has too little memory left to send an answer."""
