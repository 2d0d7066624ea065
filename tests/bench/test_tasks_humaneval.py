"""HumanEval and HumanEval+: the real files, whose helpers come from where, and evalplus's rules."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from plain_runs import failures

from anyorder.bench.checks import Calls, Script
from anyorder.bench.tasks import Benchmark, Problem, find_task
from anyorder.measure.extract import extract

BASE = "benchmarks/HumanEval.jsonl.gz"
NATIVE = "benchmarks/HumanEvalPlus-v0.1.10.jsonl.gz"
ORIGIN = "benchmarks/HumanEvalPlus-OriginFmt-v0.1.10.jsonl.gz"

SLOW = {f"HumanEval/{number}" for number in (15, 36, 59, 83, 94, 130, 139)}
"""Problems whose canonical solutions take seconds on evalplus's inputs."""


@pytest.fixture(scope="module")
def load(data_file: Callable[[str], Path]) -> Callable[..., list[Problem]]:
    @cache
    def problems(task: str, name: str) -> list[Problem]:
        return find_task(task, {}, data=data_file(name)).problems(None)

    return problems


def only(check: object, kind: type) -> Any:
    assert isinstance(check, kind)
    return check


def test_canonical_solutions_pass_after_extraction(data_file: Callable[[str], Path]) -> None:
    task = find_task("humaneval", {}, data=data_file(BASE))
    problems = task.problems(None)
    assert len(problems) == 164
    assert task.extraction == "sanitize_completion"
    programs = [
        (
            found,
            extract(
                str(found.solution).removeprefix(found.prompt),
                mode=task.extraction,
                entry_point=found.entry_point,
                prefix=found.prefix,
            ),
        )
        for found in problems
    ]
    assert failures(programs) == {}


def test_wrong_programs_fail(load: Callable[..., list[Problem]]) -> None:
    problems = load("humaneval", BASE)
    empty = [(found, f"{found.prompt}    return None\n") for found in problems]
    assert set(failures(empty)) == {found.task_id for found in problems}


def test_helpers_of_the_prompt_are_not_taken_from_the_sample(
    load: Callable[..., list[Problem]],
) -> None:
    helpers = {}
    for found in load("humaneval", BASE):
        check = only(found.checks[0], Script)
        assert check.remote == (found.entry_point,)
        if check.setup:
            helpers[found.task_id] = [
                node.name
                for node in ast.parse(check.setup).body
                if isinstance(node, ast.FunctionDef)
            ]
    assert helpers == {
        "HumanEval/32": ["poly"],
        "HumanEval/38": ["encode_cyclic"],
        "HumanEval/50": ["encode_shift"],
    }


def test_a_sample_cannot_replace_a_helper(load: Callable[..., list[Problem]]) -> None:
    found = next(p for p in load("humaneval", BASE) if p.task_id == "HumanEval/50")
    cheat = "def encode_shift(s): return s\ndef decode_shift(s): return s\n"
    assert failures([(found, cheat)])


def test_both_tasks_share_ids_prompts_and_prefixes(load: Callable[..., list[Problem]]) -> None:
    base, native, origin = (
        load("humaneval", BASE),
        load("humaneval+", NATIVE),
        load("humaneval+", ORIGIN),
    )
    assert [p.task_id for p in base] == [p.task_id for p in native] == [p.task_id for p in origin]
    assert [p.entry_point for p in base] == [p.entry_point for p in native]
    assert [p.prompt for p in native] == [p.prompt for p in origin]
    differing = [a.task_id for a, b in zip(base, native, strict=True) if a.prompt != b.prompt]
    assert differing == ["HumanEval/115"]  # `import math` before or inside the function
    assert all(found.prefix == f"{found.prompt}\n" for found in base)


def test_the_native_file_has_the_base_tests_too(load: Callable[..., list[Problem]]) -> None:
    base, other = load("humaneval", BASE), load("humaneval", NATIVE)
    differing = [a.task_id for a, b in zip(base, other, strict=True) if a.checks != b.checks]
    assert differing == []


def test_native_checks(load: Callable[..., list[Problem]]) -> None:
    problems = {found.task_id: found for found in load("humaneval+", NATIVE)}
    kinds = {task_id: type(found.checks[0]) for task_id, found in problems.items()}
    assert [task_id for task_id, kind in kinds.items() if kind is Script] == ["HumanEval/32"]
    check = only(problems["HumanEval/2"].checks[0], Calls)
    assert (check.compare, check.atol) == ("close", 1e-6)
    assert check.reference is not None and check.expected is None


def same_inputs(native: Sequence[Problem], origin: Sequence[Problem]) -> None:
    for found, other in zip(native, origin, strict=True):
        if found.task_id == "HumanEval/32":
            continue  # has no Calls
        text = only(other.checks[0], Script).code
        given = next(line for line in text.splitlines() if line.startswith("    inputs = "))
        values = ast.literal_eval(given.removeprefix("    inputs = "))
        inputs = only(found.checks[0], Calls).inputs
        assert {repr(tuple(item)) for item in values} == set(map(repr, inputs)), found.task_id


def test_some_native_inputs_are_those_of_the_other_format(
    load: Callable[..., list[Problem]],
) -> None:
    same_inputs(load("humaneval+", NATIVE)[::10], load("humaneval+", ORIGIN)[::10])


@pytest.mark.long
def test_the_native_inputs_are_those_of_the_other_format(
    load: Callable[..., list[Problem]],
) -> None:
    same_inputs(load("humaneval+", NATIVE), load("humaneval+", ORIGIN))


def test_any_root_of_the_polynomial_is_right(load: Callable[..., list[Problem]]) -> None:
    """evalplus accepts every x with |poly(xs, x)| <= atol, not only the reference's."""
    nearby = """
_first = find_zero
def find_zero(xs):
    x = _first(xs)
    better = x - poly(xs, x) / (poly([c * n for n, c in enumerate(xs)][1:], x) or 1)
    return better if abs(poly(xs, better)) < abs(poly(xs, x)) else x
"""
    for file in (NATIVE, ORIGIN):
        found = next(p for p in load("humaneval+", file) if p.task_id == "HumanEval/32")
        assert failures([(found, found.solution), (found, f"{found.solution}{nearby}")]) == {}
        assert failures([(found, "def find_zero(xs): return 1e9")])
        assert failures([(found, "def find_zero(xs): return -1e9")])


def test_the_published_test_of_problem_32_passes_nobody(
    load: Callable[..., list[Problem]], data_file: Callable[[str], Path]
) -> None:
    repaired = [p for p in load("humaneval+", ORIGIN) if p.note]
    assert [p.task_id for p in repaired] == ["HumanEval/32"]
    compat = find_task("humaneval+", {}, data=data_file(ORIGIN), variant="compat")
    published = next(p for p in compat.problems(None) if p.task_id == "HumanEval/32")
    assert not published.note
    assert failures([(published, published.solution)])


def test_a_file_of_the_other_task_is_refused(data_file: Callable[[str], Path]) -> None:
    with pytest.raises(ValueError, match=r"holds the tests of humaneval\+"):
        find_task("humaneval", {}, data=data_file(ORIGIN))
    with pytest.raises(ValueError, match="holds the tests of humaneval: use it with"):
        find_task("humaneval+", {}, data=data_file(BASE))


@pytest.mark.parametrize("name", [NATIVE, ORIGIN])
def test_canonical_solutions_of_some_pass_plus_tests(
    load: Callable[..., list[Problem]], name: str
) -> None:
    some = [p for p in load("humaneval+", name) if p.task_id not in SLOW][::12]
    assert failures([(found, found.solution) for found in some]) == {}


@pytest.mark.long
@pytest.mark.parametrize("name", [NATIVE, ORIGIN])
def test_canonical_solutions_pass_plus_tests(load: Callable[..., list[Problem]], name: str) -> None:
    """All but the slow ones, which `anyorder grade` runs (docs/grading.md)."""
    problems = [p for p in load("humaneval+", name) if p.task_id not in SLOW]
    assert failures([(found, found.solution) for found in problems]) == {}
    wrong = [(found, f"{found.prompt}    return None\n") for found in problems]
    assert set(failures(wrong)) == {found.task_id for found in problems}


def test_a_benchmark_says_what_it_is(data_file: Callable[[str], Path]) -> None:
    task = find_task("humaneval+:compat", {}, data=data_file(NATIVE))
    assert isinstance(task, Benchmark)
    assert task.name == "humaneval+:compat"
    assert len(task.problems(5)) == 5
    assert task.limits["cpu_seconds"] == 30.0
