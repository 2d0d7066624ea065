"""The task trails: its own programs pass in the sandbox, those of another chain do not."""

from __future__ import annotations

from typing import Any

import pytest

from anyorder.bench.grade import Item, grade
from anyorder.bench.tasks import find_task

MIXED: dict[str, Any] = {
    "source": "trails",
    "seed": 3,
    "trails": {"hops": [4, 5], "layout": 1.0, "mixture": True},
}
VARIANTS = ["trails", "trails:strict", "trails:stated", "trails:told", "trails:strict,told"]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_asks_for_one_condition(name: str) -> None:
    task = find_task(name, MIXED)
    assert task.name == name
    problems = task.problems(12)
    words = {problem.prompt.partition(".")[0] for problem in problems}
    expected = "Strict" if "strict" in name else "Stated" if "stated" in name else "Free"
    assert words == {expected}
    assert all(("Then " in problem.prompt) == ("told" in name) for problem in problems)
    assert [problem.task_id for problem in problems[:2]] == [f"{name}/0", f"{name}/1"]


def test_all_conditions_are_of_the_same_problems() -> None:
    """So that a difference between two conditions can be paired."""
    tasks = [find_task(name, MIXED).problems(10) for name in VARIANTS]
    questions = [[each.prompt.rpartition(". ")[2] for each in problems] for problems in tasks]
    assert all(each == questions[0] for each in questions)
    inputs = [[each.checks[0].inputs for each in problems] for problems in tasks]  # type: ignore[union-attr]
    assert all(each == inputs[0] for each in inputs)


def test_an_untrained_or_foreign_model_gets_the_defaults() -> None:
    assert find_task("trails", {}).problems(1)[0].prompt.startswith("Strict. ")
    assert find_task("trails", {"source": "stories", "layout": 1.0}).problems(1)


def test_wrong_names_are_refused() -> None:
    for name in ("trails:free", "trails:strict,stated"):
        with pytest.raises(ValueError, match="trails"):
            find_task(name, MIXED)
    with pytest.raises(ValueError, match="--data"):
        find_task("trails", MIXED, data="rows.jsonl")


def test_solutions_pass_and_others_do_not() -> None:
    problems = find_task("trails", MIXED).problems(6)
    items = []
    for number, problem in enumerate(problems):
        other = problems[number - 1].solution
        for sample, text in enumerate((problem.solution, other, "def solve():\n    return 7")):
            key = (problem.task_id, sample)
            items.append(Item(key, text, problem.checks, problem.prologue))
    verdicts = {verdict.key: verdict.verdict for verdict in grade(items, workers=1)}
    assert len(verdicts) == len(items)
    for (task_id, sample), verdict in verdicts.items():
        assert (verdict == "passed") == (sample == 0), (task_id, sample, verdict)
