"""Shards: portable files, rows by index, repeated virtually, cut as tokenising would cut them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load as load_safetensors

from anyorder.data.batches import BatchConfig, Batches, tokenise
from anyorder.data.segments import DoesNotFit, SegmentConfig, cut
from anyorder.data.sources import FIELDS, ShardBuilder, ShardRow, ShardSource, unpack
from anyorder.vocab import Vocab

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
