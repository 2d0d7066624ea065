"""Values to bytes, for `wire`. The builtin base types decide what a value is, never its own class.

A subclass of a builtin type (a named tuple, an IntEnum, a list whose `__eq__` always agrees) is
written as the base value that it holds, read through the slots of the base type: overridden methods
are not asked. Sets are written in the order of their encodings, so that the bytes do not depend on
the order of insertion.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

from anyorder.bench.sandbox.limits import (
    ARRAY_DIMENSIONS,
    ARRAY_TYPES,
    BUILTIN_TYPES,
    CLOCK,
    DEPTH,
    FLOAT64,
    INT64,
    NAME_CHARACTERS,
    NUMBER_BYTES,
    SIZE,
    SPAN,
    VALUES,
    Remote,
    TooLargeError,
    WireError,
)

_INT64_RANGE = range(-(1 << 63), 1 << 63)
_PACK_FROM = 8  # for shorter lists the check costs more than it saves
_LITTLE = sys.byteorder == "little"

_Write = Callable[["Writer", Any, int], None]


class Writer:
    """Bytes that grow, with their bounds."""

    def __init__(self, remember: Callable[[Any], int] | None, limit: int) -> None:
        self.out = bytearray()
        self.remember = remember
        self.limit = limit
        self.values = 0
        self.open: set[int] = set()  # the containers around the current value: for cycles

    def put(self, value: Any, depth: int) -> None:
        """Write one value."""
        write = _EXACT.get(type(value))
        if write is None:
            write = _writer_of(value)
        write(self, value, depth)

    def size(self, number: int) -> None:
        self.out += SIZE.pack(number)

    def charge(self, values: int) -> None:
        """Count what is to be written; stop before it takes too much memory."""
        self.values += values
        if self.values > VALUES:
            raise TooLargeError(f"a message of more than {VALUES} values")
        if len(self.out) > self.limit:
            raise TooLargeError(f"a message of more than {self.limit} bytes")

    def items(self, tag: bytes, owner: Any, items: Iterable[Any], depth: int) -> None:
        """A container: `items` is a list or tuple of exact type with what `owner` holds."""
        if depth >= DEPTH or id(owner) in self.open:
            handle(self, owner, depth)
            return
        # A copy: another thread of the program may change the container meanwhile.
        parts = tuple(items)
        self.charge(len(parts))
        self.open.add(id(owner))
        self.out += tag
        self.size(len(parts))
        for part in parts:  # as `put`, without a call more for each
            (_EXACT.get(type(part)) or _writer_of(part))(self, part, depth + 1)
        # Only a container inside itself is a cycle; the same one twice, side by side, is none.
        self.open.discard(id(owner))

    def blob(self, tag: bytes, data: bytes) -> None:
        if len(data) + len(self.out) > self.limit:
            raise TooLargeError(f"a message of more than {self.limit} bytes")
        self.out += tag
        self.size(len(data))
        self.out += data


def _writer_of(value: Any) -> _Write:
    """The writer of a value whose exact type has none: that of its nearest base, or a handle."""
    for base in type(value).__mro__:
        write = _BASES.get(base)
        if write is not None:
            return write
    # Not imported here: a value of numpy exists only if the program has imported it.
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, getattr(numpy, "generic", ())):
        return _numpy_scalar
    # The exact type: a subclass may override what is asked of an array.
    if numpy is not None and type(value) is getattr(numpy, "ndarray", None):
        return _numpy_array
    return handle


def handle(out: Writer, value: Any, depth: int) -> None:
    """Write a number for a value that is not plain: the value stays here."""
    if type(value) is Remote:
        number, name = value.handle, value.type_name
    elif out.remember is not None:
        number, name = out.remember(value), str(type(value).__name__)
    else:
        raise WireError(
            f"a {type(value).__name__} is no plain value (or nests too deep): "
            "pass numbers, strings and containers of them"
        )
    out.charge(1)
    out.out += b"R"
    out.out += INT64.pack(number)
    data = name[:NAME_CHARACTERS].encode("utf-8", "surrogatepass")
    out.size(len(data))
    out.out += data


def _constant(tag: bytes) -> _Write:
    def write(out: Writer, value: Any, depth: int) -> None:
        out.out += tag

    return write


def _integer(out: Writer, value: int, depth: int) -> None:
    value = int.__pos__(value)  # an exact int, whatever the subclass; the slots below do the same
    if value in _INT64_RANGE:
        out.out += b"i"
        out.out += INT64.pack(value)
    else:
        # One byte more than the digits may need: the sign takes a bit.
        out.blob(b"I", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


def _float(out: Writer, value: float, depth: int) -> None:
    out.out += b"d"
    out.out += FLOAT64.pack(float.__pos__(value))


def _complex(out: Writer, value: complex, depth: int) -> None:
    value = complex.__pos__(value)
    out.out += b"c"
    out.out += FLOAT64.pack(value.real)
    out.out += FLOAT64.pack(value.imag)


def _string(out: Writer, value: str, depth: int) -> None:
    out.blob(b"s", str.__str__(value).encode("utf-8", "surrogatepass"))


def _bytes(out: Writer, value: bytes, depth: int) -> None:
    out.blob(b"b", bytes.__getitem__(value, slice(None)))


def _bytearray(out: Writer, value: bytearray, depth: int) -> None:
    out.blob(b"B", bytes(bytearray.__getitem__(value, slice(None))))


def _list(out: Writer, value: list[Any], depth: int) -> None:
    items = list.__getitem__(value, slice(None))
    # `array` uses the byte order of the machine, and the wire is little-endian.
    if len(items) >= _PACK_FROM and _LITTLE:
        # Exact types: a bool, or a subclass, is written with a tag of its own.
        kinds = set(map(type, items))
        if kinds == {float}:
            return _packed(out, b"g", array("d", items))
        if kinds == {int} and min(items) in _INT64_RANGE and max(items) in _INT64_RANGE:
            return _packed(out, b"q", array("q", items))
    return out.items(b"l", value, items, depth)


def _packed(out: Writer, tag: bytes, numbers: array[Any]) -> None:
    out.charge(len(numbers))
    out.blob(tag, numbers.tobytes())


def _tuple(out: Writer, value: tuple[Any, ...], depth: int) -> None:
    out.items(b"t", value, tuple.__getitem__(value, slice(None)), depth)


def _set_of(tag: bytes, base: type) -> _Write:
    iterate = base.__iter__  # type: ignore[attr-defined]

    def write(out: Writer, value: Any, depth: int) -> None:
        if depth >= DEPTH:
            return handle(out, value, depth)
        items = list(iterate(value))
        out.charge(4 * len(items) + 4)  # sets take far more memory than bytes
        start = len(out.out)
        encoded = []
        for item in items:
            out.put(item, depth + 1)
            encoded.append(bytes(out.out[start:]))
            del out.out[start:]
        out.out += tag
        out.size(len(items))
        out.out += b"".join(sorted(encoded))
        return None

    return write


def _dict_of(tag: bytes, base: Any) -> _Write:
    def write(out: Writer, value: Any, depth: int) -> None:
        flat = [part for pair in tuple(base.items(value)) for part in pair]
        out.items(tag, value, flat, depth)

    return write


def _view(tag: bytes) -> _Write:
    def write(out: Writer, value: Any, depth: int) -> None:
        # Views cannot be subclassed, so iterating runs no code of the program.
        items = [part for pair in value for part in pair] if tag == b"p" else list(value)
        out.items(tag, value, items, depth)

    return write


def _deque(out: Writer, value: deque[Any], depth: int) -> None:
    out.items(b"e", value, [value.maxlen, *deque.__iter__(value)], depth)


def _range(out: Writer, value: range, depth: int) -> None:
    parts = (value.start, value.stop, value.step)
    # A slice, since `len` itself fails beyond the machine's word.
    if _too_long(parts) or len(value[: VALUES + 1]) > VALUES:
        return handle(out, value, depth)
    return out.items(b"r", value, parts, depth)


def _decimal(out: Writer, value: Decimal, depth: int) -> None:
    out.blob(b"M", Decimal.__str__(value).encode())


def _fraction(out: Writer, value: Fraction, depth: int) -> None:
    parts = (int.__pos__(value._numerator), int.__pos__(value._denominator))  # type: ignore[attr-defined]
    if _too_long(parts):
        return handle(out, value, depth)
    return out.items(b"X", value, parts, depth)


def _too_long(numbers: tuple[int, ...]) -> bool:
    return max(number.bit_length() for number in numbers) > 8 * NUMBER_BYTES


def _timedelta(out: Writer, value: timedelta, depth: int) -> None:
    out.out += b"w"
    out.out += SPAN.pack(value.days, value.seconds, value.microseconds)


def _date(out: Writer, value: date, depth: int) -> None:
    out.out += b"a"
    out.out += SPAN.pack(value.year, value.month, value.day)


def _clock(out: Writer, value: time | datetime, depth: int) -> None:
    """A time of day, after its day if it has one; only fixed offsets of whole seconds travel."""
    zone = value.tzinfo
    offset = zone.utcoffset(None) if type(zone) is timezone else timedelta(0)
    if (zone is not None and type(zone) is not timezone) or offset.microseconds:
        return handle(out, value, depth)
    if isinstance(value, datetime):
        out.out += b"H"
        out.out += SPAN.pack(value.year, value.month, value.day)
    else:
        out.out += b"h"
    seconds = offset.days * 86400 + offset.seconds
    clock = (value.hour, value.minute, value.second, value.microsecond, value.fold)
    out.out += CLOCK.pack(*clock, zone is not None, seconds)
    return None


def _type(out: Writer, value: type, depth: int) -> None:
    if BUILTIN_TYPES.get(value.__name__) is not value:
        return handle(out, value, depth)
    return out.blob(b"y", value.__name__.encode())


def _numpy_scalar(out: Writer, value: Any, depth: int) -> None:
    item = value.item() if value.dtype.kind in "biufcSU" else None
    # The `item` of a long double is a long double again.
    if type(item) not in (bool, int, float, complex, str, bytes):
        return handle(out, value, depth)
    return out.put(item, depth)


def _numpy_array(out: Writer, value: Any, depth: int) -> None:
    code = value.dtype.newbyteorder("<").str
    if (
        code not in ARRAY_TYPES
        or value.ndim > ARRAY_DIMENSIONS
        or max(value.shape, default=0) > VALUES
    ):
        return handle(out, value, depth)
    out.charge(value.size)
    out.out += b"A"
    out.put(code, depth + 1)
    out.put(tuple(value.shape), depth + 1)
    return out.blob(b"b", value.astype(code).tobytes())


_SET = _set_of(b"S", set)
_FROZENSET = _set_of(b"Z", frozenset)

# A subclass is written as the nearest of these in its resolution order; exact instances as well.
_BASES: dict[type, _Write] = {
    int: _integer,
    float: _float,
    complex: _complex,
    str: _string,
    bytes: _bytes,
    bytearray: _bytearray,
    list: _list,
    tuple: _tuple,
    set: _SET,
    frozenset: _FROZENSET,
    dict: _dict_of(b"D", dict),
    Counter: _dict_of(b"C", dict),
    defaultdict: _dict_of(b"f", dict),
    OrderedDict: _dict_of(b"O", OrderedDict),
    deque: _deque,
    Decimal: _decimal,
    Fraction: _fraction,
    timedelta: _timedelta,
    datetime: _clock,
    date: _date,
    time: _clock,
}
_EXACT: dict[type, _Write] = {
    **_BASES,
    bool: lambda out, value, depth: _constant(b"T" if value else b"F")(out, value, depth),
    type(None): _constant(b"N"),
    type(...): _constant(b"."),
    type(NotImplemented): _constant(b"n"),
    range: _range,
    type: _type,
    type({}.keys()): _view(b"k"),
    type({}.values()): _view(b"v"),
    type({}.items()): _view(b"p"),
}
