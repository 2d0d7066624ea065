"""Recipes' data fields: files and datasets are divided, long examples left out, dials checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anyorder.apps.corpus import open_corpus
from anyorder.apps.training import train
from anyorder.recipes import DataConfig


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
