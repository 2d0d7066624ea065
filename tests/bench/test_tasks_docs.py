"""docs/tasks.md says of tasks, variants, templates and extractions what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anyorder.bench.tasks import TASKS, gsm8k, humaneval, livecodebench, mbpp, stories, trails
from anyorder.bench.tasks.humaneval import AS_SETS, LEFT_OUT, NOT_NONE
from anyorder.measure.extract import EXTRACTIONS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
MODULES = {
    "stories": stories,
    "trails": trails,
    "humaneval": humaneval,
    "mbpp": mbpp,
    "livecodebench": livecodebench,
    "gsm8k": gsm8k,
}


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without code marks."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines[2:]
    ]


def test_tasks_and_their_extractions() -> None:
    found = {row[0]: row[-1] for row in rows("The table")}
    assert set(TASKS) <= set(found)
    assert set(found.values()) <= set(EXTRACTIONS)
    assert found["humaneval"] == found["humaneval+"] == humaneval.EXTRACTION
    assert {mode for name, mode in found.items() if name.startswith("mbpp")} == {mbpp.EXTRACTION}
    assert found["livecodebench"] == livecodebench.EXTRACTION


def test_extractions() -> None:
    assert [row[0] for row in rows("Extraction")] == list(EXTRACTIONS)


def test_templates() -> None:
    listed: dict[str, list[str]] = {}
    task = ""
    for row in rows("Templates"):
        task = row[0].split(",")[0] or task
        listed.setdefault(task, []).append(row[1])
    assert listed == {name: list(module.TEMPLATES) for name, module in MODULES.items()}
    fields = {field for module in MODULES.values() for field in module.FIELDS}
    assert all(f"`{{{field}}}`" in PAGE for field in fields)


def test_variants() -> None:
    windows = {row[0]: row[1].replace(" to ", "..") for row in rows("Variants of LiveCodeBench")}
    assert {name: windows[name] for name in livecodebench.WINDOWS} == livecodebench.WINDOWS
    assert all(f":{part}" in PAGE for part in mbpp.VARIANTS if part != "compat")
    for numbers in mbpp.SPLITS.values():
        assert f"{numbers[0]} to {numbers[-1]}" in PAGE


@pytest.mark.parametrize("numbers", [AS_SETS, NOT_NONE, set(LEFT_OUT)])
def test_problems_that_are_treated_otherwise(numbers: set[int]) -> None:
    assert all(re.search(rf"\b{number}\b", PAGE) for number in numbers)
