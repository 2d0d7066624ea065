"""Text <-> token ids: the vocabulary, its special ids and their contract.

A vocabulary is a table of *pieces*, the bytes of each id, and a codec that cuts text into ids:
single bytes, declared words (longest match), or a tokenizer of another library (byte-level and
byte-fallback BPE, WordPiece, Unigram). Decoding joins the pieces and reads them as UTF-8, invalid
bytes as U+FFFD; where a tokenizer marks the start of words by spaces, the one at the start of the
text is dropped (pieces.py).

    decode(encode(text)) == text        (up to the tokenizer's own normaliser: Qwen2 has NFC. A
                                        `lossy` one changes more: BERT drops case and line ends)
    spans(ids) == (decode(ids), for each id the [start, end) characters it gives bytes to)

Special ids are mask, pad, eos, bos and all that the tokenizer flags as special. Their contract:
- encode never yields one. The literal spelling of a special token, such as `<|endoftext|>`, is
  ordinary text and becomes ordinary ids; a tokenizer that cannot do so gets an error. Build prompts
  that need one, such as chat templates, by `encode(text, specials=True)`, where spellings become
  ids, or from ids: `[vocab.id_of("<|im_start|>"), ...]`.
- decode skips them, and skips unused ids (rows of an embedding table beyond the tokenizer):
  decode(ids) is decode of the other ids.
- mask differs from pad, eos and bos; pad = eos must be requested (`pad_is_eos=True`).
- `end_ids` end a text; `prefix_ids` and `suffix_ids` are what a network expects around it.

Not here: cutting text (codecs.py, tokenizer.py), the roles of special ids (special.py), training
tokenizers, chat templates (chat.py), batches.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

from anyorder.files import replacing
from anyorder.vocab.codecs import (
    ByteCodec,
    Codec,
    Encoder,
    WordCodec,
    canonical,
    characters,
    parse_json,
    read_text,
)
from anyorder.vocab.special import (
    NAMED_ROLES,
    NEEDED_ROLES,
    OPTIONAL_ROLES,
    SPECIALS,
    SpecialTokens,
    names_beside,
    with_roles,
)
from anyorder.vocab.tokenizer import CODECS, TokenizerCodec

__all__ = ["SPECIALS", "VOCABULARY_FILE", "SpecialTokens", "Vocab"]

if TYPE_CHECKING:
    from anyorder.vocab.chat import ChatTemplate

ByteString = bytes  # inside the class Vocab the name `bytes` is a constructor
VOCABULARY_FILE, FORMAT = "vocabulary.json", 1
TEMPLATE_FILE, NAMED_TEMPLATES = "chat_template.jinja", "additional_chat_templates"
SETTINGS_FILES = ("tokenizer_config.json", "chat_template.json")
CHAT_FILES = (TEMPLATE_FILE, NAMED_TEMPLATES, *SETTINGS_FILES)
"""Where a folder may have a chat template."""


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
    ends: tuple[int, ...] = ()
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        roles: list[tuple[str, int]] = [("mask", self.mask), ("pad", self.pad), ("eos", self.eos)]
        roles += dict(self.named).items()
        for role in OPTIONAL_ROLES:
            roles += [(role, id) for id in getattr(self, role)]
        for role, id in roles if self.bos is None else [*roles, ("bos", self.bos)]:
            if type(id) is not int or not 0 <= id < self.size:
                raise ValueError(
                    f"{role} = {id!r} is not an id from 0 to below the size, {self.size}: correct "
                    "it, or give the size of the embedding table"
                )
        if self.mask in (self.pad, self.eos, self.bos):
            raise ValueError(f"mask = {self.mask} is also pad, eos or bos: give it its own id")
        if self.mask in (*self.ends, *self.prefix, *self.suffix):
            raise ValueError(
                f"mask = {self.mask} is also an end, or stands around texts: give it its own id"
            )
        if (self.pad == self.eos) != self.pad_is_eos:
            raise ValueError(
                f"pad = {self.pad} and eos = {self.eos} with pad_is_eos={self.pad_is_eos}: ask for "
                "one id in both roles by pad_is_eos=True, otherwise give two"
            )

    @classmethod
    def resolve(cls, codec: Codec, tokens: SpecialTokens) -> SpecialIds:
        """Look up spellings, check named ids against the tokenizer, and determine the size."""
        if NEEDED_ROLES - tokens.keys() or tokens.keys() - SpecialTokens.__annotations__:
            raise ValueError(
                "name the special tokens by id or spelling: mask, pad and eos, and if need be "
                f"{', '.join(sorted(SpecialTokens.__annotations__.keys() - NEEDED_ROLES))} (got "
                f"{list(tokens)}); for known models: **SPECIALS[{' | '.join(map(repr, SPECIALS))}]"
            )
        named = _checked_names(codec, tokens.get("named", {}))
        known = {**codec.added, **named}

        def find(token: int | str) -> int:
            if isinstance(token, str) and token not in known:
                raise ValueError(
                    f"{token!r} is not an added token of this tokenizer (these are: "
                    f"{', '.join(codec.added) or 'none'}): give its id, or its id in `named`"
                )
            return known[token] if isinstance(token, str) else token

        mask, pad, eos = find(tokens["mask"]), find(tokens["pad"]), find(tokens["eos"])
        bos = None if (told := tokens.get("bos")) is None else find(told)
        before, after = codec.frame
        around = {
            "ends": tuple(id for id in map(find, tokens.get("ends", ())) if id != eos),
            "prefix": tuple(map(find, tokens.get("prefix", before))),
            "suffix": tuple(map(find, tokens.get("suffix", after))),
        }
        size = tokens.get("size")
        if size is None:
            ids = [mask, pad, eos, *([] if bos is None else [bos])]
            ids += [id for several in around.values() for id in several]
            size = 1 + max(*codec.pieces, *known.values(), *ids)
        alike = tokens.get("pad_is_eos", False)
        return cls(
            size, mask, pad, eos, bos, pad == eos if alike is None else alike, named, **around
        )


def _checked_names(codec: Codec, names: Mapping[str, int]) -> dict[str, int]:
    spelling = {id: name for name, id in codec.added.items()}
    for name, id in names.items():
        if codec.added.get(name, id) != id or spelling.get(id, name) != name:
            raise ValueError(
                f"{name!r} is said to be {id}, but in this tokenizer {id} is "
                f"{spelling.get(id)!r} and {name!r} is {codec.added.get(name)}: is it the "
                "tokenizer of another model?"
            )
    return dict(names)


class Vocab:
    """Text <-> ids.

    Constructors: bytes, words, from_transformers, from_tokenizer_json, from_vocab_merges, load.
    """

    chat: ChatTemplate | None = None
    """How the folder that it was read from writes chats; no part of the digest."""

    def __init__(self, codec: Codec, special: SpecialIds) -> None:
        self.size: int = special.size
        self.mask_id, self.pad_id, self.eos_id = special.mask, special.pad, special.eos
        self.bos_id = special.bos
        self.end_ids: tuple[int, ...] = (special.eos, *special.ends)
        """The ids that end a text; eos is the first."""
        self.prefix_ids, self.suffix_ids = special.prefix, special.suffix
        self.lossy = codec.lossy
        """Whether a text may change when it is encoded; its spans refer to the decoded text."""
        self._codec, self._special = codec, special
        spelling = {id: name for name, id in (*codec.added.items(), *special.named.items())}
        flagged = {*codec.flagged, *special.named.values()}
        names = {id: name for id, name in spelling.items() if id in flagged}
        roles = {"mask": special.mask, "pad": special.pad, "eos": special.eos, "bos": special.bos}
        for role, id in roles.items():
            if id is not None:
                names[id] = spelling.get(id, f"<{role}>")
        for id in (*special.ends, *special.prefix, *special.suffix):
            names.setdefault(id, spelling.get(id, f"<special {id}>"))
        self._names = {id: name for id, name in names.items() if id < self.size}
        self.special_ids = frozenset(self._names)
        """The ids that encode never yields and decode skips."""
        if ordinary := sorted(self.special_ids & codec.pieces.keys()):
            raise ValueError(f"ids {ordinary} are ordinary text here: choose other special ids")
        if (largest := max(codec.pieces)) >= self.size:
            raise ValueError(f"size {self.size} leaves out id {largest}: give a larger size")
        text = {**codec.pieces, **codec.added_pieces}
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
        """Any `tokenizer.json`, plain or gzipped.

        If mask, pad or eos is not given, the roles are read from `tokenizer_config.json` and
        `special_tokens_map.json` beside it.
        """
        try:
            codec = TokenizerCodec.of(parse_json(read_text(path)))
            if not tokens.keys() >= NEEDED_ROLES and (beside := names_beside(Path(path))):
                tokens = with_roles(tokens, beside)
            return cls._with_tokens(codec, tokens)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def from_transformers(cls, tokenizer: Any, **tokens: Unpack[SpecialTokens]) -> Vocab:
        """The vocabulary of a tokenizer of `transformers`; special tokens may be overridden."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        name = type(tokenizer).__name__
        if backend is None or not callable(getattr(backend, "to_str", None)):
            raise ValueError(
                f"{name} has no tokenizer.json behind it (it is written in Python): load the fast "
                "one, or give its files to Vocab.from_vocab_merges or Vocab.from_tokenizer_json"
            )
        found = {
            role: id
            for role in NAMED_ROLES
            if (id := getattr(tokenizer, f"{role}_token_id", None)) is not None
        }
        try:
            codec = TokenizerCodec.of(parse_json(backend.to_str()))
            names = zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
            # What the tokenizer's own file flags need not be said twice: the digest is that of
            # from_tokenizer_json.
            told: SpecialTokens = {
                "named": {str(name): id for name, id in names if id not in codec.flagged},
                **tokens,
            }
            vocab = cls._with_tokens(codec, with_roles(told, found))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        if template := getattr(tokenizer, "chat_template", None):
            from anyorder.vocab.chat import DEFAULT, one_template

            several = template if isinstance(template, dict) else {DEFAULT: template}
            vocab.chat = one_template(several, name)
        return vocab

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
            codec = TokenizerCodec.qwen2(pieces, merges, added)
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

    def encode(self, text: str, *, specials: bool = False, begun: bool = False) -> list[int]:
        """The ids of a text, never a special one; ValueError for text that has no ids.

        `specials=True`: the spelling of a special token, such as `<|im_start|>`, becomes its id.
        `begun=True`: other text stands before this one, so a tokenizer that marks the start of a
        text does not mark it here.
        """
        if not specials:
            return self._encoder(text, begun=begun)
        ids: list[int] = []
        end = 0
        for match in self._spellings.finditer(text):
            ids += self._part(text[end : match.start()], begun or end > 0)
            ids.append(int(str(match.lastgroup).removeprefix("id")))
            end = match.end()
        return ids + self._part(text[end:], begun or end > 0)

    def _part(self, text: str, begun: bool) -> list[int]:
        """The ids of the text between special tokens. Most tokenizers start a new text there."""
        return self._encoder(text, begun=begun and self._codec.marks_start) if text else []

    @cached_property
    def _spellings(self) -> re.Pattern[str]:
        """Finds special tokens, the longest where several fit; the group is named by the id."""
        longest_first = sorted(self._names.items(), key=lambda item: len(item[1]), reverse=True)
        patterns = self._codec.patterns
        groups = [(id, patterns.get(name, re.escape(name))) for id, name in longest_first]
        return re.compile("|".join(f"(?P<id{id}>{pattern})" for id, pattern in groups))

    def end_of(self, ids: Sequence[int]) -> int:
        """How many ids stand before the first that ends a text; all of them if none does."""
        return next((place for place, id in enumerate(ids) if id in self.end_ids), len(ids))

    def ending_with(self, ids: Sequence[int]) -> Vocab:
        """This vocabulary with further ids that end a text; its digest is the same."""
        more = [id for id in dict.fromkeys(ids) if id not in self.end_ids]
        special = replace(self._special, ends=(*self._special.ends, *more))
        found = Vocab(self._codec, special)
        found.chat = self.chat
        return found

    def begin(self, ids: Sequence[int]) -> list[int]:
        """The ids with `prefix_ids` before them, once; BOS, if there is one, where nothing is."""
        before = list(self.prefix_ids)
        begun = list(ids) if list(ids[: len(before)]) == before else [*before, *ids]
        return begun or ([] if self.bos_id is None else [self.bos_id])

    def decode(self, ids: Sequence[int], *, begun: bool = False) -> str:
        """The text of the ids that are not special; `begun`: other text stands before it."""
        return b"".join(self._texts(ids, begun)).decode("utf-8", "replace")

    def spans(
        self, ids: Sequence[int], *, begun: bool = False
    ) -> tuple[str, list[tuple[int, int]]]:
        """The text, and for each id the [start, end) characters it gives bytes to.

        A character whose bytes come from several ids is in the span of each. An id without text
        (special, unused) has an empty span at the end of the text so far: ends never decrease.
        """
        pieces = self._texts(ids, begun)
        text, character_of = characters(b"".join(pieces))
        spans, offset, end = [], 0, 0
        for piece in pieces:
            start, offset = offset, offset + len(piece)
            if start == offset:
                spans.append((end, end))
            else:
                end = character_of[offset - 1] + 1
                spans.append((character_of[start], end))
        return text, spans

    def _texts(self, ids: Sequence[int], begun: bool) -> list[ByteString]:
        """The bytes that each id gives to the text."""
        self._check_range(ids)
        pieces = [self._pieces[id] for id in ids]
        glue = self._codec.glue
        if glue.leading and not begun:
            first = next((place for place, piece in enumerate(pieces) if piece), None)
            if first is not None:
                pieces[first] = pieces[first].removeprefix(b" ")
        if glue.trailing:
            last = next((place for place in reversed(range(len(pieces))) if pieces[place]), None)
            if last is not None:
                pieces[last] = pieces[last].removesuffix(b" ")
        return pieces

    def _check_range(self, ids: Sequence[int]) -> None:
        if len(ids) and not 0 <= min(ids) <= max(ids) < self.size:
            at, id = next((at, id) for at, id in enumerate(ids) if not 0 <= id < self.size)
            raise ValueError(
                f"id {id} at position {at} is outside this vocabulary of {self.size} ids: encode "
                "the text with this vocabulary"
            )

    @property
    def of_tokenizer(self) -> bool:
        """Whether another library's tokenizer cuts the text; False: bytes or declared words."""
        return isinstance(self._codec, TokenizerCodec)

    @property
    def special_names(self) -> Mapping[int, str]:
        """Special id -> its spelling."""
        return MappingProxyType(self._names)

    @property
    def added_names(self) -> frozenset[str]:
        """The spellings of added tokens, special or not."""
        return frozenset(name for name, id in self._codec.added.items() if id < self.size)

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
        """sha256 of what the ids mean, whatever the order of its mappings.

        Further ends, prefix and suffix are no part of it: they do not change what an id means.
        """
        return self._digest({})

    def _digest(self, around: Mapping[str, Any]) -> str:
        hashes = {name: _sha256(text) for name, text in self._codec.files().items()}
        return _sha256(canonical([{**self._header(), **around}, hashes]))

    def _header(self) -> dict[str, Any]:
        names = [field.name for field in fields(SpecialIds) if field.name not in OPTIONAL_ROLES]
        special = {name: getattr(self._special, name) for name in names}
        special["named"] = dict(self._special.named)
        return {"format": FORMAT, "kind": self._codec.kind, **special, **self._codec.content()}

    def _around(self) -> dict[str, list[int]]:
        found = {role: list(getattr(self._special, role)) for role in OPTIONAL_ROLES}
        return {role: ids for role, ids in found.items() if ids}

    def save(self, folder: str | Path) -> None:
        """Write vocabulary.json, and if there are any tokenizer.json and the chat template.

        Each file is there whole or not at all.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        around = self._around()
        content = {**self._header(), **around, "digest": self._digest(around)}
        # Last: a killed save leaves no vocabulary.json, or an old one that its digest refuses.
        last = {VOCABULARY_FILE: json.dumps(content, ensure_ascii=False, indent=1)}
        chat = {}
        if self.chat is not None and not self.chat.refusal:
            chat = {TEMPLATE_FILE: self.chat.source}
        for name, text in {**self._codec.files(), **chat, **last}.items():
            with replacing(Path(folder) / name) as file:
                file.write(text.encode())

    @classmethod
    def load(cls, folder: str | Path) -> Vocab:
        """Read the folder of `save`; ValueError for anything else."""
        path = Path(folder) / VOCABULARY_FILE
        try:
            vocab = cls._from_content(Path(folder), parse_json(read_text(path)))
            vocab.read_chat(folder)
            return vocab
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: {error}; restore it, or save it again") from error

    def read_chat(self, folder: str | Path) -> None:
        """Take over the chat template of a folder, if it has one."""
        if any((Path(folder) / name).exists() for name in CHAT_FILES):
            from anyorder.vocab.chat import find_template  # here: our own folders have none

            self.chat = find_template(Path(folder))

    @classmethod
    def _from_content(cls, folder: Path, content: Any) -> Vocab:
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"not a vocabulary of format {FORMAT}")
        if content.get("kind") not in CODECS:
            raise ValueError(f"unknown kind {content.get('kind')!r}, not among {', '.join(CODECS)}")
        names = {field.name for field in fields(SpecialIds)} - set(OPTIONAL_ROLES)
        if missing := {*names, "digest"} - content.keys():
            raise ValueError(f"the keys {sorted(missing)} are missing")
        codec = CODECS[content["kind"]](folder, content)
        given: dict[str, Any] = {name: content[name] for name in names}
        given |= {role: tuple(content.get(role, ())) for role in OPTIONAL_ROLES}
        vocab = cls(codec, SpecialIds(**given))
        around = vocab._around()
        if unknown := content.keys() - vocab._header().keys() - around.keys() - {"digest"}:
            raise ValueError(f"the keys {sorted(unknown)} are unknown")
        if vocab._digest(around) != content["digest"]:
            raise ValueError("the content does not fit its digest, it was changed or mixed up")
        return vocab


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
