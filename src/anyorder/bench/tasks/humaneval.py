"""The tasks `humaneval` and `humaneval+`: 164 function heads with a docstring (OpenAI, evalplus).

Both have the same problems and prompts, so one set of samples serves both. The files:

    HumanEval.jsonl.gz            `test` holds `check(candidate)`
    HumanEvalPlus-OriginFmt-...   the same columns, `test` with evalplus's inputs and answers
    HumanEvalPlus-...             native: `base_input`, `plus_input`, the canonical solution as the
                                  reference, `atol`; its `test` is HumanEval's

Helpers that a prompt defines and its test uses (poly, encode_cyclic, encode_shift) come from the
prompt. HumanEval/32 has many right answers: evalplus accepts x with |poly(xs, x)| <= atol.

The OriginFmt file's test of HumanEval/32 calls `_poly(*candidate(*inp), inp)`, arguments exchanged,
which no program passes. It is repaired here, and all tests of that file are tightened
(evalplus.py); the variant `compat` leaves them as published.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyorder.bench.checks import Check, Script
from anyorder.bench.tasks.evalplus import COPYING, reference_calls, tightened
from anyorder.bench.tasks.names import needed_setup
from anyorder.bench.tasks.problem import CODE_LIMITS, PROLOGUE, Benchmark, Problem, Wish
from anyorder.bench.tasks.rows import (
    Columns,
    Hub,
    Row,
    Rows,
    distinct,
    kind_of,
    read_each,
    read_rows,
)
from anyorder.bench.tasks.templates import fill, find_template

_COMMON: Columns = {"task_id": str, "prompt": str, "entry_point": str, "canonical_solution": str}
KINDS: dict[str, Columns] = {
    "native": {**_COMMON, "base_input": list, "plus_input": (list, dict), "atol": (int, float)},
    "script": {**_COMMON, "test": str},
}
HUBS = {
    "humaneval": Hub("openai/openai_humaneval"),
    "humaneval+": Hub("evalplus/humanevalplus"),
}
EXTRACTION = "sanitize_completion"
"""Dream-Coder's own evaluation of HumanEval, which the paper follows."""

FIELDS = ("prompt", "stripped", "entry_point")
TEMPLATES = {
    "raw": "{prompt}",
    "instruct": (
        "Please provide a self-contained Python script that solves the following problem in a "
        "markdown code block:\n```python\n{stripped}\n```\n"
        "Below is a Python script with a self-contained function that solves the problem and "
        "passes corresponding tests:\n```python\n"
    ),
    "dultra": (
        "Write a solution to the following problem and make sure that it passes the tests:\n"
        "{prompt}"
    ),
}

_EXCHANGED = "assert _poly(*candidate(*inp), inp) <= "
# Copies: of a polynomial whose coefficients a program has removed, every number is a root.
_REPAIRED = "assert abs(_poly(*inp, candidate(*deepcopy(inp)))) <= "
_ANY_ROOT = f"""\
{COPYING}inputs = {{inputs}}
for given in inputs:
    assert abs(poly(*given, find_zero(*deepcopy(given)))) <= {{atol}}
"""


def load_humaneval(trained_on: Mapping[str, Any], wish: Wish) -> Benchmark:
    """HumanEval with its own tests."""
    wish.variant_in("humaneval", ())
    return _benchmark("humaneval", wish)


def load_humaneval_plus(trained_on: Mapping[str, Any], wish: Wish) -> Benchmark:
    """HumanEval with evalplus's tests."""
    wish.variant_in("humaneval+", ("compat",))
    return _benchmark("humaneval+", wish)


def _benchmark(task: str, wish: Wish) -> Benchmark:
    template = find_template(wish.template, TEMPLATES, FIELDS, task)
    rows = read_rows(wish.data, HUBS[task])
    kind = kind_of(rows, KINDS, "HumanEval")
    _check_edition(rows, kind, task)
    compat = "compat" in wish.variant
    problems = read_each(rows, lambda row, where: _problem(row, task, kind, template, compat))
    return Benchmark(
        name=wish.name(task),
        digest=rows.digest,
        extraction=EXTRACTION,
        limits=CODE_LIMITS,
        template=template,
        found=distinct(problems, rows.where),
    )


def _check_edition(rows: Rows, kind: str, task: str) -> None:
    """The two files with one set of columns must not be taken for each other."""
    if kind == "native":
        if task == "humaneval" and "test" not in rows.records[0]:
            raise ValueError(f"{rows.where} has no column 'test': use it with --task humaneval+")
        return
    plus = "\n    inputs = [" in rows.records[0]["test"]
    right = "humaneval+" if plus else "humaneval"
    if right != task:
        raise ValueError(f"{rows.where} holds the tests of {right}: use it with --task {right}")


def _problem(row: Row, task: str, kind: str, template: str, compat: bool) -> Problem:
    prompt: str = row["prompt"]
    entry_point: str = row["entry_point"]
    note = ""
    if kind == "native" and task == "humaneval+":
        check = _native(row)
    else:
        test: str = row["test"]
        if _EXCHANGED in test and not compat:
            test = COPYING + test.replace(_EXCHANGED, _REPAIRED)
            note = "the published test exchanges the arguments of _poly; repaired"
        if task == "humaneval+" and not compat:
            test = tightened(test)
        check = _script(prompt, entry_point, f"{test}\ncheck({entry_point})\n")
    values = {"prompt": prompt, "stripped": prompt.strip(), "entry_point": entry_point}
    return Problem(
        task_id=row["task_id"],
        prompt=fill(template, values),
        entry_point=entry_point,
        checks=(check,),
        prologue=PROLOGUE,
        solution=prompt + row["canonical_solution"],
        prefix=f"{prompt}\n",
        note=note,
    )


def _script(prompt: str, entry_point: str, code: str) -> Script:
    remote = (entry_point,)
    head = f"{prompt}\n    pass\n"  # a head by itself is no program
    return Script(code, needed_setup(code, (PROLOGUE, head), remote), remote)


def _native(row: Row) -> Check:
    inputs = [*row["base_input"], *row["plus_input"]]
    if row["entry_point"] == "find_zero":
        code = _ANY_ROOT.format(inputs=inputs, atol=row["atol"])
        return _script(row["prompt"], "find_zero", code)
    program = f"{PROLOGUE}{row['prompt']}{row['canonical_solution']}"
    return reference_calls(row["entry_point"], inputs, program, float(row["atol"]))
