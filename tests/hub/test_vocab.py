"""Tokenizers of published checkpoints: read natively, their special ids checked twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_checkpoints as made
import made_tokenizers
import pytest

from anyorder.hub.vocab import open_vocab, published_vocab
from anyorder.vocab import Vocab

TEXT = "abcd ef, <|mask|> and <|endoftext|>\n"


def read(folder: Path, **config: Any) -> Vocab:
    told = {"vocab_size": made.ROWS, "eos_token_id": made.END, "mask_token_id": made.MASK}
    return published_vocab(folder, told | config)


@pytest.mark.parametrize("merges", [False, True])
def test_both_kinds_of_files_give_one_vocabulary(tmp_path: Path, merges: bool) -> None:
    made.write_tokenizer(tmp_path, merges=merges)
    vocab = read(tmp_path)
    assert (vocab.mask_id, vocab.eos_id, vocab.pad_id) == (made.MASK, made.END, made.END)
    assert vocab.bos_id == made.BEGIN
    assert vocab.size == made.MASK + 1 < made.ROWS
    assert vocab.special_ids == set(made.ADDED.values())
    ids = vocab.encode(TEXT)
    assert vocab.decode(ids) == TEXT and not vocab.special_ids & set(ids)
    assert vocab.encode("abcd") == [259]
    assert vocab.id_of("<|im_end|>") == made.CLOSE


def test_tokens_beside_tokenizer_json_are_known(tmp_path: Path) -> None:
    made.write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings["added_tokens_decoder"] = {"265": {"content": "<|dlm_pad|>", "special": True}}
    path.write_text(json.dumps(settings | {"pad_token": "<|dlm_pad|>"}))
    vocab = read(tmp_path, pad_token_id=made.END)  # repeated for want of one: not believed
    assert vocab.pad_id == 265 and vocab.token(265) == "<|dlm_pad|>" and vocab.size == 266
    with pytest.raises(ValueError, match=r"pad is 263 in config\.json and 265 in the tokenizer"):
        read(tmp_path, pad_token_id=made.BEGIN)


CONFIGS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "eos": ({}, {"eos_token_id": made.CLOSE}, "eos is 262 in config.json and 260"),
    "several": ({}, {"eos_token_id": [made.CLOSE, made.START]}, "eos is 262 or 261"),
    "mask": ({"mask_token": "<|mask|>"}, {"mask_token_id": made.START}, "mask is 261"),
    "bos": ({}, {"bos_token_id": made.START}, "bos is 261 in config.json and 263"),
    "unknown": ({"bos_token": "<s>"}, {}, "names '<s>', which is no token"),
    "text": ({}, {"mask_token_id": 7}, "ordinary text"),
    "rows": ({}, {"vocab_size": 264}, "has id 264, the network 264 rows"),
    "no rows": ({}, {"vocab_size": None}, "the network None rows"),
}


@pytest.mark.parametrize(("settings", "config", "says"), CONFIGS.values(), ids=CONFIGS)
def test_contradictions_are_refused(
    tmp_path: Path, settings: dict[str, Any], config: dict[str, Any], says: str
) -> None:
    made.write_tokenizer(tmp_path, **settings)
    with pytest.raises(ValueError, match=says):
        read(tmp_path, **config)


def test_one_of_several_ends_is_that_of_the_tokenizer(tmp_path: Path) -> None:
    made.write_tokenizer(tmp_path, eos_token={"content": "<|im_end|>", "special": True})
    vocab = read(tmp_path, eos_token_id=[made.END, made.CLOSE], pad_token_id=made.END)
    assert (vocab.eos_id, vocab.pad_id) == (made.CLOSE, made.END)
    assert vocab.end_ids == (made.CLOSE, made.END)
    made.write_tokenizer(tmp_path, eos_token=None, pad_token=None, bos_token=None)
    vocab = read(tmp_path, eos_token_id=[made.END, made.CLOSE])
    assert (vocab.eos_id, vocab.pad_id, vocab.bos_id) == (made.END, made.END, None)
    with pytest.raises(ValueError, match="no file says which id ends a text"):
        read(tmp_path, eos_token_id=None)


def test_a_left_to_right_model_gets_a_mask_of_no_other_use(tmp_path: Path) -> None:
    made.write_tokenizer(tmp_path)
    assert read(tmp_path, mask_token_id=None).mask_id == made.MASK + 1  # a row of no token
    vocab = read(tmp_path, mask_token_id=None, vocab_size=made.MASK + 1)
    assert vocab.mask_id == made.MASK and vocab.size == made.MASK + 1
    path = tmp_path / "tokenizer.json"
    spec = json.loads(path.read_text())
    spec["added_tokens"] = spec["added_tokens"][:1]
    path.write_text(json.dumps(spec))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ValueError, match="no id is left for the mask"):
        read(tmp_path, mask_token_id=None, vocab_size=made.END + 1)


def test_what_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        open_vocab(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"no tokenizer\.json, and not both"):
        open_vocab(tmp_path)
    made.write_tokenizer(tmp_path, merges=True, tokenizer_class="GPT2Tokenizer")
    with pytest.raises(ValueError, match="a GPT2Tokenizer without"):
        read(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": [["a", 0.5]]}}))
    with pytest.raises(ValueError, match=r"not a whole tokenizer\.json"):
        read(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match="cut off or not JSON"):
        read(tmp_path)


@pytest.mark.parametrize("kind", list(made_tokenizers.KINDS))
def test_folders_of_every_kind_of_tokenizer(tmp_path: Path, kind: str) -> None:
    tokenizer = made_tokenizers.KINDS[kind]()
    tokenizer.save_pretrained(tmp_path)
    record = {"vocab_size": len(tokenizer) + 3, "eos_token_id": tokenizer.eos_token_id}
    (tmp_path / "config.json").write_text(json.dumps(record))
    read, told = open_vocab(tmp_path), Vocab.from_transformers(tokenizer)
    for name in ("mask_id", "pad_id", "bos_id", "end_ids", "prefix_ids", "suffix_ids"):
        assert getattr(read, name) == getattr(told, name)
    assert read.special_ids == told.special_ids
    assert read.encode("the fox") == tokenizer.encode("the fox", add_special_tokens=False)


def test_our_own_vocabulary_comes_first(tmp_path: Path) -> None:
    Vocab.bytes().save(tmp_path)
    assert open_vocab(tmp_path).digest() == Vocab.bytes().digest()


@pytest.mark.parametrize("merges", [pytest.param(False, marks=pytest.mark.long), True])
def test_the_real_tokenizer_of_dream(
    tmp_path: Path, data_file: Callable[[str], Path], merges: bool
) -> None:
    made.write_dream_tokenizer(tmp_path, data_file, merges=merges)
    told = {"vocab_size": 152_064, "mask_token_id": 151_666}
    told |= dict.fromkeys(("eos_token_id", "pad_token_id", "bos_token_id"), 151_643)
    vocab = published_vocab(tmp_path, told)
    assert (vocab.mask_id, vocab.bos_id, vocab.eos_id) == (151_666, 151_665, 151_643)
    assert vocab.size == 151_667
    text = "def f(x):\n    return x + 1  # größer <tool_call>\n"
    assert vocab.decode(vocab.encode(text)) == text
    assert vocab.encode("def f(x):") == [750, 282, 2075, 1648]


@pytest.mark.long
@pytest.mark.parametrize("merges", [False, True])
def test_special_tokens_of_a_preset(
    tmp_path: Path, data_file: Callable[[str], Path], merges: bool
) -> None:
    """LatentMDM's choice on Qwen2's tokenizer, whatever config.json and the other tokens say."""
    made.write_dream_tokenizer(tmp_path, data_file, merges=merges)
    vocab = open_vocab(tmp_path, "qwen2")
    assert (vocab.size, vocab.mask_id, vocab.eos_id) == (151_645, 151_644, 151_643)
    assert vocab.bos_id is None
    text = "a <|im_end|> b"
    assert vocab.decode(vocab.encode(text)) == text
    dream = open_vocab(tmp_path, "dream")
    assert (dream.size, dream.mask_id, dream.bos_id) == (152_064, 151_666, 151_665)
