"""Tokenizers of other libraries: ids and spans as `transformers` has them, and what is refused.

Oracle: the tokenizer itself, its ids and its offsets. Offsets are repaired as a reader must: a
character belongs to the first token that covers it, and one that nobody covers to the token before.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import made_tokenizers as made
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as splitters

from anyorder.vocab import Vocab

pytest.importorskip("transformers")


@pytest.fixture(scope="module", params=list(made.KINDS))
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return made.KINDS[request.param]()


@pytest.fixture(scope="module")
def vocab(tokenizer: Any) -> Vocab:
    return Vocab.from_transformers(tokenizer)


def owners(spans: list[tuple[int, int]], length: int) -> list[int | None]:
    """Of each character, the first token that covers it; else the token before it."""
    found: list[int | None] = [None] * length
    for token, (start, end) in reversed(list(enumerate(spans))):
        for place in range(start, end):
            found[place] = token
    for place in range(1, length):
        if found[place] is None:
            found[place] = found[place - 1]
    return found


def kind_of(tokenizer: Any) -> str:
    return str(json.loads(tokenizer.backend_tokenizer.to_str())["model"]["type"])


def spells_special(vocab: Vocab, text: str) -> bool:
    return any(name in text for name in vocab.special_names.values())


def theirs(tokenizer: Any, text: str) -> Any:
    return tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)


def lacks(tokenizer: Any, vocab: Vocab, text: str) -> bool:
    """Whether the library answers with the unknown token, or drops a character silently."""
    found = theirs(tokenizer, text)["input_ids"]
    if tokenizer.unk_token_id is not None:
        return tokenizer.unk_token_id in found
    dropped = any(c in text for c in ("\x04", "\U0004abcd"))
    assert dropped == (tokenizer.decode(found, clean_up_tokenization_spaces=False) != text)
    return dropped


def test_ids_are_those_of_the_library_or_the_text_is_refused(tokenizer: Any, vocab: Vocab) -> None:
    rows = made.texts(list(vocab.special_names.values()))
    assert len(rows) == 300
    taken = 0
    for text in rows:
        if spells_special(vocab, text):
            continue
        if lacks(tokenizer, vocab, text):
            with pytest.raises(ValueError, match=r"does not know '.*' at character \d+ .*take it"):
                vocab.encode(text)
            continue
        taken += 1
        assert vocab.encode(text) == theirs(tokenizer, text)["input_ids"], text
    assert taken > 150


def test_special_spellings_are_text_and_on_request_ids(tokenizer: Any, vocab: Vocab) -> None:
    seen = set()
    for text in made.texts(list(vocab.special_names.values())):
        if not spells_special(vocab, text):
            continue
        ids = vocab.encode(text)
        assert vocab.special_ids.isdisjoint(ids)
        if not vocab.lossy:
            assert vocab.decode(ids) == text
        ids = vocab.encode(text, specials=True)
        assert ids == theirs(tokenizer, text)["input_ids"], text
        seen |= vocab.special_ids & {*ids}
    assert seen == vocab.special_ids


def test_spans_are_the_repaired_offsets_and_tile_the_text(tokenizer: Any, vocab: Vocab) -> None:
    compared = 0
    prepends = '"Prepend"' in tokenizer.backend_tokenizer.to_str()
    for row in made.texts(list(vocab.special_names.values())):
        if lacks(tokenizer, vocab, row):
            continue
        text, spans = vocab.spans(ids := vocab.encode(row))
        assert text == vocab.decode(ids)
        covered = {place for start, end in spans for place in range(start, end)}
        assert covered == set(range(len(text)))
        assert [end for _, end in spans] == sorted(end for _, end in spans)
        if spells_special(vocab, text):
            continue
        found = theirs(tokenizer, text)  # of the decoded text: a normaliser may have changed it
        if found["input_ids"] != ids:
            assert vocab.lossy or text.startswith(" ")
            continue
        compared += 1
        offsets = [tuple(pair) for pair in found["offset_mapping"]]
        if ids and vocab.token(ids[0]) == " " and (prepends or not text.startswith(" ")):
            offsets[0] = (0, 0)  # the invented first mark has no character
        if kind_of(tokenizer) == "WordPiece":  # the space before a word is no token's there
            spans = [(start + (text[start] == " "), end) for start, end in spans]
            assert spans == offsets
            continue
        assert owners(spans, len(text)) == owners(offsets, len(text)), text
    assert compared > 150


def test_what_stands_around_a_text_is_that_of_the_library(tokenizer: Any, vocab: Vocab) -> None:
    inner = vocab.encode("the fox")
    whole = [*vocab.prefix_ids, *inner, *vocab.suffix_ids]
    assert whole == tokenizer("the fox")["input_ids"]
    assert vocab.begin(inner) == [*vocab.prefix_ids, *inner]
    assert vocab.begin(vocab.begin(inner)) == vocab.begin(inner)
    assert vocab.decode(whole) == vocab.decode(inner) == "the fox"


def test_roles_are_those_of_the_tokenizer(tokenizer: Any, vocab: Vocab) -> None:
    assert vocab.mask_id == tokenizer.mask_token_id
    eos = tokenizer.eos_token_id
    assert vocab.eos_id == (tokenizer.sep_token_id if eos is None else eos)
    pad = tokenizer.pad_token_id
    assert vocab.pad_id == (vocab.eos_id if pad is None else pad)
    assert vocab.special_ids == {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    assert vocab.size == len(tokenizer)


def test_text_that_goes_on_gets_no_mark_of_a_start(tokenizer: Any, vocab: Vocab) -> None:
    start, rest = vocab.encode("the fo"), vocab.encode("x re", begun=True)
    words = "the fo x re" if kind_of(tokenizer) == "WordPiece" else "the fox re"
    assert vocab.decode([*start, *rest]) == words
    assert vocab.decode(start) + vocab.decode(rest, begun=True) == words


def test_saved_and_loaded_it_is_the_same(tokenizer: Any, vocab: Vocab, tmp_path: Path) -> None:
    vocab.save(tmp_path / "ours")
    again = Vocab.load(tmp_path / "ours")
    tokenizer.save_pretrained(tmp_path / "theirs")
    read = Vocab.from_tokenizer_json(tmp_path / "theirs" / "tokenizer.json")
    for other in (again, read):
        for name in ("size", "mask_id", "pad_id", "bos_id", "end_ids", "prefix_ids", "suffix_ids"):
            assert getattr(other, name) == getattr(vocab, name)
        assert other.special_ids == vocab.special_ids
        assert other.lossy == vocab.lossy
        assert other.encode("the fox") == vocab.encode("the fox")
    assert again.digest() == read.digest() == vocab.digest()
    pad = tokenizer.pad_token
    if pad is not None:  # how its library cut and padded texts before says nothing about ids
        tokenizer(["the fox", "the"], padding=True, truncation=True, max_length=4)
        used = Vocab.from_transformers(tokenizer)
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        assert used.digest() == vocab.digest()
    path = tmp_path / "ours" / "vocabulary.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"prefix": [vocab.eos_id]}))
    with pytest.raises(ValueError, match="digest"):
        Vocab.load(tmp_path / "ours")


def test_roles_can_be_overridden(tokenizer: Any, vocab: Vocab) -> None:
    other = Vocab.from_transformers(
        tokenizer, prefix=[], suffix=[vocab.eos_id], ends=[vocab.pad_id], size=vocab.size + 9
    )
    assert (other.prefix_ids, other.suffix_ids) == ((), (vocab.eos_id,))
    assert set(other.end_ids) == {vocab.eos_id, vocab.pad_id}
    assert other.size == vocab.size + 9
    assert other.digest() != vocab.digest()


def test_unknown_characters_are_named_at_their_place() -> None:
    lacking = Vocab.from_transformers(made.few_bytes())
    assert lacking.decode(lacking.encode("é\x05a")) == "é\x05a"
    with pytest.raises(ValueError, match=r"does not know '\\x04' at character 3 \(after 'the'\)"):
        lacking.encode("the\x04 fox")
    bert = Vocab.from_transformers(made.wordpiece())
    with pytest.raises(ValueError, match=rf"does not know '{made.GRIN}' at character 4"):
        bert.encode(f"the {made.GRIN}")


def test_words_and_ends_of_words() -> None:
    """A list of words with spaces between, and BPE that marks the end of a word (CLIP)."""
    words = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "fox": 2}, unk_token="<unk>"))
    words.pre_tokenizer = splitters.WhitespaceSplit()
    words.add_special_tokens(["<unk>", "<mask>", "<end>"])
    table = {"<unk>": 0, "t": 1, "h": 2, "e": 3, "e</w>": 4, "th": 5, "the</w>": 6, "x</w>": 7}
    merges = [("t", "h"), ("th", "e</w>")]
    clip = Tokenizer(models.BPE(table, merges, end_of_word_suffix="</w>", unk_token="<unk>"))
    clip.normalizer, clip.pre_tokenizer = normalizers.Lowercase(), splitters.Whitespace()
    clip.decoder = decoders.BPEDecoder("</w>")
    clip.add_special_tokens(["<unk>", "<mask>", "<end>"])
    cases: list[tuple[Tokenizer, str, list[tuple[int, int]]]] = [
        (words, "the fox the", [(0, 3), (3, 7), (7, 11)]),
        (clip, "the x", [(0, 4), (4, 5)]),
    ]
    for backend, text, spans in cases:
        roles = {"mask_token": "<mask>", "eos_token": "<end>", "unk_token": "<unk>"}
        vocab = Vocab.from_transformers(made.loaded(backend, **roles))
        ids = vocab.encode(text)
        assert ids == backend.encode(text).ids
        assert vocab.spans(ids) == (text, spans)
        with pytest.raises(ValueError, match=r"does not know 'd(og)?'"):
            vocab.encode("the dog")


def test_a_tokenizer_without_a_mask_asks_for_one() -> None:
    backend = json.loads(made.byte_level().backend_tokenizer.to_str())
    plain = made.loaded(Tokenizer.from_str(json.dumps(backend)), eos_token="</s>")
    with pytest.raises(ValueError, match=r"this tokenizer names no mask token: give mask="):
        Vocab.from_transformers(plain)
    vocab = Vocab.from_transformers(plain, mask="<mask>")
    assert (vocab.token(vocab.mask_id), vocab.pad_id) == ("<mask>", vocab.eos_id)


def test_a_tokenizer_written_in_python_is_refused() -> None:
    class Slow:
        all_special_ids = ()

    with pytest.raises(
        ValueError, match=r"Slow has no tokenizer\.json behind it.*from_vocab_merges"
    ):
        Vocab.from_transformers(Slow())


def test_old_folders_of_byte_level_bpe_keep_their_digest(tmp_path: Path) -> None:
    """The digest by the rule of version 0.2: format, kind, roles, and the hashes of the files."""
    tokenizer = made.byte_level()
    path = tmp_path / "tokenizer.json"
    tokenizer.backend_tokenizer.save(str(path))
    vocab = Vocab.from_tokenizer_json(path, mask="<mask>", pad="<pad>", eos="</s>", bos="<s>")

    def sha(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    def plain(content: Any) -> str:
        return json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    roles = {"mask": vocab.mask_id, "pad": 1, "eos": 2, "bos": 0, "pad_is_eos": False}
    header = {"format": 1, "kind": "bpe", "size": vocab.size, **roles, "named": {}}
    files = {"tokenizer.json": sha(plain(json.loads(path.read_text())))}
    assert vocab.digest() == sha(plain([header, files]))
    vocab.save(tmp_path / "old")
    old = tmp_path / "old" / "vocabulary.json"
    content = {**header, "digest": vocab.digest()}  # as version 0.2 wrote it
    old.write_text(json.dumps(content))
    again = Vocab.load(tmp_path / "old")
    assert (again.prefix_ids, again.suffix_ids, again.end_ids) == ((), (), (2,))
