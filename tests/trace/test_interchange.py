"""The JSONL interchange: what is written is read back, what is wrong is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from anyorder.trace import Trace, read_jsonl, write_jsonl

LINE: dict[str, Any] = {
    "task_id": "t",
    "sample": 0,
    "prompt": "P:",
    "tokens": ["a", "bc", "", "de"],
    "insert_step": [0, 2, 1, 0],
    "reveal_step": [3, 2, 4, 1],
}


def line(**changes: Any) -> str:
    """A valid line with some fields replaced, or removed where `...` is given."""
    record = {**LINE, **changes}
    return json.dumps({name: value for name, value in record.items() if value is not ...})


@given(st.data())
def test_a_line_holds_all_that_the_interchange_has(
    trace_strategy: st.SearchStrategy[Trace], data: st.DataObject
) -> None:
    trace = data.draw(trace_strategy)
    text = trace.to_jsonl()
    assert len(text.splitlines()) == 1
    back = Trace.from_jsonl(text)
    names = ("task_id", "sample", "prompt", "text", "pieces", "steps", "entry_point", "policy")
    for name in names:
        assert getattr(back, name) == getattr(trace, name)
    for name in ("segment", "score", "block"):
        assert np.array_equal(*(_values(each, name) for each in (back, trace)), equal_nan=True)
    assert back.candidates == (
        trace.candidates and tuple(each._replace(token_ids=None) for each in trace.candidates)
    )
    assert back.to_jsonl() == text
    assert trace.steps is not None
    for step in range(trace.steps + 1):
        assert back.replay(step).text() == trace.replay(step).text()


def _values(trace: Trace, name: str) -> Any:
    column = getattr(trace, name)
    return np.zeros(0) if column is None else column


def test_the_fields_are_those_of_the_format() -> None:
    trace = Trace.from_jsonl(line(log_prob=[-1, -0.5, None, 0], entry_point="f", policy="random"))
    assert json.loads(trace.to_jsonl()) == {
        **LINE,
        "log_prob": [-1.0, -0.5, None, 0.0],
        "steps": 4,
        "entry_point": "f",
        "policy": "random",
    }
    assert list(json.loads(Trace.from_jsonl(line()).to_jsonl())) == [*LINE, "steps"]


def test_segments_their_scores_and_what_was_proposed() -> None:
    candidate = {"step": 2, "segment": 1, "text": "x", "score": None, "taken": False}
    given = {
        "segment": [0, 0, -1, 1],
        "score": [-0.5, -0.5, None, 2],
        "candidates": [candidate, candidate | {"step": 3, "segment": 0, "score": -0.5}],
    }
    trace = Trace.from_jsonl(line(**given))
    assert trace.candidates is not None
    assert trace.candidates[0] == (2, 1, None, "x", None, False)
    back = json.loads(trace.to_jsonl())
    assert {name: back[name] for name in given} == given


def test_a_line_makes_the_columns() -> None:
    trace = Trace.from_jsonl(line(steps=9))
    assert (trace.text, trace.steps) == ("abcde", 9)
    assert trace.char_end is not None
    assert trace.char_end.tolist() == [1, 3, 3, 5]
    assert trace.token_ids is None
    assert trace.prompt_ids is None
    assert trace.replay(2).text("_") == "_bc_de"


def test_text_alone_is_enough() -> None:
    trace = Trace.from_jsonl('{"task_id": "t", "sample": 3, "text": "print(1)", "tokens": null}')
    assert (trace.text, trace.prompt, trace.reveal_step, trace.char_end) == (
        *("print(1)", "", None, None),
    )
    assert json.loads(trace.to_jsonl()) == {
        "task_id": "t",
        "sample": 3,
        "prompt": "",
        "text": "print(1)",
    }
    assert Trace.from_jsonl(trace.to_jsonl()) == trace


def test_a_file_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    traces = [Trace.from_jsonl(line(sample=number)) for number in range(3)]
    write_jsonl(path, traces)
    assert list(read_jsonl(path)) == traces
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\n\n")
    assert list(read_jsonl(path)) == traces
    assert [item.name for item in tmp_path.iterdir()] == ["traces.jsonl"]


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl.gz"
    lines = "\n".join(line(sample=number) for number in range(3)).encode()
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + lines))
    assert [trace.sample for trace in read_jsonl(path)] == [0, 1, 2]
    whole = gzip.compress(lines)
    for damaged in (whole[:-9], whole[:2] + b"?" + whole[3:], whole[:10] + b"\xff" * 9):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"jsonl\.gz is damaged \(.*\): compress it") as caught:
            list(read_jsonl(path))
        assert "\n" not in str(caught.value)
    path.write_bytes(gzip.compress(lines + b"\n{"))
    with pytest.raises(ValueError, match=r"jsonl\.gz:4: not JSON"):
        list(read_jsonl(path))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_text("old")
    with pytest.raises(AttributeError):
        write_jsonl(path, [Trace.from_jsonl(line()), None])  # type: ignore[list-item]
    assert [item.read_text() for item in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task_id": ...}, "field 'task_id': missing: add it"),
        ({"task_id": 2}, "field 'task_id': 2 is not a string: write it in quotes"),
        ({"sample": ...}, "field 'sample': missing: number the samples"),
        ({"sample": True}, "field 'sample': True does not fit"),
        ({"sample": "0"}, "field 'sample': '0' does not fit"),
        ({"sample": -1}, "field 'sample': -1 does not fit"),
        ({"sample": 0.0}, "field 'sample': 0.0 does not fit"),
        ({"prompt": ...}, "field 'prompt': missing"),
        ({"tokens": "abc"}, "field 'tokens': 'abc' is not a list: give a list of strings$"),
        ({"tokens": ["a", 1, "b", "c"]}, "field 'tokens': entry 1 is 1: give a list of strings"),
        ({"tokens": ...}, "field 'insert_step': given without 'tokens'"),
        ({"insert_step": ...}, "field 'insert_step': missing: .* all 0 for a canvas of fixed"),
        ({"reveal_step": ...}, "field 'reveal_step': missing: .* or 'text' instead"),
        ({"reveal_step": [1, 2, True, 4]}, "field 'reveal_step': entry 2 is True"),
        ({"reveal_step": [1, 2, "3", 4]}, "field 'reveal_step': entry 2 is '3'"),
        ({"reveal_step": [1, 2, -3, 4]}, "field 'reveal_step': entry 2 is -3"),
        ({"reveal_step": [1, 2, 3.0, 4]}, "field 'reveal_step': entry 2 is 3.0"),
        ({"reveal_step": [1, 2, None, 4]}, "field 'reveal_step': entry 2 is None"),
        ({"reveal_step": [1, 2, 2**31, 4]}, "field 'reveal_step': entry 2 is 2147483648"),
        ({"reveal_step": [1, 2, 2**40, 4]}, "give a list of whole numbers from 0 to 2147483647"),
        ({"steps": 2**40}, "field 'steps': 1099511627776 .* a whole number from 0 to 2147483647"),
        ({"reveal_step": 3}, "field 'reveal_step': 3 is not a list"),
        ({"reveal_step": [3, 2, 4]}, "reveal_step has 3 entries for 4 tokens"),
        ({"reveal_step": [3, 1, 4, 1]}, r"reveal_step\[1\] = 1 is before insert_step\[1\] = 2"),
        ({"steps": 2}, r"reveal_step\[0\] = 3 is after the last step: steps = 2 is too small"),
        ({"log_prob": [0.9, 0, 0, 0]}, r"log_prob\[0\] = 0.9"),
        ({"log_prob": [True, 0, 0, 0]}, "field 'log_prob': entry 0 is True"),
        ({"log_prob": [float("nan"), 0, 0, 0]}, "NaN is no JSON number, write null"),
        ({"text": "other"}, "field 'text': it is not the tokens joined"),
        ({"reveal_steps": [1]}, "field 'reveal_steps': .* did you mean 'reveal_step'"),
        ({"zzz": [1]}, r"field 'zzz': not a field of a trace: remove it \(task_id, "),
        ({"events": [[0, 0]]}, "field 'events': entry 0 is"),
        ({"events": [[9, 0, "x"]]}, r"events\[0\].step = 9"),
        ({"segment": [0, 0, 0, -2]}, "field 'segment': entry 3 is -2: give .* -1 for none"),
        ({"segment": [0, 0, 0, True]}, "field 'segment': entry 3 is True"),
        ({"score": [0, 0, 0, "x"]}, "field 'score': entry 3 is 'x'"),
        ({"score": [0, 0, 0]}, "score has 3 entries for 4 tokens"),
        ({"block": [0, 0, 0]}, "block has 3 entries for 4 tokens"),
        ({"block": [0, 1, 0, 1]}, "block: the numbers fall somewhere: number blocks from left"),
        ({"block": [0, 0, -1, 1]}, r"block\[2\] = -1, and this token was generated: give"),
        ({"candidates": [{"step": 1}]}, "field 'candidates': entry 0 is"),
        ({"candidates": [[1, 0, "x", None, True]]}, "give a list of {step, segment, text"),
        ({"tokens": ["a", "\ud83d", "", "de"]}, "text: character 1 is half a surrogate"),
        ({name: ... for name in LINE if "step" in name or name == "tokens"}, "'text': missing"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text(line(sample=7) + "\n" + line(**changes) + "\n")
    reader = read_jsonl(path)
    assert next(reader).sample == 7
    with pytest.raises(ValueError, match=message) as caught:
        next(reader)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no traces in it"),
        (b"\n \n", "no traces in it"),
        (b"[1, 2]\n", ":1: not a JSON object"),
        (b'{"task_id": \n', ":1: not JSON"),
        (b'{"task_id": "\xff"}\n', ":1: not UTF-8"),
        (b"[" * 100_000 + b"\n", ":1: not JSON"),
        (b'{"sample": ' + b"9" * 5000 + b"}\n", ":1: not JSON"),
        (b'{"sample": 1, "sample": 2}\n', "field 'sample' occurs twice"),
    ],
)
def test_what_is_not_the_format_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        list(read_jsonl(path))
    assert str(path) in str(caught.value)


def test_the_same_sample_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text("\n".join([line(), line(sample=1), line()]))
    with pytest.raises(ValueError, match=r":3: field 'sample': .* a sample 0, in line 1"):
        list(read_jsonl(path))
