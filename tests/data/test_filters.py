"""What counts as Python in each mode, and what is taken off a program."""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from made_corpora import planted_problems, rewritten

from anyorder.apps.pipeline.inputs import open_benchmarks
from anyorder.data.filters import (
    BenchmarkProblem,
    Contamination,
    Match,
    RowViews,
    extract_python,
    has_marks_of_python,
    is_python,
    whole_program,
    without_blank_lines,
    without_docstring,
)
from anyorder.data.published import FlaskApp, without_demonstration

SOLUTION = "def area(w, h):\n    return w * h\n"


@pytest.mark.parametrize(
    ("code", "by_marks", "by_parse"),
    [
        ("def f(x):\n    return x", True, True),
        ('def f(x):\n    """Solved using a stack."""\n    return x', False, True),
        ("def f(func ):\n    return func ", False, True),
        ("import java.util.*;\npublic class A {}", False, False),
        ("def f(x)\n    return x", True, False),
        ("I define def f in class, from here on.", True, False),
        ("x = 1", False, False),
        ("Hello", False, False),
    ],
)
def test_the_substring_test_and_the_parse_disagree_where_the_text_misleads(
    code: str, by_marks: bool, by_parse: bool
) -> None:
    assert has_marks_of_python(code) is by_marks
    assert is_python(code) is by_parse


def fenced(*blocks: tuple[str, str]) -> str:
    return "Text.\n" + "\nMore.\n".join(f"```{name}\n{code}\n```" for name, code in blocks)


def test_the_last_python_block_is_taken_else_the_last_block() -> None:
    one, two = "def one(): pass", "def two(): pass"
    assert extract_python(fenced(("python", one), ("py", two), ("bash", "ls")), "compat") == two
    assert extract_python(fenced(("", one), ("text", two)), "compat") == two
    assert extract_python(one, "compat") == extract_python(one, "exact") == one
    assert extract_python("no code here", "exact") is None


def test_exact_looks_further_where_the_last_block_is_no_program() -> None:
    text = fenced(("python", SOLUTION), ("python", ">>> area(1, 2)\n2"))
    assert extract_python(text, "compat") is None
    assert extract_python(text, "exact") == SOLUTION.strip()
    output = fenced(("", SOLUTION), ("", "2\n3"))
    assert extract_python(output, "exact") == SOLUTION.strip()


def test_a_whole_program_may_stand_between_fences() -> None:
    assert whole_program(f"```python\n{SOLUTION}```") == SOLUTION.strip()
    assert whole_program("x = 1") == "x = 1"
    assert whole_program("```java\nint x;\n```") is None
    assert whole_program("def f(:") is None


def test_docstrings_and_blank_lines_go_and_the_rest_stays() -> None:
    code = (
        'def f() -> int:\n    """How many?\n\n    Many."""\n\n    x = "a\\n\\nb"\n  \n    return x'
    )
    cleaned = without_blank_lines(without_docstring(code))
    assert cleaned == 'def f() -> int:\n    x = "a\\n\\nb"\n    return x'
    alone = 'def f():\n    """Only this."""'
    assert without_docstring(alone) == alone
    broken = 'def f(:\n    """Text."""\n    return 1'
    assert without_docstring(broken) == broken
    assert without_docstring("x = 1") == "x = 1"


DEMONSTRATED = {
    "calls": "print(area(1, 2))\narea(3, 4)\n",
    "a main guard": 'if __name__ == "__main__":\n    x = area(1, 2)\n    print(x)\n',
    "a named test": "def test_area():\n    assert area(1, 2) == 2\ntest_area()\n",
    "a loop with a banner": "\n# Example usage:\nfor w in range(3):\n    print(area(w, w))\n",
    "many prints": "try:\n    print(1)\n    print(2)\n    print(3)\nexcept ValueError:\n    pass\n",
}


@pytest.mark.parametrize("tail", DEMONSTRATED.values(), ids=DEMONSTRATED)
def test_a_tail_of_example_calls_is_taken_off(tail: str) -> None:
    assert without_demonstration(SOLUTION + tail, "Compute the area.") == SOLUTION


KEPT = {
    "nothing to take off": SOLUTION,
    "a bare assertion": f"{SOLUTION}assert area(1, 2) == 2\n",
    "something before the last definition": f"print(1)\n{SOLUTION}print(2)\n",
    "input": f"{SOLUTION}print(area(int(input()), 1))\n",
    "arguments": f"import sys\n{SOLUTION}print(area(int(sys.argv[1]), 1))\n",
    "flask": f"from flask import Flask\napp = 1\n{SOLUTION}",
    "no Python": "def f(:\nprint(1)\n",
    "only a demonstration": "def main():\n    print(1)\nmain()\n",
    "an else": f'{SOLUTION}if __name__ == "__main__":\n    print(1)\nelse:\n    print(2)\n',
}


@pytest.mark.parametrize("code", KEPT.values(), ids=KEPT)
def test_other_tails_stay(code: str) -> None:
    assert without_demonstration(code, "Compute the area.") == code


@pytest.mark.parametrize("prompt", ["Write a script.", "a command-line tool", "Use argparse."])
def test_a_prompt_for_a_script_keeps_its_calls(prompt: str) -> None:
    code = f"{SOLUTION}print(area(1, 2))\n"
    assert without_demonstration(code, prompt) == code


def test_a_name_that_the_prompt_asks_for_is_no_demonstration() -> None:
    code = f"{SOLUTION}def run():\n    return 1\nrun()\n"
    assert without_demonstration(code, "Compute the area.") == SOLUTION
    asked = without_demonstration(code, "Write the function run.")
    assert asked == f"{SOLUTION}def run():\n    return 1\n"


def test_a_flask_app_with_a_main_guard_is_left_out() -> None:
    code = 'from flask import Flask\ndef f():\n    return Flask("x")\n'
    with pytest.raises(FlaskApp):
        without_demonstration(f'{code}if __name__ == "__main__":\n    f().run()\n', "An app.")
    assert ast.parse(without_demonstration(f"{code}f()\n", "An app."))


# Contamination: planted copies are found with their item and overlap, clean corpora lose nothing.
#
# The counts asserted here are those of docs/data.md.


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
