"""MBPP and MBPP+: the real files, their types, and the tests that had to be repaired."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from plain_runs import failures

from anyorder.bench.checks import Calls, Script
from anyorder.bench.tasks import Problem, find_task
from anyorder.bench.tasks.humaneval import AS_SETS, NOT_NONE, restored_inputs
from anyorder.measure.extract import extract

FULL = "benchmarks/mbpp.jsonl.gz"
SANITIZED = "benchmarks/sanitized-mbpp.json.gz"
ORIGIN = "benchmarks/MbppPlus-OriginFmt-v0.2.0.jsonl.gz"
NATIVE = "benchmarks/MbppPlus-v0.2.0.jsonl.gz"

SLOW_BASE = {"Mbpp/123"}
SLOW = {f"Mbpp/{n}" for n in (84, 123, 271, 300, 389, 392, 583, 589, 592, 599, 603, 630)}
"""Problems whose canonical solutions take seconds on the inputs; Mbpp/599 takes half a minute."""

Load = Callable[..., list[Problem]]


@pytest.fixture(scope="module")
def load(data_file: Callable[[str], Path]) -> Load:
    @cache
    def problems(task: str, name: str) -> list[Problem]:
        return find_task(task, {}, data=data_file(name)).problems(None)

    return problems


def named(problems: list[Problem], number: int) -> Problem:
    return next(found for found in problems if found.task_id == f"Mbpp/{number}")


def check_of(found: Problem, kind: type) -> Any:
    (check,) = found.checks
    assert isinstance(check, kind)
    return check


@pytest.mark.parametrize(
    ("task", "name", "count"),
    [
        ("mbpp", FULL, 974),
        ("mbpp:test", FULL, 500),
        ("mbpp:prompt", FULL, 10),
        ("mbpp:validation", FULL, 90),
        ("mbpp:train", FULL, 374),
        ("mbpp", SANITIZED, 427),
        ("mbpp:sanitized", SANITIZED, 427),
        ("mbpp:sanitized,test", SANITIZED, 257),
        ("mbpp:378", ORIGIN, 378),
        ("mbpp:378,compat", NATIVE, 378),
        ("mbpp+", NATIVE, 378),
        ("mbpp+", ORIGIN, 378),
    ],
)
def test_how_many(load: Load, task: str, name: str, count: int) -> None:
    problems = load(task, name)
    assert len(problems) == count
    numbers = [int(found.task_id.removeprefix("Mbpp/")) for found in problems]
    assert numbers == sorted(numbers)
    if task == "mbpp:test":
        assert (numbers[0], numbers[-1]) == (11, 510)


@pytest.mark.parametrize(
    ("task", "name"),
    [("mbpp", SANITIZED), ("mbpp:378", ORIGIN), ("mbpp:378", NATIVE)],
)
def test_canonical_solutions_pass_after_extraction(load: Load, task: str, name: str) -> None:
    problems = [found for found in load(task, name) if found.task_id not in SLOW_BASE]
    programs = []
    for number, found in enumerate(problems):
        text = [f"{found.solution}\n```\nDone.", f"Sure:\n```python\n{found.solution}\n```"]
        programs.append((found, extract(text[number % 2], mode="block")))
    assert failures(programs) == {}


@pytest.mark.parametrize(("task", "name"), [("mbpp", SANITIZED), ("mbpp:378", NATIVE)])
def test_wrong_programs_fail(load: Load, task: str, name: str) -> None:
    problems = [found for found in load(task, name)[::4] if found.task_id not in SLOW_BASE]
    wrong = [(found, f"def {found.entry_point}(*a, **k): return 'wrong', a") for found in problems]
    assert set(failures(wrong)) == {found.task_id for found in problems}


def test_the_full_file(load: Load) -> None:
    problems = load("mbpp", FULL)
    ungradable = {found.task_id: found.note for found in problems if not found.checks}
    assert set(ungradable) == {"Mbpp/367", "Mbpp/927"}
    assert all("Node" in note for note in ungradable.values())
    for found in problems:
        assert found.solution is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the references have odd escapes
            compile(found.solution, found.task_id, "exec")
        assert found.entry_point in found.solution
        if found.checks:
            expected = {"Mbpp/601": ("max_chain_length", "Pair")}
            remote = check_of(found, Script).remote
            assert remote == expected.get(found.task_id, (found.entry_point,))


@pytest.mark.long
def test_canonical_solutions_of_the_full_file_pass(load: Load) -> None:
    problems = [found for found in load("mbpp", FULL) if found.checks]
    assert len(problems) == 972
    assert failures([(found, found.solution) for found in problems]) == {}


def test_setup_comes_from_the_task(load: Load) -> None:
    """`sys` in the tests of 596 is not the program's."""
    assert check_of(named(load("mbpp", SANITIZED), 596), Script).setup == "import sys\n"
    assert check_of(named(load("mbpp", SANITIZED), 82), Script).setup == "import math\n"


def test_all_files_share_ids_and_entry_points(load: Load) -> None:
    files = [load("mbpp", SANITIZED), load("mbpp:378", ORIGIN), load("mbpp:378", NATIVE)]
    names = [{found.task_id: found.entry_point for found in problems} for problems in files]
    assert names[1] == names[2]
    assert {key: names[0][key] for key in names[1]} == names[1]


def test_compat_shows_and_counts_three_tests(data_file: Callable[[str], Path], load: Load) -> None:
    compat = find_task("mbpp:378,compat", {}, data=data_file(ORIGIN)).problems(None)
    fewer = [
        found.task_id
        for found, other in zip(compat, load("mbpp:378", ORIGIN), strict=True)
        if check_of(found, Script) != check_of(other, Script)
    ]
    assert len(fewer) == 28
    assert [p.prompt for p in compat] == [p.prompt for p in load("mbpp:378", ORIGIN)]


def types_of(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value), [types_of(item) for item in value]
    if isinstance(value, dict):
        return [(types_of(key), types_of(item)) for key, item in value.items()]
    return type(value), 0 if isinstance(value, complex) else repr(value)


def origin_inputs(test: str) -> list[tuple[Any, ...]]:
    """`inputs` of an OriginFmt test, which is one line of Python."""
    line = next(line for line in test.splitlines() if line.startswith("inputs = "))
    scope = {"inf": float("inf"), "nan": float("nan")}
    return [tuple(item) for item in eval(line.removeprefix("inputs = "), scope)]


def test_native_inputs_have_their_types_again(load: Load) -> None:
    """Against the OriginFmt file, whose inputs are written in Python (without repetitions)."""
    for native, origin in zip(load("mbpp+", NATIVE), load("mbpp+", ORIGIN), strict=True):
        given = origin_inputs(check_of(origin, Script).code)
        restored = check_of(native, Calls).inputs
        left = dict.fromkeys(repr(types_of(item)) for item in restored)
        right = dict.fromkeys(repr(types_of(item)) for item in given)
        if native.task_id == "Mbpp/255":
            assert len(right) - len(left) == 5
            assert set(left) < set(right)
            continue
        assert list(left) == list(right), native.task_id
        if any(isinstance(value, complex) for item in given for value in item):
            assert set(restored) == set(given)


def test_answers_of_a_gigabyte_are_left_out(load: Load) -> None:
    native, origin = named(load("mbpp+", NATIVE), 255), named(load("mbpp+", ORIGIN), 255)
    assert native.note == origin.note and "5 inputs" in native.note
    inputs = check_of(native, Calls).inputs
    assert len(inputs) == 107
    code = check_of(origin, Script).code
    scope: dict[str, Any] = {}
    exec(code[: code.rindex("for i, inp")], scope)
    assert sorted(map(repr, inputs)) == sorted(repr(tuple(item)) for item in scope["inputs"])


def test_types_are_learnt_from_the_assertions() -> None:
    text = "assert set(f([(1, 2)], (1, [2]), {'a': (1,)}, 'x')) == {1}\nassert f([], (3,), {}, '')"
    given = [[[[1], []], [[1], 2], {"b": [[1]]}, "1j"], [[], [], {}, [1]]]
    assert restored_inputs(1, "f", text, given) == [
        ([(1,), ()], ([1], 2), {"b": ([1],)}, "1j"),
        ([], (), {}, [1]),
    ]
    assert restored_inputs(124, "f", "", [["1", "(-0-1j)"]]) == [(1.0, -1j)]


def test_how_native_answers_are_compared(load: Load) -> None:
    for native, origin in zip(load("mbpp+", NATIVE), load("mbpp+", ORIGIN), strict=True):
        number = int(native.task_id.removeprefix("Mbpp/"))
        check, text = check_of(native, Calls), check_of(origin, Script).code
        assert (check.compare == "set_equal") == ("out = set(out)" in text) == (number in AS_SETS)
        assert (check.compare == "not_none") == ("out is not None" in text) == (number in NOT_NONE)
        if check.compare == "close":
            assert text.rstrip().endswith(f", {json.loads(json.dumps(check.atol)) or 0})")


@pytest.mark.parametrize("name", [NATIVE, ORIGIN])
def test_whether_something_came_back(load: Load, name: str) -> None:
    """Mbpp/737, 787 and 794: a match or a truth value is right, anything goes with nothing."""
    for number in NOT_NONE:
        found = named(load("mbpp+", name), number)
        entry = found.entry_point
        as_bool = f"{found.solution}\n_f = {entry}\ndef {entry}(x): return _f(x) is not None"
        if "True" in str(found.solution):
            as_bool = str(found.solution)
        negated = f"{found.solution}\n_f = {entry}\ndef {entry}(x): return not _f(x)"
        assert failures([(found, found.solution), (found, as_bool)]) == {}
        assert failures([(found, negated)])


def test_the_published_tests_of_three_problems_pass_anything(
    load: Load, data_file: Callable[[str], Path]
) -> None:
    repaired = [found.task_id for found in load("mbpp+", ORIGIN) if "repaired" in found.note]
    assert repaired == ["Mbpp/737", "Mbpp/787", "Mbpp/794"]
    compat = find_task("mbpp+:compat", {}, data=data_file(ORIGIN)).problems(None)
    for number in NOT_NONE:
        found = named(compat, number)
        wrong = f"def {found.entry_point}(x): return 'wrong'"
        assert not found.note
        assert failures([(found, wrong)]) == {}
        assert failures([(named(load("mbpp+", ORIGIN), number), wrong)])


@pytest.mark.parametrize("name", [NATIVE, ORIGIN])
def test_canonical_solutions_of_some_pass_plus_tests(load: Load, name: str) -> None:
    some = [found for found in load("mbpp+", name) if found.task_id not in SLOW][::25]
    assert failures([(found, found.solution) for found in some]) == {}


@pytest.mark.long
@pytest.mark.parametrize("name", [NATIVE, ORIGIN])
def test_canonical_solutions_pass_plus_tests(load: Load, name: str) -> None:
    """All but the slow ones, which `anyorder grade` runs (docs/grading.md)."""
    problems = [found for found in load("mbpp+", name) if found.task_id not in SLOW]
    assert failures([(found, found.solution) for found in problems]) == {}
    wrong = [(found, f"def {found.entry_point}(*a): return 'wrong', a") for found in problems]
    if name == NATIVE:  # the references have just run: enough to see the first few calls fail
        wrong = [
            (replace(found, checks=(replace(c, inputs=c.inputs[:5]),)), program)
            for found, program in wrong
            for c in found.checks
            if isinstance(c, Calls)
        ]
    assert set(failures(wrong)) == {found.task_id for found in problems}


def test_the_native_prompt_is_the_sentence(load: Load) -> None:
    """The native file has the sentences without their web addresses, and some other tests."""
    native, origin = load("mbpp:378", NATIVE), load("mbpp:378", ORIGIN)
    differing = 0
    for left, right in zip(native, origin, strict=True):
        sentence, other = (found.prompt.split("\nThe code should")[0] for found in (left, right))
        assert sentence == re.sub(r"https?://\S+", "", other)
        differing += sentence != other
    assert differing == 18
    assert sum(a.prompt == b.prompt for a, b in zip(native, origin, strict=True)) == 348
