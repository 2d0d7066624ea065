"""GSM8K by program: answers, the published restrictions, the real files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from plain_runs import failures

from anyorder.bench.checks import Calls
from anyorder.bench.tasks import find_task
from anyorder.bench.tasks.gsm8k import gold
from anyorder.measure.extract import extract

TEST = "benchmarks/gsm8k_test.jsonl.gz"


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ("so\n#### 18", 18),
        ("#### 1,234,567 ", 1234567),
        ("#### -5", -5),
        ("####3.50\n", 3.5),
        ("#### 5 apples, no\n#### .5", 0.5),
    ],
)
def test_gold(answer: str, number: float) -> None:
    assert gold(answer, "x") == number
    assert type(gold(answer, "x")) is type(number)


@pytest.mark.parametrize("answer", ["18", "####", "#### eighteen", "#### 18 dollars", "#### -"])
def test_no_gold_is_an_error(answer: str) -> None:
    with pytest.raises(ValueError, match="x: no number after ####"):
        gold(answer, "x")


def test_the_test_split(data_file: Callable[[str], Path]) -> None:
    task = find_task("gsm8k", {}, data=data_file(TEST))
    problems = task.problems(None)
    assert len(problems) == 1319
    first = problems[0]
    assert first.prompt.startswith("Janet") and first.prompt.endswith("market?\n")
    assert first.checks == (Calls("simple_math_problem", ((),), (18,), compare="number"),)
    assert task.extraction == "function"
    code = "import math\ndef simple_math_problem():\n    return math.sqrt(18 ** 2)"
    text = f"Sure.\n```python\n{code}\n```"
    assert failures([(first, extract(text, mode=task.extraction))]) == {}
    assert failures([(first, "def simple_math_problem():\n    return 17.9")])


def test_compat_has_the_published_builtins_and_second(data_file: Callable[[str], Path]) -> None:
    task = find_task("gsm8k:compat", {}, data=data_file(TEST))
    check = task.problems(1)[0].checks[0]
    assert isinstance(check, Calls) and check.builtins is not None
    assert {"abs", "round", "print", "__import__"} <= set(check.builtins)
    assert not {"sorted", "list", "dict", "set", "zip", "any", "all", "divmod", "pow"} & set(
        check.builtins
    )
    assert task.limits == {"cpu_seconds": 1.0}
    exact = find_task("gsm8k", {}, data=data_file(TEST))
    assert exact.limits == {"cpu_seconds": 5.0}
    assert exact.digest == task.digest
