"""HumanEval-Infilling: the real files, what a program is, and what is refused."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plain_runs import failures

from anyorder.bench.checks import Script
from anyorder.bench.grade import Item, grade
from anyorder.bench.sandbox import Limits
from anyorder.bench.tasks import Benchmark, Problem, find_task
from anyorder.bench.tasks.infilling import ANSWER, GAP, KINDS, head_of
from anyorder.decode import canvas

DataFile = Callable[[str], Path]

FILES = {
    "single-line": (1033, 164, "1277073e7ddc"),
    "multi-line": (5815, 1033, "2f341612eee1"),
    "random-span": (1640, 67, "b4f330d8a8ff"),
    "random-span-light": (164, 13, "1432250ecac0"),
}
"""Kind -> gaps, those with blanks or nothing behind them, and how the file's sha256 begins."""

HEAD = 'def helper(x):\n    return x\n\ndef double(x):\n    """ Twice x. """\n'
TEST = "def check(candidate):\n    assert candidate(2) == 2 * helper(2)\n"
ROW = {
    "task_id": "SingleLineInfilling/HumanEval/0/L1",
    "entry_point": "double",
    "prompt": f"{HEAD}    y = x + x\n",
    "canonical_solution": "    y = y + 0\n",
    "suffix": "\n    return y\n",
    "test": TEST,
}


def file_of(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def real(kind: str, data_file: DataFile) -> Benchmark:
    name = data_file(f"benchmarks/infilling/HumanEval-{KINDS[kind]}.jsonl.gz")
    found = find_task(f"humaneval-infilling:{kind}", {}, data=name)
    assert isinstance(found, Benchmark)
    return found


@pytest.mark.parametrize("kind", FILES)
def test_the_real_files(kind: str, data_file: DataFile) -> None:
    gaps, without_suffix, digest = FILES[kind]
    file = data_file(f"benchmarks/infilling/HumanEval-{KINDS[kind]}.jsonl.gz")
    assert hashlib.sha256(file.read_bytes()).hexdigest().startswith(digest)
    task = real(kind, data_file)
    problems = task.problems(None)
    assert (task.name, task.extraction) == (f"humaneval-infilling:{kind}", "infill")
    assert find_task("humaneval-infilling", {}, data=file).name == task.name
    assert len(problems) == gaps
    assert len({problem.group for problem in problems}) == 164
    assert sum(not problem.suffix.strip() for problem in problems) == without_suffix
    for problem in problems:
        assert problem.middle is not None
        assert problem.prefix + problem.middle + problem.suffix == problem.solution
        assert problem.prompt.replace(ANSWER, "") == f"{problem.prefix}{GAP}{problem.suffix}"
        whole_lines = problem.prefix.endswith("\n") and problem.middle.endswith("\n")
        assert whole_lines or kind.startswith("random")
    marked = sum(ANSWER in problem.prompt for problem in problems)
    assert marked == gaps - (kind == "random-span-light")  # one gap there begins in a docstring


def test_the_answer_begins_where_the_prompt_of_humaneval_ends(data_file: DataFile) -> None:
    whole = find_task("humaneval", {}, data=data_file("benchmarks/HumanEval.jsonl.gz"))
    heads = {problem.task_id: problem.prompt for problem in whole.problems(None)}
    for problem in real("single-line", data_file).problems(None):
        head = problem.prompt.partition(ANSWER)[0]
        assert head.rstrip() == heads[problem.group].rstrip()


def test_helpers_of_the_tests_are_not_taken_from_the_sample(data_file: DataFile) -> None:
    helped = {
        problem.group
        for problem in real("single-line", data_file).problems(None)
        if isinstance(check := problem.checks[0], Script) and check.setup
    }
    assert helped == {"HumanEval/32", "HumanEval/38", "HumanEval/50"}


def verdicts(
    problems: list[Problem], task: Benchmark, middle: Callable[[str], str]
) -> Counter[str]:
    """How the gaps do in the sandbox with `middle` of the canonical text in them."""
    items = [
        Item(
            problem.task_id,
            problem.program(middle(str(problem.middle)), task.extraction),
            problem.checks,
            problem.prologue,
        )
        for problem in problems
    ]
    limits = Limits(**dict(task.limits))  # type: ignore[arg-type]
    return Counter(verdict.verdict for verdict in grade(items, workers=1, limits=limits))


def test_some_canonical_middles_pass_and_only_whole(data_file: DataFile) -> None:
    task = real("single-line", data_file)
    problems = task.problems(None)[::40]
    assert verdicts(problems, task, lambda middle: middle) == {"passed": len(problems)}
    assert verdicts(problems, task, lambda middle: "    return None\n")["passed"] == 0


@pytest.mark.long
def test_all_single_lines_pass_and_without_their_line_end_as_many_as_in_the_public_harness(
    data_file: DataFile,
) -> None:
    """lm-eval stops at the line end and joins without it: 460 of the 1,033 right answers pass."""
    task = real("single-line", data_file)
    problems = task.problems(None)
    assert verdicts(problems, task, lambda middle: middle) == {"passed": 1033}
    assert verdicts(problems, task, lambda middle: middle.partition("\n")[0])["passed"] == 460


@pytest.mark.long
@pytest.mark.parametrize("kind", ["random-span-light", "random-span", "multi-line"])
def test_all_other_canonical_middles_pass(kind: str, data_file: DataFile) -> None:
    task = real(kind, data_file)
    problems = task.problems(None)
    assert verdicts(problems, task, lambda middle: middle) == {"passed": len(problems)}


def test_a_row_becomes_a_problem(tmp_path: Path) -> None:
    task = find_task("humaneval-infilling", {}, data=file_of(tmp_path, ROW))
    [problem] = task.problems(None)
    assert problem.prompt == f"{HEAD}<answer>    y = x + x\n<fill>\n    return y\n"
    assert (problem.prefix, problem.suffix) == (ROW["prompt"], ROW["suffix"])
    assert (problem.middle, problem.group) == (ROW["canonical_solution"], "HumanEval/0")
    right, wrong = (problem.program(text, "infill") for text in ("    pass\n", "    y += 1\n"))
    cheat = f"{problem.solution}\ndef helper(x):\n    return 0\ndef double(x):\n    return 0\n"
    assert failures([(problem, right)]) == {}
    assert failures([(problem, wrong)]) and failures([(problem, cheat)])


def test_the_marks_are_those_of_canvases() -> None:
    assert canvas.MARK.fullmatch(GAP) and canvas.ANSWER == ANSWER


def test_templates_stand_around_the_gap(tmp_path: Path) -> None:
    rows = file_of(tmp_path, ROW)
    boundary = find_task("humaneval-infilling", {}, data=rows, template="boundary")
    [problem] = boundary.problems(None)
    shown = "x\n<infill-boundary><fill><infill-boundary>\n    return y\n"
    assert problem.prompt.endswith(shown) and problem.suffix == ROW["suffix"]
    own = tmp_path / "own.txt"
    own.write_text("{prompt} and {suffix}")
    with pytest.raises(ValueError, match=r"one gap: write \{gap\} once"):
        find_task("humaneval-infilling", {}, data=rows, template=own)


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("humaneval-infilling:multi-line", {}, "holds single-line gaps: use it with"),
        ("humaneval-infilling:single-line,multi-line", {}, "one kind of gaps at a time"),
        ("humaneval-infilling:all", {}, "no variant 'all'"),
        ("humaneval-infilling", {"task_id": "HumanEval/0"}, "ids begin with HumanEval: give a"),
        ("humaneval-infilling", {"task_id": "SingleLineInfilling/0"}, "row 1: .* no id of a gap"),
        ("humaneval-infilling", {"suffix": "# <answer>"}, "row 1 spells <fill> or <answer>"),
        ("humaneval-infilling", {"suffix": None}, "column 'suffix' is a NoneType"),
        ("humaneval-infilling", {"suffix": "    y ="}, "row 1 is not Python"),
        ("humaneval", {}, "holds gaps: use it with --task humaneval-infilling"),
    ],
)
def test_wrong_files_and_variants(
    task: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        find_task(task, {}, data=file_of(tmp_path, ROW | change))


def test_two_rows_of_one_id_and_two_kinds_in_one_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="comes twice"):
        find_task("humaneval-infilling", {}, data=file_of(tmp_path, ROW, ROW))
    other = ROW | {"task_id": "MultiLineInfilling/HumanEval/0/L1_L1"}
    with pytest.raises(ValueError, match="all begin with one of"):
        find_task("humaneval-infilling", {}, data=file_of(tmp_path, ROW, other))


def test_the_head_ends_with_the_docstring() -> None:
    assert head_of(f"{HEAD}    return 2 * x\n", "double") == HEAD
    late = 'def f():\n    import math\n    """ Doc. """\n'
    assert head_of(f"{late}    return math.pi\n", "f") == late
    assert head_of("def f():\n    return 1\n", "f") == head_of("x = 1\n", "f") == ""
