"""The wire: plain values come back as they were, anything else is refused or stays where it is."""

from __future__ import annotations

import enum
import math
import struct
import time
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as time_of_day
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anyorder.bench.sandbox import Remote, WireError, decode, encode
from anyorder.bench.sandbox.limits import DEPTH, VALUES
from anyorder.bench.sandbox.wire import TooLargeError

ZONES = st.none() | st.integers(-86399, 86399).map(lambda s: timezone(timedelta(seconds=s)))
HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**300), 2**300)
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.dates()
    | st.datetimes(timezones=ZONES)
    | st.times()
    | st.timedeltas()
    | st.sampled_from([..., NotImplemented, int, str, type(None), ValueError])
    | st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 3)),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=4),
    max_leaves=8,
)
PLAIN = st.recursive(
    HASHABLE | st.binary().map(bytearray) | st.lists(st.integers()) | st.lists(st.floats()),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4).map(OrderedDict)
        | st.dictionaries(HASHABLE, inner, max_size=4).map(lambda d: defaultdict(None, d))
        | st.sets(HASHABLE, max_size=4)
        | st.lists(inner, max_size=4).map(deque)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Equal in value and in every type; NaN is NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right) or (
            left != left and right != right
        )
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, Decimal):
        return str(left) == str(right)
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, list | tuple | deque):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, set | frozenset):
        return encode(left) == encode(right)
    return bool(left == right)


@given(PLAIN)
@example([2**63 - 1, -(2**63)] * 8)
@example([2**63] * 8)
@example([True] * 8)
@example([0.0, -0.0, math.nan, math.inf] * 4)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    data = encode(value)
    assert same(decode(data), value)
    assert encode(decode(data)) == data


@pytest.mark.parametrize(
    "value",
    [
        Counter("abracadabra"),
        deque([1, 2], maxlen=2),
        {1: "a", 2: "b"}.keys(),
        {1: "a", 2: "b"}.items(),
        datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC, fold=1),
        time_of_day(1, 2, 3, 4, timezone(timedelta(hours=-5))),
        date.min,
        timedelta.min,
        Fraction(-(10**40), 3),
        Decimal("sNaN"),
        Decimal("-1E+999999"),
        10 ** (10**5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_library_types_come_back_as_themselves(value: Any) -> None:
    back = decode(encode(value))
    assert type(back) is type(value)
    assert str(back) == str(value) if isinstance(value, Decimal) else back == value
    assert getattr(back, "maxlen", None) == getattr(value, "maxlen", None)
    assert getattr(back, "fold", None) == getattr(value, "fold", None)


def test_dict_values_keep_their_order() -> None:
    assert list(decode(encode({1: "a", 2: "a"}.values()))) == ["a", "a"]


class Agreeable:
    """Says yes to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __lt__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[int]:
        return iter([1, 2, 3])

    def __len__(self) -> int:
        return 3


SUBCLASSES: dict[str, tuple[type, Any]] = {
    base.__name__: (type("Mine", (Agreeable, base), {}), value)
    for base, value in [
        (int, 7),
        (float, 0.5),
        (complex, 1j),
        (str, "seven"),
        (bytes, b"7"),
        (bytearray, bytearray(b"7")),
        (list, [7]),
        (tuple, (7,)),
        (set, {7}),
        (frozenset, frozenset({7})),
        (dict, {7: 8}),
        (OrderedDict, OrderedDict({7: 8})),
        (Counter, Counter({7: 8})),
        (deque, deque([7])),
        (Decimal, Decimal(7)),
        (Fraction, Fraction(7, 8)),
    ]
}


@pytest.mark.parametrize(("mine", "value"), SUBCLASSES.values(), ids=SUBCLASSES)
def test_subclasses_are_what_their_base_holds(mine: type, value: Any) -> None:
    back = decode(encode(mine(value)))
    assert type(back) is type(value)
    assert back == value
    assert (back == object()) is False


def test_named_tuples_and_enumerations() -> None:
    Point = namedtuple("Point", "x y")
    Level = enum.IntEnum("Level", "LOW HIGH")
    Word = enum.Enum("Word", {"YES": "yes"}, type=str)
    assert decode(encode([Point(1, 2), Level.HIGH, Word.YES])) == [(1, 2), 2, "yes"]
    with pytest.raises(WireError, match="no plain value"):
        encode(enum.Enum("Colour", "RED").RED)


def test_numpy() -> None:
    scalars = [np.int64(3), np.float32(0.5), np.float64(0.1), np.bool_(True), np.str_("a")]
    back = decode(encode(scalars))
    assert back == [3, 0.5, 0.1, True, "a"]
    assert [type(item) for item in back] == [int, float, float, bool, str]
    for array in (
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.zeros((0, 3)),
        np.array(5.0),
        np.arange(8)[::2],
    ):
        copy = decode(encode(array))
        assert type(copy) is np.ndarray and copy.shape == array.shape
        assert (copy == array).all() and copy.flags.writeable
    with pytest.raises(WireError, match="no plain value"):
        encode(np.array([object()]))


def test_what_is_not_plain_is_a_handle_on_request() -> None:
    kept: list[Any] = []

    def remember(value: Any) -> int:
        kept.append(value)
        return len(kept) - 1

    thing = (n for n in [1])
    data = encode([1, thing], remember=remember)
    one, remote = decode(data, resolve=lambda number, name: Remote(number, name, kept))
    assert one == 1 and kept[remote.handle] is thing
    assert remote == Remote(0, "generator", kept) and remote.type_name == "generator"
    assert remote != thing and remote != Remote(0, "generator", object()) and remote != 0
    with pytest.raises(WireError, match="a handle where only plain values may stand"):
        decode(data)
    with pytest.raises(WireError, match="a generator is no plain value"):
        encode([1, thing])


def test_a_list_in_itself_and_deep_nesting_become_handles() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    back = decode(encode(loop, remember=lambda value: 5), resolve=Remote)
    assert back == [1, Remote(5, "list")]
    deep: list[Any] = []
    for _ in range(3 * DEPTH):
        deep = [deep]
    with pytest.raises(WireError, match="nests too deep"):
        encode(deep)
    back = decode(encode(deep, remember=lambda value: 5), resolve=Remote)
    for _ in range(DEPTH):
        (back,) = back
    assert back == Remote(5, "list")


def test_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooLargeError, match="more than 1000 bytes"):
        encode("x" * 1001, limit=1000)
    with pytest.raises(TooLargeError, match="values"):
        encode([[0] * (VALUES // 2)] * 3)
    monkeypatch.setattr("anyorder.bench.sandbox.wire_write.VALUES", 10_000)
    shared: list[Any] = []
    for _ in range(64):
        shared = [shared, shared]
    with pytest.raises(TooLargeError, match="values"):
        encode(shared)
    for long in (range(10**18), range(0, 3 ** (10**5), 2 ** (10**5)), Fraction(1, 3 ** (10**5))):
        with pytest.raises(WireError, match="no plain value"):
            encode(long)
    assert decode(encode(range(0, 10**18, 10**17))) == range(0, 10**18, 10**17)


def sized(tag: bytes, count: int, data: bytes) -> bytes:
    return tag + struct.pack("<I", count) + data


MALFORMED = {
    "nothing": b"",
    "no such tag": b"?",
    "cut short": encode([1, 2])[:-1],
    "two values": encode(1) + encode(2),
    "a list longer than the message": sized(b"l", 2**32 - 1, b"N"),
    "a string longer than the message": sized(b"s", 2**31, b"a"),
    "deeper than the stack": sized(b"l", 1, b"") * 100_000 + b"N",
    "a list as a key": sized(b"D", 2, encode([]) + b"N"),
    "a list in a set": sized(b"S", 1, encode([])),
    "a key twice": sized(b"D", 4, b"TNTN"),
    "one and true": sized(b"S", 2, b"T" + encode(1)),
    "a key without a value": sized(b"D", 1, b"N"),
    "keys twice in a view": sized(b"k", 2, b"NN"),
    "half a number": sized(b"q", 7, b"1234567"),
    "not utf-8": sized(b"s", 1, b"\xff"),
    "a fraction by zero": sized(b"X", 2, encode(1) + encode(0)),
    "a fraction of strings": sized(b"X", 2, encode("1") + encode("2")),
    "a fraction that takes for ever": sized(b"X", 2, encode(3 ** (10**6)) + encode(7 ** (10**6))),
    "a decimal of letters": sized(b"M", 3, b"abc"),
    "a range without step": sized(b"r", 3, encode(0) + encode(1) + encode(0)),
    "a range that takes for ever": sized(
        b"r", 3, encode(0) + encode(3 ** (10**6)) + encode(7 ** (10**5))
    ),
    "a range without end": sized(b"r", 3, encode(0) + encode(10**18) + encode(1)),
    "the 32nd of January": b"a" + struct.pack("<iii", 2020, 1, 32),
    "a time zone of a year": b"h" + struct.pack("<BBBIB?i", 1, 1, 1, 1, 0, True, 10**7),
    "days without end": b"w" + struct.pack("<iii", 2**31 - 1, 0, 0),
    "an unknown type": sized(b"y", 4, b"eval"),
    "a deque that is too long": sized(b"e", 3, encode(1) + encode(1) + encode(1)),
    "a deque of no length": sized(b"e", 0, b""),
    "an array of objects": b"A" + encode("|O") + encode((1,)) + encode(b"12345678"),
    "an array of another shape": b"A" + encode("<f8") + encode((2,)) + encode(b"12345678"),
    "an array of endless rows": b"A" + encode("<f8") + encode((10**18, 0)) + encode(b""),
    "an array of negative shape": b"A" + encode("<f8") + encode((-1, -1)) + encode(b"12345678"),
    "an array of many dimensions": b"A" + encode("|b1") + encode((1,) * 64) + encode(b"1"),
    "too many values": sized(b"l", VALUES + 1, b"N" * (VALUES + 1)),
    "sets, which take much memory": sized(b"l", VALUES // 2, sized(b"S", 0, b"") * (VALUES // 2)),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_malformed_bytes_are_refused_quickly(data: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(WireError):
        decode(data)
    assert time.process_time() - begun < 20


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_an_error(data: bytes) -> None:
    try:
        value = decode(data, resolve=Remote)
    except WireError:
        return
    encode(value)


@given(PLAIN, st.data())
def test_damaged_bytes_are_a_value_or_an_error(value: Any, data: st.DataObject) -> None:
    original = bytearray(encode(value))
    place = data.draw(st.integers(0, len(original) - 1))
    original[place] = data.draw(st.integers(0, 255))
    with suppress(WireError):
        decode(bytes(original))


def test_colliding_keys_do_not_hold_the_reader_up() -> None:
    period = 2**61 - 1  # hash(n) is n modulo this
    keys = [encode(n * period) for n in range(1, 200_000)]
    for tag in (b"S", b"k"):
        data = sized(tag, len(keys), b"".join(keys))
        begun = time.process_time()
        with pytest.raises(WireError, match="too long to read"):
            decode(data, seconds=0.3)
        assert time.process_time() - begun < 20
