"""The stored study as it is read: what nothing tells is None, and what is damaged is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from study_support import SIZES

from anyorder.apps.study.models import keep
from anyorder.apps.study.plan import Plan
from anyorder.apps.study.view import MODELS, RACE_FILE, SUMMARY_FILE, Study

NAME = "mdm-dial-layout0"


@pytest.fixture
def stored(tmp_path: Path) -> Study:
    (tmp_path / MODELS / NAME).mkdir(parents=True)
    return Study(tmp_path, Plan(SIZES))


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
