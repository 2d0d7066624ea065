"""LiveCodeBench in files of its format, made here: both kinds of tests, and hostile pickles."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_runs import failures

from anyorder.bench.checks import Calls, Console
from anyorder.bench.tasks import Task, find_task
from anyorder.bench.tasks.livecodebench import read_tests, string_in_pickle
from anyorder.measure.extract import extract


def packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


def private(tests: list[dict[str, str]], protocol: int = 4) -> str:
    """As upstream: JSON text, pickled, compressed, in base64."""
    return packed(pickle.dumps(json.dumps(tests), protocol))


def cases_of(kind: str, *pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"input": given, "output": wanted, "testtype": kind} for given, wanted in pairs]


STDIN = {
    "question_title": "Sum",
    "question_content": "Add two numbers.",
    "platform": "atcoder",
    "question_id": "abc301_a",
    "contest_id": "abc301",
    "contest_date": "2024-10-01T00:00:00",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": json.dumps(cases_of("stdin", ("1 2\n", "3\n"))),
    "private_test_cases": private(cases_of("stdin", ("4 5\n", "9\n"), ("10 -1\n", "9"))),
    "metadata": "{}",
}
METHOD = STDIN | {
    "question_id": "3000",
    "platform": "leetcode",
    "question_content": "Pair them up.",
    "contest_date": "2025-02-01T00:00:00",
    "starter_code": "class Solution:\n    def pairUp(self, xs: List[int], k: int):\n        ",
    "public_test_cases": json.dumps(cases_of("functional", ("[1, 2]\n3", "[1, 2, 3]"))),
    "private_test_cases": private(cases_of("functional", ('["a"]\nnull', '["a", null]'))),
    "metadata": json.dumps({"func_name": "pairUp"}),
}
ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
PAIR = "class Solution:\n    def pairUp(self, xs: List[int], k: int):\n        return (*xs, k)\n"


def load(folder: Path, *rows: dict[str, Any], variant: str | None = None) -> Task:
    path = folder / "test5.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return find_task("livecodebench", {}, data=path, variant=variant)


def test_programs_that_read_and_print(tmp_path: Path) -> None:
    task = load(tmp_path, STDIN)
    (found,) = task.problems(None)
    assert found.task_id == "LiveCodeBench/abc301_a"
    assert found.entry_point is None
    assert found.checks == (Console((("1 2\n", "3\n"), ("4 5\n", "9\n"), ("10 -1\n", "9"))),)
    text = f"Let me think.\n```python\nprint(0)\n```\nBetter:\n```python\n{ADD}```"
    assert failures([(found, extract(text, mode=task.extraction))]) == {}
    assert failures([(found, "print(3)")])
    assert failures([(found, "print(sqrt(4))")])


def test_methods(tmp_path: Path) -> None:
    (found,) = load(tmp_path, METHOD).problems(None)
    (check,) = found.checks
    assert isinstance(check, Calls)
    assert check.function == "Solution.pairUp"
    assert check.inputs == (([1, 2], 3), (["a"], None))
    assert check.expected == ([1, 2, 3], ["a", None])
    assert failures([(found, PAIR)]) == {}  # a tuple is as good as a list there
    assert failures([(found, PAIR.replace("(*xs, k)", "[*xs]"))])


def test_a_function_without_a_class(tmp_path: Path) -> None:
    row = METHOD | {"starter_code": "def pairUp(xs, k):\n"}
    (found,) = load(tmp_path, row).problems(None)
    assert isinstance(found.checks[0], Calls) and found.checks[0].function == "pairUp"
    assert failures([(found, "def pairUp(xs, k): return xs + [k]")]) == {}


def test_the_prologue_is_the_published_one(tmp_path: Path) -> None:
    (found,) = load(tmp_path, STDIN).problems(None)
    program = "print(int(sqrt(gcd(int(reduce(add, map(int, input().split()))), 0)) ** 2 + .5))"
    assert failures([(found, program)]) == {}
    assert found.prologue.startswith("from string import *\nfrom re import *\n")
    assert found.prologue.endswith("sys.setrecursionlimit(50000)\n")
    scope: dict[str, Any] = {}
    exec(found.prologue.replace("sys.setrecursionlimit(50000)", ""), scope)
    assert scope["open"] is open and scope["pow"] is pow  # builtins win over io and math


def test_prompts(tmp_path: Path) -> None:
    stdin, method = load(tmp_path, STDIN, METHOD).problems(None)
    assert stdin.prompt.startswith("### Question:\nAdd two numbers.\n\n### Format: Read the inputs")
    assert "```python\n# YOUR CODE HERE\n```" in stdin.prompt
    assert "```python\nclass Solution:\n" in method.prompt
    assert method.prompt.endswith("### Answer: (use the provided format with backticks)\n\n")


@pytest.mark.parametrize(
    ("variant", "found"),
    [
        (None, ["a", "b", "c", "d"]),
        ("v5", ["b"]),
        ("v6", ["c"]),
        ("2024-09-30..2024-10-01", ["a", "b"]),
        ("2025-06-01..2026-01-01", ["d"]),
    ],
)
def test_windows_of_contest_dates(tmp_path: Path, variant: str | None, found: list[str]) -> None:
    days = {"a": "2024-09-30", "b": "2024-10-01", "c": "2025-02-01", "d": "2025-06-01T12:00"}
    rows = [STDIN | {"question_id": name, "contest_date": day} for name, day in days.items()]
    task = load(tmp_path, *rows, variant=variant)
    assert [p.task_id.removeprefix("LiveCodeBench/") for p in task.problems(None)] == found


@pytest.mark.parametrize("protocol", range(6))
@given(tests=st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=4))
def test_private_cases_of_every_protocol(protocol: int, tests: list[tuple[str, str]]) -> None:
    cases = cases_of("stdin", *tests)
    assert read_tests(private(cases, protocol), "x") == tests
    assert read_tests(json.dumps(cases), "x") == tests
    assert read_tests(cases, "x") == tests


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["EVIL_FOLDER"],)


@pytest.mark.parametrize("protocol", range(6))
def test_hostile_pickles_are_refused_and_run_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    monkeypatch.setenv("EVIL_FOLDER", str(tmp_path / "made"))
    hostile = [Evil(), ["[]", Evil()], {"[]": 1}, ("[]",), ["[]"], 1, None, len, "a" and b"".join]
    for content in hostile:
        with pytest.raises(ValueError, match=r"x cannot be read \(refused: a pickle with"):
            read_tests(packed(pickle.dumps(content, protocol)), "x")
    two_strings = pickle.dumps("[]", 4)[:-1] + pickle.dumps("[1]", 4)[2:]
    with pytest.raises(ValueError, match="refused"):
        string_in_pickle(two_strings)
    assert not (tmp_path / "made").exists()


@given(st.binary(max_size=60))
def test_no_bytes_do_anything_but_be_refused(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(string_in_pickle(content), str | bytes)
    with pytest.raises(ValueError, match="cannot be read"):
        read_tests(packed(content), "x")


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("private_test_cases", "not base64!", "private_test_cases cannot be read"),
        ("private_test_cases", packed(b"junk"), "private_test_cases cannot be read"),
        ("private_test_cases", STDIN["private_test_cases"][:-8], "cannot be read"),
        ("private_test_cases", private([{"input": "x"}]), "'output'"),  # type: ignore[list-item]
        ("public_test_cases", '[{"input": 1, "output": "2"}]', "a int where text should be"),
        ("public_test_cases", "{}x", "public_test_cases cannot be read"),
        ("metadata", "{", "damaged metadata"),
        ("metadata", "[]", "damaged metadata"),
        ("contest_date", "soon", "contest_date 'soon' is no date"),
    ],
)
def test_damaged_rows_are_refused(tmp_path: Path, column: str, value: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        load(tmp_path, METHOD, STDIN | {column: value})
    assert "row 2" in str(caught.value) and "\n" not in str(caught.value)


def test_a_problem_without_tests_is_refused(tmp_path: Path) -> None:
    row = STDIN | {"public_test_cases": "[]", "private_test_cases": private([])}
    with pytest.raises(ValueError, match="row 1 has no tests"):
        load(tmp_path, row)


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyorder.bench.tasks.livecodebench.LARGEST", 1000)
    with pytest.raises(ValueError, match="too large"):
        read_tests(private(cases_of("stdin", ("x" * 2000, "y"))), "x")
