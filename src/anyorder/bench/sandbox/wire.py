"""Plain values as bytes: all that a grader and a confined program send each other.

    value   one tag byte, then what the tag needs; lengths are 4 bytes, little-endian
    plain   None, bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset,
            dict, range, dict views, builtin types by name, and trusted copies of the library's
            Counter, defaultdict, OrderedDict, deque, Decimal, Fraction, date, time, datetime,
            timedelta and numpy arrays; numpy scalars become builtin ones
    remote  a handle on anything else, which stays where it is

Nothing is pickled or evaluated. `decode` builds exact types only, so no method of a program ever
runs in the grader. It survives any bytes: depth, number of values, time and every length are
bounded before anything is allocated, a key that comes twice is an error, and malformed bytes raise
`WireError`. A program can still send a number of many megabytes or a list of millions of items; the
caller must expect those. Equal values are not always equal bytes (1 and True), but a value that was
decoded and not touched is written as the same bytes again, which tells whether a call changed its
arguments. Writing is in `wire_write`.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from datetime import time as time_of_day
from decimal import Decimal
from fractions import Fraction
from math import prod
from typing import Any

from anyorder.bench.sandbox.limits import (
    ARRAY_DIMENSIONS,
    ARRAY_TYPES,
    BUILTIN_TYPES,
    CLOCK,
    DECODE_SECONDS,
    DEPTH,
    FLOAT64,
    INT64,
    MESSAGE_BYTES,
    NAME_CHARACTERS,
    NUMBER_BYTES,
    SIZE,
    SPAN,
    VALUES,
    Remote,
    TooLargeError,
    WireError,
)
from anyorder.bench.sandbox.wire_write import Writer

_CLOCK_EVERY = 1024  # keys that collide make each insertion slower, so check the clock often


class Reader:
    """A position in the bytes, and what may still be built from them."""

    def __init__(
        self, data: bytes, resolve: Callable[[int, str], Any] | None, deadline: float
    ) -> None:
        self.data = data
        self.position = 0
        self.resolve = resolve
        self.deadline = deadline
        self.values = 0

    def get(self, depth: int) -> Any:
        """The next value."""
        if depth > DEPTH:
            raise WireError("malformed message: too deep")
        tag = self.data[self.position]  # IndexError: cut short
        self.position += 1
        return _BY_TAG[tag](self, depth)

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        end = self.position + count
        if end > len(self.data):
            raise WireError("malformed message: cut short")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        found = form.unpack_from(self.data, self.position)  # struct.error: cut short
        self.position += form.size
        return found

    def blob(self, most: int = MESSAGE_BYTES) -> bytes:
        size = self.unpack(SIZE)[0]
        if size > most:
            raise TooLargeError(f"a message with a part of more than {most} bytes")
        return self.take(size)

    def charge(self, values: int) -> None:
        """Count what is about to be built."""
        self.values += values
        if self.values > VALUES:
            raise TooLargeError(f"a message of more than {VALUES} values")

    def items(self, depth: int, weight: int = 1) -> Iterator[Any]:
        """The values of a container, one by one."""
        count = self.unpack(SIZE)[0]
        if count > len(self.data) - self.position:  # each takes a byte at least
            raise WireError("malformed message: cut short")
        # A generator: the caller inserts between two values, so the clock sees slow insertions too.
        self.charge(count * weight + weight)
        get, depth = self.get, depth + 1
        for start in range(0, count, _CLOCK_EVERY):
            if start and time.monotonic() > self.deadline:
                raise WireError("a message that takes too long to read")
            for _ in range(min(_CLOCK_EVERY, count - start)):
                yield get(depth)

    def integers(self, depth: int) -> list[int]:
        """Items that must be integers, short enough to be divided."""
        found = list(self.items(depth))
        if any(type(item) is not int for item in found):
            raise WireError("malformed message: not an integer")
        if any(item.bit_length() > 8 * NUMBER_BYTES for item in found):
            raise TooLargeError("a message with a number that is too long")
        return found


_Read = Callable[[Reader, int], Any]


def _constant(value: Any) -> _Read:
    return lambda data, depth: value


def _integer(data: Reader, depth: int) -> int:
    return int.from_bytes(data.blob(), "little", signed=True)


def _complex(data: Reader, depth: int) -> complex:
    return complex(*data.unpack(FLOAT64), *data.unpack(FLOAT64))


def _string(data: Reader, depth: int) -> str:
    return data.blob().decode("utf-8", "surrogatepass")


def _packed(code: str) -> _Read:
    def read(data: Reader, depth: int) -> list[Any]:
        numbers = data.blob()
        data.charge(len(numbers) // 8)
        return array(code, numbers).tolist()  # ValueError unless whole numbers are there

    return read


def _set(data: Reader, depth: int) -> set[Any]:
    found = set()
    count = 0
    for item in data.items(depth, 4):
        found.add(item)
        count += 1
    return _all_there(found, count)


def _dict(data: Reader, depth: int) -> dict[Any, Any]:
    """A dict in its order: keys and values take turns."""
    found: dict[Any, Any] = {}
    count = 0
    flat = data.items(depth)
    for key in flat:
        try:
            found[key] = next(flat)
        except StopIteration:
            raise WireError("malformed message: a key without its value") from None
        count += 1
    return _all_there(found, count)


def _all_there(found: Any, count: int) -> Any:
    """`found`, unless two of its keys were equal: no honest encoder writes that."""
    if len(found) != count:
        raise WireError("malformed message: a key twice")
    return found


def _keys(data: Reader, depth: int) -> Any:
    found: dict[Any, None] = {}
    count = 0
    for key in data.items(depth):  # one by one: keys that collide are noticed by the clock
        found[key] = None
        count += 1
    return _all_there(found, count).keys()


def _counter(data: Reader, depth: int) -> Counter[Any]:
    return Counter(_dict(data, depth))


def _defaultdict(data: Reader, depth: int) -> defaultdict[Any, Any]:
    return defaultdict(None, _dict(data, depth))


def _deque(data: Reader, depth: int) -> deque[Any]:
    length, *items = data.items(depth)
    if length is not None and (type(length) is not int or not len(items) <= length <= VALUES):
        raise WireError("malformed message: a deque longer than it may be")
    return deque(items, length)


def _range(data: Reader, depth: int) -> range:
    start, stop, step = data.integers(depth)
    found = range(start, stop, step)
    if len(found[: VALUES + 1]) > VALUES:
        raise TooLargeError(f"a range of more than {VALUES} values")
    return found


def _decimal(data: Reader, depth: int) -> Decimal:
    return Decimal(data.blob().decode("ascii"))


def _fraction(data: Reader, depth: int) -> Fraction:
    numerator, denominator = data.integers(depth)
    return Fraction(numerator, denominator)


def _timedelta(data: Reader, depth: int) -> timedelta:
    days, seconds, microseconds = data.unpack(SPAN)
    return timedelta(days, seconds, microseconds)


def _date(data: Reader, depth: int) -> date:
    return date(*data.unpack(SPAN))


def _time(data: Reader, depth: int) -> time_of_day:
    hour, minute, second, microsecond, fold, aware, offset = data.unpack(CLOCK)
    zone = timezone(timedelta(seconds=offset)) if aware else None
    return time_of_day(hour, minute, second, microsecond, zone, fold=fold)


def _datetime(data: Reader, depth: int) -> datetime:
    day = _date(data, depth)
    clock = _time(data, depth)
    return datetime.combine(day, clock)


def _type(data: Reader, depth: int) -> type:
    name = data.blob(NAME_CHARACTERS).decode("ascii")
    if name not in BUILTIN_TYPES:
        raise WireError("malformed message: an unknown type")
    return BUILTIN_TYPES[name]


def _remote(data: Reader, depth: int) -> Any:
    data.charge(1)
    handle = data.unpack(INT64)[0]
    name = data.blob(4 * NAME_CHARACTERS).decode("utf-8", "surrogatepass")
    if data.resolve is None:
        raise WireError("a handle where only plain values may stand")
    return data.resolve(handle, name)


def _array(data: Reader, depth: int) -> Any:
    import numpy as np

    code, shape, raw = (data.get(depth + 1) for _ in range(3))
    if code not in ARRAY_TYPES or type(shape) is not tuple or type(raw) is not bytes:
        raise WireError("malformed message: not an array")
    if len(shape) > ARRAY_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
        raise WireError("malformed message: not a shape")
    if max(shape, default=0) > VALUES or prod(shape) * np.dtype(code).itemsize != len(raw):
        raise WireError("malformed message: a shape of another size")
    data.charge(prod(shape))
    # A copy owns its memory and can be written to; the view would keep the message alive.
    return np.frombuffer(raw, dtype=code).reshape(shape).copy()


def _no_such_tag(data: Reader, depth: int) -> Any:
    raise WireError("malformed message: an unknown tag")


_READERS: dict[bytes, _Read] = {
    b"N": _constant(None),
    b"T": _constant(True),
    b"F": _constant(False),
    b".": _constant(...),
    b"n": _constant(NotImplemented),
    b"i": lambda data, depth: data.unpack(INT64)[0],
    b"I": _integer,
    b"d": lambda data, depth: data.unpack(FLOAT64)[0],
    b"c": _complex,
    b"s": _string,
    b"b": lambda data, depth: data.blob(),
    b"B": lambda data, depth: bytearray(data.blob()),
    b"l": lambda data, depth: list(data.items(depth)),
    b"q": _packed("q"),
    b"g": _packed("d"),
    b"t": lambda data, depth: tuple(data.items(depth)),
    b"S": _set,
    b"Z": lambda data, depth: frozenset(_set(data, depth)),
    b"D": _dict,
    b"C": _counter,
    b"f": _defaultdict,
    b"O": lambda data, depth: OrderedDict(_dict(data, depth)),
    b"k": _keys,
    b"v": lambda data, depth: dict(enumerate(data.items(depth))).values(),
    b"p": lambda data, depth: _dict(data, depth).items(),
    b"e": _deque,
    b"r": _range,
    b"M": _decimal,
    b"X": _fraction,
    b"w": _timedelta,
    b"a": _date,
    b"h": _time,
    b"H": _datetime,
    b"y": _type,
    b"R": _remote,
    b"A": _array,
}
_BY_TAG = [_READERS.get(bytes([tag]), _no_such_tag) for tag in range(256)]


__all__ = ["Remote", "TooLargeError", "WireError", "decode", "encode"]

# What malformed bytes make the readers raise.
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
    """`value` as bytes; a value that is not plain becomes `remember`'s handle, or an error."""
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
    """The value of `data`; `resolve(handle, type name)` gives the object of a handle."""
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
