"""Sources: what they read, and how they say that they cannot."""

from __future__ import annotations

import builtins
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from anyorder.data import (
    DatasetSource,
    JsonlSource,
    Source,
    StoriesConfig,
    StoriesSource,
    TextSource,
    problem,
)

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
