"""Files of any compression and spelling, the hub, and files that are damaged."""

from __future__ import annotations

import gzip
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from anyorder.bench.tasks import find_task
from anyorder.bench.tasks.problem import Hub, read_file, read_rows

ROWS = [{"question": f"Q{n} é", "answer": f"#### {n}"} for n in range(3)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
HUB = Hub("owner/name", "main", "test")


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("anyorder.bench.tasks.problem._reachable", lambda: True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", LINES),
        ("a.jsonl.gz", gzip.compress(LINES, mtime=0)),
        ("a.jsonl", gzip.compress(LINES, mtime=0)),  # the content counts, not the name
        ("a.gz", LINES),
        ("a.json", json.dumps(ROWS, indent=1, ensure_ascii=False).encode()),
        (
            "a.json.gz",
            gzip.compress(json.dumps([dict(reversed(r.items())) for r in ROWS]).encode(), mtime=0),
        ),
        ("a", b"\xef\xbb\xbf" + LINES.replace(b"\n", b"\r\n") + b"\n\n"),
    ],
)
def test_one_content_one_digest(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "plain.jsonl").write_bytes(LINES)
    (tmp_path / name).write_bytes(content)
    assert read_file(tmp_path / name).records == tuple(ROWS)
    assert read_file(tmp_path / name).digest == read_file(tmp_path / "plain.jsonl").digest


def test_another_content_another_digest(tmp_path: Path) -> None:
    for name, rows in {"a": ROWS, "b": ROWS[::-1], "c": ROWS[:2]}.items():
        (tmp_path / name).write_text(json.dumps(rows))
    assert len({read_file(tmp_path / name).digest for name in "abc"}) == 3


HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": "def f():\n",
    "entry_point": "f",
    "canonical_solution": "    return 1",
    "test": "def check(candidate): assert candidate() == 1",
}

MBPP = {
    "task_id": 1,
    "text": "Give one.",
    "code": "def f(): return 1",
    "test_list": ["assert f() == 1"],
    "test_setup_code": "",
}


@pytest.mark.parametrize(
    ("task", "content", "problem"),
    [
        ("gsm8k", b"", "has no rows"),
        ("gsm8k", b"[]", "has no rows"),
        ("gsm8k", gzip.compress(b"", mtime=0), "has no rows"),
        ("gsm8k", gzip.compress(LINES, mtime=0)[:-12], "damaged gzip"),
        ("gsm8k", gzip.compress(LINES, mtime=0)[:20] + b"garbage", "damaged gzip"),
        ("gsm8k", b"\xff\xd8\xff\xe0 picture", "not a text file"),
        ("gsm8k", LINES[:-9], r":3: not JSON .* each line must be one object"),
        ("gsm8k", b'[{"a": 1}', "damaged JSON"),
        ("gsm8k", b"1\n2\n", "row 1 is a int, not an object"),
        ("gsm8k", b'{"q": "x", "a": "y"}', "its columns are q, a; needed are question, answer"),
        ("gsm8k", LINES + b'{"question": "x"}', "row 4 has no column 'answer'"),
        ("gsm8k", LINES + b'{"question": "x", "answer": 4}', "row 4: column 'answer' is a int"),
        ("gsm8k", b'{"question": "x", "answer": "none"}', "no number after ####"),
        ("humaneval", LINES, "is not a file of HumanEval"),
        ("mbpp", LINES, "is not a file of MBPP"),
        ("livecodebench", LINES, "is not a file of LiveCodeBench"),
        ("humaneval", json.dumps([HUMANEVAL] * 2).encode(), "HumanEval/0 comes twice"),
        ("humaneval", json.dumps([HUMANEVAL | {"prompt": "def f("}]).encode(), "is not Python"),
        ("humaneval+", json.dumps([HUMANEVAL]).encode(), "use it with --task humaneval"),
        ("mbpp+", json.dumps([MBPP]).encode(), "has no tests of MBPP.: use it with --task mbpp"),
        ("mbpp:sanitized", json.dumps([MBPP]).encode(), "is the full file of MBPP, not sanitized"),
        ("mbpp:378", json.dumps([MBPP]).encode(), "is the full file of MBPP, not 378"),
        ("mbpp:test", json.dumps([MBPP]).encode(), "no problem left"),
        ("mbpp", json.dumps([MBPP | {"task_id": "x"}]).encode(), "task_id 'x' is no number"),
        (
            "mbpp",
            json.dumps([MBPP | {"test_list": ["1"]}]).encode(),
            "call no function of its code",
        ),
        ("mbpp", json.dumps([MBPP | {"code": "def f("}]).encode(), "row 1 is not Python"),
    ],
)
def test_bad_files_are_refused_in_one_line(
    tmp_path: Path, task: str, content: bytes, problem: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=problem) as caught:
        find_task(task, {}, data=path)
    assert "\n" not in str(caught.value)
    assert "file" in str(caught.value)


@pytest.mark.parametrize("name", ["nowhere.jsonl", "./nowhere", "a/b/c", "owner/file.gz", "..", ""])
def test_a_file_that_is_not_there(name: str) -> None:
    with pytest.raises(ValueError, match="give --data an existing file"):
        find_task("gsm8k", {}, data=name)


def test_rows_from_the_hub(monkeypatch: pytest.MonkeyPatch, online: None) -> None:
    import datasets

    asked: list[Any] = []

    def load(name: str, config: str | None, *, split: str) -> list[dict[str, Any]]:
        asked.append((name, config, split))
        return ROWS

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert read_rows(None, HUB).records == tuple(ROWS)
    assert read_rows("else/where", HUB).where == "else/where"
    assert asked == [("owner/name", "main", "test"), ("else/where", "main", "test")]
    assert [p.task_id for p in find_task("gsm8k", {}).problems(2)] == ["GSM8K/0", "GSM8K/1"]
    assert asked[-1] == ("openai/gsm8k", "main", "test")


def test_files_from_the_hub(monkeypatch: pytest.MonkeyPatch, online: None, tmp_path: Path) -> None:
    import huggingface_hub

    def download(dataset: str, name: str, *, repo_type: str) -> str:
        assert (dataset, repo_type) == ("owner/name", "dataset")
        (tmp_path / name).write_text(json.dumps({"from": name}) + "\n")
        return str(tmp_path / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    found = read_rows(None, Hub("owner/name", files=("a.jsonl", "b.jsonl")))
    assert found.records == ({"from": "a.jsonl"}, {"from": "b.jsonl"})


def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, online: None) -> None:
    import datasets

    def load(*_: Any, **__: Any) -> None:
        raise ConnectionError("no\nway")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(ValueError, match=r"cannot load owner/name .*no way.* --data FILE"):
        read_rows(None, HUB)


def test_without_a_network_the_answer_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: Any) -> None:
        raise socket.gaierror("unknown")

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("anyorder.bench.tasks.problem.getproxies", dict)
    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with pytest.raises(ValueError, match="cannot be reached: give the file of openai/openai_human"):
        find_task("humaneval", {})
