"""What one program may use, how it can fail, and what is known of it when it has ended.

Plain frozen data and two exceptions, shared by the grader's side and the confined side. Nothing
here enforces anything: `confine` sets the limits, `server` watches the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

Kind = Literal["error", "timeout", "memory", "syntax", "blocked"]

# The four things that confine a program; the lists that name them are in this order.
RLIMITS, SECCOMP, LANDLOCK, NAMESPACES = "rlimits", "seccomp", "landlock", "namespaces"
MECHANISMS = (RLIMITS, SECCOMP, LANDLOCK, NAMESPACES)

# One line of a verdict's detail; a sample chooses its text, so it is cut.
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
    """The program did not give what was asked for: it raised, died, or hit a limit.

    After a raised exception (`exception` is set) the child goes on answering calls.
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

    The sandbox starts another one with the next program. A program that is running each time this
    happens is to blame for it.
    """


@dataclass(frozen=True)
class Ended:
    """The last words about a child."""

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
