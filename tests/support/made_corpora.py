"""Corpora in the columns of the published sources: made rows, and copies planted among them.

Rows are functions of (seed, index). Their words are drawn from thousands, so that no two are alike;
whatever a pipeline drops of them as duplicates or contamination was planted, or is a mistake.
"""

from __future__ import annotations

import ast
import builtins
import gzip
import json
import random
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ro", "su")
WORDS = ["".join(parts) for parts in product(SYLLABLES, repeat=3)]
OPERATORS = ("+", "-", "*", "//", "%")


def made_prompt(seed: int, index: int) -> str:
    draws = random.Random(f"prompt {seed} {index}")
    return " ".join(draws.choices(WORDS, k=draws.randint(25, 70))).capitalize() + "."


def made_program(seed: int, index: int) -> str:
    """A function with a docstring, a comment, and statements that hardly repeat."""
    draws = random.Random(f"program {seed} {index}")
    fresh = iter(draws.sample(WORDS, k=60))
    names = [next(fresh) for _ in range(draws.randint(3, 6))]
    lines = [f"def {next(fresh)}_{index}({', '.join(names)}):", f'    """{next(fresh)}."""']
    for _ in range(draws.randint(5, 12)):
        target, left, right = next(fresh), draws.choice(names), draws.choice(names)
        operator, number = draws.choice(OPERATORS), draws.randint(2, 10**6)
        lines += draws.choice(STATEMENTS)(target, left, right, f"{operator} {number}")
        names.append(target)
    return "\n".join([*lines, f"    return {names[-1]}"])


STATEMENTS = (
    lambda target, left, right, end: [f"    {target} = {left} {end}"],
    lambda target, left, right, end: [f"    {target} = max([{left}, {right} {end}])"],
    lambda target, left, right, end: [
        f"    {target} = len({left})  # {right}",
        f"    if {left} > {target} {end}:",
        f"        return {right}",
    ],
    lambda target, left, right, end: [
        f"    {target} = {left}",
        f"    for {target}_at in range({right} {end}):",
        f"        {target} = {target} + {left} {end}",
    ],
)


def rewritten(code: str, seed: int) -> str:
    """The same program with other names, other comments and another layout."""
    tree = _Renamed(seed).visit(ast.parse(code))
    lines = ast.unparse(tree).split("\n")
    draws = random.Random(f"comments {seed}")
    return "\n".join(
        f"{line}  # {draws.choice(WORDS)}" if line.endswith(":") and '"' not in line else line
        for line in lines
    )


class _Renamed(ast.NodeTransformer):
    def __init__(self, seed: int) -> None:
        self._draws = random.Random(f"names {seed}")
        self._names = {name: name for name in dir(builtins)}

    def _new(self, name: str) -> str:
        if name not in self._names:
            self._names[name] = f"{self._draws.choice(WORDS)}_{len(self._names)}"
        return self._names[name]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.name = self._new(node.name)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg, node.annotation = self._new(node.arg), None
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._new(node.id)
        return node


def in_columns(alias: str, prompt: str, code: str, index: int) -> dict[str, Any]:
    """A row as the source would have it."""
    return COLUMNS[alias](prompt, code, index)


COLUMNS = {
    "rstarcoder-seed-sft": lambda prompt, code, index: {
        "question_id": f"seed_{index}",
        "question": prompt,
        "starter_code": "",
        "response": f"<think>...</think>\n{code}",
        "code": code,
        "is_passed": True,
    },
    "rstarcoder-synthetic-sft": lambda prompt, code, index: {
        "question_id": f"synthetic_{index}",
        "question": prompt,
        "starter_code": "",
        "response": code,
        "code": code,
    },
    "opc-sft-stage2-educational": lambda prompt, code, index: {
        "seq_id": index,
        "instruction": prompt,
        "output": f"```python\n{code}\n```",
        "code": code,
        "entry_point": "f",
        "testcase": [],
    },
    "KodCode-V1-SFT-4o": lambda prompt, code, index: {
        "question": prompt,
        "4o_solution": code,
        "solution": "",
    },
    "OpenCodeInstruct-score1-py-all": lambda prompt, code, index: {
        "id": str(index),
        "input": prompt,
        "output": f"```python\n{code}\n```",
        "domain": "generic",
        "generation_algorithm": "self-instruct",
        "llm_judgement": "{}",
        "unit_tests": "[]",
        "tests_execution_status": "[]",
        "average_test_score": "1",
    },
    "tinygsm": lambda prompt, code, index: {"question": prompt, "code": code},
}


def made_rows(alias: str, seed: int, count: int) -> Iterator[dict[str, Any]]:
    for index in range(count):
        yield in_columns(alias, made_prompt(seed, index), made_program(seed, index), index)


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """A file of rows: .jsonl, .jsonl.gz or .parquet, by its name."""
    if path.suffix == ".parquet":
        table = pyarrow.Table.from_pylist(list(rows))
        pyarrow.parquet.write_table(table, path, row_group_size=1000)
        return path
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    return path


PLANTED = ("copy", "near copy", "copy again")


def planted_problems(problems: list[dict[str, str]], seed: int) -> list[tuple[str, str, str, str]]:
    """(kind, id, prompt, answer): each problem as it is, rewritten, and as it is again."""
    found = []
    for number, row in enumerate(problems):
        program = row["prompt"] + row["canonical_solution"]
        own = made_prompt(seed, -1 - number)
        found += [
            ("copy", row["task_id"], row["prompt"], program),
            ("near copy", row["task_id"], own, rewritten(program, number)),
            ("copy again", row["task_id"], row["prompt"], program),
        ]
    return found


def planted_repeats(seed: int, count: int) -> list[tuple[str, str, str, str]]:
    """Repeats of the first made rows: as they are, and with a word and all names changed."""
    found = []
    for index in range(count):
        prompt, program = made_prompt(seed, index), made_program(seed, index)
        first, *rest = prompt.split()
        changed = " ".join([first, "other", *rest[1:]])
        found += [
            ("repeat", str(index), prompt, f"{program}\n"),
            ("near repeat", str(index), changed, rewritten(program, index)),
        ]
    return found
