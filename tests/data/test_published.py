"""The recipes: each source's columns and filters, by mode."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_corpora import COLUMNS, in_columns

from anyorder.data.published import (
    CODE_SOURCES,
    CORPORA,
    LeftOut,
    NoProgram,
    evaluate,
    find_corpus,
    is_true,
    program_of,
)

CODE = "def area(w, h):\n    return w * h"
SOURCES = {source.alias: source for source in CODE_SOURCES} | {
    name: CORPORA[name].sources[0] for name in ("tinygsm", "gsm8k-programs")
}


def render(alias: str, mode: str = "exact", **changes: Any) -> tuple[str, str]:
    record = in_columns(alias, "Compute the area.", CODE, 1) | changes
    return SOURCES[alias].render(record, mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("alias", [source.alias for source in CODE_SOURCES])
@pytest.mark.parametrize("mode", ["exact", "compat"])
def test_each_source_is_read_by_its_own_columns(alias: str, mode: str) -> None:
    record = COLUMNS[alias]("", "", 0)
    source = SOURCES[alias]
    assert set(source.columns) <= set(record)
    assert render(alias, mode) == ("Compute the area.", CODE)


@pytest.mark.parametrize(
    ("alias", "changes", "reason"),
    [
        ("rstarcoder-seed-sft", {"is_passed": False}, "not passed"),
        ("rstarcoder-seed-sft", {"is_passed": "no"}, "not passed"),
        ("rstarcoder-seed-sft", {"is_passed": None}, "not passed"),
        ("rstarcoder-synthetic-sft", {"is_passed": 0}, "not passed"),
        ("opc-sft-stage2-educational", {"code": " "}, "no code"),
        ("OpenCodeInstruct-score1-py-all", {"average_test_score": "0.8"}, "tests fail"),
        ("OpenCodeInstruct-score1-py-all", {"average_test_score": "nan"}, "tests fail"),
        ("OpenCodeInstruct-score1-py-all", {"average_test_score": ""}, "no average_test_score"),
        ("OpenCodeInstruct-score1-py-all", {"output": "Just words."}, "not Python"),
        ("OpenCodeInstruct-score1-py-all", {"input": None}, "no input"),
    ],
)
@pytest.mark.parametrize("mode", ["exact", "compat"])
def test_filters_say_why(alias: str, changes: dict[str, Any], reason: str, mode: str) -> None:
    with pytest.raises(LeftOut, match=f"^{reason}$"):
        render(alias, mode, **changes)


def test_passed_is_read_from_numbers_and_words() -> None:
    assert all(map(is_true, (True, 1, 0.5, "True", " passed ", "Y", "1")))
    assert not any(map(is_true, (False, 0, None, "", "no", "0", "failed")))
    assert render("rstarcoder-synthetic-sft") == ("Compute the area.", CODE)


def test_the_starter_code_stands_behind_the_question() -> None:
    prompt, _ = render("rstarcoder-seed-sft", starter_code="def area(w, h):\n")
    assert prompt == "Compute the area.\n\nStarter code:\ndef area(w, h):"


def test_kodcode_has_two_columns_for_the_solution() -> None:
    assert render("KodCode-V1-SFT-4o", **{"4o_solution": None, "solution": CODE})[1] == CODE
    with pytest.raises(LeftOut, match="no solution"):
        render("KodCode-V1-SFT-4o", **{"4o_solution": ""})


def test_exact_wants_programs_and_keeps_what_only_looks_foreign() -> None:
    broken = {"code": "def area(w, h)\n    return w * h"}
    assert render("opc-sft-stage2-educational", "compat", **broken)[1] == broken["code"]
    with pytest.raises(LeftOut, match="not Python"):
        render("opc-sft-stage2-educational", **broken)
    words = f'{CODE}\n\ndef other():\n    """Solved using a package named func."""'
    foreign = {"output": f"```python\n{words}\n```"}
    assert render("OpenCodeInstruct-score1-py-all", **foreign)[1] == words
    with pytest.raises(LeftOut, match="not Python"):
        render("OpenCodeInstruct-score1-py-all", "compat", **foreign)


def test_opencodeinstruct_loses_its_demonstration() -> None:
    output = f"Here:\n```python\n{CODE}\n\n# Example usage:\nprint(area(1, 2))\n```\nDone."
    assert render("OpenCodeInstruct-score1-py-all", output=output)[1] == f"{CODE}\n"


def test_tinygsm_is_cleaned() -> None:
    code = 'def problem() -> int:\n    """\n    How many?\n    """\n\n    x = 1\n    return x\n'
    wanted = "def problem() -> int:\n    x = 1\n    return x"
    for mode in ("exact", "compat"):
        found = SOURCES["tinygsm"].render({"question": " How many? ", "code": code}, mode)  # type: ignore[arg-type]
        assert found == ("How many?\n", wanted)
    with pytest.raises(LeftOut, match="not Python"):
        SOURCES["tinygsm"].render({"question": "q", "code": "x ="}, "exact")


def test_the_mixture_repeats_all_but_one_and_says_which_is_not_commercial() -> None:
    mixture = find_corpus("code-mixture")
    repeats = {source.alias: source.repeat for source in mixture.sources}
    assert repeats.pop("OpenCodeInstruct-score1-py-all") == 1 and set(repeats.values()) == {2}
    assert [s.alias for s in mixture.sources if not s.commercial] == ["KodCode-V1-SFT-4o"]
    assert {mixture.limits[mode].total for mode in ("exact", "compat")} == {768, 767}
    with pytest.raises(ValueError, match="choose one of tinygsm"):
        find_corpus("code")


# Solutions with annotations become programs that compute the answer; nothing is ever run.


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
