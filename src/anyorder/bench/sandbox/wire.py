"""Plain values as bytes: the only thing that a grader and a confined program say to each other.

    value   one tag byte, then what the tag needs; lengths are 4 bytes, little-endian
    plain   None, bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset,
            dict, range, dict views, builtin types by name, and trusted copies of the library's
            Counter, defaultdict, OrderedDict, deque, Decimal, Fraction, date, time, datetime,
            timedelta and numpy arrays; numpy scalars become builtin ones
    remote  a handle on anything else, which stays where it is

`decode` builds exact types only, so no method of a program ever runs in the grader, and it survives
any bytes: depth, number of values, time and every length are bounded, and what is not well-formed
raises `WireError`. Equal values are not always equal bytes (1 and True, for one), but a value that
was decoded and not touched is written as the same bytes again, which tells whether a call changed
its arguments. Nothing here is pickled or evaluated.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

from anyorder.bench.sandbox.plain import (
    DECODE_SECONDS,
    MESSAGE_BYTES,
    Remote,
    TooLargeError,
    WireError,
)
from anyorder.bench.sandbox.readers import Reader
from anyorder.bench.sandbox.writers import Writer

__all__ = ["Remote", "TooLargeError", "WireError", "decode", "encode"]

# What reading stumbles over when bytes are not what they should be.
_SIGNS = (
    *(ArithmeticError, IndexError, ValueError, TypeError, RecursionError, MemoryError),
    struct.error,
)


def encode(
    value: Any,
    *,
    remember: Callable[[Any], int] | None = None,
    limit: int = MESSAGE_BYTES,
) -> bytes:
    """`value` as bytes; what is not plain becomes a handle given by `remember`, or an error."""
    writer = Writer(remember, limit)
    writer.put(value, 0)
    if len(writer.out) > limit:
        raise TooLargeError(f"a message of more than {limit} bytes")
    return bytes(writer.out)


def decode(
    data: bytes,
    *,
    resolve: Callable[[int, str], Any] | None = None,
    seconds: float = DECODE_SECONDS,
) -> Any:
    """The value of `data`; `resolve(handle, type name)` gives what a handle stands for."""
    reader = Reader(data, resolve, time.monotonic() + seconds)
    try:
        value = reader.get(0)
    except WireError:
        raise
    except _SIGNS as error:
        raise WireError(f"malformed message: {type(error).__name__}") from None
    if reader.position != len(data):
        raise WireError("malformed message: more bytes than values")
    return value
