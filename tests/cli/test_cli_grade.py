"""`anyorder grade` as a user meets it: tables, JSON, resuming, subsets, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from anyorder.bench.tasks import find_task
from anyorder.cli import main

WRONG = "def solve(*given):\n    return 'nonsense'\n"
PROBLEMS = 4
ONE = ("--workers", "1")
"""Few programs: a second process would only take its time to start."""


def samples() -> list[dict[str, Any]]:
    """Two samples of each of the first stories: the solution, and for even ones something wrong."""
    problems = find_task("stories", {}).problems(PROBLEMS)
    return [
        {
            "task_id": problem.task_id,
            "sample": sample,
            "prompt": problem.prompt,
            "text": WRONG if sample and number % 2 == 0 else problem.solution,
        }
        for number, problem in enumerate(problems)
        for sample in range(2)
    ]


@pytest.fixture
def imported(tmp_path: Path) -> Callable[[list[dict[str, Any]]], Path]:
    def make(rows: list[dict[str, Any]]) -> Path:
        theirs, run = tmp_path / "theirs.jsonl", tmp_path / "run"
        theirs.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert main(["import", str(theirs), "--out", str(run)]) == 0
        return run

    return make


@pytest.fixture
def run(imported: Callable[[list[dict[str, Any]]], Path]) -> Path:
    return imported(samples())


@pytest.fixture
def graded(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def grade(run: Path, *words: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["grade", str(run), "--task", "stories", "--json", *ONE, *words]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return grade


def failing(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(words) in (1, 2)
    output = capsys.readouterr()
    assert output.out == ""
    assert len(output.err.strip().splitlines()) == 1
    return output.err


def passed_in(found: dict[str, Any]) -> set[tuple[str, int]]:
    rows = found["samples"]
    return {(row["task_id"], row["sample"]) for row in rows if row["verdict"] == "passed"}


def rows_of(run: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run / "verdicts.parquet").to_pylist()
    return rows


def test_a_run_is_graded_stored_and_reported(run: Path, graded: Callable[..., Any]) -> None:
    found = graded(run)
    assert found["task"] == "stories"
    assert found["extraction"] == "function"
    assert found["pass@k"] == {"1": 0.75, "2": 1.0}
    assert found["verdicts"] == {"passed": 6, "wrong": 2}
    assert found["level"] >= 2
    assert [(row["task_id"], row["sample"], row["verdict"]) for row in found["samples"]] == [
        ("stories/0", 0, "passed"),
        ("stories/0", 1, "wrong"),
        ("stories/1", 0, "passed"),
        ("stories/1", 1, "passed"),
        ("stories/2", 0, "passed"),
        ("stories/2", 1, "wrong"),
        ("stories/3", 0, "passed"),
        ("stories/3", 1, "passed"),
    ]
    assert found["samples"][1]["detail"].startswith("call 1 of")
    rate = found["rates"][0]
    assert rate["low"] <= rate["estimate"] <= rate["high"]
    stored = rows_of(run)
    assert len(stored) == 8
    assert {row["level"] for row in stored} == {found["level"]}
    assert len({row["program_digest"] for row in stored}) == 5
    assert sorted(path.name for path in run.iterdir()) == [
        "run.json",
        "traces.parquet",
        "verdicts.parquet",
    ]


def test_the_table_has_rates_counts_level_and_extraction(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["grade", str(run), "--task", "stories", *ONE]) == 0
    table = capsys.readouterr().out
    for words in (
        "pass@1  75.0 %",
        "95% interval",
        "function",
        "passed",
        "sandbox level",
        "8 samples",
    ):
        assert words in table, table


def test_the_same_grading_again_changes_nothing(run: Path, graded: Callable[..., Any]) -> None:
    first = graded(run)
    before = (run / "verdicts.parquet").stat().st_mtime_ns
    assert graded(run) == first
    assert (run / "verdicts.parquet").stat().st_mtime_ns == before
    assert graded(run, "--again")["samples"] == first["samples"]
    assert (run / "verdicts.parquet").stat().st_mtime_ns > before
    assert len(rows_of(run)) == 8


def test_subsets_come_together(run: Path, graded: Callable[..., Any]) -> None:
    assert len(graded(run, "--only", "stories/2,stories/0")["samples"]) == 4
    assert len(rows_of(run)) == 4
    assert graded(run, "--limit", "1")["pass@k"]["1"] == 0.5
    assert len(rows_of(run)) == 4
    assert len(graded(run)["samples"]) == 8
    names = [(row["task_id"], row["sample"]) for row in rows_of(run)]
    assert names == [(f"stories/{n}", k) for n in range(PROBLEMS) for k in range(2)]


def test_another_grading_adds_rows(run: Path, graded: Callable[..., Any]) -> None:
    first = graded(run)
    second = graded(run, "--extraction", "plain", "--timeout", "3", "--memory", "512")
    assert second["pass@k"] == first["pass@k"]
    stored = rows_of(run)
    assert len(stored) == 16
    assert [row["extraction"] for row in stored] == ["function"] * 8 + ["plain"] * 8
    assert len({row["grading"] for row in stored}) == 2
    settings = json.loads(
        pq.read_schema(run / "verdicts.parquet").metadata[b"anyorder.verdicts.gradings"]
    )
    limits = settings[stored[-1]["grading"]]["limits"]
    assert (limits["cpu_seconds"], limits["memory_bytes"]) == (3.0, 512 << 20)


def test_sensitivity_reports_the_four_modes_and_their_union_apart(
    imported: Callable[[list[dict[str, Any]]], Path], graded: Callable[..., Any]
) -> None:
    rows = samples()
    rows[0]["text"] += "```\nsome prose"
    rows[2]["text"] = f"```python\n{rows[2]['text']}\n```\n"  # nothing stands before the fence
    run = imported(rows)
    found = graded(run, "--extraction", "sensitivity")
    names = [one["extraction"] for one in found["gradings"]]
    assert names == [
        "sanitize_completion",
        "sanitize_cleaned",
        "before_fence",
        "cleaned",
        "any_of_4",
    ]
    by_name = {one["extraction"]: one for one in found["gradings"]}
    assert by_name["cleaned"]["verdicts"]["no_code"] == 1
    passed = {name: passed_in(one) for name, one in by_name.items()}
    union = set().union(*(passed[name] for name in names[:4]))
    assert passed["any_of_4"] == union
    assert passed["cleaned"] < union
    assert {row["extraction"] for row in rows_of(run)} == set(names[:4]), "the union is not stored"
    alone = graded(run, "--extraction", "any_of_4")
    assert alone["extraction"] == "any_of_4"
    assert alone["samples"] == by_name["any_of_4"]["samples"]


def test_missing_samples_are_told(
    imported: Callable[[list[dict[str, Any]]], Path],
    graded: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = imported(samples()[:-1])
    found = graded(run, "--limit", str(PROBLEMS))
    assert found["missing"] == {"stories/3": 1}
    assert set(found["pass@k"]) == {"1"}, "one problem has one sample only"
    fixed = graded(run, "--limit", str(PROBLEMS), "--estimator", "fixed_n", "--k", "1,2")
    assert fixed["pass@k"]["1"] == pytest.approx((0.5 + 1 + 0.5 + 0.5) / 4)
    assert main(["grade", str(run), "--task", "stories", *ONE, "--limit", str(PROBLEMS)]) == 0
    assert "1 samples are missing" in capsys.readouterr().out


def test_the_first_samples_are_those_with_the_lowest_numbers(
    imported: Callable[[list[dict[str, Any]]], Path], graded: Callable[..., Any]
) -> None:
    run = imported(samples()[::-1])
    found = graded(run, "--limit", str(PROBLEMS), "--estimator", "any_of_k")
    assert found["pass@k"] == {"1": 1.0, "2": 1.0}, "sample 0 of each problem is right"


def test_samples_are_graded_problem_by_problem_whatever_their_order(
    imported: Callable[[list[dict[str, Any]]], Path],
    graded: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from anyorder.apps import grade as grading

    taken: list[str] = []
    plain = grading.grade

    def watched(items: Any, **settings: Any) -> Any:
        def each() -> Any:
            for item in items:
                taken.append(item.key[1][0])
                yield item

        return plain(each(), **settings)

    monkeypatch.setattr(grading, "grade", watched)
    run = imported(sorted(samples(), key=lambda row: row["sample"]))
    assert graded(run)["verdicts"] == {"passed": 6, "wrong": 2}
    assert taken == [f"stories/{number}" for number in range(PROBLEMS) for _ in range(2)]


def test_one_problem_has_no_interval(
    imported: Callable[[list[dict[str, Any]]], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = imported(samples()[:2])
    capsys.readouterr()
    assert main(["grade", str(run), "--task", "stories", *ONE, "--only", "stories/0"]) == 0
    table = capsys.readouterr().out
    assert "pass@1  50.0 %" in table
    assert "nan" not in table


def test_the_task_of_the_run_card_is_the_default(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = json.loads((run / "run.json").read_text())
    card["config"] = {"task": "stories", "limit": PROBLEMS, "samples": 2, "trained_on": {}}
    (run / "run.json").write_text(json.dumps(card))
    capsys.readouterr()
    assert main(["grade", str(run), "--json", *ONE]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"] == {"passed": 6, "wrong": 2}


ERRORS = [
    ([], "name one with --task"),
    (["--task", "nowhere"], "no task"),
    (["--task", "stories", "--only", "stories/9999"], "no such problem"),
    (["--task", "stories", "--only", "stories/7"], "no samples of these problems"),
    (["--task", "stories", "--extraction", "guess"], "no extraction 'guess'"),
    (["--task", "stories", "--k", "1,8"], "pass@8 needs at least 8 samples"),
    (["--task", "stories", "--k", "8", "--estimator", "fixed_n"], "leave out that k"),
    (["--task", "stories", "--k", "0"], "whole numbers from 1"),
    (["--task", "stories", "--estimator", "median"], "no estimator"),
    (["--task", "stories", "--timeout", "-1"], "--timeout=-1.0: give a positive number"),
    (["--task", "stories", "--memory", "1"], "--memory must be"),
    (["--task", "stories", "--workers", "0"], "--workers must be"),
    (["--task", "stories", "--only", "stories/1", "--limit", "1"], "not both"),
]


def test_errors(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, says in ERRORS:
        assert says in failing(["grade", str(run), *words], capsys), words
        assert sorted(path.name for path in run.iterdir()) == ["run.json", "traces.parquet"]


def test_samples_of_another_task(
    imported: Callable[[list[dict[str, Any]]], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{**row, "task_id": f"HumanEval/{number}"} for number, row in enumerate(samples())]
    message = failing(["grade", str(imported(rows)), "--task", "stories"], capsys)
    assert "'HumanEval/0', which stories does not have" in message


def test_what_the_task_does_not_have_is_left_out_and_told(
    imported: Callable[[list[dict[str, Any]]], Path],
    graded: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = samples()
    rows[0]["task_id"] = "HumanEval/0"
    run = imported(rows)
    found = graded(run)
    assert found["verdicts"] == {"passed": 5, "wrong": 2} and found["left_out"] == 1
    assert graded(run, "--only", "stories/1")["verdicts"] == {"passed": 2}
    assert main(["grade", str(run), "--task", "stories", *ONE]) == 0
    assert "stories does not have their problems: 1 of the samples" in capsys.readouterr().out


def test_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "not a folder" in failing(["grade", str(tmp_path / "nowhere")], capsys)
    assert list(tmp_path.iterdir()) == []


def test_two_graders_do_not_share_a_folder(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from anyorder.files import alone_in

    with alone_in(run):
        message = failing(["grade", str(run), "--task", "stories"], capsys)
    assert "another process" in message


def test_python_can_grade_as_well(run: Path) -> None:
    from anyorder.apps.grade import grade_run
    from anyorder.apps.jobs import GradeJob

    found = grade_run(run, GradeJob(task="stories", workers=1), progress=False)
    assert found.reports[0].counts == {"passed": 6, "wrong": 2}
