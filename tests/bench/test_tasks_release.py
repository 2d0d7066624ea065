"""The problems are the published ones: the release's own task lists, rebuilt from ours.

The paper's release stores what it sampled and graded with as `tasks.json` (prompts, entry points,
tests) and states the digests of its two files. Equal digests mean equal prompts, ids, entry points,
base tests and plus tests, to the last character.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anyorder.bench.checks import Script
from anyorder.bench.tasks import Problem, find_task
from anyorder.bench.tasks.humaneval import ALL_INPUTS, SMALL_INPUTS

HUMANEVAL = "30a9b4f74b86620991b5deef66e3cfd99f4e271a56a9a13f154a7e059a7ba96b"
MBPP = "609bf338ed51ee017c91e8f37880496b0cf479114d7e9cfffb899dd04e5b8a55"


def rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def code(found: Problem) -> str:
    (check,) = found.checks
    assert isinstance(check, Script)
    return check.code.removesuffix(f"\ncheck({found.entry_point})\n")


def digest(records: list[dict[str, Any]]) -> str:
    return hashlib.sha256(json.dumps(records, indent=2).encode()).hexdigest()


def test_humaneval(data_file: Callable[[str], Path]) -> None:
    base_file = data_file("benchmarks/HumanEval.jsonl.gz")
    plus_file = data_file("benchmarks/HumanEvalPlus-OriginFmt-v0.1.10.jsonl.gz")
    base = find_task("humaneval", {}, data=base_file).problems(None)
    plus = find_task("humaneval+:compat", {}, data=plus_file).problems(None)
    records = [
        {
            "dataset": "humaneval",
            "index": index,
            "task_id": found.task_id,
            "prompt": found.prompt,
            "entry_point": found.entry_point,
            "canonical_solution": str(found.solution).removeprefix(found.prompt),
            "test_base": code(found),
            "test_plus": code(other),
            "test_list": [],
            "test_imports": [],
        }
        for index, (found, other) in enumerate(zip(base, plus, strict=True))
    ]
    assert digest(records) == HUMANEVAL


def test_mbpp(data_file: Callable[[str], Path]) -> None:
    file = data_file("benchmarks/MbppPlus-OriginFmt-v0.2.0.jsonl.gz")
    base = find_task("mbpp:378,compat", {}, data=file).problems(None)
    plus = find_task("mbpp+:compat", {}, data=file).problems(None)
    records = [
        {
            "dataset": "mbpp",
            "index": index,
            "task_id": found.task_id,
            "prompt": found.prompt,
            "entry_point": found.entry_point,
            "canonical_solution": found.solution,
            "test_base": code(found),
            # The one change that we make in compat too: the inputs that no machine here holds.
            "test_plus": code(other).replace(SMALL_INPUTS, ALL_INPUTS),
            "test_list": row["test_list"],
            "test_imports": row["test_imports"],
        }
        for index, (found, other, row) in enumerate(zip(base, plus, rows(file), strict=True))
    ]
    assert digest(records) == MBPP
