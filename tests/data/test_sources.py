"""Sources: what they read, and how they say that they cannot."""

from __future__ import annotations

import builtins
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load as load_safetensors

from anyorder.data import (
    DatasetSource,
    JsonlSource,
    Source,
    StoriesConfig,
    StoriesSource,
    TextSource,
    problem,
)
from anyorder.data.batches import BatchConfig, Batches, tokenise
from anyorder.data.segments import DoesNotFit, SegmentConfig, cut
from anyorder.data.sources import FIELDS, ShardBuilder, ShardRow, ShardSource, unpack
from anyorder.vocab import Vocab

ROWS = [{"question": f"q{i}\n", "code": f"return {i}", "id": i} for i in range(5)]


def everything(source: Source) -> list[tuple[str, str]]:
    assert source.size is not None
    return [source[index] for index in range(source.size)]


def written(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_jsonl(tmp_path: Path, name: str) -> None:
    text = "\n".join(json.dumps(row) for row in ROWS) + "\n\n"  # a blank last line is no record
    path = written(tmp_path / name, text)
    source = JsonlSource(path, prompt="question", answer="code")
    assert everything(source) == [(row["question"], row["code"]) for row in ROWS]
    assert everything(JsonlSource(path, prompt=None, answer="code"))[3] == ("", "return 3")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"q": "a", "a": ', "rows.jsonl:2: not a JSON object"),
        ("[1, 2]", "rows.jsonl:2: a list where an object"),
        ('{"q": "a"}', "rows.jsonl:2: no field 'a': it has 'q'"),
        ('{"q": 7, "a": "b"}', "rows.jsonl:2: field 'q' is a int, not text"),
        ('{"q": null, "a": "b"}', "rows.jsonl:2: field 'q' is a NoneType"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path / "rows.jsonl", f'{{"q": "x", "a": "y"}}\n{line}\n')
    with pytest.raises(ValueError, match=message):
        JsonlSource(path, prompt="q", answer="a")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.jsonl: no such file"):
        JsonlSource(tmp_path / "nowhere.jsonl", prompt="q", answer="a")
    not_text = tmp_path / "latin.jsonl"
    not_text.write_bytes(b'{"q": "caf\xe9"}\n')
    with pytest.raises(ValueError, match=r"latin\.jsonl:1: cannot be read"):
        JsonlSource(not_text, prompt="q", answer="a")
    packed = gzip.compress("\n".join(json.dumps(row) for row in ROWS * 500).encode())
    for name, content in (("cut.jsonl.gz", packed[: len(packed) // 2]), ("no.jsonl.gz", b"plain")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name}:\d+: cannot be read"):
            JsonlSource(tmp_path / name, prompt="question", answer="code")


def test_text_files(tmp_path: Path) -> None:
    one = written(tmp_path / "one.txt", "\nfirst\nstill first\n  \n\nsecond\n")
    two = written(tmp_path / "two.txt.gz", "third é")
    assert everything(TextSource([one, two])) == [
        ("", "first\nstill first"),
        ("", "second"),
        ("", "third é"),
    ]
    whole = TextSource([one, two], split="whole")
    assert everything(whole) == [
        ("", "\nfirst\nstill first\n  \n\nsecond\n"),
        ("", "third é"),
    ]
    windows = tmp_path / "windows.txt"
    windows.write_bytes(b"a\r\nb\r\n\r\nc\r\n")
    assert everything(TextSource([windows])) == [("", "a\nb"), ("", "c")]


def test_text_files_asked_for_wrongly(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give a list of files"):
        TextSource(str(tmp_path))
    with pytest.raises(ValueError, match="give blank, line or whole"):
        TextSource([], split="pages")  # type: ignore[arg-type]


def test_stories_never_end() -> None:
    config = StoriesConfig(seed=4, layout=0.5)
    source = StoriesSource(config)
    assert source.size is None
    far = problem(config, 10**9)
    assert source[10**9] == (far.prompt, far.program)


def test_a_dataset_of_the_hub_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    path = written(tmp_path / "rows.jsonl", "\n".join(json.dumps(row) for row in ROWS))
    options = {"data_files": str(path), "cache_dir": str(tmp_path / "cache")}
    source = DatasetSource.load("json", split="train", prompt="question", answer="code", **options)
    assert everything(source) == [(row["question"], row["code"]) for row in ROWS]
    with pytest.raises(ValueError, match="record 0: no field 'text': it has 'question'"):
        DatasetSource.load("json", split="train", prompt=None, answer="text", **options)


def test_a_dataset_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "datasets":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"pip install 'anyorder\[hf\]'"):
        DatasetSource.load("any", split="train", prompt=None, answer="text")


def test_anything_with_a_length_and_records_will_do() -> None:
    source = DatasetSource(ROWS, prompt="question", answer="code")
    assert source.size == 5
    assert source[4] == ("q4\n", "return 4")


# Shards: portable files, rows by index, repeated virtually, cut as tokenising would cut them.


VOCAB = Vocab.bytes()
PROGRAMS = ["a = 1\nbb = 2", "x", "", "one\ntwo\nthree\nfour\n", "\u00e9\n" * 3]


def row_of(number: int, text: str) -> ShardRow:
    segments = cut(text, VOCAB, "line", 99)
    ids = [id for segment in segments for id in segment]
    return ShardRow(number, VOCAB.encode(f"prompt {number}\n"), ids, list(map(len, segments)))


def built(rows: list[ShardRow]) -> bytes:
    builder = ShardBuilder()
    for row in rows:
        builder.add(row)
    return b"".join(map(bytes, builder.parts()))


def make_folder(folder: Path, *, cut_by: str | None = "line") -> Path:
    """Two training shards, the first of a source that is read twice, and a validation shard."""
    shards = []
    for split, alias, texts in (
        ("train", "twice", PROGRAMS[:3]),
        ("train", "once", PROGRAMS[3:]),
        ("validation", "twice", ["held out\n"]),
    ):
        name = f"{split}/{alias}-0000000000.safetensors"
        (folder / split).mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(built([row_of(i, text) for i, text in enumerate(texts)]))
        shards.append({"file": name, "source": alias, "split": split, "rows": len(texts)})
    sources = [{"alias": "twice", "repeat": 2}, {"alias": "once", "repeat": 1}]
    manifest: dict[str, Any] = {"format": 1, "vocab_digest": VOCAB.digest(), "segments": cut_by}
    (folder / "manifest.json").write_text(
        json.dumps({**manifest, "sources": sources, "shards": shards})
    )
    return folder


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 2**31 - 1), max_size=5),
            st.lists(st.integers(1, 4), max_size=4),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_safetensors_reader_reads_a_shard(content: list[tuple[list[int], list[int]]]) -> None:
    rows = [
        ShardRow(number, prompt, list(range(sum(segments))), segments)
        for number, (prompt, segments) in enumerate(content)
    ]
    held = load_safetensors(built(rows))
    assert set(held) == set(FIELDS)
    assert held["ids"].tolist() == [id for row in rows for id in (*row.prompt, *row.answer)]
    assert held["segment_length"].tolist() == [n for row in rows for n in row.segments]
    assert held["start"].tolist()[-1] == len(held["ids"])


def test_rows_are_mapped_and_aligned(tmp_path: Path) -> None:
    rows = [row_of(i, text) for i, text in enumerate(PROGRAMS)]
    (tmp_path / "a.safetensors").write_bytes(built(rows))
    held = unpack(tmp_path / "a.safetensors")
    for array in held.values():
        base = array
        while base.base is not None and not isinstance(base, np.memmap):
            base = base.base
        assert isinstance(base, np.memmap) and array.flags.aligned


def test_repeats_are_virtual_and_validation_is_never_repeated(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    source = ShardSource(folder, "train", VOCAB)
    assert source.size == 2 * 3 + 2
    answers = [source[index][1] for index in range(source.size)]
    assert answers == [*PROGRAMS[:3], *PROGRAMS[:3], *PROGRAMS[3:]]
    assert source[1][0] == "prompt 1\n"
    held_out = ShardSource(folder, "validation", VOCAB)
    assert held_out.size == 1 and held_out[0][1] == "held out\n"
    with pytest.raises(IndexError):
        source[source.size]
    some = source.chosen(np.array([7, 0]))
    assert some.size == 2 and some[0][1] == PROGRAMS[4] and some[1][1] == PROGRAMS[0]


@pytest.mark.parametrize("overflow", ["truncate", "drop"])
@pytest.mark.parametrize(("slots", "length"), [(16, 32), (2, 4), (1, 2)])
def test_examples_are_those_that_tokenising_gives(
    tmp_path: Path, overflow: Any, slots: int, length: int
) -> None:
    source = ShardSource(make_folder(tmp_path), "train", VOCAB)
    segments = SegmentConfig(slots=slots, segment_length=length, overflow=overflow)
    for index in range(source.size):
        for asked in (None, segments):
            assert outcome(source, index, asked, kept=True) == outcome(
                source, index, asked, kept=False
            )


def outcome(source: ShardSource, index: int, segments: SegmentConfig | None, *, kept: bool) -> Any:
    try:
        if kept:
            return source.example(index, VOCAB, begun=False, segments=segments)
        return tokenise(*source[index], index, VOCAB, segments=segments)
    except DoesNotFit as error:
        return str(error)


def test_an_empty_prompt_begins_with_bos(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    name = "train/once-0000000000.safetensors"
    (folder / name).write_bytes(built([ShardRow(0, [], [65]), ShardRow(1, [66], [67])]))
    source = ShardSource(folder, "train", VOCAB)
    assert source.example(6, VOCAB, begun=False, segments=None).prompt == [VOCAB.bos_id]
    assert source.example(6, VOCAB, begun=True, segments=None).prompt == []


def test_batches_read_tokens_without_tokenising(tmp_path: Path) -> None:
    source = ShardSource(make_folder(tmp_path), "train", VOCAB)
    config = BatchConfig(size=4, bucket=2, segments=SegmentConfig(), ending="none")
    batch = Batches(source, VOCAB, config)(0)
    assert batch.segment_length is not None
    for row in range(4):
        example = source.example(
            int(batch.index[row]), VOCAB, begun=False, segments=config.segments
        )
        assert batch.ids[row, : int(batch.length[row])].tolist() == example.prompt + example.answer


def test_another_vocabulary_and_another_cut_are_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, cut_by=None)
    with pytest.raises(ValueError, match="was tokenised with another vocabulary"):
        ShardSource(folder, "train", Vocab.words(["a"]))
    source = ShardSource(folder, "train", VOCAB)
    with pytest.raises(ValueError, match="cut by None, not by line"):
        source.example(0, VOCAB, begun=False, segments=SegmentConfig())


def test_damaged_folders_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="make the folder with anyorder data"):
        ShardSource(tmp_path, "train", VOCAB)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(ValueError, match="not a manifest of format 1"):
        ShardSource(tmp_path, "train", VOCAB)
    (tmp_path / "a.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00notjson!")
    with pytest.raises(ValueError, match="not a shard"):
        unpack(tmp_path / "a.safetensors")
