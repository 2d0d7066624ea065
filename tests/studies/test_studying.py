"""What is stored of another size is refused before anything is trained, run or written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from study_support import SIZES, make_run, race

from studies.plan import Plan, Sizes
from studies.records import RUNS
from studies.study_job import StudyJob
from studies.studying import study
from studies.view import RACE_FILE


@pytest.fixture(autouse=True)
def nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it was not refused")

    for name in ("train_missing", "_do_runs", "write_page"):
        monkeypatch.setattr(f"studies.studying.{name}", refuse)


def job_of(folder: Path, sizes: Sizes, only: str | None) -> StudyJob:
    page = folder / "results.md"
    return StudyJob(folder=folder, page=page, traces=folder / "traces", only=only, sizes=sizes)


@pytest.mark.parametrize("only", [None, "models", "runs", "page"])
def test_a_race_of_another_size(only: str | None, tmp_path: Path) -> None:
    (tmp_path / RUNS).mkdir()
    (tmp_path / RACE_FILE).write_text(json.dumps(race()))
    with pytest.raises(ValueError, match=f"give --race {SIZES.race}"):
        study(job_of(tmp_path, replace(SIZES, race=SIZES.race + 1), only), progress=False)


@pytest.mark.parametrize("only", [None, "models", "runs", "page"])
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("counted.layout1-wording0-left-random", {"draws": 9}),
        ("mdm-layout1.drawn", {"attempted": 2 * SIZES.attempted, "drawn": SIZES.drawn // 2}),
    ],
)
def test_a_run_of_another_size(
    name: str, changed: dict[str, int], only: str | None, tmp_path: Path
) -> None:
    make_run(tmp_path / RUNS / name, Plan(SIZES).runs[name])
    with pytest.raises(ValueError, match="give the sizes that the study was made with"):
        study(job_of(tmp_path, replace(SIZES, **changed), only), progress=False)
