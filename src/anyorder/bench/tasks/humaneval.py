"""The tasks `humaneval` and `humaneval+`, and the native format of evalplus (docs/tasks.md).

    HumanEval.jsonl.gz            `test` holds `check(candidate)`
    HumanEvalPlus-OriginFmt-...   the same columns, `test` with evalplus's inputs and answers
    HumanEvalPlus-...             native: `base_input`, `plus_input`, the canonical solution as the
                                  reference, `atol`; its `test` is HumanEval's

`tightened` stops two kinds of wrong programs that OriginFmt tests let through. `np.allclose`
broadcasts, and an empty array is close to anything: `return []` passes wherever a float is
expected. And where the answer is computed beside the call, from the same objects, a program that
empties its argument must only answer for an empty one. The variant `compat` leaves all tests as
published.

JSON has neither tuples nor complex numbers, so the native inputs of MBPP+ have lost types. They are
restored from the row's `assertion` text, whose calls are Python: where every example has a tuple,
the input gets a tuple; tables hold the exceptions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anyorder.bench.checks import Calls, Check, Script
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
    fill,
    find_template,
    kind_of,
    needed_setup,
    parsed,
    read_each,
    read_rows,
)

AS_SETS = frozenset({2, 7, 111, 140, 232, 579, 769})
NOT_NONE = frozenset({737, 787, 794})

LISTS_UP_TO = {98: 2, 104: 2, 140: 2, 145: 2}
"""Problems whose inputs stay lists: no tuple above this depth (1: the argument itself)."""
TUPLES_UP_TO = {596: 1}
"""Problems whose inputs are tuples at this depth only."""
NESTED_TUPLES = frozenset({580, 791})
"""Problems whose inputs are tuples all the way down, deeper than any example."""
NUMBERS: dict[int, tuple[Callable[[Any], Any], ...]] = {124: (float, complex), 252: (complex,)}
"""Problems whose arguments are numbers written as strings, and what each is."""

LEFT_OUT = {255: "5 inputs whose answers have millions of values are left out"}
ALL_INPUTS = "for i, inp in enumerate(inputs):\n    assertion(combinations_colors("
"""The loop over inputs in the OriginFmt test of Mbpp/255."""
SMALL_INPUTS = f"inputs = [inp for inp in inputs if len(inp[0]) < 4 or inp[1] < 70]\n{ALL_INPUTS}"

_STRETCHED = "        assert np.allclose(out, exp, rtol=1e-07, atol=atol)\n"
_SAME_SHAPE = (
    "        out = np.asarray(out)\n"  # once: a program's object may give another answer next time
    "        assert out.shape == np.shape(exp) and "
    "np.allclose(out, exp, rtol=1e-07, atol=atol)\n"
)
_SHARED, _COPIED = "(*inp), ref_func(*inp)", "(*deepcopy(inp)), ref_func(*inp)"
COPYING = "from copy import deepcopy\n"

_WHETHER = """
_found_by_reference = {function}
def {function}(*arguments):
    found = _found_by_reference(*arguments)
    return found if isinstance(found, bool) else found is not None
"""


def tightened(test: str) -> str:
    """A test of an OriginFmt file that lets fewer wrong programs through (see above)."""
    test = test.replace(_STRETCHED, _SAME_SHAPE)
    return COPYING + test.replace(_SHARED, _COPIED) if _SHARED in test else test


def mbpp_calls(row: Row, number: int, program: str, *, plus: bool) -> Calls:
    """The check of one native row of MBPP+, with or without evalplus's additional inputs."""
    function: str = row["entry_point"]
    given = [*row["base_input"], *(row["plus_input"] if plus else [])]
    if number in LEFT_OUT:
        given = [arguments for arguments in given if len(arguments[0]) < 4 or arguments[1] < 70]
    inputs = tuple(restored_inputs(number, function, row["assertion"], given))
    if number in NOT_NONE:
        program += _WHETHER.format(function=function)
        return Calls(function, inputs, reference=program, compare="not_none")
    compare = "set_equal" if number in AS_SETS else "close"
    return Calls(function, inputs, reference=program, compare=compare, atol=float(row["atol"]))


def restored_inputs(
    number: int, function: str, assertion: str, inputs: Sequence[Sequence[Any]]
) -> list[tuple[Any, ...]]:
    """The inputs of a problem with the types that JSON has lost."""
    if number in NUMBERS:
        return [
            tuple(kind(value) for kind, value in zip(NUMBERS[number], arguments, strict=True))
            for arguments in inputs
        ]
    if number in NESTED_TUPLES:
        return [tuple(map(_nested, arguments)) for arguments in inputs]
    calls = [
        node.args
        for node in ast.walk(parsed(assertion))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == function
    ]
    depths = range(LISTS_UP_TO.get(number, 0) + 1, TUPLES_UP_TO.get(number, 1000) + 1)
    return [
        tuple(
            _like(value, [call[place] for call in calls if place < len(call)], depths)
            for place, value in enumerate(arguments)
        )
        for arguments in inputs
    ]


def _nested(value: Any) -> Any:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


def _like(value: Any, examples: list[ast.expr], depths: range, depth: int = 1) -> Any:
    """`value` with tuples where all the examples at its place have them, at the given depths."""
    if isinstance(value, dict):
        inner = [item for node in examples if isinstance(node, ast.Dict) for item in node.values]
        return {key: _like(item, inner, depths, depth + 1) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    sequences = [node for node in examples if isinstance(node, ast.List | ast.Tuple)]
    inner = [item for node in sequences for item in node.elts]
    items = [_like(item, inner, depths, depth + 1) for item in value]
    all_tuples = bool(sequences) and all(isinstance(node, ast.Tuple) for node in sequences)
    return tuple(items) if all_tuples and depth in depths else items


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
    "dream": (
        "Write a solution to the following problem and make sure that it passes the tests:\n"
        "```{prompt}"
    ),
    "evalplus": (
        "Please provide a self-contained Python script that solves the following problem in a "
        "markdown code block:\n```\n{stripped}\n```\n"
    ),
    "llada": "Complete the following python code:\n{prompt}",
}
EVALPLUS_PREFILL = (
    "Below is a Python script with a self-contained function that solves the problem and "
    "passes corresponding tests:\n```python\n"
)
PREFILLS = {
    "dream": "Here is the completed function:\n```python\n{prompt}\n",
    "evalplus": EVALPLUS_PREFILL,
}
"""How the answer begins in a chat, for the templates that have such a turn."""

_EXCHANGED = "assert _poly(*candidate(*inp), inp) <= "
# Copies: if a program removes the coefficients, every number is a root of what is left.
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
    prefill = PREFILLS.get(wish.template or "", "")

    def problem(row: Row, where: str) -> Problem:
        found = _problem(row, task, kind, compat)
        values = {"prompt": row["prompt"], "stripped": row["prompt"].strip()}
        values["entry_point"] = row["entry_point"]
        return replace(found, prompt=fill(template, values), prefill=fill(prefill, values))

    problems = read_each(rows, problem)
    return benchmark(wish.name(task), rows, problems, template, EXTRACTION)


def _check_edition(rows: BenchmarkRows, kind: str, task: str) -> None:
    """Refuse the file of another task: the columns are the same."""
    if "suffix" in rows.records[0]:
        raise ValueError(f"{rows.where} holds gaps: use it with --task humaneval-infilling")
    if kind == "native":
        if task == "humaneval" and "test" not in rows.records[0]:
            raise ValueError(f"{rows.where} has no column 'test': use it with --task humaneval+")
        return
    plus = "\n    inputs = [" in rows.records[0]["test"]
    right = "humaneval+" if plus else "humaneval"
    if right != task:
        raise ValueError(f"{rows.where} holds the tests of {right}: use it with --task {right}")


def _problem(row: Row, task: str, kind: str, compat: bool) -> Problem:
    """The problem of a row, before its prompt is worded."""
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
    return Problem(
        task_id=row["task_id"],
        prompt=prompt,
        entry_point=entry_point,
        checks=(check,),
        prologue=PROLOGUE,
        solution=prompt + row["canonical_solution"],
        prefix=f"{prompt}\n",
        note=note,
    )


def _script(prompt: str, entry_point: str, code: str) -> Script:
    remote = (entry_point,)
    head = f"{prompt}\n    pass\n"  # a head without a body does not parse
    return Script(code, needed_setup(code, (PROLOGUE, head), remote), remote)


def _native(row: Row) -> Check:
    inputs = [*row["base_input"], *row["plus_input"]]
    if row["entry_point"] == "find_zero":
        code = _ANY_ROOT.format(inputs=inputs, atol=row["atol"])
        return _script(row["prompt"], "find_zero", code)
    program = f"{PROLOGUE}{row['prompt']}{row['canonical_solution']}"
    calls = tuple(map(tuple, inputs))
    return Calls(
        row["entry_point"], calls, reference=program, compare="close", atol=float(row["atol"])
    )
