"""The tokenizer of a published checkpoint, read natively: no code of the checkpoint is run.

`tokenizer.json` if there is one, otherwise Qwen2's `vocab.json` and `merges.txt` with the added
tokens of `tokenizer_config.json` and `added_tokens.json`. Two files name the special tokens:
tokenizer_config.json by spelling and config.json by id. If they contradict each other the folder is
refused, with one exception: config.json often repeats the id of eos as bos or pad because the model
has none. Then the tokenizer decides.

A chat model has several ends: all that config.json and generation_config.json list are `end_ids`.

The table of a network often has more rows than the tokenizer has tokens. The vocabulary ends with
the last token, and decoders never draw an id beyond it. A left-to-right model has no mask: the
first row beyond the tokens becomes it, or else the last special token without another role. Block
models whose files name no mask were trained with the id in `MASKS`.

The folder's chat template goes with the vocabulary. Not here: cutting text (anyorder/vocab).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anyorder.vocab import SPECIALS, VOCABULARY_FILE, SpecialTokens, Vocab
from anyorder.vocab.special import spelling_in

QWEN_CLASSES = ("", "Qwen2Tokenizer", "Qwen2TokenizerFast", "DreamTokenizer")
"""Tokenizers that cut text as Qwen2 does; the empty name: the folder gives none."""
MASKS = {"sdar": 151_669, "fast_dllm_qwen": 151_665}
"""model_type in lower case -> the mask that its models were trained with."""


def open_vocab(folder: Path, preset: str | None = None) -> Vocab:
    """The vocabulary of a folder: ours, or a published tokenizer with its config.json.

    `preset`: take the special tokens and the size from `SPECIALS`, not from the folder.
    """
    if preset is not None:
        if preset not in SPECIALS:
            raise ValueError(f"unknown special tokens {preset!r}: choose {' or '.join(SPECIALS)}")
        vocab = _Files(folder).vocab(SPECIALS[preset])
    elif (folder / VOCABULARY_FILE).is_file():
        return Vocab.load(folder)
    else:
        vocab = published_vocab(folder, _json(folder / "config.json"))
    vocab.read_chat(folder)
    return vocab


def published_vocab(folder: Path, record: Mapping[str, Any]) -> Vocab:
    """The tokenizer of a folder with its special ids checked against config.json (`record`)."""
    files = _Files(folder)
    named = _Roles(folder, record, files)
    roles = named.found()
    usual = MASKS.get(str(record.get("model_type")).lower())
    if usual is not None:
        roles.setdefault("mask", usual)
    rows = record.get("embedding_size") or record.get("vocab_size")
    last = max(files.last, *files.spelled.values(), *roles.values())
    if not isinstance(rows, int) or last >= rows:
        raise ValueError(
            f"{folder}: the tokenizer has id {last}, the network {rows} rows: is it the tokenizer "
            "of another model?"
        )
    mask = roles.get("mask")
    if mask is None:
        mask = _spare(folder, last, rows, files.spelled, set(roles.values()))
    return files.vocab(
        {
            "mask": mask,
            "pad": roles["pad"],
            "eos": roles["eos"],
            "bos": roles.get("bos"),
            "ends": named.ends(besides=(mask, roles["eos"])),
            "pad_is_eos": roles["pad"] == roles["eos"],
            "size": max(last, mask) + 1,
        }
    )


class _Files:
    """The files of a tokenizer, in either form."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = _optional(folder / "tokenizer_config.json")
        self.whole = _either(folder, "tokenizer.json")
        self.pieces, self.merges = _either(folder, "vocab.json"), _either(folder, "merges.txt")
        if self.whole is None and (self.pieces is None or self.merges is None):
            raise ValueError(
                f"{folder} has no tokenizer.json, and not both vocab.json and merges.txt: a "
                "vocabulary is read from these"
            )
        self.beside = self._beside()
        """The added tokens outside tokenizer.json, by spelling."""
        if self.whole is not None:
            spec = _dict(self.whole)
            own = {token["content"]: token["id"] for token in spec.get("added_tokens", ())}
            table = spec.get("model", {}).get("vocab")
            if isinstance(table, list):  # Unigram: pieces with their scores, in the order of ids
                table = {str(entry[0]): id for id, entry in enumerate(table)}
            self.beside = {name: each for name, each in self.beside.items() if name not in own}
        else:
            kind = str(self.settings.get("tokenizer_class") or "")
            if kind not in QWEN_CLASSES:
                raise ValueError(
                    f"{folder}: the tokenizer is a {kind} without tokenizer.json, and how it cuts "
                    "text is not known here: save it as tokenizer.json with its own library"
                )
            assert self.pieces is not None
            own, table = {}, _json(self.pieces)
        if not isinstance(table, dict):
            raise ValueError(f"{folder}: the tokenizer has no table of tokens: restore its files")
        self.last = max(table.values(), default=-1)
        """The largest id of ordinary text."""
        self.spelled = own | {name: each["id"] for name, each in self.beside.items()}
        """Added tokens by spelling -> id."""

    def _beside(self) -> dict[str, dict[str, Any]]:
        found = {}
        try:
            for id, token in (self.settings.get("added_tokens_decoder") or {}).items():
                found[token["content"]] = {**_PLAIN, **token, "id": int(id)}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.folder / 'tokenizer_config.json'}: added_tokens_decoder is no table of "
                f"tokens ({error!r}): restore it"
            ) from None
        for name, id in _optional(self.folder / "added_tokens.json").items():
            entry = found.setdefault(name, {**_PLAIN, "content": name, "id": id})
            if entry["id"] != id:
                raise ValueError(
                    f"{self.folder}: {name!r} has the ids {entry['id']} and {id}: restore the files"
                )
        return dict(sorted(found.items(), key=lambda item: item[1]["id"]))

    def vocab(self, tokens: SpecialTokens) -> Vocab:
        if self.whole is not None:
            named = {name: each["id"] for name, each in self.beside.items()}
            # A preset lists its tokens itself.
            both: SpecialTokens = {**tokens, "named": tokens.get("named", named)}
            return Vocab.from_tokenizer_json(self.whole, **both)
        assert self.pieces is not None and self.merges is not None
        added = list(self.beside.values())
        return Vocab.from_vocab_merges(self.pieces, self.merges, added, **tokens)


class _Roles:
    """The id of each special token, as the two files give it."""

    def __init__(
        self,
        folder: Path,
        record: Mapping[str, Any],
        files: _Files,
    ) -> None:
        self.folder, self.spelled, settings = folder, files.spelled, files.settings
        generation = _optional(folder / "generation_config.json")
        self.stated = {
            role: self._ids(f"{role}_token_id", record, generation)
            for role in ("mask", "eos", "pad", "bos")
        }
        self.listed = [*self.stated["eos"], *self._ids("eos_token_id", generation)]
        """Every id that config.json or generation_config.json calls an end."""
        special = _optional(folder / "special_tokens_map.json")
        self.named = {
            role: self._spelled_id(settings.get(f"{role}_token", special.get(f"{role}_token")))
            for role in (*self.stated, "sep", "cls")
        }

    def _ids(self, key: str, *records: Mapping[str, Any]) -> list[int]:
        """One id, several or none, from the first record that has the key."""
        value = next((record[key] for record in records if key in record), None)
        several = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(each) is int for each in several):
            raise ValueError(f"{self.folder / 'config.json'}: {key} is {value!r}, which is no id")
        return several

    def _spelled_id(self, token: Any) -> int | None:
        spelling = spelling_in(token)
        if spelling is None:
            return None
        if spelling not in self.spelled:
            raise ValueError(
                f"{self.folder}: tokenizer_config.json names {spelling!r}, which is no token of "
                "the tokenizer: restore the tokenizer's files"
            )
        return self.spelled[spelling]

    def found(self) -> dict[str, int]:
        eos = self._agreed("eos")
        if eos is None:  # BERT has none: [SEP] ends a text
            eos = self.named["sep"]
        if eos is None:
            raise ValueError(f"{self.folder}: no file says which id ends a text (eos_token_id)")
        roles = {"eos": eos}
        for role in ("mask", "pad", "bos"):
            stated = self.stated[role]
            if role != "mask" and set(stated) <= {*self.stated["eos"], eos}:
                # Probably eos repeated because there is none: trust the tokenizer alone.
                id = self.named[role]
            else:
                id = self._agreed(role)
            if id is not None:
                roles[role] = id
        if self.named["cls"] is not None:
            roles.setdefault("bos", self.named["cls"])
        roles.setdefault("pad", eos)
        return roles

    def ends(self, besides: Sequence[int]) -> list[int]:
        """Further special tokens that the files call an end of text."""
        spelled = set(self.spelled.values()) - {*besides}
        return [id for id in dict.fromkeys(self.listed) if id in spelled]

    def _agreed(self, role: str) -> int | None:
        stated, named = self.stated[role], self.named[role]
        if role == "eos":  # generation_config.json lists further ones
            stated = list(dict.fromkeys(self.listed))
        if stated and named is not None and named not in stated:
            raise ValueError(
                f"{self.folder}: {role} is {' or '.join(map(str, stated))} in config.json and "
                f"{named} in the tokenizer: is it the tokenizer of another model?"
            )
        if named is not None:
            return named
        return stated[0] if stated else None


def _spare(folder: Path, last: int, rows: int, spelled: Mapping[str, int], taken: set[int]) -> int:
    """An id for the mask: one that means no text and has no other role."""
    if last + 1 < rows:
        return last + 1
    free = [id for name, id in spelled.items() if id not in taken and name.startswith("<|")]
    if free:
        return max(free)
    raise ValueError(
        f"{folder}: no id is left for the mask: the network has no row beyond the tokenizer's "
        f"{last + 1} tokens, and every special token plays a part"
    )


_PLAIN = {
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": False,
    "special": True,
}


def _optional(path: Path) -> dict[str, Any]:
    return _dict(path) if path.is_file() else {}


def _dict(path: Path) -> dict[str, Any]:
    record = _json(path)
    if not isinstance(record, dict):
        raise ValueError(f"{path} holds no dictionary: restore it")
    return record


def _json(path: Path) -> Any:
    try:
        data = path.read_bytes()
        return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path} is missing, cut off or not JSON ({error}): restore it") from None


def _either(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)
