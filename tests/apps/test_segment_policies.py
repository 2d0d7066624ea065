"""The ablation of policies and k: the same problems in every cell, compared problem by problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from anyorder.apps.jobs import SampleJob
from anyorder.apps.segment_policies import compare_policies, print_cells
from anyorder.trace import Run


def test_every_cell_is_a_run_and_is_compared_with_the_first(
    small_models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SampleJob(str(small_models / "latentmdm"), task="stories", limit=3)
    options = {"policies": ("average", "random"), "ks": (1, 4), "progress": False}
    cells = compare_policies(job, tmp_path, **options)
    assert [(cell.policy, cell.k) for cell in cells] == [
        ("average", 1), ("random", 1), ("average", 4), ("random", 4)
    ]  # fmt: skip
    assert cells[0].difference is None and cells[0].passed.n == 3
    for cell in cells[1:]:
        assert cell.difference is not None
        assert cell.difference.estimate == cell.passed.estimate - cells[0].passed.estimate
    assert cells[2].forwards < cells[0].forwards  # four at a time need fewer calls
    run = Run.open(tmp_path / "random-k4")
    assert run.card.config["options"]["k"] == 4 and run.card.command == cells[3].command
    assert cells[3].command.endswith(f"--policy random --k 4 --out {tmp_path / 'random-k4'}")
    again = compare_policies(job, tmp_path, **options)  # everything is there already
    assert [cell.to_record() for cell in again] == [cell.to_record() for cell in cells]
    print_cells(cells)
    shown = capsys.readouterr().out
    assert "accuracy, 3 problems" in shown and "difference from average, k = 1" in shown


def test_the_comparison_needs_a_task_and_one_sample(small_models: Path, tmp_path: Path) -> None:
    model = str(small_models / "latentmdm")
    for job in (SampleJob(model, prompt="x"), SampleJob(model, task="stories", samples=2)):
        with pytest.raises(ValueError, match="by problem"):
            compare_policies(job, tmp_path)
