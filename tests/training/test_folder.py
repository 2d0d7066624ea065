"""Training takes an empty folder or one that holds a training, and leaves nothing of a failure."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from anyorder.training.loop import check_folder


def test_a_folder_of_something_else_is_refused_and_left_alone(
    toy: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "traces.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="not empty and holds no training: choose another --out"):
        toy.train(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "traces.parquet"]


@pytest.mark.parametrize("inside", ["", "below"])
def test_a_file_is_refused_in_a_line(toy: ModuleType, tmp_path: Path, inside: str) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(ValueError, match=r"file.*choose another --out") as caught:
        toy.train(path / inside)
    assert "Errno" not in str(caught.value)
    assert path.read_text() == "mine"


def test_what_counts_as_a_training(toy: ModuleType, uninterrupted: Path, tmp_path: Path) -> None:
    for name in ("checkpoints", "metrics.jsonl"):
        other = tmp_path / f"only-{name}"
        shutil.copytree(uninterrupted, other)
        (other / "notes.txt").write_text("mine")
        gone = other / ("metrics.jsonl" if name == "checkpoints" else "checkpoints")
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
        assert toy.train(other)[0].step == 40


@pytest.mark.parametrize(
    ("card", "trained"),
    [
        ({"family": "mdm", "recipe": {"steps": 3}}, True),
        ({"family": "mdm", "recipe": {}}, False),
        ({"architectures": ["Other"]}, False),
        ([], False),
        (None, False),
    ],
)
def test_a_model_folder_counts_when_training_made_it(
    tmp_path: Path, card: Any, trained: bool
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    if card is not None:
        (tmp_path / "config.json").write_text(json.dumps(card))
    if trained:
        check_folder(tmp_path)
        (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="holds no training"):
        check_folder(tmp_path)


def test_hidden_files_do_not_fill_a_folder(toy: ModuleType, tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()  # of a process that was killed
    assert toy.train(tmp_path)[0].reason == "done"


@pytest.mark.parametrize(
    "bad", [{"multipliers": {"nowhere": 2.0}}, {"batch": 16}, {"validate_batches": 9}]
)
def test_a_bad_configuration_leaves_nothing_behind(
    toy: ModuleType, tmp_path: Path, bad: dict[str, Any]
) -> None:
    """Whether it is found before the folder is made or in the first step."""
    with pytest.raises(ValueError, match=r"nowhere|batch"):
        toy.train(tmp_path / "new" / "run", **bad)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"nowhere|batch"):
        toy.train(tmp_path, **bad)
    assert not list(tmp_path.iterdir()), "a folder that was there stays, empty"


def test_a_failure_later_keeps_what_is_there(toy: ModuleType, tmp_path: Path) -> None:
    def batches(step: int) -> Any:
        if step == 5:
            raise RuntimeError("disk on fire")
        return toy.batch_of(step)

    with pytest.raises(RuntimeError, match="on fire"):
        toy.fit(toy.ToyNet(), toy.objective, batches, toy.VALIDATION, toy.CONFIG, tmp_path)
    assert (tmp_path / "metrics.jsonl").read_text()
    assert toy.train(tmp_path)[0].step == 40
