"""The bytes of each token of a `tokenizer.json`, and the glue between them, for all kinds.

The text of ids is the join of their pieces, under one glue rule. The steps of the file's decoder
say what a token's piece is:

    ByteLevel       each character is one byte (GPT-2, Qwen, Dream, LLaDA, ModernBERT, RoBERTa)
    Replace         a fixed string becomes another: "▁" a space (Llama 2, Gemma)
    ByteFallback    <0xHH> is that byte
    Strip, start=1  after Fuse: one space is dropped at the start of the text
    Metaspace       "▁" becomes a space, and one at the start of the text is dropped (XLM-R, T5)
    WordPiece       a piece without the prefix ## begins with a space, dropped at the start (BERT)
    BPEDecoder      the suffix </w> becomes a space, dropped at the end of the text (CLIP)
    no decoder      every piece begins with a space, dropped at the start (lists of words)

So the span of each token is exact, also for ids that no text gives. WordPiece's `cleanup`, which
joins punctuation and the word before it, is no function of single pieces, and is left out.

Not here: cutting text into ids (tokenizer.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anyorder.vocab.codecs import BYTE_OF, Glue, utf8

_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class Spelling:
    """How the tokens of a tokenizer become text."""

    piece: Callable[[str], bytes]
    """The bytes of a token."""
    glue: Glue


def steps_of(part: Any) -> Iterator[dict[str, Any]]:
    """The steps of a part of the pipeline, its sequences flattened."""
    if part is None:
        return
    if part["type"] == "Sequence":
        inner = ("normalizers", "pretokenizers", "decoders", "processors")
        for step in next(part[name] for name in inner if name in part):
            yield from steps_of(step)
    else:
        yield part


def is_byte_level(spec: Mapping[str, Any]) -> bool:
    """Whether the tokens spell bytes, one character each."""
    parts = (spec["pre_tokenizer"], spec.get("decoder"), spec.get("normalizer"))
    return '"ByteLevel"' in json.dumps(parts)


def spelling_of(spec: Mapping[str, Any]) -> Spelling:
    """How the tokens of a parsed tokenizer.json become text; ValueError if no table can say it."""
    steps = list(steps_of(spec.get("decoder")))
    changes = [_change(step) for step in steps]
    if is_byte_level(spec):
        return Spelling(bytes_of, Glue())
    kinds = [step["type"] for step in steps]
    if not kinds:
        return Spelling(lambda token: utf8(f" {token}"), Glue(leading=True))
    fused = kinds.index("Fuse") if "Fuse" in kinds else len(kinds)
    ends = [_glue(step) for step in steps if step["type"] != "Strip"]
    ends += [_glue(step) for step in steps[fused:] if step["type"] == "Strip"]
    glue = Glue(any(end.leading for end in ends), any(end.trailing for end in ends))
    has_bytes = "ByteFallback" in kinds
    alone = [
        change
        for place, (kind, change) in enumerate(zip(kinds, changes, strict=True))
        if kind != "Strip" or place < fused
    ]

    def piece(token: str) -> bytes:
        if has_bytes and (byte := _BYTE.fullmatch(token)):
            return bytes([int(byte[1], 16)])
        for change in alone:
            token = change(token)
        return utf8(token)

    return Spelling(piece, glue)


def bytes_of(token: str) -> bytes:
    """The bytes of a token in the alphabet of bytes."""
    try:
        return bytes([BYTE_OF[character] for character in token])
    except KeyError:  # not in the byte alphabet: the token is plain text
        return utf8(token)


def _glue(step: Mapping[str, Any]) -> Glue:
    kind = step["type"]
    if kind == "Strip":
        return Glue(bool(step["start"]), bool(step["stop"]))
    if kind == "Metaspace":
        return Glue(leading=step.get("prepend_scheme", "always") != "never")
    return Glue(leading=kind == "WordPiece", trailing=kind == "BPEDecoder")


def _change(step: Mapping[str, Any]) -> Callable[[str], str]:
    """What a step of the decoder makes of one token."""
    kind = step["type"]
    if kind in ("ByteLevel", "ByteFallback", "Fuse"):
        return str
    if kind == "Replace" and "String" in step["pattern"]:
        old, new = step["pattern"]["String"], step["content"]
        return lambda token: token.replace(old, new)
    if kind == "Strip" and step["content"] == " " and max(step["start"], step["stop"]) <= 1:
        start, stop = " " * step["start"], " " * step["stop"]
        return lambda token: token.removeprefix(start).removesuffix(stop)
    if kind == "Metaspace":
        mark = step["replacement"]
        return lambda token: token.replace(mark, " ")
    if kind == "WordPiece":
        prefix = step["prefix"]
        return lambda token: token.removeprefix(prefix) if token.startswith(prefix) else f" {token}"
    if kind == "BPEDecoder":
        suffix = step["suffix"]
        return lambda token: f"{token.removesuffix(suffix)} " if token.endswith(suffix) else token
    raise ValueError(
        f"the decoder of this tokenizer has the step {json.dumps(step)}, and what it makes of text "
        "is not known token by token: such tokenizers are not supported"
    )
