"""The tokenizers of others: any `tokenizer.json`, cut by the `tokenizers` library.

    byte-level BPE       GPT-2, RoBERTa, Qwen, Dream, LLaDA, Llama 3, ModernBERT, SmolLM2
    byte-fallback BPE    Llama 2, Gemma, Mistral
    WordPiece            BERT
    Unigram              XLM-R, T5, ALBERT
    words, other BPE     lists of words, CLIP

The library cuts text; pieces.py says what each id's text is. Three of its habits are undone:

- The spelling of a special token is ordinary text here. Where a special token is an entry of the
  table that ordinary text could reach (Unigram gives it the best score), the entry is renamed.
- Text that the tokenizer does not know is refused at its place: the unknown token is never an id of
  a text, and characters that would vanish without a trace (byte-level tables that lack a byte) are
  found before.
- Truncation, padding and marks around the text are switched off; `frame` holds the marks.

The library is imported by `encoder` and `frame` only: decoding needs none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from anyorder.vocab.codecs import (
    BYTE_OF,
    QWEN2_SPLIT,
    TOKENIZER_FILE,
    ByteCodec,
    Codec,
    Encoder,
    WordCodec,
    canonical,
    parse_json,
    read_text,
    utf8,
)
from anyorder.vocab.pieces import is_byte_level, spelling_of, steps_of

_MODELS = ("BPE", "Unigram", "WordPiece", "WordLevel")
# These normalisers keep the text, up to NFC; Replace only if it writes spaces as another character.
_KEEP_TEXT = ("NFC", "Prepend", "ByteLevel")
_DROP_SPACES = ("WhitespaceSplit", "Whitespace", "BertPreTokenizer", "CharDelimiterSplit")


class TokenizerCodec(Codec):
    """A tokenizer in the format of the `tokenizers` library."""

    def __init__(self, spec: Any, text: str) -> None:
        """`spec` is the parsed tokenizer.json, `text` its text as it will be saved."""
        self.text = text
        try:
            self._model = _Table(spec["model"])
            added = list(spec["added_tokens"])
            self.added = {token["content"]: token["id"] for token in added}
            flagged = {token["id"] for token in added if token["special"]}
            self.patterns = {token["content"]: _pattern(token) for token in added}
            byte_level = is_byte_level(spec)
            spelling = spelling_of(spec)
            self.lossy = _is_lossy(spec)
            self.marks_start = any(
                step["type"] == "Metaspace" and step.get("prepend_scheme") == "first"
                for step in steps_of(spec["pre_tokenizer"])
            )
        except (AttributeError, KeyError, TypeError, StopIteration) as error:
            raise ValueError(f"not a whole tokenizer.json ({error!r}): check the path") from error
        # Folders of version 0.2 and before hold byte-level BPE only, under this name.
        self.kind = "bpe" if byte_level and self._model.kind == "BPE" else "tokenizer"
        base = self._model.ids
        ids = {**base, **self.added}.values()
        if not all(type(id) is int and id >= 0 for id in ids) or len(set(ids)) < len(ids):
            raise ValueError("the ids of a tokenizer must be integers from 0 on, each used once")
        self.unknown = self._model.unknown
        """The id of text that the tokenizer does not know."""
        if self.unknown is not None:
            flagged.add(self.unknown)
            name = next(name for name, id in {**base, **self.added}.items() if id == self.unknown)
            self.added.setdefault(name, self.unknown)
        self.flagged, self.glue = frozenset(flagged), spelling.glue
        self.pieces = {
            id: spelling.piece(token) for token, id in base.items() if token not in self.added
        }
        self.added_pieces = {
            id: utf8(name) if byte_level else spelling.piece(name)
            for name, id in self.added.items()
        }
        self._byte_level = byte_level

    @classmethod
    def of(cls, spec: Any) -> TokenizerCodec:
        """The codec of a parsed tokenizer.json, as another library wrote it."""
        if isinstance(spec, dict):
            # How its library cuts and pads batches; calling a tokenizer changes it.
            spec = spec | {name: None for name in ("truncation", "padding") if name in spec}
        return cls(spec, canonical(spec))

    @classmethod
    def qwen2(
        cls, vocab: Any, merges: str, added: Sequence[Mapping[str, Any]] = ()
    ) -> TokenizerCodec:
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
        spec = json.loads(self.text)
        backend = self._backend(self._without(spec, never))
        inner = backend
        if _forget_start(spec):
            inner = self._backend(self._without(spec, never))

        def encode(text: str, *, begun: bool = False) -> list[int]:
            utf8(text)
            library = inner if begun else backend
            if self._vanishing:
                self._refuse_vanishing(library, text)
            try:
                found = library.encode(text, add_special_tokens=False)
            except Exception as error:  # noqa: BLE001  the library raises no other kind
                raise ValueError(
                    f"the tokenizer refuses the text {text[:40]!r} ({error}): take out what it "
                    "does not know"
                ) from None
            ids: list[int] = found.ids
            if not never.isdisjoint(ids):
                at = next(place for place, id in enumerate(ids) if id in never)
                if ids[at] == self.unknown:
                    start, end = found.offsets[at]
                    raise _not_in(text, start, text[start:end] or text[start : start + 1])
                name = backend.id_to_token(ids[at])
                raise ValueError(
                    f"this tokenizer cannot cut the special token {name!r} into ordinary ones: "
                    "take it out of the text, or put the prompt together from ids"
                )
            return ids

        return encode

    def _backend(self, spec: Mapping[str, Any], *, cuts_specials: bool = True) -> Any:
        from tokenizers import Tokenizer

        try:
            backend = Tokenizer.from_str(canonical(spec))
        except Exception as error:  # the library raises plain Exception for every fault
            raise ValueError(f"the tokenizers library refuses this tokenizer: {error}") from error
        kept = {token["content"]: token["id"] for token in spec["added_tokens"]}
        if moved := [name for name, id in kept.items() if backend.token_to_id(name) != id]:
            raise ValueError(f"the library numbers {moved} otherwise: added ids must have no gaps")
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = cuts_specials  # i.e. treat their spelling as text
        return backend

    def _without(self, spec: Any, never: frozenset[int]) -> Any:
        """The tokenizer with every token in `never` cut as ordinary text."""
        spec = {**spec, "added_tokens": [dict(token) for token in spec["added_tokens"]]}
        # The library cuts only tokens flagged as special into ordinary ones: flag the others too.
        for token in spec["added_tokens"]:
            token["special"] = token["special"] or token["id"] in never
        hidden = {
            name: id
            for name, id in self._model.ids.items()
            if id in never and (id != self.unknown or self._model.kind == "Unigram")
        }
        if self._model.kind != "BPE" and hidden:
            # BPE builds tokens by merges, and these have none. The others look whole words up.
            spec["model"] = self._model.renamed(hidden)
            kept = [token for token in spec["added_tokens"] if token["content"] not in hidden]
            spec["added_tokens"] = kept
        return spec

    @cached_property
    def _vanishing(self) -> bool:
        """Whether the library drops characters that it does not know, without a trace."""
        model = self._model
        if model.kind != "BPE" or self.unknown is not None:
            return False
        if self._byte_level:
            # No UTF-8 text holds the bytes C0, C1 or F5 to FF: a tokenizer may lack them.
            needed = {c for c, b in BYTE_OF.items() if b not in (0xC0, 0xC1) and b < 0xF5}
            return not needed <= model.ids.keys()
        return not (
            model.byte_fallback and {f"<0x{b:02X}>" for b in range(256)} <= model.ids.keys()
        )

    def _refuse_vanishing(self, library: Any, text: str) -> None:
        normal = text if library.normalizer is None else library.normalizer.normalize_str(text)
        words = [(normal, (0, len(normal)))]
        if library.pre_tokenizer is not None:
            words = library.pre_tokenizer.pre_tokenize_str(normal)
        for word, (start, end) in words:
            lost = self._model.lost(word)
            if lost is None:
                continue
            lacks = BYTE_OF.get(lost) if self._byte_level else None
            for place in range(start, end):
                if normal[place] == lost or (lacks is not None and lacks in utf8(normal[place])):
                    raise _not_in(normal, place, normal[place])
            raise _not_in(normal, start, normal[start:end])

    @cached_property
    def frame(self) -> tuple[tuple[int, ...], tuple[int, ...]]:  # type: ignore[override]
        spec = json.loads(self.text)
        # Building a large tokenizer takes seconds, and most put nothing around a text.
        if all(step["type"] == "ByteLevel" for step in steps_of(spec.get("post_processor"))):
            return (), ()
        backend = self._backend(spec)
        count = backend.num_special_tokens_to_add(False)
        for text in ("a", ".", "1", "the", " "):
            inner = backend.encode(text, add_special_tokens=False).ids
            whole = backend.encode(text, add_special_tokens=True).ids
            for start in range(count + 1):
                end = start + len(inner)
                if inner and len(whole) == count + len(inner) and whole[start:end] == inner:
                    return tuple(whole[:start]), tuple(whole[end:])
        if not count:
            return (), ()
        raise ValueError(
            "what this tokenizer puts before and after a text is not found: name it by prefix= and "
            "suffix="
        )

    def files(self) -> dict[str, str]:
        return {TOKENIZER_FILE: self.text}


class _Table:
    """The model of a tokenizer: its tokens, and the settings that decide what text it knows."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._model = model
        table = model["vocab"]
        self.kind: str = model.get("type") or ("Unigram" if isinstance(table, list) else "BPE")
        if self.kind not in _MODELS:
            raise ValueError(
                f"a tokenizer of type {self.kind!r} is not known here, only {', '.join(_MODELS)}"
            )
        if model.get("dropout") or model.get("alpha") or model.get("nbest_size"):
            raise ValueError(
                "this tokenizer cuts text at random (dropout or sampling): switch it off in its "
                "model, so that a text has one list of ids"
            )
        if not table or not isinstance(table, list if self.kind == "Unigram" else dict):
            raise TypeError("no table of tokens")
        names = [entry[0] for entry in table] if self.kind == "Unigram" else list(table)
        self.ids: dict[str, int] = (
            {name: id for id, name in enumerate(names)} if self.kind == "Unigram" else dict(table)
        )
        if len(self.ids) < len(names):
            raise ValueError("the ids of a tokenizer must be integers from 0 on, each used once")
        self.byte_fallback = bool(model.get("byte_fallback"))
        self.unknown: int | None = (
            model.get("unk_id")
            if self.kind == "Unigram"
            else self.ids.get(model.get("unk_token") or "")
        )

    def renamed(self, hidden: Mapping[str, int]) -> dict[str, Any]:
        """The model with these tokens under names that no text reaches."""
        # A word cannot hold all of these: the library's own pre-tokenizers split at them.
        names = {name: f"\ufdd0 hidden {id}\ufdd0" for name, id in hidden.items()}
        table = self._model["vocab"]
        if self.kind == "Unigram":
            new: Any = [[names.get(name, name), score] for name, score in table]
        else:
            new = {names.get(name, name): id for name, id in table.items()}
        return {**self._model, "vocab": new}

    def lost(self, word: str) -> str | None:
        """The first character of a word that BPE has no token for; None: it knows all."""
        if self._model.get("ignore_merges") and word in self.ids:
            return None
        prefix = self._model.get("continuing_subword_prefix") or ""
        suffix = self._model.get("end_of_word_suffix") or ""
        for place, character in enumerate(word):
            name = prefix * (place > 0) + character + suffix * (place == len(word) - 1)
            known = name in self.ids
            if not known and self.byte_fallback:
                known = all(f"<0x{byte:02X}>" in self.ids for byte in utf8(name))
            if not known:
                return character
        return None


def _not_in(text: str, place: int, what: str) -> ValueError:
    return ValueError(
        f"this tokenizer does not know {what[:40]!r} at character {place} (after "
        f"{text[max(0, place - 20) : place]!r}): take it out of the text"
    )


def _pattern(token: Mapping[str, Any]) -> str:
    """How the library finds an added token."""
    pattern = re.escape(token["content"])
    if token.get("single_word"):
        pattern = rf"(?<!\w){pattern}(?!\w)"
    return r"\s*" * bool(token.get("lstrip")) + pattern + r"\s*" * bool(token.get("rstrip"))


def _is_lossy(spec: Mapping[str, Any]) -> bool:
    for step in steps_of(spec.get("normalizer")):
        writes_spaces = step["type"] == "Replace" and step["pattern"] == {"String": " "}
        if step["type"] not in _KEEP_TEXT and not writes_spaces:
            return True
    return any(
        step["type"] in _DROP_SPACES
        or step.get("behavior") == "Removed"
        or (step["type"] == "ByteLevel" and step.get("add_prefix_space"))
        # "x" and " x" become the same ids
        or (step["type"] == "Metaspace" and step.get("prepend_scheme", "always") != "never")
        for step in steps_of(spec["pre_tokenizer"])
    )


def _forget_start(spec: dict[str, Any]) -> bool:
    """Change a tokenizer so that it puts no space before a text; False: it puts none."""
    changed = False
    steps = list(steps_of(spec["pre_tokenizer"]))
    for step in steps:
        # Behind a step that splits at spaces, the marks of all words are made by this one.
        if step["type"] == "Metaspace" and step is steps[0]:
            changed = step.get("prepend_scheme", "always") != "never"
            step |= {"prepend_scheme": "never", "add_prefix_space": False}
    for step in steps_of(spec.get("normalizer")):
        if step["type"] == "Prepend":
            changed = True
            step["prepend"] = ""
    return changed


def _read(folder: Path) -> TokenizerCodec:
    text = read_text(folder / TOKENIZER_FILE)
    return TokenizerCodec(parse_json(text), text)


CODECS: Mapping[str, Callable[[Path, Mapping[str, Any]], Codec]] = MappingProxyType(
    {
        "byte": lambda folder, content: ByteCodec(),
        "word": lambda folder, content: WordCodec(content.get("pieces", ())),
        "bpe": lambda folder, content: _read(folder),
        "tokenizer": lambda folder, content: _read(folder),
    }
)
