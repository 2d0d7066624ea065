"""Messages between the grader and its workers: JSON with its length in front, over pipes.

Both ends are ours; what a sample returns never travels here undecoded. Programs may hold any
characters, lone surrogates included, which JSON's escapes carry. The channel between a worker and
the confined process is another one: bench/sandbox/wire.py.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from typing import Any

_LENGTH = struct.Struct(">Q")
READ_BYTES = 1 << 16


def frame(message: dict[str, Any], **written: str) -> bytes:
    """A message as the bytes to send; `written` are further fields, as JSON text already."""
    fields = {name: json.dumps(value) for name, value in message.items()} | written
    text = ",".join(f"{json.dumps(name)}:{value}" for name, value in fields.items())
    body = f"{{{text}}}".encode("ascii")
    return _LENGTH.pack(len(body)) + body


def send(handle: int, data: bytes) -> None:
    """Write all of some frames; BrokenPipeError where nobody reads any more."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


class Inbox:
    """What arrives on a pipe, cut into messages."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._buffer = bytearray()

    def read(self) -> bool:
        """Take what is there, waiting for some; False at the end of the stream."""
        data = os.read(self.handle, READ_BYTES)
        self._buffer += data
        return bool(data)

    def messages(self) -> Iterator[dict[str, Any]]:
        """The whole messages that have arrived and were not given yet."""
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield json.loads(body)
