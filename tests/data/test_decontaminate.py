"""Contamination: planted copies are found with their item and overlap, clean corpora lose nothing.

The counts asserted here are those of docs/data.md.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from made_corpora import planted_problems, rewritten

from anyorder.apps.pipeline.inputs import open_benchmarks
from anyorder.data.filters import BenchmarkProblem, Contamination, Match, RowViews

DataFile = Callable[[str], Path]
BENCHMARKS = ("HumanEval", "mbpp", "gsm8k_test")

STATEMENT = "Return the list of all prime factors of a given number in the order from small to big"


def rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def index_of(data_file: DataFile, *names: str) -> Contamination:
    files = [str(data_file(f"benchmarks/{name}.jsonl.gz")) for name in names]
    return Contamination(item for found in open_benchmarks(files) for item in found.items)


def found(index: Contamination, pairs: Iterable[tuple[str, str]]) -> list[Match | None]:
    return [index.find(RowViews(prompt, answer)) for prompt, answer in pairs]


def test_a_statement_is_found_in_other_layout_with_what_it_overlaps() -> None:
    index = Contamination([BenchmarkProblem("a/1", {"statement": STATEMENT})])
    match = index.find(RowViews(STATEMENT.upper().replace(" ", "\n  # "), "x = 1"))
    assert match == Match("a/1", "statement", 1.0, 11)
    half = index.find(RowViews("Unlike others: " + " ".join(STATEMENT.split()[:15]), ""))
    assert half == Match("a/1", "statement", 0.7273, 8)
    assert index.find(RowViews(" ".join(STATEMENT.split()[:14]), "")) is None


def test_a_short_statement_counts_only_as_the_whole_prompt() -> None:
    index = Contamination(
        [BenchmarkProblem("a/1", {"statement": "Write a function to add two numbers."})]
    )
    match = index.find(RowViews("write a function to add two numbers", "x = 1"))
    assert match is not None and (match.item, match.overlap) == ("a/1", 1.0)
    longer = "Write a function to add two numbers and print all of their digits in Spanish."
    assert index.find(RowViews(longer, "x = 1")) is None


def test_a_solution_is_found_under_other_names() -> None:
    code = (
        "def factors(n):\n    found, d = [], 2\n    while d * d <= n:\n        while n % d == 0:\n"
        "            found.append(d)\n            n //= d\n        d += 1\n"
        "    return found + [n] if n > 1 else found\n"
    )
    index = Contamination([BenchmarkProblem("a/1", {"solution": code})])
    match = index.find(RowViews("Something else.", rewritten(code, 5)))
    assert match is not None and (match.part, match.overlap) == ("solution", 1.0)
    assert index.find(RowViews("Something else.", "def f(n):\n    return n * 2")) is None


def test_every_planted_problem_of_humaneval_is_found(data_file: DataFile) -> None:
    problems = rows(data_file("benchmarks/HumanEval.jsonl.gz"))
    index = index_of(data_file, "HumanEval")
    planted = planted_problems(problems, 0)
    assert len(planted) == 3 * 164
    matches = found(index, ((prompt, answer) for _, _, prompt, answer in planted))
    assert None not in matches
    named = [match.item == row[1] for match, row in zip(matches, planted, strict=True) if match]
    assert sum(named) >= 3 * 163  # one problem holds the statement of another


def test_of_solutions_alone_the_longer_ones_are_found(data_file: DataFile) -> None:
    problems = rows(data_file("benchmarks/HumanEval.jsonl.gz"))
    index = index_of(data_file, "HumanEval")
    bare = []
    for number, row in enumerate(problems):
        program = rewritten(row["prompt"] + row["canonical_solution"], number)
        bare.append(("Do it.", without_strings(program)))
    matches = found(index, bare)
    assert sum(match is not None for match in matches) == 117


def without_strings(program: str) -> str:
    """The program with empty docstrings: code alone."""
    import ast

    tree = ast.parse(program)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            body = [line for line in node.body if not _is_string(line)]
            node.body = body or [ast.Pass()]
    return ast.unparse(tree)


def _is_string(node: Any) -> bool:
    value = getattr(getattr(node, "value", None), "value", None)
    return type(node).__name__ == "Expr" and isinstance(value, str)


def test_mbpp_is_found_in_itself_and_humaneval_is_not(data_file: DataFile) -> None:
    problems = [(row["text"], row["code"]) for row in rows(data_file("benchmarks/mbpp.jsonl.gz"))]
    assert None not in found(index_of(data_file, "mbpp"), problems)
    assert set(found(index_of(data_file, "HumanEval"), problems)) == {None}


CLEAN = {
    "schema/kodcode_demo_232.jsonl.gz": ("question", "solution", 232),
    "math/gsm8k_train_python.jsonl.gz": ("question", "code", 1500),
    "math/mathqa_devtest_python.jsonl.gz": ("question", "code", 1500),
}


@pytest.mark.parametrize("name", CLEAN)
def test_no_clean_row_is_dropped(name: str, data_file: DataFile) -> None:
    prompt, answer, count = CLEAN[name]
    corpus = [(row[prompt], row[answer]) for row in rows(data_file(name))][:count]
    assert set(found(index_of(data_file, *BENCHMARKS), corpus)) == {None}


@pytest.mark.long
@pytest.mark.parametrize("name", CLEAN)
def test_no_clean_row_of_whole_files_is_dropped(name: str, data_file: DataFile) -> None:
    prompt, answer, _ = CLEAN[name]
    corpus = [(row[prompt], row[answer]) for row in rows(data_file(name))]
    assert set(found(index_of(data_file, *BENCHMARKS), corpus)) == {None}
