"""A vocabulary from the tokenizer files that lie beside other libraries' models.

A `tokenizer.json`, a folder with one, a folder with `vocab.json` and `merges.txt` (each plain or
gzipped), or a vocabulary that anyorder saved. The special tokens follow from the mask id where that
is the one of a published model (vocab.SPECIALS); otherwise the end of sequence must be told.
"""

from __future__ import annotations

from pathlib import Path

from anyorder.vocab import SPECIALS, VOCABULARY_FILE, SpecialTokens, Vocab


def load_tokenizer(path: Path, mask_id: int | None, eos_id: int | None) -> Vocab:
    """The vocabulary of a file or folder; errors say what is missing."""
    if not path.exists():
        raise ValueError(f"{path} does not exist: name a tokenizer.json or its folder")
    if (path / VOCABULARY_FILE).is_file():
        vocab = Vocab.load(path)
        if eos_id is not None or mask_id not in (None, vocab.mask_id):
            raise ValueError(
                f"{path} says that the mask is {vocab.mask_id} and the end {vocab.eos_id}: leave "
                "--eos-id out, and give no other --mask-id"
            )
        return vocab
    tokens = _special_tokens(mask_id, eos_id)
    if path.is_file():
        return Vocab.from_tokenizer_json(path, **tokens)
    if found := _either(path, "tokenizer.json"):
        return Vocab.from_tokenizer_json(found, **tokens)
    pieces, merges = _either(path, "vocab.json"), _either(path, "merges.txt")
    if pieces and merges:
        return Vocab.from_vocab_merges(pieces, merges, **tokens)
    raise ValueError(
        f"{path} has no tokenizer.json, and not both vocab.json and merges.txt: name the folder "
        "with the model's tokenizer"
    )


def _special_tokens(mask_id: int | None, eos_id: int | None) -> SpecialTokens:
    if mask_id is None:
        raise ValueError("which id is the mask is not in the file: give --mask-id")
    if eos_id is not None:
        return {"mask": mask_id, "pad": eos_id, "eos": eos_id, "pad_is_eos": True}
    for tokens in SPECIALS.values():
        if tokens["mask"] == mask_id or tokens["named"].get(str(tokens["mask"])) == mask_id:
            return tokens
    known = ", ".join(
        f"{tokens['named'][str(tokens['mask'])]} ({name})" for name, tokens in SPECIALS.items()
    )
    raise ValueError(
        f"mask {mask_id} is of no model known here ({known}): give --eos-id, the end of sequence"
    )


def _either(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)
