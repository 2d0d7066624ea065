"""Vocab: lossless text, exact spans, special ids that keep their contract, strict files.

The small BPE tokenizers are trained here by the `tokenizers` library; the real Qwen2 files are
used where the data folder has them.
"""

from __future__ import annotations

import gzip
import json
import pickle
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

from anyorder.vocab import SPECIALS, Vocab
from anyorder.vocab.codecs import BYTE_OF

END, MASK, TOOL = "<|endoftext|>", "<|mask|>", "<tool_call>"
GRIN, E_ACUTE, E_COMBINED = "\U0001f600", "\u00e9", "e\u0301"
WORDS = [
    "x",
    "xy",
    "xyz",
    " ",
    "\n",
    "    ",
    "def ",
    "de",
    "f",
    "(",
    "x)",
    "=",
    "==",
    E_ACUTE,
    GRIN,
]
TEXTS = [
    "",
    "\n",
    " ",
    "def f(x):\n    return x ** 2  # squares\n\n\n\tif True:\r\n        pass   \n",
    "12345 + 67890 = 80235; 3.14159e-10",
    "It's WE'LL they're I'd DON'T",
    f"{GRIN}{GRIN} caf{E_ACUTE} na{E_COMBINED}ve \ufb01 \u00c5 A\u030a",
    "\u4f60\u597d\uff0c\u4e16\u754c \u0645\u0631\u062d\u0628\u0627 \u0e2a\u0e27\u0e31\u0e2a",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1f7",
    "   three,  two, one \u00a0 no-break\u3000wide\u2028line",
    "x" * 300 + " " * 300 + "\n" * 50 + "!?" * 100,
    "\x00\x01\x7f\ufffd\uffff\U0010ffff",
]
unicode_text = st.text(max_size=60)  # all of Unicode but halves of surrogate pairs


def small_tokenizer(ignore_merges: bool = False, regex: bool = True) -> Tokenizer:
    """Byte-level BPE with END and MASK flagged special (and in the base table), TOOL not."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)
    tokenizer.pre_tokenizer, tokenizer.decoder = byte_level, decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=[END, MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*TEXTS, "the end of the text of the mask" * 3], trainer)
    tokenizer.add_tokens([AddedToken(TOOL, normalized=False), AddedToken("        ")])
    return tokenizer


def small_bpe(folder: Path, tokenizer: Tokenizer, **tokens: Any) -> Vocab:
    path = folder / "source.json"
    tokenizer.save(str(path))
    usual: dict[str, Any] = {"mask": MASK, "pad": END, "eos": END, "pad_is_eos": True}
    return Vocab.from_tokenizer_json(path, **(usual | tokens))


@pytest.fixture(scope="session")
def library() -> Tokenizer:
    return small_tokenizer()


@pytest.fixture(scope="session")
def bpe(library: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Vocab:
    return small_bpe(tmp_path_factory.mktemp("bpe"), library, size=400)


@pytest.fixture(scope="session")
def tool_as_mask(library: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Vocab:
    """Its mask is an added token that the tokenizer does not flag as special."""
    return small_bpe(tmp_path_factory.mktemp("tool"), library, mask=TOOL)


@pytest.fixture(scope="session", params=["byte", "word", "bpe"])
def vocab(request: pytest.FixtureRequest, bpe: Vocab) -> Vocab:
    return {"byte": Vocab.bytes(), "word": Vocab.words(WORDS), "bpe": bpe}[request.param]


def sample_text(vocab: Vocab) -> str:
    return f"def xyz(x)==x\n    {GRIN}{E_ACUTE}" if vocab.size < 50 else "\n".join(TEXTS)


def piece_bytes(vocab: Vocab, library: Tokenizer, id: int) -> bytes:
    """The bytes of one id, from the library's own spelling."""
    token = library.id_to_token(id)
    if token is None or id in vocab.special_ids:
        return b""
    plain = any(character not in BYTE_OF for character in token)
    return token.encode() if plain else bytes(BYTE_OF[character] for character in token)


def spells_added_token(library: Tokenizer, text: str) -> bool:
    """There the library yields special ids where we by contract do not."""
    return any(token.content in text for token in library.get_added_tokens_decoder().values())


def reference_spans(pieces: list[bytes]) -> tuple[str, list[tuple[int, int]]]:
    """One character at a time: the first of the valid bytes, or what a strict decoder rejects."""
    data, text = b"".join(pieces), ""
    character_of: list[int] = []
    while rest := data[len(character_of) :]:
        valid, rejected = len(rest), 0
        try:
            rest.decode()
        except UnicodeDecodeError as error:
            valid, rejected = error.start, error.end
        character = rest[:valid].decode()[:1]
        character_of += [len(text)] * (len(character.encode()) or rejected)
        text += character or "\ufffd"
    spans, offset, end = [], 0, 0
    for piece in pieces:
        owners = character_of[offset : offset + len(piece)]
        offset += len(piece)
        end = owners[-1] + 1 if owners else end
        spans.append((owners[0] if owners else end, end))
    return text, spans


# Bytes


def test_byte_vocabulary_is_256_bytes_then_the_specials() -> None:
    vocab = Vocab.bytes()
    assert (vocab.size, vocab.mask_id, vocab.pad_id, vocab.bos_id, vocab.eos_id) == (
        260, 256, 257, 258, 259,
    )  # fmt: skip
    assert vocab.encode("a\n" + E_ACUTE) == [97, 10, 0xC3, 0xA9]
    assert [vocab.token(id) for id in (97, 10, 0xC3, 256, 259)] == [
        "a", "\n", "\\xc3", "<mask>", "<eos>",
    ]  # fmt: skip
    assert [vocab.id_of(token) for token in ("a", "\\xc3", "<bos>")] == [97, 0xC3, 258]


@given(unicode_text)
def test_bytes_give_every_text_back(text: str) -> None:
    vocab = Vocab.bytes()
    assert vocab.decode(vocab.encode(text)) == text


def test_half_a_surrogate_pair_is_no_text(vocab: Vocab) -> None:
    with pytest.raises(ValueError, match="ud800"):
        vocab.encode("x\ud800")


# Words


def test_words_take_the_longest_match() -> None:
    vocab = Vocab.words(["a", "ab", "abc", ".", "a.c"])
    assert vocab.encode("abcaba.c.") == [2, 1, 4, 3]
    assert (vocab.mask_id, vocab.pad_id, vocab.bos_id, vocab.eos_id, vocab.size) == (5, 6, 7, 8, 9)
    assert vocab.token(2) == "abc"
    assert vocab.id_of("abc") == 2


@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_words_are_lossless_and_each_the_longest(pieces: list[str]) -> None:
    vocab, text = Vocab.words(WORDS), "".join(pieces)
    ids = vocab.encode(text)
    assert vocab.decode(ids) == text
    assert vocab.spans(ids) == reference_spans([WORDS[id].encode() for id in ids])
    for id, (start, _) in zip(ids, vocab.spans(ids)[1], strict=True):
        assert WORDS[id] == max((word for word in WORDS if text.startswith(word, start)), key=len)


def test_unknown_text_is_named_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"'\?' at character 3 \(after 'xyz'\).*add a piece"):
        Vocab.words(WORDS).encode("xyz?x")
    with pytest.raises(ValueError, match="'m' at character 1 "):
        Vocab.words(["<"]).encode("<mask>")


@pytest.mark.parametrize("pieces", [[], ["a", ""], ["a", "b", "a"], ["a", "\ud800"], ["a", 3]])
def test_impossible_pieces_are_refused(pieces: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"piece|surrogate"):
        Vocab.words(pieces)


# BPE


def test_the_alphabet_of_bytes_is_the_librarys() -> None:
    assert sorted(BYTE_OF.values()) == list(range(256))
    assert set(BYTE_OF) == set(pre_tokenizers.ByteLevel.alphabet())
    spelled = "".join(next(c for c, b in BYTE_OF.items() if b == byte) for byte in GRIN.encode())
    assert decoders.ByteLevel().decode([spelled]) == GRIN
    for character, byte in BYTE_OF.items():
        if byte < 128:
            assert decoders.ByteLevel().decode([character]) == chr(byte)


@settings(deadline=None)
@given(text=unicode_text)
def test_bpe_is_lossless_and_cuts_as_the_library(bpe: Vocab, library: Tokenizer, text: str) -> None:
    assume(not spells_added_token(library, text))
    ids = bpe.encode(text)
    assert ids == library.encode(text).ids
    assert bpe.decode(ids) == text


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 399), max_size=40))
def test_bpe_decodes_any_ids_as_the_library(bpe: Vocab, library: Tokenizer, ids: list[int]) -> None:
    assert bpe.decode(ids) == library.decode(ids)


def test_ordinary_added_tokens_are_kept_whole_and_special_ones_spelled_out(bpe: Vocab) -> None:
    text = f"a{TOOL}b{END}{MASK}{' ' * 8}c"
    ids = bpe.encode(text)
    assert bpe.special_ids == {bpe.id_of(END), bpe.id_of(MASK)} == {0, 1}
    assert bpe.special_ids.isdisjoint(ids)
    assert {bpe.id_of(TOOL), bpe.id_of(" " * 8)} <= set(ids)
    assert bpe.decode(ids) == text


@settings(deadline=None)
@given(
    parts=st.lists(st.sampled_from([END, MASK, TOOL, "<|", "mask", "|>", "<", " ", GRIN])),
    choice=st.booleans(),
)
def test_encode_never_yields_a_special_id(
    bpe: Vocab, tool_as_mask: Vocab, parts: list[str], choice: bool
) -> None:
    vocab, text = tool_as_mask if choice else bpe, "".join(parts)
    ids = vocab.encode(text)
    assert vocab.mask_id in vocab.special_ids
    assert vocab.token(vocab.mask_id) == (TOOL if choice else MASK)
    assert vocab.special_ids.isdisjoint(ids)
    assert vocab.decode(ids) == text


def test_special_spellings_become_ids_on_request(vocab: Vocab) -> None:
    eos, mask = vocab.token(vocab.eos_id), vocab.token(vocab.mask_id)
    x = vocab.encode("x")
    ids = vocab.encode(f"{eos}x{mask}{mask}x", specials=True)
    assert ids == [vocab.eos_id, *x, vocab.mask_id, vocab.mask_id, *x]
    assert vocab.encode("x", specials=True) == x
    assert vocab.encode("", specials=True) == []


def test_a_special_token_that_cannot_be_spelled_out_is_an_error(tmp_path: Path) -> None:
    vocab = small_bpe(tmp_path, small_tokenizer(ignore_merges=True, regex=False))
    assert vocab.decode(vocab.encode(f"a{MASK}")) == f"a{MASK}"
    with pytest.raises(ValueError, match=r"cannot cut the special token '<\|mask\|>'.*take it out"):
        vocab.encode(MASK)


def test_settings_of_the_file_that_change_ids_are_overruled(
    tmp_path: Path, library: Tokenizer, bpe: Vocab
) -> None:
    tokenizer = Tokenizer.from_str(library.to_str())
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=50)
    tokenizer.post_processor = processors.TemplateProcessing(f"{END} $A", special_tokens=[(END, 0)])
    assert small_bpe(tmp_path, tokenizer).encode("a b c d e f") == bpe.encode("a b c d e f")


def test_what_has_no_list_of_ids_or_no_pieces_is_refused(tmp_path: Path) -> None:
    dropout, ctc, regex = (json.loads(small_tokenizer().to_str()) for _ in range(3))
    dropout["model"]["dropout"] = 0.1
    ctc["decoder"] = json.loads(decoders.CTC().__getstate__())
    regex["decoder"] = {"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""}
    for spec, message in ((dropout, "at random"), (ctc, "CTC"), (regex, "Replace")):
        with pytest.raises(ValueError, match=message):
            small_bpe(tmp_path, Tokenizer.from_str(json.dumps(spec)))
    spec = json.loads(small_tokenizer().to_str())
    spec["model"]["type"] = "Rune"
    (tmp_path / "rune.json").write_text(json.dumps(spec))
    with pytest.raises(ValueError, match="'Rune' is not known"):
        Vocab.from_tokenizer_json(tmp_path / "rune.json", mask=MASK, pad=END, eos=END)


@pytest.mark.parametrize("content", ["", "[1", "[]", "{}", '{"model": 3}', "\x1f\x8bx"])
def test_what_is_no_tokenizer_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=r"broken\.json: .*(check|restore)"):
        Vocab.from_tokenizer_json(path, mask=1, pad=2, eos=3)
    with pytest.raises(ValueError, match=r"absent\.json: .*check the path"):
        Vocab.from_tokenizer_json(tmp_path / "absent.json", mask=1, pad=2, eos=3)


def test_gaps_between_added_ids_are_refused(tmp_path: Path, library: Tokenizer) -> None:
    spec = json.loads(library.to_str())
    spec["added_tokens"][-1]["id"] += 7
    path = tmp_path / "gap.json"
    path.write_text(json.dumps(spec))
    with pytest.raises(ValueError, match="gap"):
        Vocab.from_tokenizer_json(path, mask=MASK, pad=END, eos=END, pad_is_eos=True)


# Special ids


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ({"pad_is_eos": False}, "pad_is_eos=True"),
        ({"pad": 350}, "pad_is_eos=True"),
        ({"mask": END}, "mask = 0 is also pad"),
        ({"bos": MASK}, "mask = 1 is also pad, eos or bos"),
        ({"mask": "<none>"}, r"'<none>' is not an added token.*tool_call.*named"),
        ({"mask": 400}, "mask = 400 is not an id .*400"),
        ({"mask": -1}, "mask = -1 is not an id"),
        ({"mask": True}, "mask = True is not an id"),
        ({"mask": 100}, "ordinary text"),
        ({"size": 300}, "larger size"),
        ({"named": {MASK: 17}}, "another model"),
        ({"named": {"<other>": 1}}, "another model"),
    ],
)
def test_contradictory_special_tokens_are_refused(
    tmp_path: Path, library: Tokenizer, tokens: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=rf"(?s)source\.json.*{message}"):
        small_bpe(tmp_path, library, **{"size": 400} | tokens)


def test_special_settings_have_fixed_names(tmp_path: Path, library: Tokenizer) -> None:
    with pytest.raises(ValueError, match="msk"):
        small_bpe(tmp_path, library, msk=3)
    with pytest.raises(ValueError, match="mask, pad and eos"):
        Vocab.from_tokenizer_json(tmp_path / "source.json", mask=1)


def test_ids_beyond_the_tokenizer(tmp_path: Path, library: Tokenizer, bpe: Vocab) -> None:
    assert library.get_vocab_size() == 332
    assert small_bpe(tmp_path, library).size == 332
    wide = small_bpe(tmp_path, library, mask=340, named={"<|bos|>": 350}, bos="<|bos|>")
    assert (wide.size, wide.mask_id, wide.bos_id) == (351, 340, 350)
    assert [wide.token(id) for id in (340, 341, 350)] == ["<mask>", "<unused 341>", "<|bos|>"]
    assert wide.spans([340, *bpe.encode("a"), 341, 350]) == ("a", [(0, 0), (0, 1), (1, 1), (1, 1)])
    narrow = small_bpe(tmp_path, library, size=330)
    assert max(narrow.encode(f"{TOOL} {' ' * 8}")) < 330
    with pytest.raises(ValueError, match="not one token"):
        narrow.id_of(TOOL)


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("qwen2", (151645, 151644, 151643, 151643, None)),
        ("dream", (152064, 151666, 151643, 151643, 151665)),
        ("llada", (126464, 126336, 126081, 126081, 126080)),
    ],
)
def test_presets_hold_the_published_ids(
    tmp_path: Path, library: Tokenizer, name: str, ids: tuple[int, ...]
) -> None:
    spec = json.loads(library.to_str())
    spec["added_tokens"] = []
    for token in (END, MASK):
        del spec["model"]["vocab"][token]
    path = tmp_path / "plain.json"
    path.write_text(json.dumps(spec))
    vocab = Vocab.from_tokenizer_json(path, **SPECIALS[name])
    assert (vocab.size, vocab.mask_id, vocab.pad_id, vocab.eos_id, vocab.bos_id) == ids
    assert vocab.id_of(END) == vocab.eos_id
    with pytest.raises(ValueError, match="another model"):
        small_bpe(tmp_path, library, **SPECIALS[name])


def test_prompts_are_checked(vocab: Vocab) -> None:
    ids = vocab.encode("x = x" if vocab.size > 50 else "x=x")
    vocab.check_prompt([])
    vocab.check_prompt([vocab.pad_id, *ids, vocab.eos_id])
    with pytest.raises(ValueError, match=f"mask id {vocab.mask_id} at position {len(ids)}: take"):
        vocab.check_prompt([*ids, vocab.mask_id])
    for wrong in (-1, vocab.size):
        for use in (vocab.check_prompt, vocab.decode, vocab.spans):
            with pytest.raises(ValueError, match=f"id {wrong} at position {len(ids)} is outside"):
                use([*ids, wrong])
        with pytest.raises(ValueError, match="outside"):
            vocab.token(wrong)


# Spans


@given(st.lists(st.integers(0, 259), max_size=60))
def test_byte_spans_are_exact_for_any_bytes(ids: list[int]) -> None:
    pieces = [bytes([id]) if id < 256 else b"" for id in ids]
    text, spans = Vocab.bytes().spans(ids)
    assert (text, spans) == reference_spans(pieces)
    assert text == Vocab.bytes().decode(ids) == b"".join(pieces).decode("utf-8", "replace")
    assert [end for _, end in spans] == sorted(end for _, end in spans)
    assert {at for start, end in spans for at in range(start, end)} == set(range(len(text)))


@settings(deadline=None)
@given(text=unicode_text, other=st.lists(st.integers(0, 399), max_size=10), at=st.integers(0, 60))
def test_bpe_spans_are_exact(
    bpe: Vocab, library: Tokenizer, text: str, other: list[int], at: int
) -> None:
    ids = bpe.encode(text)
    ids[at:at] = other  # breaks characters apart, with specials and unused ids between
    found, spans = bpe.spans(ids)
    assert found == bpe.decode(ids)
    assert (found, spans) == reference_spans([piece_bytes(bpe, library, id) for id in ids])
    assert {at for start, end in spans for at in range(start, end)} == set(range(len(found)))


def test_spans_of_split_broken_and_special() -> None:
    vocab = Vocab.bytes()
    face = list(GRIN.encode())
    assert vocab.spans([97, *face, 98]) == (f"a{GRIN}b", [(0, 1), *[(1, 2)] * 4, (2, 3)])
    # a special token inside a character: the character stays whole, the special one is empty
    assert vocab.spans([*face[:2], vocab.mask_id, *face[2:]]) == (
        GRIN,
        [(0, 1), (0, 1), (1, 1), (0, 1), (0, 1)],
    )
    # three bytes of a face and a letter: one U+FFFD over three ids
    assert vocab.spans([*face[:3], 97]) == ("\ufffda", [(0, 1)] * 3 + [(1, 2)])
    # a genuine U+FFFD is three bytes too, a stray continuation byte is one U+FFFD each
    assert vocab.spans([0xEF, 0xBF, 0xBD, 0x80, 0x80])[1] == [(0, 1)] * 3 + [(1, 2), (2, 3)]
    assert vocab.spans([]) == ("", [])


# Files


def test_save_and_load_give_the_same_vocabulary(vocab: Vocab, tmp_path: Path) -> None:
    vocab.save(tmp_path / "a" / "b")
    again = Vocab.load(str(tmp_path / "a" / "b"))
    text = sample_text(vocab)
    assert again.digest() == vocab.digest()
    assert again.encode(text) == vocab.encode(text)
    assert again.spans(range(again.size)) == vocab.spans(range(vocab.size))
    for name in ("size", "mask_id", "pad_id", "eos_id", "bos_id", "special_ids"):
        assert getattr(again, name) == getattr(vocab, name)
    again.save(tmp_path / "c")
    for path in (tmp_path / "c").iterdir():
        assert path.read_bytes() == (tmp_path / "a" / "b" / path.name).read_bytes()
    beside = {"tokenizer.json"} if vocab.size == 400 else set()
    assert {path.name for path in (tmp_path / "c").iterdir()} == {"vocabulary.json"} | beside


def test_a_pickled_copy_keeps_the_contract(vocab: Vocab) -> None:
    text = sample_text(vocab)
    ids = vocab.encode(text)
    copy = pickle.loads(pickle.dumps(vocab))
    assert copy.encode(text) == ids
    if vocab.size > 50:
        assert copy.special_ids.isdisjoint(copy.encode(MASK))


def reversed_keys(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: reversed_keys(content[key]) for key in reversed(content)}
    return [reversed_keys(item) for item in content] if isinstance(content, list) else content


def test_digests_tell_contents_apart_and_ignore_order(
    tmp_path: Path, library: Tokenizer, bpe: Vocab, tool_as_mask: Vocab
) -> None:
    turned = Tokenizer.from_str(json.dumps(json.loads(library.to_str())))
    path = tmp_path / "turned.json"
    path.write_text(json.dumps(reversed_keys(json.loads(turned.to_str())), indent=3))
    same = Vocab.from_tokenizer_json(path, mask=1, pad=0, eos=0, pad_is_eos=True, size=400)
    assert same.digest() == bpe.digest()
    digests = {
        v.digest()
        for v in (
            bpe,
            tool_as_mask,
            small_bpe(tmp_path, library, size=401),
            small_bpe(tmp_path, library, size=400, bos=399),
            small_bpe(tmp_path, library, size=400, named={"<x>": 399}),
            small_bpe(tmp_path, small_tokenizer(ignore_merges=True), size=400),
            Vocab.bytes(),
            Vocab.words(WORDS),
            Vocab.words(WORDS[::-1]),
        )
    }
    assert len(digests) == 9
    assert all(len(digest) == 64 for digest in digests)


def change(key: str, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda content: {**content, key: value}


def drop(key: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda content: {name: value for name, value in content.items() if name != key}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (change("kind", "rune"), "unknown kind 'rune'"),
        (change("kind", ["word"]), "unhashable|kind"),
        (change("format", 2), "format 1"),
        (change("colour", "red"), "colour.*unknown"),
        (change("pieces", ["a", "b"]), "size|digest|ordinary"),
        (change("pieces", 5), "int"),
        (change("pieces", [*WORDS[1:], WORDS[0]]), "digest"),
        (change("mask", "0"), "mask = '0'"),
        (change("mask", 0), "ordinary"),
        (change("size", 99), "digest"),
        (change("size", "99"), "str"),
        (change("named", {"<x>": 18}), "digest"),
        (change("named", None), "None"),
        (change("digest", "0" * 64), "digest"),
        (drop("mask"), r"\['mask'\] are missing"),
        (drop("digest"), r"\['digest'\] are missing"),
        (drop("pieces"), "pieces"),
        (lambda content: [content], "format 1"),
    ],
)
def test_a_changed_vocabulary_is_refused_by_name(
    tmp_path: Path, edit: Callable[[dict[str, Any]], Any], message: str
) -> None:
    Vocab.words(WORDS).save(tmp_path)
    path = tmp_path / "vocabulary.json"
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))
    with pytest.raises(ValueError, match=rf"vocabulary\.json: .*({message}).*restore it"):
        Vocab.load(tmp_path)


def test_damaged_files_are_refused_by_name(tmp_path: Path, bpe: Vocab) -> None:
    with pytest.raises(ValueError, match=r"vocabulary\.json: .*check the path"):
        Vocab.load(tmp_path)
    bpe.save(tmp_path)
    for name in ("tokenizer.json", "vocabulary.json"):
        whole = (tmp_path / name).read_bytes()
        for cut in (0, 1, len(whole) // 2, len(whole) - 1):
            (tmp_path / name).write_bytes(whole[:cut])
            with pytest.raises(ValueError, match=r"vocabulary\.json: .*JSON"):
                Vocab.load(tmp_path)
        (tmp_path / name).write_bytes(whole.replace(b"<tool_call>", b"<toolcall>") + b" ")
        if name == "tokenizer.json":
            with pytest.raises(ValueError, match="digest"):
                Vocab.load(tmp_path)
        (tmp_path / name).write_bytes(whole)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"tokenizer\.json.*check the path"):
        Vocab.load(tmp_path)


def test_a_failed_save_leaves_the_old_files(
    tmp_path: Path, bpe: Vocab, monkeypatch: pytest.MonkeyPatch
) -> None:
    Vocab.words(WORDS).save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(file: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        bpe.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_decoding_needs_neither_torch_nor_tokenizers(tmp_path: Path, bpe: Vocab) -> None:
    bpe.save(tmp_path)
    ids = bpe.encode(f"caf{E_ACUTE}")
    script = (
        "import sys; from anyorder.vocab import Vocab\n"
        f"text, spans = Vocab.load({str(tmp_path)!r}).spans({ids})\n"
        f"assert text == {'caf' + E_ACUTE!r}\n"
        "assert not {'torch', 'numpy', 'tokenizers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=240)


def test_time_is_linear_in_the_text(vocab: Vocab) -> None:
    text = sample_text(vocab)
    long = text * (1 + 100_000 // len(vocab.encode(text)))
    started = time.process_time()
    ids = vocab.encode(long)
    assert vocab.spans(ids)[0] == vocab.decode(ids) == long
    assert len(ids) >= 100_000
    assert time.process_time() - started < 5  # about 0.2 s; quadratic work would take minutes


def test_time_is_linear_in_broken_bytes() -> None:
    started = time.process_time()
    assert len(Vocab.bytes().spans([0xFF, 0xE2, 0x98] * 50_000)[0]) == 100_000
    assert time.process_time() - started < 5


# The real Qwen2 files


@pytest.fixture(scope="session")
def published(data_file: Callable[[str], Path]) -> Path:
    return data_file("tokenizer/qwen2.5_tokenizer.json.gz")


@pytest.fixture(scope="session")
def dream(data_file: Callable[[str], Path]) -> Vocab:
    files = data_file("tokenizer/vocab.json.gz"), data_file("tokenizer/merges.txt.gz")
    return Vocab.from_vocab_merges(*files, **SPECIALS["dream"])


@pytest.fixture(scope="session")
def published_library(published: Path) -> Tokenizer:
    return Tokenizer.from_str(gzip.decompress(published.read_bytes()).decode())


def test_qwen2_facts(dream: Vocab) -> None:
    assert dream.encode("\n") == [198]
    assert dream.id_of("\n") == 198
    assert (dream.size, dream.mask_id, dream.bos_id) == (152064, 151666, 151665)
    assert dream.token(151642) != "<unused 151642>"  # 151,643 base ids, then the special ones
    assert dream.token(151643) == END
    assert dream.token(151646) == "<unused 151646>"
    assert dream.spans(dream.encode(f"{GRIN}a"))[1][-1] == (1, 2)


@pytest.mark.parametrize("text", TEXTS)
def test_qwen2_cuts_as_published(dream: Vocab, published_library: Tokenizer, text: str) -> None:
    ids = dream.encode(text)
    assert ids == published_library.encode(text).ids
    assert dream.decode(ids) == published_library.decode(ids) == unicodedata.normalize("NFC", text)


@settings(deadline=None)
@given(text=unicode_text)
def test_qwen2_cuts_any_text_as_published(
    dream: Vocab, published_library: Tokenizer, text: str
) -> None:
    assume(not spells_added_token(published_library, text))
    assert dream.encode(text) == published_library.encode(text).ids


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 152063), max_size=30))
def test_qwen2_spans_are_exact(dream: Vocab, published_library: Tokenizer, ids: list[int]) -> None:
    pieces = [piece_bytes(dream, published_library, id) for id in ids]
    assert dream.spans(ids) == reference_spans(pieces)


WITH_SPECIALS = f"if x:{END} <|im_start|>{TOOL} <|mask|><|beginoftext|>"


def test_published_tokenizer_in_a_smaller_table(published: Path, dream: Vocab) -> None:
    latent = Vocab.from_tokenizer_json(published, **SPECIALS["qwen2"])
    ids = latent.encode(WITH_SPECIALS)
    assert (latent.size, latent.mask_id, latent.eos_id) == (151645, 151644, 151643)
    assert max(ids) < 151643
    assert ids == dream.encode(WITH_SPECIALS)  # all is spelled out, as by the merges alone
    assert latent.decode(ids) == WITH_SPECIALS


@pytest.mark.long
def test_published_tokenizer_in_a_larger_table(published: Path, tmp_path: Path) -> None:
    full = Vocab.from_tokenizer_json(published, **SPECIALS["dream"])
    ids = full.encode(WITH_SPECIALS)
    assert 151657 in ids
    assert full.special_ids.isdisjoint(ids)
    assert full.decode(ids) == WITH_SPECIALS
    assert full.id_of("<|im_end|>") == 151645
    full.save(tmp_path)
    assert Vocab.load(tmp_path).digest() == full.digest()
    with pytest.raises(ValueError, match="another model"):
        Vocab.from_tokenizer_json(published, **SPECIALS["llada"])


def test_files_may_be_plain_or_gzipped(library: Tokenizer, tmp_path: Path) -> None:
    plain, zipped = tmp_path / "plain.json", tmp_path / "zipped"
    plain.write_text(library.to_str())
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    first, second = (
        Vocab.from_tokenizer_json(path, mask=MASK, pad=END, eos=END, pad_is_eos=True)
        for path in (plain, zipped)
    )
    assert first.digest() == second.digest()


def test_vocab_and_merges_with_faults_are_refused(tmp_path: Path) -> None:
    table, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
    letters = {character: id for id, character in enumerate(BYTE_OF)}
    tokens: dict[str, Any] = {"mask": 300, "pad": 301, "eos": 302}
    table.write_text(json.dumps({**letters, "ab": 256}))
    for first in ("", "#version: 0.2\n"):
        merges.write_text(f"{first}a b\n")
        vocab = Vocab.from_vocab_merges(table, merges, **tokens)
        assert vocab.encode("abc") == [256, letters["c"]]
        assert vocab.size == 303
    for wrong, message in (("a b c", "two tokens"), ("a z", "refuses"), ("ab", "two tokens")):
        merges.write_text(wrong)
        with pytest.raises(ValueError, match=rf"merges\.txt: .*{message}"):
            Vocab.from_vocab_merges(table, merges, **tokens)
    merges.write_text("")
    wrong_tables: list[Any] = [[], {**letters, "ab": 0}, {**letters, "ab": "256"}]
    for content in wrong_tables:
        table.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=r"vocab\.json.*: .*(check|integers)"):
            Vocab.from_vocab_merges(table, merges, **tokens)
