"""Benchmarks that training data must not hold: their files -> the parts that are looked for.

    HumanEval   statement: the docstring of the function; solution: the canonical one; tests
    MBPP        statement: the sentence; solution: the reference; tests: the assertions
    GSM8K       statement: the question; tests: the worked answer

All rows of a file count: MBPP's 974 have training rows of their own, but MBPP+ asks some of them.
Which benchmark a file is, its columns say. How parts are compared is data/decontaminate.py's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyorder.bench.tasks import gsm8k, humaneval, mbpp
from anyorder.bench.tasks.rows import Columns, Row, Rows, kind_of, read_file, read_rows
from anyorder.data.decontaminate import Item
from anyorder.data.python_code import parsed

NOTHING = "none"
_ANNOTATION = re.compile(r"<<[^<>]*>>|####")


@dataclass(frozen=True)
class OpenedBenchmark:
    """A benchmark's items."""

    name: str
    digest: str
    items: tuple[Item, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "digest": self.digest,
            "items": len(self.items),
        }


def _humaneval(row: Row, number: int) -> Item:
    program = row["prompt"] + row["canonical_solution"]
    parts = {
        "statement": _docstring(program, row["entry_point"]) or row["prompt"],
        "solution": row["canonical_solution"],
        "tests": row.get("test", ""),
    }
    return Item(row["task_id"], parts)


def _docstring(program: str, function: str) -> str | None:
    tree = parsed(program)
    for node in [] if tree is None else tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return ast.get_docstring(node)
    return None


def _mbpp(row: Row, number: int) -> Item:
    digits = str(row["task_id"]).removeprefix("Mbpp/")
    tests = row.get("test_list") or [row.get("assertion", "")]
    parts = {
        "statement": row.get("text") or row.get("prompt") or "",
        "solution": row.get("code") or row.get("canonical_solution") or "",
        "tests": "\n".join(tests),
    }
    return Item(f"Mbpp/{digits}", parts)


def _gsm8k(row: Row, number: int) -> Item:
    worked = _ANNOTATION.sub(" ", row["answer"])
    return Item(f"GSM8K/{number}", {"statement": row["question"], "tests": worked})


_NATIVE_MBPP = {"native": mbpp.KINDS["native"]}
_KINDS: dict[str, tuple[dict[str, Columns], Callable[[Row, int], Item]]] = {
    # HumanEval's and MBPP's native files share columns but for the assertion: MBPP goes first.
    "MBPP ": (_NATIVE_MBPP, _mbpp),
    "HumanEval": (humaneval.KINDS, _humaneval),
    "MBPP": (mbpp.KINDS, _mbpp),
    "GSM8K": (gsm8k.KINDS, _gsm8k),
}
_HUBS = (humaneval.HUBS["humaneval"], mbpp.FULL_HUB, gsm8k.HUB)


def open_benchmarks(given: Sequence[str]) -> tuple[OpenedBenchmark, ...]:
    """The benchmarks of these files; of none: those of the hub."""
    if NOTHING in given:
        if len(given) > 1:
            raise ValueError("--against none stands alone: leave it out, or the files")
        return ()
    try:
        found = [read_file(Path(name)) for name in given] or [read_rows(None, hub) for hub in _HUBS]
    except ValueError as error:
        if given:
            raise ValueError(str(error).replace("--data", "--against")) from None
        raise ValueError(
            f"no benchmarks to decontaminate against ({error}): give --against FILE.. with those "
            "of HumanEval, MBPP and GSM8K, or --against none"
        ) from None
    return tuple(map(_opened, found))


def _opened(rows: Rows) -> OpenedBenchmark:
    name, read = _kind(rows)
    items = tuple(read(row, number) for number, row in enumerate(rows.records))
    return OpenedBenchmark(name, rows.digest, items)


def _kind(rows: Rows) -> tuple[str, Callable[[Row, int], Item]]:
    for name, (kinds, read) in _KINDS.items():
        if any(set(columns) <= set(rows.records[0]) for columns in kinds.values()):
            kind_of(rows, kinds, name.strip())
            return name.strip(), read
    raise ValueError(
        f"{rows.where} is no file of {', '.join(name for name in _KINDS if name.strip() == name)}: "
        f"its columns are {', '.join(rows.records[0])}"
    )
