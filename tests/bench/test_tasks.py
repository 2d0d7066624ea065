"""Tasks by name, their variants and templates, and the built-in one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from plain_runs import failures

from anyorder.bench.checks import Calls
from anyorder.bench.tasks import (
    TASKS,
    find_task,
    gsm8k,
    humaneval,
    infilling,
    livecodebench,
    mbpp,
    stories,
    trails,
)
from anyorder.bench.tasks.humaneval import AS_SETS, LEFT_OUT, NOT_NONE
from anyorder.bench.tasks.problem import entry_point, free_names, missing_names, needed_setup
from anyorder.data.corpora.stories import StoriesConfig, problem
from anyorder.measure.extract import EXTRACTIONS, extract

HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def double(x):\n    """ Twice x, e.g. {x} """\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}
MBPP = {
    "task_id": 11,
    "text": "Write a function to double.",
    "code": "def double(x):\r\n  return 2 * x",
    "test_list": [f"assert double({n}) == {2 * n}" for n in range(5)],
    "test_setup_code": "",
    "challenge_test_list": [],
}
GSM8K = {"question": "What is six by seven?", "answer": "6*7 = 42\n#### 42"}


def file_of(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_stories_are_held_out_and_have_the_models_dials() -> None:
    trained_on = {"source": "stories", "layout": 1.0, "state_layout": True, "canvas": 64}
    task = find_task("stories", trained_on)
    expected = problem(StoriesConfig(split="heldout", layout=1.0, state_layout=True), 2)
    assert task.problems(3)[2].prompt == expected.prompt
    assert task.problems(3)[2].entry_point == "solve"
    assert len(task.problems(None)) == 200


def test_the_digest_tells_corpora_apart() -> None:
    plain, other = find_task("stories", {}), find_task("stories", {"source": "stories", "seed": 1})
    assert plain.digest == find_task("stories", {"source": "mine.jsonl", "seed": 1}).digest
    assert plain.digest != other.digest


def test_stories_are_graded_by_their_own_arithmetic() -> None:
    task = find_task("stories", {"source": "stories", "layout": 1.0})
    problems = task.problems(40)
    right = [
        (found, extract(f"{found.solution}\nSo it is.", mode=task.extraction)) for found in problems
    ]
    assert failures(right) == {}
    wrong = [
        (found, f"{found.solution}\n_f = solve\ndef solve(*v): return _f(*v) + 1")
        for found in problems
    ]
    assert len(failures(wrong)) == len(problems)
    check = problems[0].checks[0]
    assert isinstance(check, Calls) and len(check.inputs) == 4 and check.reference is None


def test_wrong_names_and_dials_are_refused() -> None:
    with pytest.raises(ValueError, match="choose one of stories"):
        find_task("humaneval?", {})
    with pytest.raises(ValueError, match="layout is 'much'"):
        find_task("stories", {"source": "stories", "layout": "much"})
    with pytest.raises(ValueError, match="take no --data"):
        find_task("stories", {}, data="x.jsonl")


def test_every_task_has_a_known_extraction_and_limits(tmp_path: Path) -> None:
    plus = HUMANEVAL | {"base_input": [[1]], "plus_input": [[2]], "atol": 0}
    for name, row in {
        "humaneval": HUMANEVAL,
        "humaneval+": plus,
        "mbpp": MBPP,
        "gsm8k": GSM8K,
    }.items():
        task = find_task(name, {}, data=file_of(tmp_path, row))
        assert task.extraction in EXTRACTIONS
        assert task.limits["cpu_seconds"] > 0
        assert task.name == name
        assert task.template


@pytest.mark.parametrize(
    ("name", "variant", "problem"),
    [
        ("mbpp:", None, "no variant after the colon"),
        ("mbpp:test", "train", "two variants, 'test' and 'train'"),
        (
            "mbpp:tset",
            None,
            "choose one of prompt, test, validation, train, sanitized, 378, compat",
        ),
        ("humaneval:compat", None, "it has none"),
        ("humaneval+:test", None, "choose one of compat"),
        ("stories:hard", None, "it has none"),
        ("livecodebench:v4", None, "choose one of v5, v6, or a window"),
        ("livecodebench:v5,v6", None, "takes one variant"),
        ("livecodebench:2024-13-01..2025-01-01", None, "a window of contest dates"),
        ("gsm8k:exact", None, "choose one of compat"),
    ],
)
def test_wrong_variants_are_refused(name: str, variant: str | None, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        find_task(name, {}, variant=variant)


def test_a_variant_is_named_in_one_of_two_ways(tmp_path: Path) -> None:
    path = file_of(tmp_path, MBPP, MBPP | {"task_id": 2})
    for task in (
        find_task("mbpp:test", {}, data=path),
        find_task("mbpp", {}, data=path, variant="test"),
        find_task("mbpp:test", {}, data=str(path), variant="test"),
    ):
        assert task.name == "mbpp:test"
        assert [found.task_id for found in task.problems(None)] == ["Mbpp/11"]


def test_a_template_of_ones_own(tmp_path: Path) -> None:
    data = file_of(tmp_path, HUMANEVAL)
    template = tmp_path / "mine.txt"
    template.write_bytes(b"Complete {entry_point} {{x}} { y } {}:\r\n{prompt}")
    task = find_task("humaneval", {}, data=data, template=template)
    found = task.problems(None)[0]
    assert found.prompt == f"Complete double {{x}} {{ y }} {{}}:\n{HUMANEVAL['prompt']}"
    assert found.prefix == f"{HUMANEVAL['prompt']}\n"  # the template does not change the program
    assert task.digest == find_task("humaneval", {}, data=data).digest


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{promt}", r"no field \{promt\}: humaneval has \{prompt\}"),
        (b" \n", "is empty"),
        (b"\xff\xfe", "cannot be read"),
        (None, "give a file, or one of raw, instruct, dultra"),
    ],
)
def test_bad_templates_are_refused(tmp_path: Path, content: bytes | None, problem: str) -> None:
    template = tmp_path / "mine.txt"
    if content is not None:
        template.write_bytes(content)
    with pytest.raises(ValueError, match=problem) as caught:
        find_task("humaneval", {}, data=file_of(tmp_path, HUMANEVAL), template=template)
    assert "\n" not in str(caught.value)


def test_the_published_prompts(tmp_path: Path) -> None:
    def prompt(name: str, row: dict[str, Any], template: str | None) -> str:
        task = find_task(name, {}, data=file_of(tmp_path, row), template=template)
        return task.problems(1)[0].prompt

    head = HUMANEVAL["prompt"]
    assert prompt("humaneval", HUMANEVAL, None) == head
    instruct = prompt("humaneval", HUMANEVAL, "instruct")
    assert f"block:\n```python\n{head.strip()}\n```\n" in instruct
    assert instruct.endswith("corresponding tests:\n```python\n")
    shown = "\n".join(MBPP["test_list"][:3])  # three of five
    assert prompt("mbpp", MBPP, None) == (
        f"Write a function to double.\nThe code should pass these tests:\n\n{shown}\n\n"
        "Here is the completed function:\n```python\n"
    )
    assert prompt("gsm8k", GSM8K, None) == "What is six by seven?\n"
    assert prompt("humaneval", HUMANEVAL, "dultra") == (
        f"Write a solution to the following problem and make sure that it passes the tests:\n{head}"
    )
    assert prompt("mbpp", MBPP, "dultra") == (
        "You are an expert Python programmer, and here is your task: Write a function to double. "
        f"Your code should pass these tests:\n\n{shown}. "
        "Respond with the completed solution inside a ```python``` code block."
    )


def test_all_tasks_are_there() -> None:
    assert list(TASKS) == [
        "stories",
        "trails",
        "humaneval",
        "humaneval+",
        "humaneval-infilling",
        "mbpp",
        "mbpp+",
        "livecodebench",
        "gsm8k",
    ]


# Whose a name is: what tests take from the program and what from the task.


PROMPT = """
import math
from os import path as p, sep
LIMIT = 3
OTHER = LIMIT + 1
def helper(x):
    return math.floor(x) + inner(OTHER)
def inner(x):
    return x
class Unused:
    pass
def entry(x):
    return helper(x)
"""


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("assert f(a) == b", {"f", "a", "b"}),
        ("for a in b: c = a\nprint(c)", {"b", "print"}),
        ("def g(a):\n    return a + h\n", {"h"}),
        ("def g(a):\n    b = a\n    return [c + d for c in b]\n", {"d"}),
        ("import math\nfrom os import path as p\nassert p and math", set()),
        ("try:\n    a\nexcept E as e:\n    e", {"a", "E"}),
        ("class A(B):\n    x = y\nA()", {"B", "y"}),
        ("lambda a: a + b", {"b"}),
        ("def g():\n    global k\n    k = 1\ng()\nk", set()),
    ],
)
def test_free_names(code: str, names: set[str]) -> None:
    assert free_names(code) == names


def test_the_setup_is_what_the_tests_need_and_no_more() -> None:
    setup = needed_setup("assert entry(1) == helper(1)", (PROMPT,), ("entry",))
    scope: dict[str, object] = {}
    exec(setup, scope)
    assert {"helper", "inner", "math", "LIMIT", "OTHER"} <= set(scope)
    assert not {"Unused", "entry", "p"} & set(scope)
    assert needed_setup("assert entry(1) == 1", (PROMPT,), ("entry",)) == ""
    # The word alone is not a use of the name.
    assert needed_setup("assert entry('helper') == 1", (PROMPT,), ("entry",)) == ""


def test_the_later_source_counts() -> None:
    setup = needed_setup("assert helper(1)", ("def helper(x): return 1", PROMPT), ())
    assert "floor" in setup and "return 1\n" not in setup


def test_missing_names() -> None:
    assert missing_names("assert f(Node(1)) == len(x)", "x = 1", ("f",)) == {"Node"}


def test_the_entry_point_is_the_first_function_that_the_tests_call() -> None:
    reference = "def a(): pass\ndef b(): pass\nclass c: pass\ndef d(): pass"
    assert entry_point(reference, "assert d(b()) == c()") == "b"
    assert entry_point(reference, "assert x.a() == c()") is None


# docs/tasks.md says of tasks, variants, templates and extractions what the code says.


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
MODULES = {
    "stories": stories,
    "trails": trails,
    "humaneval": humaneval,
    "humaneval-infilling": infilling,
    "mbpp": mbpp,
    "livecodebench": livecodebench,
    "gsm8k": gsm8k,
}


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without code marks."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines[2:]
    ]


def test_tasks_and_their_extractions() -> None:
    found = {row[0]: row[-1] for row in rows("The table")}
    assert set(TASKS) <= set(found)
    assert set(found.values()) <= set(EXTRACTIONS)
    assert found["humaneval"] == found["humaneval+"] == humaneval.EXTRACTION
    assert {mode for name, mode in found.items() if name.startswith("mbpp")} == {mbpp.EXTRACTION}
    assert found["humaneval-infilling"] == infilling.EXTRACTION
    assert all(f"`humaneval-infilling:{kind}`" in PAGE for kind in infilling.KINDS)
    assert found["livecodebench"] == livecodebench.EXTRACTION


def test_extractions() -> None:
    assert [row[0] for row in rows("Extraction")] == list(EXTRACTIONS)


def test_templates() -> None:
    listed: dict[str, list[str]] = {}
    task = ""
    for row in rows("Templates"):
        task = row[0].split(",")[0] or task
        listed.setdefault(task, []).append(row[1])
    assert listed == {name: list(module.TEMPLATES) for name, module in MODULES.items()}
    fields = {field for module in MODULES.values() for field in module.FIELDS}
    assert all(f"`{{{field}}}`" in PAGE for field in fields)


def test_variants() -> None:
    windows = {row[0]: row[1].replace(" to ", "..") for row in rows("Variants of LiveCodeBench")}
    assert {name: windows[name] for name in livecodebench.WINDOWS} == livecodebench.WINDOWS
    assert all(f":{part}" in PAGE for part in mbpp.VARIANTS if part != "compat")
    for numbers in mbpp.SPLITS.values():
        assert f"{numbers[0]} to {numbers[-1]}" in PAGE


@pytest.mark.parametrize("numbers", [AS_SETS, NOT_NONE, set(LEFT_OUT)])
def test_problems_that_are_treated_otherwise(numbers: set[int]) -> None:
    assert all(re.search(rf"\b{number}\b", PAGE) for number in numbers)
