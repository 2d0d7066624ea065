"""How text is cut into ids: the protocol, single bytes, and declared words.

A codec has pieces, the bytes of each id of ordinary text, and makes the function that cuts text
into them. This file also holds what all of `vocab` needs: reading bytes as characters, the alphabet
of byte-level tokenizers, and reading files.

Not here: the tokenizers of others (tokenizer.py), special ids (special.py), decoding and spans
(vocab/__init__.py).
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

TOKENIZER_FILE = "tokenizer.json"

QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Byte-level BPE spells each byte as one visible character: that of Latin-1 if it is visible, else
# the next free character from U+0100 on.
_VISIBLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_HIDDEN = (byte for byte in range(256) if byte not in _VISIBLE)
BYTE_OF = {chr(b): b for b in _VISIBLE} | {chr(0x100 + i): b for i, b in enumerate(_HIDDEN)}


def utf8(text: str) -> bytes:
    """The bytes of a text; ValueError for half a surrogate pair, which has none."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} is {text[error.start]!r}, half a surrogate pair, which is no "
            "text: clean it with text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')"
        ) from error


def canonical(content: object) -> str:
    """JSON that does not depend on the order in which a mapping was filled."""
    return json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _code_width(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return chr(0xD800 + error.end - error.start), error.end


# Python's "replace" hides how many bytes a U+FFFD replaces. This handler shows it: k bytes become
# the surrogate U+D800 + k, which no valid UTF-8 decodes to.
codecs.register_error("anyorder-width", _code_width)


def characters(data: bytes) -> tuple[str, list[int]]:
    """The text of some bytes, and for each byte the index of its character."""
    character_of: list[int] = []
    coded = data.decode("utf-8", "anyorder-width")
    for index, character in enumerate(coded):
        code = ord(character)
        if 0xD800 < code < 0xD804:
            width = code - 0xD800
        else:
            width = 1 + (code > 0x7F) + (code > 0x7FF) + (code > 0xFFFF)
        character_of += [index] * width
    return data.decode("utf-8", "replace"), character_of


class Encoder(Protocol):
    """Cuts text into ids."""

    def __call__(self, text: str, *, begun: bool = False) -> list[int]:
        """`begun`: other text stands before this one, so nothing is put in front of it."""
        ...


@dataclass(frozen=True)
class Glue:
    """What happens at the two ends of a text; between pieces there is nothing."""

    leading: bool = False
    """One space at the start of the text is dropped."""
    trailing: bool = False
    """One space at the end of the text is dropped."""


class Codec(Protocol):
    """How text is cut into ids, and the bytes of each id."""

    kind: str
    pieces: Mapping[int, bytes]
    """The ids of ordinary text."""
    added: Mapping[str, int] = MappingProxyType({})
    """Tokens that a tokenizer matches whole before it cuts: special ones and others."""
    flagged: frozenset[int] = frozenset()
    """The added ids that the tokenizer flags as special."""
    added_pieces: Mapping[int, bytes] = MappingProxyType({})
    """The bytes of the added ids, where they are ordinary text."""
    patterns: Mapping[str, str] = MappingProxyType({})
    """How added tokens are found in a text, as regular expressions, if not by their spelling."""
    glue: Glue = Glue()
    lossy: bool = False
    """Whether decode(encode(text)) may differ from the text by more than NFC."""
    marks_start: bool = False
    """Whether only the start of a whole text is marked, not that of its parts."""
    frame: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    """Ids that the tokenizer itself puts before and after a text."""

    def encoder(self, never: frozenset[int]) -> Encoder:
        """A function that cuts text; the added tokens in `never` are cut as ordinary text."""

    def content(self) -> dict[str, Any]:
        """The codec's part of vocabulary.json."""
        return {}

    def files(self) -> dict[str, str]:
        """Files saved beside vocabulary.json: name -> text."""
        return {}


class ByteCodec(Codec):
    """256 ids, one per byte."""

    kind = "byte"
    pieces: Mapping[int, bytes] = MappingProxyType({byte: bytes([byte]) for byte in range(256)})

    def encoder(self, never: frozenset[int]) -> Encoder:
        return lambda text, *, begun=False: list(utf8(text))


class WordCodec(Codec):
    """Declared pieces of text, spaces and newlines included; the longest match wins."""

    kind = "word"

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        if not self.words or not all(isinstance(word, str) and word for word in self.words):
            raise ValueError("a word vocabulary needs pieces, each a string that is not empty")
        self._id_of = {word: id for id, word in enumerate(self.words)}
        if len(self._id_of) < len(self.words):
            twice = {word for id, word in enumerate(self.words) if self._id_of[word] != id}
            raise ValueError(f"pieces given more than once: {sorted(twice)}: list each once")
        self.pieces = {id: utf8(word) for id, word in enumerate(self.words)}

    def encoder(self, never: frozenset[int]) -> Encoder:
        # An alternation takes its first branch that fits, so longest first is the longest match.
        longest_first = sorted(self.words, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, longest_first)))

        def encode(text: str, *, begun: bool = False) -> list[int]:
            ids, position = [], 0
            for match in pattern.finditer(text):
                if match.start() != position:
                    break
                ids.append(self._id_of[match.group()])
                position = match.end()
            if position < len(text):
                raise ValueError(
                    f"no piece of this vocabulary fits {text[position]!r} at character {position} "
                    f"(after {text[max(0, position - 20) : position]!r}): take it out of the text, "
                    "or add a piece that starts with it"
                )
            return ids

        return encode

    def content(self) -> dict[str, Any]:
        return {"pieces": self.words}


def read_text(path: str | Path) -> str:
    """A text file, plain or gzipped; ValueError with a remedy if it cannot be read."""
    try:
        data = Path(path).read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"cannot be read ({error}): check the path and the file") from error


def parse_json(text: str) -> Any:
    """Parsed JSON; ValueError with a remedy if it is invalid."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"not valid JSON ({error}): restore the file from its source") from error
