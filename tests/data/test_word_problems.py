"""Solutions with annotations become programs that compute the answer; nothing is ever run."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.data.published import NoProgram, evaluate, program_of

ANSWER = (
    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n"
    "Natalia sold 48+24 = <<48+24=72>>72 clips altogether in April and May.\n#### 72"
)


def test_steps_become_assignments_that_use_earlier_ones() -> None:
    assert program_of(ANSWER) == (
        "def simple_math_problem():\n"
        "    clips_may = 48 / 2\n"
        "    clips_altogether_april = 48 + clips_may\n"
        "    result = clips_altogether_april\n"
        "    return result"
    )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("She has 3.\n#### 3", "no annotations"),
        ("<<1+1=2>>2", "no answer"),
        ("<<1+1=2>>2\n#### 3", "another answer"),
        ("<<1+1=5>>5\n#### 5", "annotation is wrong"),
        ("<<x+1=5>>5\n#### 5", "not arithmetic"),
        ("<<open('a')=5>>5\n#### 5", "not arithmetic"),
        ("<<().__class__=5>>5\n#### 5", "not arithmetic"),
        ("<<9**9**9=5>>5\n#### 5", "too large a power"),
        ("<<1/0=5>>5\n#### 5", "divides by zero"),
        ("<<1+=5>>5\n#### 5", "not arithmetic"),
    ],
)
def test_what_is_no_program_says_why(answer: str, reason: str) -> None:
    with pytest.raises(NoProgram, match=f"^{reason}$"):
        program_of(answer)


@pytest.mark.parametrize(
    ("expression", "value"),
    [("$1,200*3", 3600), ("20%*50", 10), ("05*2", 10), (".5*6", 3), ("3x4", 12), ("-2+5", 3)],
)
def test_annotations_are_read_as_their_authors_wrote_them(expression: str, value: float) -> None:
    program = program_of(f"It is <<{expression}={value}>>{value} apples.\n#### {value}")
    assert evaluate(program) == pytest.approx(value)


@given(st.lists(st.integers(1, 99), min_size=2, max_size=6))
def test_a_chain_of_sums_is_computed_step_by_step(numbers: list[int]) -> None:
    total, steps = numbers[0], []
    for number in numbers[1:]:
        steps.append(f"Then <<{total}+{number}={total + number}>>{total + number} things.")
        total += number
    program = program_of("\n".join([*steps, f"#### {total}"]))
    assert evaluate(program) == total
    names = [line.split(" = ")[0].strip() for line in program.split("\n")[1:-1]]
    assert len(set(names)) == len(names) == len(steps) + 1


@pytest.mark.parametrize(
    "program",
    [
        "import os",
        "def f():\n    return open('x')",
        "def f(x):\n    return x",
        "def f():\n    pass",
    ],
)
def test_the_evaluator_knows_arithmetic_alone(program: str) -> None:
    with pytest.raises(NoProgram):
        evaluate(program)


def test_most_of_gsm8k_becomes_programs_with_the_right_answer(
    data_file: Callable[[str], Path],
) -> None:
    with gzip.open(data_file("benchmarks/gsm8k_train.jsonl.gz"), "rt") as file:
        rows = [json.loads(line) for line in file][:1500]
    made = 0
    for row in rows:
        try:
            program = program_of(row["answer"])
        except NoProgram:
            continue
        gold = float(row["answer"].split("####")[1].replace(",", ""))
        scope: dict[str, object] = {}
        exec(program, scope)  # arithmetic on literals, made by us: the evaluator must agree
        assert abs(scope["simple_math_problem"]() - gold) <= 1e-3  # type: ignore[operator]
        made += 1
    assert made > 0.92 * len(rows)
