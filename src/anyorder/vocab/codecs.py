"""Three ways to cut text into ids, behind one protocol: the private half of `vocab`.

A codec has pieces, the bytes of each id of ordinary text, and makes the function that cuts text
into them: single bytes, declared words, byte-level BPE. CODECS finds one by its kind. This file
also holds what both halves need: reading bytes as characters, and reading files.

Not here: decoding, spans, special ids and their contract (vocab/__init__.py).
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

Encoder = Callable[[str], list[int]]
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
# No UTF-8 text holds the bytes C0, C1 or F5 to FF: a tokenizer may lack them.
_NEEDED = frozenset(c for c, b in BYTE_OF.items() if b not in (0xC0, 0xC1) and b < 0xF5)


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


class Codec(Protocol):
    """How text is cut into ids, and the bytes of each id."""

    kind: ClassVar[str]
    pieces: Mapping[int, bytes]
    """The ids of ordinary text."""
    added: Mapping[str, int] = MappingProxyType({})
    """Tokens that a tokenizer matches whole before it cuts: special ones and others."""
    flagged: frozenset[int] = frozenset()
    """The added ids that the tokenizer flags as special."""

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
        return lambda text: list(utf8(text))


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

        def encode(text: str) -> list[int]:
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


class BpeCodec(Codec):
    """Byte-level BPE in the `tokenizers` format; that library is imported by `encoder` only."""

    kind = "bpe"

    def __init__(self, spec: Any, text: str) -> None:
        """`spec` is the parsed tokenizer.json, `text` its text as it will be saved."""
        try:
            model, added = spec["model"], list(spec["added_tokens"])
            base = dict(model["vocab"])
            splits_bytes = '"ByteLevel"' in json.dumps(spec["pre_tokenizer"])
            supported = model.get("type", "BPE") == "BPE" and not model.get("dropout")
            self.added = {token["content"]: token["id"] for token in added}
            self.flagged = frozenset(token["id"] for token in added if token["special"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a whole tokenizer.json ({error!r}): check the path") from error
        if not (supported and splits_bytes and base.keys() >= _NEEDED):
            raise ValueError(
                "only byte-level BPE that knows every byte and has no dropout is supported (Qwen, "
                "Dream, LLaDA, Llama 3, GPT-2 and alike): others cannot give back every text"
            )
        ids = {**base, **self.added}.values()
        if not all(type(id) is int and id >= 0 for id in ids) or len(set(ids)) < len(ids):
            raise ValueError("the ids of a tokenizer must be integers from 0 on, each used once")
        self.text = text
        self.pieces = {base[token]: _bytes_of(token) for token in base.keys() - self.added.keys()}

    @classmethod
    def qwen2(cls, vocab: Any, merges: str, added: Sequence[Mapping[str, Any]] = ()) -> BpeCodec:
        """The tokenizer of Qwen2's vocab.json and merges.txt, with added tokens."""
        lines = merges.splitlines()
        pairs = [line.split(" ") for line in lines[lines[:1] == ["#version: 0.2"] :] if line]
        if wrong := [pair for pair in pairs if len(pair) != 2]:
            raise ValueError(f"a merge is two tokens with one space between, not {wrong[0]}")
        split = {"type": "Split", "pattern": {"Regex": QWEN2_SPLIT}, "behavior": "Isolated"}
        byte_level: dict[str, object] = {"type": "ByteLevel", "add_prefix_space": False}
        byte_level |= {"trim_offsets": False, "use_regex": False}
        spec = {
            "version": "1.0",
            "added_tokens": [dict(token) for token in added],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [split | {"invert": False}, byte_level],
            },
            "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocab, "merges": pairs},
        }
        return cls(spec, canonical(spec))

    def encoder(self, never: frozenset[int]) -> Encoder:
        from tokenizers import Tokenizer

        text = self.text
        # The library cuts only tokens flagged as special into ordinary ones: flag the others too.
        if (never - self.flagged) & set(self.added.values()):
            spec = json.loads(text)
            for token in spec["added_tokens"]:
                token["special"] = token["special"] or token["id"] in never
            text = canonical(spec)
        try:
            backend = Tokenizer.from_str(text)
        except Exception as error:  # the library raises plain Exception for every fault
            raise ValueError(f"the tokenizers library refuses this tokenizer: {error}") from error
        if moved := [name for name, id in self.added.items() if backend.token_to_id(name) != id]:
            raise ValueError(f"the library numbers {moved} otherwise: added ids must have no gaps")
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True  # i.e. treat their spelling as ordinary text

        def encode(text: str) -> list[int]:
            utf8(text)
            ids: list[int] = backend.encode(text, add_special_tokens=False).ids
            if not never.isdisjoint(ids):
                name = backend.id_to_token(next(id for id in ids if id in never))
                raise ValueError(
                    f"this tokenizer cannot cut the special token {name!r} into ordinary ones: "
                    "take it out of the text, or put the prompt together from ids"
                )
            return ids

        return encode

    def files(self) -> dict[str, str]:
        return {TOKENIZER_FILE: self.text}


def _bytes_of(token: str) -> bytes:
    try:
        return bytes([BYTE_OF[character] for character in token])
    except KeyError:  # not in the byte alphabet: the token is plain text
        return utf8(token)


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


def _read_bpe(folder: Path) -> BpeCodec:
    text = read_text(folder / TOKENIZER_FILE)
    return BpeCodec(parse_json(text), text)


CODECS: Mapping[str, Callable[[Path, Mapping[str, Any]], Codec]] = MappingProxyType(
    {
        "byte": lambda folder, content: ByteCodec(),
        "word": lambda folder, content: WordCodec(content.get("pieces", ())),
        "bpe": lambda folder, content: _read_bpe(folder),
    }
)
