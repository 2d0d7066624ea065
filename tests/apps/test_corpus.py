"""Recipes' data fields: files and datasets are divided, long examples left out, dials checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anyorder.apps.corpus import open_corpus
from anyorder.apps.train import train
from anyorder.data.batches import BatchConfig, Batches, tokenise
from anyorder.data.segments import SegmentConfig
from anyorder.recipes import DataConfig
from anyorder.vocab import Vocab


def write_jsonl(path: Path, count: int) -> Path:
    rows = ({"q": f"{i} plus 1?", "a": str(i + 1) if i % 10 else "x" * 500} for i in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def config(source: str, **changes: object) -> DataConfig:
    fields = {"prompt_field": "q", "answer_field": "a", "vocab": "bytes"} | changes
    return DataConfig(source=source, **fields)  # type: ignore[arg-type]


def pairs(source: object) -> set[tuple[str, str]]:
    return {source[i] for i in range(source.size)}  # type: ignore[attr-defined,index]


def test_a_file_is_divided_and_long_examples_are_left_out(tmp_path: Path) -> None:
    corpus = open_corpus(config(str(write_jsonl(tmp_path / "sums.jsonl", 200))))
    train_pairs, held_out = pairs(corpus.train), pairs(corpus.validation)
    assert corpus.left_out == 20 and len(held_out) == 9
    assert not train_pairs & held_out and len(train_pairs | held_out) == 180


def test_a_dataset_gives_the_same_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    path = write_jsonl(tmp_path / "sums.jsonl", 50)
    loaded = datasets.Dataset.from_json(str(path), cache_dir=str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: {"sums": loaded}[name])
    corpus = open_corpus(config("hf:sums"))
    other = open_corpus(config(str(path)))
    assert pairs(corpus.train) == pairs(other.train)
    assert corpus.digest != "unknown"


def test_text_can_be_lines(tmp_path: Path) -> None:
    path = tmp_path / "songs.txt"
    path.write_text("".join(f"song number {i} of many\n" for i in range(40)))
    with pytest.raises(ValueError, match=r"0 of the 1 examples.*data\.documents"):
        open_corpus(DataConfig(source=str(path), vocab="bytes"))
    corpus = open_corpus(DataConfig(source=str(path), vocab="bytes", documents="line"))
    assert corpus.train.size == 38


def test_own_text_needs_its_own_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "songs.txt"
    path.write_text("Žluťoučký\n\nkůň")
    with pytest.raises(ValueError, match=r"data\.vocab=bytes"):
        open_corpus(DataConfig(source=str(path)))


def test_text_needs_no_prompts(tmp_path: Path) -> None:
    path = tmp_path / "songs.txt"
    path.write_text("\n\n".join(f"song {i}" for i in range(40)))
    corpus = open_corpus(DataConfig(source=str(path), vocab="bytes"))
    assert ("", "song 3") in pairs(corpus.train) | pairs(corpus.validation)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"source": "a.csv"}, "a.csv"),
        ({"source": "none.jsonl"}, "none.jsonl"),
        ({"layout": 0.5}, "layout has no effect"),
        ({"canvas": 1}, "0 of the 30 examples"),
        ({"vocab": "klingon"}, "klingon"),
        ({"split": "test"}, "split has no effect"),
        ({"prompt_field": "nope"}, "no field 'nope'"),
    ],
)
def test_wrong_fields_are_refused(changes: dict[str, object], says: str, tmp_path: Path) -> None:
    good = {"source": str(write_jsonl(tmp_path / "sums.jsonl", 30))}
    with pytest.raises(ValueError, match=says):
        open_corpus(config(**(good | changes)))  # type: ignore[arg-type]


def test_a_model_trains_on_a_file_and_writes(tmp_path: Path) -> None:
    source = str(write_jsonl(tmp_path / "sums.jsonl", 60))
    fields = {"data.source": source, "data.vocab": "bytes", "data.prompt_field": "q"}
    fields |= {"data.answer_field": "a", "data.canvas": 6, "data.max_length": 32}
    size = {"net.width": 16, "net.layers": 1, "net.heads": 2, "net.mlp_width": 32}
    model = train(
        "tiny/mdm", out=tmp_path / "m", progress=False, steps=4, warmup=1, batch=4,
        validate_every=2, validate_batches=1, **fields, **size,
    )  # fmt: skip
    (trace,) = model.sample("3 plus 1?")
    assert len(trace.token_ids) == 6


# Segments


def write_programs(path: Path) -> Path:
    """Of ten: one has many lines, one a long line, one is no Python, one is empty."""
    answers = {1: "a = 1\n" * 9, 2: "b = 'long enough'\n", 3: "if so:\n", 4: ""}
    rows = [{"q": f"{i}?", "a": answers.get(i % 10, f"x = {i % 7}\ny = x\n")} for i in range(100)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def around_none(vocab: Vocab) -> int:
    return 0


@pytest.mark.parametrize(
    ("by", "overflow", "left_out", "uncut", "truncated"),
    [
        ("line", "truncate", 0, 0, 20),
        ("line", "drop", 20, 0, 0),
        ("statement", "truncate", 10, 10, 20),
        ("statement", "drop", 30, 10, 0),
        ("fixed", "drop", 10, 0, 0),
    ],
)
def test_what_does_not_fit_into_segments_is_counted(
    by: str, overflow: str, left_out: int, uncut: int, truncated: int, tmp_path: Path
) -> None:
    segments = SegmentConfig(by, 3, 10, overflow)  # type: ignore[arg-type]
    data = config(str(write_programs(tmp_path / "programs.jsonl")))
    corpus = open_corpus(data, around_none, segments)
    assert (corpus.left_out, corpus.uncut, corpus.truncated) == (left_out, uncut, truncated)
    sizes = (corpus.train.size or 0) + (corpus.validation.size or 0)
    assert sizes == 100 - left_out
    # What is not left out can be trained on.
    settings = BatchConfig(16, ending="none", segments=segments, pad_slots=True)
    for source in (corpus.train, corpus.validation):
        batches = Batches(source, corpus.vocab, settings)
        for step in range(8):
            assert batches(step).segment_length is not None


def test_left_out_examples_are_remarked_on(tmp_path: Path) -> None:
    data = config(str(write_programs(tmp_path / "programs.jsonl")), canvas=18)
    corpus = open_corpus(data, around_none, SegmentConfig("statement", 3, 40, "drop"))
    assert corpus.remarks() == [
        "20 examples are too long and left out",
        "10 examples cannot be cut into segments and are left out",
    ]
    corpus = open_corpus(config(data.source), around_none, SegmentConfig(slots=3))
    assert corpus.remarks() == ["10 examples are truncated to fit into their segments"]
    plain = open_corpus(config(str(write_jsonl(tmp_path / "sums.jsonl", 200))))
    assert plain.remarks() == ["20 examples are too long and left out"]
    assert open_corpus(config(data.source)).remarks() == []


def test_lengths_are_those_after_truncation(tmp_path: Path) -> None:
    data = config(str(write_jsonl(tmp_path / "sums.jsonl", 50)))
    corpus = open_corpus(data, around_none, SegmentConfig(segment_length=32))
    assert (corpus.left_out, corpus.truncated) == (0, 5)


def test_a_file_with_nothing_to_cut_says_why(tmp_path: Path) -> None:
    path = tmp_path / "songs.txt"
    path.write_text("\n\n".join(f"song number {i}" for i in range(40)))
    data = DataConfig(source=str(path), vocab="bytes")
    with pytest.raises(ValueError, match=r"0 of the 40.*40 cannot be cut; example 0.*by line"):
        open_corpus(data, around_none, SegmentConfig(by="statement"))
    with pytest.raises(ValueError, match=r"segments.slots=1 and segments.segment_length=3"):
        open_corpus(data, around_none, SegmentConfig(slots=1, segment_length=3, overflow="drop"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"slots": 11}, r"segments.slots=11: stories cut by line needs at least 12, raise it"),
        ({"segment_length": 9}, r"segments.segment_length=9: .*at least 10, raise it"),
        ({"segment_length": 10, "overflow": "drop"}, r"segments.segment_length=10: .*at least 11"),
        ({"by": "statement", "segment_length": 13}, r"stories cut by statement .*at least 14"),
        ({"by": "fixed", "segment_length": 4}, r"segments.slots=16: .*at least 21, raise it"),
    ],
)
def test_stories_need_room_for_their_segments(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        open_corpus(DataConfig(), around_none, SegmentConfig(**options))  # type: ignore[arg-type]


def test_stories_in_another_vocabulary_are_not_truncated_unseen() -> None:
    data = DataConfig(vocab="bytes", canvas=1000, max_length=2000)
    with pytest.raises(ValueError, match=r"give segments.overflow=drop"):
        open_corpus(data, around_none, SegmentConfig())
    segments = SegmentConfig(segment_length=10, overflow="drop")
    corpus = open_corpus(data, around_none, segments)
    batches = Batches(corpus.train, corpus.vocab, BatchConfig(4, ending="none", segments=segments))
    with pytest.raises(ValueError, match=r"of the source.*do not fit in 16 of 10"):
        batches(0)


@pytest.mark.parametrize(
    "segments",
    [
        SegmentConfig("line", 12, 10),
        SegmentConfig("line", 12, 11, "drop"),
        SegmentConfig("statement", 12, 14),
        SegmentConfig("fixed", 7, 10),
    ],
    ids=["line", "drop", "statement", "fixed"],
)
def test_what_stories_are_told_to_need_is_enough(segments: SegmentConfig) -> None:
    for layout in (0.0, 1.0):
        data = DataConfig(layout=layout, wording=layout)
        corpus = open_corpus(data, around_none, segments)
        for source in (corpus.train, corpus.validation):
            for index in range(300):
                prompt, answer = source[index]
                found = tokenise(prompt, answer, index, corpus.vocab, segments=segments)
                assert not found.truncated
                assert corpus.vocab.decode(found.answer) == answer
