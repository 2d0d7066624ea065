"""Records of another size are refused, also where they have as many rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from study_support import SIZES, make_run

from anyorder.trace import RunCard
from anyorder.trace.run import CARD_FILE
from studies.free_setting import FreeSetting
from studies.models import keep
from studies.plan import Plan, StudyRun
from studies.records import SAMPLES_FILE, Stored, check_size, write_table
from studies.view import MODELS, RACE_FILE, SUMMARY_FILE, Group, Study, contrast

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


# The stored study as it is read: what nothing tells is None, and what is damaged is named.


NAME = "mdm-dial-layout0"


class Told(Stored):
    """A run of which one number is known."""

    def __init__(self, folder: Path, value: float) -> None:
        super().__init__(folder)
        self.value = value


@pytest.fixture
def stored(tmp_path: Path) -> Study:
    (tmp_path / MODELS / NAME).mkdir(parents=True)
    return Study(tmp_path, Plan(SIZES))


def test_a_contrast_is_over_the_seeds_that_all_have(tmp_path: Path) -> None:
    """Seed 1 of one group is missing: what the others have of it is left out."""

    def group(*values: float | None) -> Group:
        runs = [None if value is None else Told(tmp_path, value) for value in values]
        return Group("", tuple(enumerate(runs)))

    def read(run: Stored) -> dict[str, list[float]]:
        assert isinstance(run, Told)
        return {"stories/12": [run.value], "stories/13": [run.value]}

    first, second = (group(5, 100), group(1, 7)), (group(2, None), group(1, 9))
    assert contrast(first, second, read).estimate == (5 - 1) - (2 - 1)
    assert contrast(second, first, read).estimate == -3
    assert contrast(first, (group(None, None), group(1, 9)), read).n == 0


@pytest.mark.parametrize(
    ("text", "told"), [('{"seconds": 12.5}', 12.5), ("{}", None), ('{"seconds": null}', None)]
)
def test_how_long_a_training_took(text: str, told: float | None, stored: Study) -> None:
    model = stored.plan.models[NAME]
    assert stored.seconds(model) is None
    (stored.folder / MODELS / NAME / SUMMARY_FILE).write_text(text)
    assert stored.seconds(model) == told


def test_a_training_without_a_log_does_not_tell(stored: Study, tmp_path: Path) -> None:
    trained = tmp_path / "trained"
    trained.mkdir()
    (trained / "metrics.jsonl").write_bytes(b"")
    keep(trained, stored.folder / MODELS / NAME)
    assert (stored.folder / MODELS / NAME / SUMMARY_FILE).is_file()
    assert stored.seconds(stored.plan.models[NAME]) is None


@pytest.mark.parametrize("text", ["", '{"seconds": 1', "[3]", "7", '{"seconds": "long"}'])
def test_a_damaged_record_of_a_training_is_named(text: str, stored: Study) -> None:
    (stored.folder / MODELS / NAME / SUMMARY_FILE).write_text(text)
    with pytest.raises(ValueError, match=rf"{NAME}.training\.json is damaged"):
        stored.seconds(stored.plan.models[NAME])


@pytest.mark.parametrize("text", ["", "7", "{}", '{"conditions": 7}'])
def test_a_damaged_race_is_named(text: str, stored: Study) -> None:
    (stored.folder / RACE_FILE).write_text(text)
    with pytest.raises(ValueError, match=r"race\.json is damaged"):
        _ = stored.race
