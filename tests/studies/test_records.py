"""Records of another size are refused, also where they have as many rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from study_support import make_run

from anyorder.trace import RunCard
from anyorder.trace.run import CARD_FILE
from studies.free_setting import FreeSetting
from studies.plan import StudyRun
from studies.records import SAMPLES_FILE, check_size, write_table

RUN = StudyRun("m", "drawn", {}, problems=6, samples=2)
COUNTED = StudyRun("counted", "x", {}, 3, free=FreeSetting(draws=8, problems=3))


def test_what_is_not_there_is_no_mistake(tmp_path: Path) -> None:
    assert not check_size(tmp_path, RUN)


@pytest.mark.parametrize(("problems", "samples"), [(5, 2), (12, 1), (4, 3), (3, 4)])
def test_problems_and_samples_must_both_be_those_of_the_plan(
    problems: int, samples: int, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    make_run(folder, RUN)
    assert check_size(folder, RUN)
    said = f"holds 12 samples of 6 problems and the plan has {problems * samples} samples of"
    with pytest.raises(ValueError, match=said):
        check_size(folder, replace(RUN, problems=problems, samples=samples))


def test_so_must_the_draws_of_a_run_without_a_network(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    make_run(folder, COUNTED)
    assert COUNTED.free is not None and check_size(folder, COUNTED)
    with pytest.raises(ValueError, match="holds 8 draws of a problem and the plan has 9"):
        check_size(folder, replace(COUNTED, free=replace(COUNTED.free, draws=9)))
    RunCard('make study ARGS="dial"', {}).write(folder / CARD_FILE)
    with pytest.raises(ValueError, match=r"run\.json does not give the draws"):
        check_size(folder, COUNTED)


def test_damaged_records_are_named(tmp_path: Path) -> None:
    write_table(tmp_path / SAMPLES_FILE, [{"sample": 0}], {})
    with pytest.raises(ValueError, match=r"records\.parquet is damaged"):
        check_size(tmp_path, RUN)
    (tmp_path / SAMPLES_FILE).write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"records\.parquet is damaged"):
        check_size(tmp_path, RUN)
