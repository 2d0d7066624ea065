"""The ablation of policies and k: the same problems in every cell, compared problem by problem."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from anyorder import Run
from anyorder.apps.jobs import SampleJob

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("latentmdm_policies")


def test_every_cell_is_a_run_and_is_compared_with_the_first(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SampleJob("latentmdm", task="stories", limit=3)
    options = {"policies": ("average", "random"), "ks": (1, 4), "progress": False}
    cells = script.compare_policies(job, tmp_path, **options)
    assert [(cell.policy, cell.k) for cell in cells] == [
        ("average", 1), ("random", 1), ("average", 4), ("random", 4)
    ]  # fmt: skip
    assert cells[0].difference is None and cells[0].passed.n == 3
    for cell in cells[1:]:
        assert cell.difference is not None
        gained = cell.passed.estimate - cells[0].passed.estimate
        assert cell.difference.estimate == pytest.approx(gained)
    assert cells[2].forwards < cells[0].forwards  # four at a time need fewer calls
    run = Run.open(tmp_path / "random-k4")
    assert run.card.config["options"]["k"] == 4 and run.card.command == cells[3].command
    assert cells[3].command.endswith(f"--policy random --k 4 --out {tmp_path / 'random-k4'}")
    again = script.compare_policies(job, tmp_path, **options)  # everything is there already
    assert [cell.to_record() for cell in again] == [cell.to_record() for cell in cells]
    script.print_cells(cells)
    shown = capsys.readouterr().out
    assert "accuracy, 3 problems" in shown and "difference from average, k = 1" in shown


def test_the_comparison_needs_a_task_and_one_sample(script: ModuleType, tmp_path: Path) -> None:
    jobs = (SampleJob("latentmdm", prompt="x"), SampleJob("latentmdm", task="stories", samples=2))
    for job in jobs:
        with pytest.raises(ValueError, match="by problem"):
            script.compare_policies(job, tmp_path)
