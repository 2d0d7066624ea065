"""LiveCodeBench's test cases, which are JSON, or JSON in a pickle in zlib in base64.

Upstream unpickles what it downloads, and a pickle may run anything. Here no unpickler is used: the
opcodes are read one by one, and only a pickle that is one string is accepted. Anything else (a
global, a call, a container) is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import zlib
from dataclasses import dataclass
from typing import Any

LARGEST = 1 << 30
"""Bytes that the tests of one problem may have when unpacked: a bomb stops here."""

_SILENT = frozenset({"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"})
_STRINGS = frozenset(
    {
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "SHORT_BINBYTES",
        "BINBYTES",
        "BINBYTES8",
    }
)


@dataclass(frozen=True)
class Test:
    """One test case: an input, and what must come out."""

    given: str
    wanted: str


def read_tests(packed: str | list[Any], where: str) -> list[Test]:
    """The test cases of a column: a list, its JSON, or its packed form."""
    try:
        cases = packed if isinstance(packed, list) else _unpacked(packed)
        return [Test(_text(case["input"]), _text(case["output"])) for case in cases]
    except (ValueError, KeyError, TypeError, binascii.Error, zlib.error) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{where} cannot be read ({reason}): download the file again") from None


def string_in_pickle(content: bytes) -> str | bytes:
    """The string that a pickle consists of; a pickle of anything else is refused."""
    found: list[str | bytes] = []
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in _STRINGS and not found:
            assert isinstance(argument, str | bytes)
            found.append(argument)
        elif opcode.name not in _SILENT:
            raise ValueError(f"refused: a pickle with {opcode.name}, where one string should be")
    if not found:
        raise ValueError("refused: a pickle without a string")
    return found[0]


def _unpacked(packed: str) -> Any:
    try:
        return json.loads(packed)
    except ValueError:
        pass  # then it is the packed form, or neither
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(base64.b64decode(packed, validate=True), LARGEST)
    if not unpacker.eof:
        raise ValueError("cut short" if unpacker.unconsumed_tail == b"" else "too large")
    return json.loads(string_in_pickle(content))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} where text should be")
    return value
