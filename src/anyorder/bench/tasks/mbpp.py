"""The tasks `mbpp` and `mbpp+`: short functions from a sentence (docs/tasks.md).

The columns tell the files apart:

    mbpp.jsonl            974 problems with three tests; the splits are ranges of ids
    sanitized-mbpp.json   427 of them, checked by hand
    MbppPlus-OriginFmt-.. 378 of those; `test_list` is the base, `test` has evalplus's inputs
    MbppPlus-...          the same in the native format (humaneval.py)

Mbpp/601 also takes the class Pair from the program, because its tests show it. Mbpp/367 and 927
build trees of a class Node that only the reference shows: a program cannot know it, so they are not
graded. In the OriginFmt file the tests of Mbpp/737, 787 and 794 forget to assert their result; they
are repaired, except in the variant `compat`, which also grades only the first three tests of each
problem, as the paper's release does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anyorder.bench.checks import Script
from anyorder.bench.tasks.humaneval import (
    ALL_INPUTS,
    EVALPLUS_PREFILL,
    LEFT_OUT,
    SMALL_INPUTS,
    mbpp_calls,
    tightened,
)
from anyorder.bench.tasks.problem import (
    PROLOGUE,
    Benchmark,
    BenchmarkRows,
    Columns,
    Hub,
    Problem,
    Row,
    Wish,
    benchmark,
    defined_names,
    entry_point,
    fill,
    find_template,
    kind_of,
    missing_names,
    needed_setup,
    read_each,
    read_rows,
)

_TESTED: Columns = {"task_id": (int, str), "code": str, "test_list": list}
KINDS: dict[str, Columns] = {
    "native": {
        "task_id": str,
        "prompt": str,
        "entry_point": str,
        "canonical_solution": str,
        "base_input": list,
        "plus_input": (list, dict),
        "atol": (int, float),
        "assertion": str,
    },
    "plus": {**_TESTED, "prompt": str, "test_imports": list, "test": str},
    "sanitized": {**_TESTED, "prompt": str, "test_imports": list},
    "full": {**_TESTED, "text": str, "test_setup_code": str},
}
SPLITS = {
    "prompt": range(1, 11),
    "test": range(11, 511),
    "validation": range(511, 601),
    "train": range(601, 975),
}
EDITIONS = {"sanitized": ("sanitized",), "378": ("plus", "native")}
"""Variants that have their own file, and the kinds of that file."""
VARIANTS = (*SPLITS, *EDITIONS, "compat")

_ALL_SPLITS = "train+test+validation+prompt"
_PLUS = Hub("evalplus/mbppplus")
HUBS = {
    "sanitized": Hub("google-research-datasets/mbpp", "sanitized", _ALL_SPLITS),
    "378": _PLUS,
}
FULL_HUB = Hub("google-research-datasets/mbpp", "full", _ALL_SPLITS)

EXTRACTION = "block"
"""After a prompt that ends in an open fence this is Dream-Coder's stop rule: the text before the
next fence. It also reads an answer that opens its own fence."""

SHOWN_TESTS = 3
FIELDS = ("prompt", "tests", "first_test", "entry_point")
TEMPLATES = {
    "tests": (
        "{prompt}\nThe code should pass these tests:\n\n{tests}\n\n"
        "Here is the completed function:\n```python\n"
    ),
    "raw": "{prompt}\n{tests}\n",
    "dultra": (
        "You are an expert Python programmer, and here is your task: {prompt} "
        "Your code should pass these tests:\n\n{tests}. "
        "Respond with the completed solution inside a ```python``` code block."
    ),
    "dream": (
        "You are an expert Python programmer, and here is your task: {prompt} "
        "Your code should pass these tests:\n\n{tests}"
    ),
    "evalplus": (
        "Please provide a self-contained Python script that solves the following problem in a "
        'markdown code block:\n```\n"""\n{prompt}\n{first_test}\n"""\n```\n'
    ),
}
PREFILLS = {
    "dream": "Here is the completed function:\n```python\n",
    "evalplus": EVALPLUS_PREFILL,
}
"""How the answer begins in a chat, for the templates that have such a turn."""

_FORGOTTEN = "        exact_match = exp == (out is not None)\n"
_ASSERTED = f"{_FORGOTTEN}    assert exact_match\n"


def load_mbpp(trained_on: Mapping[str, Any], wish: Wish) -> Benchmark:
    """MBPP with its own tests."""
    chosen = wish.variant_in("mbpp", VARIANTS)
    hub = next((HUBS[part] for part in chosen if part in HUBS), FULL_HUB)
    rows = read_rows(wish.data, hub)
    kind = kind_of(rows, KINDS, "MBPP")
    for part in chosen & set(EDITIONS):
        if kind not in EDITIONS[part]:
            raise ValueError(
                f"{rows.where} is the {kind} file of MBPP, not {part}: give another --data, or "
                "leave the variant out"
            )
    return _benchmark("mbpp", wish, rows, _BASE[kind])


def load_mbpp_plus(trained_on: Mapping[str, Any], wish: Wish) -> Benchmark:
    """MBPP with evalplus's tests."""
    wish.variant_in("mbpp+", (*SPLITS, "compat"))
    rows = read_rows(wish.data, _PLUS)
    kind = kind_of(rows, KINDS, "MBPP+")
    if kind not in _WITH_PLUS:
        raise ValueError(f"{rows.where} has no tests of MBPP+: use it with --task mbpp")
    return _benchmark("mbpp+", wish, rows, _WITH_PLUS[kind])


_Read = tuple[Problem, Sequence[str]]
"""A problem whose prompt is the sentence alone, and its tests, of which the template shows some."""
_Reader = Callable[[Row, str, bool], _Read]
"""(row, where, compat) -> what one row holds."""


def _benchmark(task: str, wish: Wish, rows: BenchmarkRows, read: _Reader) -> Benchmark:
    template = find_template(wish.template, TEMPLATES, FIELDS, task)
    prefill = PREFILLS.get(wish.template or "", "")
    compat = "compat" in wish.variant
    ranges = [SPLITS[part] for part in wish.variant if part in SPLITS]

    def inside(row: Row, where: str) -> Problem | None:
        number = _number(row, where)
        if not all(number in part for part in ranges):
            return None
        problem, tests = read(row, where, compat)
        values = {"prompt": problem.prompt, "tests": "\n".join(tests[:SHOWN_TESTS])}
        values |= {"first_test": "".join(tests[:1]), "entry_point": problem.entry_point or ""}
        return replace(problem, prompt=fill(template, values), prefill=prefill)

    found = [problem for problem in read_each(rows, inside) if problem is not None]
    found.sort(key=lambda problem: int(problem.task_id.removeprefix("Mbpp/")))
    return benchmark(wish.name(task), rows, found, template, EXTRACTION)


def _number(row: Row, where: str) -> int:
    """Mbpp/11, "11" or 11."""
    digits = str(row["task_id"]).removeprefix("Mbpp/")
    if not digits.isdecimal():
        raise ValueError(f"{where}: task_id {row['task_id']!r} is no number: repair the file")
    return int(digits)


def _entry_point(row: Row, where: str) -> str:
    found = entry_point(row["code"], "\n".join(row["test_list"]))
    if found is None:
        raise ValueError(f"{where}: its tests call no function of its code: repair the file")
    return found


def _read_base(row: Row, where: str, compat: bool) -> _Read:
    """The tests of `test_list`."""
    entry = _entry_point(row, where)
    tests = tuple(row["test_list"])[: SHOWN_TESTS if compat else None]
    lines = [row.get("test_setup_code", ""), *tests]
    code = "\n".join(line.replace("\r\n", "\n") for line in lines if line.strip())
    imports = "\n".join(row.get("test_imports", []))
    others = missing_names(code, needed_setup(code, (PROLOGUE, imports), (entry,)), (entry,))
    shown = missing_names("\n".join(tests), "", (entry,))
    own = others & shown & set(defined_names(row["code"]))
    remote = (entry, *sorted(own))
    note = ""
    if unknown := others - own:
        note = f"its tests need {', '.join(sorted(unknown))}, which only the reference defines"
    check = Script(code, needed_setup(code, (PROLOGUE, imports), remote), remote)
    problem = Problem(
        task_id=f"Mbpp/{_number(row, where)}",
        prompt=row.get("prompt") or row.get("text", ""),
        entry_point=entry,
        checks=() if note else (check,),
        prologue=f"{PROLOGUE}{imports}\n",
        solution=row["code"].replace("\r\n", "\n"),
        note=note,
    )
    return problem, row["test_list"]


def _read_plus(row: Row, where: str, compat: bool) -> _Read:
    """The text of `test`, which holds evalplus's inputs and answers."""
    entry = _entry_point(row, where)
    number = _number(row, where)
    note = LEFT_OUT.get(number, "")
    code = row["test"].replace(ALL_INPUTS, SMALL_INPUTS)
    if _FORGOTTEN in code and "assert exact_match" not in code and not compat:
        code = code.replace(_FORGOTTEN, _ASSERTED)
        note = "the published test does not assert its result; repaired"
    if not compat:
        code = tightened(code)
    problem = Problem(
        task_id=f"Mbpp/{number}",
        prompt=row["prompt"],
        entry_point=entry,
        checks=(Script(code, needed_setup(code, (PROLOGUE,), (entry,)), (entry,)),),
        prologue=PROLOGUE,
        solution=row["code"],
        note=note,
    )
    return problem, row["test_list"]


def _read_native(row: Row, where: str, *, plus: bool) -> _Read:
    number = _number(row, where)
    program = row["canonical_solution"]
    tests = [line for line in row["assertion"].split("\n") if line.startswith("assert")]
    # The native prompt is a docstring: the sentence, then one of the tests.
    lines = row["prompt"].strip().strip('"').strip().split("\n")
    problem = Problem(
        task_id=f"Mbpp/{number}",
        prompt="\n".join(line for line in lines if not line.startswith("assert")),
        entry_point=row["entry_point"],
        checks=(mbpp_calls(row, number, f"{PROLOGUE}{program}", plus=plus),),
        prologue=PROLOGUE,
        solution=program,
        note=LEFT_OUT.get(number, "") if plus else "",
    )
    return problem, tests


_BASE: dict[str, _Reader] = {
    "full": _read_base,
    "sanitized": _read_base,
    "plus": _read_base,
    "native": lambda row, where, compat: _read_native(row, where, plus=False),
}
_WITH_PLUS: dict[str, _Reader] = {
    "plus": _read_plus,
    "native": lambda row, where, compat: _read_native(row, where, plus=True),
}
