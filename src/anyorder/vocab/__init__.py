"""Text <-> token ids: the vocabulary, its special ids and their contract.

A vocabulary is a table of *pieces*, the bytes of each id, and a codec that cuts text into ids:
single bytes, declared words (longest match), or byte-level BPE (Qwen2, Dream, LLaDA and others).
Decoding joins the pieces and reads them as UTF-8, invalid bytes as U+FFFD:

    decode(encode(text)) == text        (BPE: up to the tokenizer's own normaliser; Qwen2 has NFC)
    spans(ids) == (decode(ids), for each id the [start, end) characters it gives bytes to)

Special ids are mask, pad, eos, bos and all that the tokenizer flags as special. Their contract:
- encode never yields one. The literal spelling of a special token, such as `<|endoftext|>`, is
  ordinary text and becomes ordinary ids; a tokenizer that cannot do so gets an error. Build prompts
  that need one, such as chat templates, from ids: `[vocab.id_of("<|im_start|>"), ...]`.
- decode skips them, and skips unused ids (rows of an embedding table beyond the tokenizer):
  decode(ids) is decode of the other ids.
- mask differs from pad, eos and bos; pad = eos must be requested (`pad_is_eos=True`).

Not here: cutting text (codecs.py), training tokenizers, chat templates, batches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Required, TypedDict, Unpack

from anyorder.files import replacing
from anyorder.vocab.codecs import (
    CODECS,
    BpeCodec,
    ByteCodec,
    Codec,
    Encoder,
    WordCodec,
    canonical,
    characters,
    parse_json,
    read_text,
)

ByteString = bytes  # inside the class Vocab the name `bytes` is a constructor
VOCABULARY_FILE, FORMAT = "vocabulary.json", 1


class SpecialTokens(TypedDict, total=False):
    """The special tokens of a BPE vocabulary, each given by its id or by its spelling."""

    mask: Required[int | str]
    pad: Required[int | str]
    eos: Required[int | str]
    bos: int | str | None
    pad_is_eos: bool
    """Whether pad and eos are one id; an error if that is not so."""
    size: int | None
    """Rows of the embedding table, if not the number of tokens."""
    named: Mapping[str, int]
    """Ids of special tokens by spelling; an error if the tokenizer disagrees."""


_END = "<|endoftext|>"  # published models pad with it
_QWEN2 = {_END: 151643, "<|im_start|>": 151644}
_DREAM = {**_QWEN2, "<|im_end|>": 151645, "<|beginoftext|>": 151665, "<|mask|>": 151666}
_LLADA = {"<|startoftext|>": 126080, _END: 126081, "<|mdm_mask|>": 126336}
_LLADA |= {"<|start_header_id|>": 126346, "<|end_header_id|>": 126347, "<|eot_id|>": 126348}


def _preset(mask: str, bos: str | None, size: int, named: Mapping[str, int]) -> SpecialTokens:
    return {
        "mask": mask,
        "pad": _END,
        "eos": _END,
        "bos": bos,
        "pad_is_eos": True,
        "size": size,
        "named": MappingProxyType(named),
    }


SPECIALS: Mapping[str, SpecialTokens] = MappingProxyType(
    {
        # As LatentMDM: <|im_start|>, which its data never holds, is the mask and the last row
        "qwen2": _preset("<|im_start|>", None, 151645, _QWEN2),
        "dream": _preset("<|mask|>", "<|beginoftext|>", 152064, _DREAM),
        "llada": _preset("<|mdm_mask|>", "<|startoftext|>", 126464, _LLADA),
    }
)
"""Special tokens of published models: `Vocab.from_tokenizer_json(path, **SPECIALS["dream"])`."""


@dataclass(frozen=True)
class SpecialIds:
    """The checked ids behind SpecialTokens, as vocabulary.json stores them."""

    size: int
    mask: int
    pad: int
    eos: int
    bos: int | None
    pad_is_eos: bool
    named: Mapping[str, int]

    def __post_init__(self) -> None:
        roles: list[tuple[str, int]] = [("mask", self.mask), ("pad", self.pad), ("eos", self.eos)]
        roles += dict(self.named).items()
        for role, id in roles if self.bos is None else [*roles, ("bos", self.bos)]:
            if type(id) is not int or not 0 <= id < self.size:
                raise ValueError(
                    f"{role} = {id!r} is not an id from 0 to below the size, {self.size}: correct "
                    "it, or give the size of the embedding table"
                )
        if self.mask in (self.pad, self.eos, self.bos):
            raise ValueError(f"mask = {self.mask} is also pad, eos or bos: give it its own id")
        if (self.pad == self.eos) != self.pad_is_eos:
            raise ValueError(
                f"pad = {self.pad} and eos = {self.eos} with pad_is_eos={self.pad_is_eos}: ask for "
                "one id in both roles by pad_is_eos=True, otherwise give two"
            )

    @classmethod
    def resolve(cls, codec: Codec, tokens: SpecialTokens) -> SpecialIds:
        """Look up spellings, check named ids against the tokenizer, and determine the size."""
        if {"mask", "pad", "eos"} - tokens.keys() or tokens.keys() - SpecialTokens.__annotations__:
            raise ValueError(
                "name the special tokens by id or spelling: mask, pad and eos, and if need be "
                f"{', '.join(sorted(SpecialTokens.__optional_keys__))} (got {list(tokens)}); for "
                f"known models: **SPECIALS[{' | '.join(map(repr, SPECIALS))}]"
            )
        named = dict(tokens.get("named", {}))
        spelling = {id: name for name, id in codec.added.items()}
        for name, id in named.items():
            if codec.added.get(name, id) != id or spelling.get(id, name) != name:
                raise ValueError(
                    f"{name!r} is said to be {id}, but in this tokenizer {id} is "
                    f"{spelling.get(id)!r} and {name!r} is {codec.added.get(name)}: is it the "
                    "tokenizer of another model?"
                )
        known = {**codec.added, **named}

        def find(token: int | str) -> int:
            if isinstance(token, str) and token not in known:
                raise ValueError(
                    f"{token!r} is not an added token of this tokenizer (these are: "
                    f"{', '.join(codec.added) or 'none'}): give its id, or its id in `named`"
                )
            return known[token] if isinstance(token, str) else token

        mask, pad, eos = find(tokens["mask"]), find(tokens["pad"]), find(tokens["eos"])
        bos = tokens.get("bos")
        ids = (mask, pad, eos) if bos is None else (mask, pad, eos, find(bos))
        size = tokens.get("size")
        if size is None:
            size = 1 + max(*codec.pieces, *known.values(), *ids)
        bos_id = None if bos is None else ids[-1]
        return cls(size, mask, pad, eos, bos_id, tokens.get("pad_is_eos", False), named)


class Vocab:
    """Text <-> ids. Constructors: bytes, words, from_tokenizer_json, from_vocab_merges, load."""

    def __init__(self, codec: Codec, special: SpecialIds) -> None:
        self.size: int = special.size
        self.mask_id, self.pad_id, self.eos_id = special.mask, special.pad, special.eos
        self.bos_id = special.bos
        self._codec, self._special = codec, special
        spelling = {id: name for name, id in (*codec.added.items(), *special.named.items())}
        flagged = {*codec.flagged, *special.named.values()}
        names = {id: name for id, name in spelling.items() if id in flagged}
        roles = {"mask": special.mask, "pad": special.pad, "eos": special.eos, "bos": special.bos}
        for role, id in roles.items():
            if id is not None:
                names[id] = spelling.get(id, f"<{role}>")
        self._names = {id: name for id, name in names.items() if id < self.size}
        self.special_ids = frozenset(self._names)
        """The ids that encode never yields and decode skips."""
        if ordinary := sorted(self.special_ids & codec.pieces.keys()):
            raise ValueError(f"ids {ordinary} are ordinary text here: choose other special ids")
        if (largest := max(codec.pieces)) >= self.size:
            raise ValueError(f"size {self.size} leaves out id {largest}: give a larger size")
        text = {**codec.pieces, **{id: name.encode() for name, id in codec.added.items()}}
        text |= dict.fromkeys(self.special_ids, b"")  # so that decode skips them
        self._pieces = [text.get(id, b"") for id in range(self.size)]

    @classmethod
    def bytes(cls) -> Vocab:
        """256 bytes, then mask, pad, bos, eos."""
        return cls._with_specials_last(ByteCodec())

    @classmethod
    def words(cls, pieces: Sequence[str]) -> Vocab:
        """The declared pieces in their order, then mask, pad, bos, eos."""
        return cls._with_specials_last(WordCodec(pieces))

    @classmethod
    def _with_specials_last(cls, codec: Codec) -> Vocab:
        mask = len(codec.pieces)
        return cls(codec, SpecialIds(mask + 4, mask, mask + 1, mask + 3, mask + 2, False, {}))

    @classmethod
    def from_tokenizer_json(cls, path: str | Path, **tokens: Unpack[SpecialTokens]) -> Vocab:
        """A byte-level BPE `tokenizer.json`, plain or gzipped."""
        try:
            spec = parse_json(read_text(path))
            return cls._with_tokens(BpeCodec(spec, canonical(spec)), tokens)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def from_vocab_merges(
        cls,
        vocab_path: str | Path,
        merges_path: str | Path,
        added: Sequence[Mapping[str, Any]] = (),
        **tokens: Unpack[SpecialTokens],
    ) -> Vocab:
        """Qwen2's tokenizer from its `vocab.json` and `merges.txt`, plain or gzipped.

        `added` are further tokens, as tokenizer.json lists them.
        """
        try:
            pieces, merges = parse_json(read_text(vocab_path)), read_text(merges_path)
            codec = BpeCodec.qwen2(pieces, merges, added)
            return cls._with_tokens(codec, tokens)
        except ValueError as error:
            raise ValueError(f"{vocab_path}, {merges_path}: {error}") from error

    @classmethod
    def _with_tokens(cls, codec: Codec, tokens: SpecialTokens) -> Vocab:
        vocab = cls(codec, SpecialIds.resolve(codec, tokens))
        vocab.encode("")  # fail now if the library refuses the tokenizer
        return vocab

    @cached_property
    def _encoder(self) -> Encoder:
        # Added tokens beyond the embedding table must not be produced either.
        outside = (id for id in self._codec.added.values() if id >= self.size)
        return self._codec.encoder(self.special_ids.union(outside))

    def __getstate__(self) -> dict[str, Any]:
        # A pickled tokenizer loses `encode_special_tokens`, so each process builds its own.
        return {name: value for name, value in self.__dict__.items() if name != "_encoder"}

    def __repr__(self) -> str:
        return f"Vocab({self.size} ids, digest {self.digest()[:8]})"

    def encode(self, text: str) -> list[int]:
        """The ids of a text, never a special one; ValueError for text that has no ids."""
        return self._encoder(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids that are not special."""
        return self._bytes(ids).decode("utf-8", "replace")

    def spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """The text, and for each id the [start, end) characters it gives bytes to.

        A character whose bytes come from several ids is in the span of each. An id without text
        (special, unused) has an empty span at the end of the text so far: ends never decrease.
        """
        text, character_of = characters(self._bytes(ids))
        spans, offset, end = [], 0, 0
        for id in ids:
            start, offset = offset, offset + len(self._pieces[id])
            if start == offset:
                spans.append((end, end))
            else:
                end = character_of[offset - 1] + 1
                spans.append((character_of[start], end))
        return text, spans

    def _bytes(self, ids: Sequence[int]) -> ByteString:
        self._check_range(ids)
        return b"".join([self._pieces[id] for id in ids])

    def _check_range(self, ids: Sequence[int]) -> None:
        if len(ids) and not 0 <= min(ids) <= max(ids) < self.size:
            at, id = next((at, id) for at, id in enumerate(ids) if not 0 <= id < self.size)
            raise ValueError(
                f"id {id} at position {at} is outside this vocabulary of {self.size} ids: encode "
                "the text with this vocabulary"
            )

    @property
    def special_names(self) -> Mapping[int, str]:
        """Special id -> its spelling."""
        return MappingProxyType(self._names)

    def check_prompt(self, ids: Sequence[int]) -> None:
        """Refuse ids that are out of range or hold the mask."""
        self._check_range(ids)
        for at, id in enumerate(ids):
            if id == self.mask_id:
                raise ValueError(
                    f"the prompt holds the mask id {id} at position {at}: take it out, and mark "
                    "text to be filled in as a free span instead"
                )

    def token(self, id: int) -> str:
        """One id as shown: its text, its bytes escaped if they are not UTF-8, or its name."""
        self._check_range([id])
        if piece := self._pieces[id]:
            return piece.decode("utf-8", "backslashreplace")
        return self._names.get(id, f"<unused {id}>")

    def id_of(self, token: str) -> int:
        """The id shown as `token`: a special token by its spelling, or one piece of text."""
        if token not in self._ids:
            raise ValueError(f"{token!r} is not one token of this vocabulary: encode it as text")
        return self._ids[token]

    @cached_property
    def _ids(self) -> dict[str, int]:
        # Of equal spellings the lowest id, but added tokens first, as in `encode`.
        shown = {self.token(id): id for id in reversed(range(self.size))}
        added = {name: id for name, id in self._codec.added.items() if id < self.size}
        return shown | added | {name: id for id, name in self._names.items()}

    def digest(self) -> str:
        """sha256 of the content, whatever the order of its mappings."""
        hashes = {name: _sha256(text) for name, text in self._codec.files().items()}
        return _sha256(canonical([self._header(), hashes]))

    def _header(self) -> dict[str, Any]:
        special = {field.name: getattr(self._special, field.name) for field in fields(SpecialIds)}
        special["named"] = dict(self._special.named)
        return {"format": FORMAT, "kind": self._codec.kind, **special, **self._codec.content()}

    def save(self, folder: str | Path) -> None:
        """Write vocabulary.json and, for BPE, tokenizer.json; each whole or not at all."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        content = {**self._header(), "digest": self.digest()}
        # Last: a killed save leaves no vocabulary.json, or an old one that its digest refuses.
        last = {VOCABULARY_FILE: json.dumps(content, ensure_ascii=False, indent=1)}
        for name, text in {**self._codec.files(), **last}.items():
            with replacing(Path(folder) / name) as file:
                file.write(text.encode())

    @classmethod
    def load(cls, folder: str | Path) -> Vocab:
        """Read the folder of `save`; ValueError for anything else."""
        path = Path(folder) / VOCABULARY_FILE
        try:
            return cls._from_content(Path(folder), parse_json(read_text(path)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: {error}; restore it, or save it again") from error

    @classmethod
    def _from_content(cls, folder: Path, content: Any) -> Vocab:
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"not a vocabulary of format {FORMAT}")
        if content.get("kind") not in CODECS:
            raise ValueError(f"unknown kind {content.get('kind')!r}, not among {', '.join(CODECS)}")
        names = [field.name for field in fields(SpecialIds)]
        if missing := {*names, "digest"} - content.keys():
            raise ValueError(f"the keys {sorted(missing)} are missing")
        codec = CODECS[content["kind"]](folder, content)
        vocab = cls(codec, SpecialIds(**{name: content[name] for name in names}))
        if unknown := content.keys() - vocab._header().keys() - {"digest"}:
            raise ValueError(f"the keys {sorted(unknown)} are unknown")
        if vocab.digest() != content["digest"]:
            raise ValueError("the content does not fit its digest, it was changed or mixed up")
        return vocab


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
