"""The task `livecodebench`: contest problems, with functions or with standard input and output.

The columns are those of livecodebench/code_generation_lite. A problem with `func_name` in its
metadata is a method (of `Solution`, if the starter code has that class) called with JSON values;
any other is a program that reads and prints. Public and private tests all count. A variant selects
by contest date, both days included (docs/tasks.md).

Test cases are JSON, or JSON in a pickle in zlib in base64. Upstream unpickles what it downloads,
which may run anything. Here no unpickler is used: the opcodes are read one by one, and only a
pickle that is one string is accepted.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import zlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from anyorder.bench.checks import Calls, Check, Console
from anyorder.bench.tasks.problem import (
    Benchmark,
    Columns,
    Hub,
    Problem,
    Row,
    Wish,
    benchmark,
    fill,
    find_template,
    kind_of,
    read_each,
    read_rows,
)

LARGEST = 1 << 30
"""The most bytes of one problem's unpacked tests, against decompression bombs."""

_SILENT = frozenset({"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"})
_STRINGS = frozenset(
    {
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "SHORT_BINBYTES",
        "BINBYTES",
        "BINBYTES8",
    }
)


Test = tuple[str, str]
"""One test case: an input, and the output it must give."""


def read_tests(packed: str | list[Any], where: str) -> list[Test]:
    """The test cases of a column: a list, its JSON, or its packed form."""
    try:
        cases = packed if isinstance(packed, list) else _unpacked(packed)
        return [(_text(case["input"]), _text(case["output"])) for case in cases]
    except (ValueError, KeyError, TypeError, binascii.Error, zlib.error) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{where} cannot be read ({reason}): download the file again") from None


def string_in_pickle(content: bytes) -> str | bytes:
    """The string that a pickle consists of; a pickle of anything else is refused."""
    found: list[str | bytes] = []
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in _STRINGS and not found:
            assert isinstance(argument, str | bytes)
            found.append(argument)
        elif opcode.name not in _SILENT:
            raise ValueError(f"refused: a pickle with {opcode.name}, where one string should be")
    if not found:
        raise ValueError("refused: a pickle without a string")
    return found[0]


def _unpacked(packed: str) -> Any:
    try:
        return json.loads(packed)
    except ValueError:
        pass  # then it is the packed form, or neither
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(base64.b64decode(packed, validate=True), LARGEST)
    if not unpacker.eof:
        raise ValueError("cut short" if unpacker.unconsumed_tail == b"" else "too large")
    return json.loads(string_in_pickle(content))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} where text should be")
    return value


DATASET = "livecodebench/code_generation_lite"
KINDS: dict[str, Columns] = {
    "lite": {
        "question_id": str,
        "question_content": str,
        "contest_date": object,
        "starter_code": str,
        "public_test_cases": (str, list),
        "private_test_cases": (str, list),
        "metadata": (str, dict),
    }
}
WINDOWS = {"v5": "2024-10-01..2025-01-31", "v6": "2025-02-01..2025-05-31"}
ALL_FILES = tuple(f"test{number}.jsonl" for number in ("", 2, 3, 4, 5, 6))
FILES = {"v5": ALL_FILES[4:], "v6": ALL_FILES[5:]}
"""The files of the dataset that have problems of a window."""

EXTRACTION = "last_block"
"""LiveCodeBench's own rule."""

_STAR = [
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json", "builtins"),
    "typing",
]
_PLAIN = [name for name in _STAR if name not in ("builtins", "typing")]
PROLOGUE = "".join(
    [
        *(f"from {name} import *\n" for name in _STAR),
        *(f"import {name}\n" for name in _PLAIN),
        "sys.setrecursionlimit(50000)\n",
    ]
)
"""LiveCodeBench's imports, in their order."""

FIELDS = ("prompt", "format", "starter_code", "entry_point")
TEMPLATES = {
    "instruct": (
        "### Question:\n{prompt}\n\n### Format: {format}\n```python\n{starter_code}\n```\n\n"
        "### Answer: (use the provided format with backticks)\n\n"
    ),
    "raw": "{prompt}\n{starter_code}\n",
}
SYSTEM = (
    "You are an expert Python programmer. You will be given a question (problem specification) and "
    "will generate a correct Python program that matches the specification and passes all tests. "
    "You will NOT return anything except for the program."
)
"""The system message of LiveCodeBench's chats, with the template `instruct`."""
_WITH_STARTER = (
    "You will use the following starter code to write the solution to the problem and enclose your "
    "code within delimiters."
)
_WITHOUT_STARTER = (
    "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly "
    "test on the sample inputs). Enclose your code within delimiters as follows. Ensure that when "
    "the python program runs, it reads the inputs, runs the algorithm and writes output to STDOUT."
)
_NO_STARTER = "# YOUR CODE HERE"


def load_livecodebench(trained_on: Mapping[str, Any], wish: Wish) -> Benchmark:
    """The problems of a file, or of the window that the variant names."""
    if len(wish.variant) > 1:
        raise ValueError("livecodebench takes one variant: v5, v6 or FROM..TO")
    variant = wish.variant[0] if wish.variant else None
    first, last = _window(variant)
    template = find_template(wish.template, TEMPLATES, FIELDS, "livecodebench")
    system = SYSTEM if wish.template in (None, "instruct") else ""
    rows = read_rows(wish.data, Hub(DATASET, files=FILES.get(variant or "", ALL_FILES)))
    kind_of(rows, KINDS, "LiveCodeBench")

    def inside(row: Row, where: str) -> Problem | None:
        if not first <= _day(row, where) <= last:
            return None
        return replace(_problem(row, template, where), system=system)

    chosen = [problem for problem in read_each(rows, inside) if problem is not None]
    return benchmark(wish.name("livecodebench"), rows, chosen, template, EXTRACTION)


def _window(variant: str | None) -> tuple[date, date]:
    if variant is None:
        return date.min, date.max
    first, dots, last = WINDOWS.get(variant, variant).partition("..")
    try:
        if not dots:
            raise ValueError
        return date.fromisoformat(first), date.fromisoformat(last)
    except ValueError:
        raise ValueError(
            f"livecodebench has no variant {variant!r}: choose one of {', '.join(WINDOWS)}, or a "
            "window of contest dates such as 2024-10-01..2025-01-31"
        ) from None


def _day(row: Row, where: str) -> date:
    text = str(row["contest_date"])[:10]
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{where}: contest_date {text!r} is no date: repair it") from None


def _problem(row: Row, template: str, where: str) -> Problem:
    tests = [
        test
        for column in ("public_test_cases", "private_test_cases")
        for test in read_tests(row[column], f"{where}: {column}")
    ]
    if not tests:
        raise ValueError(f"{where} has no tests: remove it")
    function = _function(row, where)
    starter: str = row["starter_code"]
    values = {
        "prompt": row["question_content"],
        "format": _WITH_STARTER if starter else _WITHOUT_STARTER,
        "starter_code": starter or _NO_STARTER,
        "entry_point": function or "",
    }
    return Problem(
        task_id=f"LiveCodeBench/{row['question_id']}",
        prompt=fill(template, values),
        entry_point=function.split(".")[0] if function else None,
        checks=(_calls(function, tests, where) if function else Console(tuple(tests)),),
        prologue=PROLOGUE,
    )


def _function(row: Row, where: str) -> str | None:
    metadata = row["metadata"]
    try:
        found = json.loads(metadata) if isinstance(metadata, str) else metadata
        name = found.get("func_name")
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{where}: damaged metadata ({error}): download it again") from None
    if name is None:
        return None
    return f"Solution.{name}" if "class Solution" in row["starter_code"] else str(name)


def _calls(function: str, tests: list[Test], where: str) -> Check:
    """Each line of an input is one argument."""
    try:
        inputs = tuple(tuple(map(json.loads, given.split("\n"))) for given, _ in tests)
        expected = tuple(json.loads(wanted) for _, wanted in tests)
    except ValueError as error:
        raise ValueError(f"{where}: a test is not JSON ({error}): download it again") from None
    return Calls(function, inputs, expected, compare="returned")
