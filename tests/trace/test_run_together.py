"""A run folder that several processes fill: the first card stays, nothing is merged too early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anyorder.trace import Run, RunCard, Trace
from anyorder.trace import run as module


def card(**config: Any) -> RunCard:
    return RunCard(command="c", config={"steps": 2, **config}, created="now")


def part(number: int) -> list[Trace]:
    return [Trace(task_id=f"t{number}", sample=0, prompt="p", text="x")]


def joined(folder: Path, **config: Any) -> Run:
    return Run.create(folder, card(**config), together=True)


def test_the_last_part_makes_it_whole(tmp_path: Path) -> None:
    one, two = joined(tmp_path), joined(tmp_path)
    two.append(1, part(1))
    assert not two.finish_if_whole(3)
    one.append(0, part(0))
    assert not one.finish_if_whole(3), "parts 0 and 1 of 3 are there: no hole, and not all"
    one.append(2, part(2))
    assert one.finish_if_whole(3) and two.finish_if_whole(3)
    assert one.complete and two.complete
    assert [trace.task_id for trace in Run.open(tmp_path).traces()] == ["t0", "t1", "t2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "traces.parquet"]


def test_files_that_others_are_writing_stay(tmp_path: Path) -> None:
    busy = tmp_path / ".run.json.0.anyorder-tmp"
    busy.touch()
    joined(tmp_path)
    assert busy.exists()
    Run.create(tmp_path, card())
    assert not busy.exists(), "one who is alone tidies up"


def test_a_card_that_comes_between_two_looks_is_joined_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = RunCard.write

    def late(mine: RunCard, path: Path, *, new: bool = False) -> None:
        """Another process writes its card just before this one does."""
        monkeypatch.setattr(RunCard, "write", real)
        real(card(), path, new=True)
        real(mine, path, new=new)

    for folder, config, fits in (("same", {}, True), ("other", {"seed": 1}, False)):
        monkeypatch.setattr(RunCard, "write", late)
        (tmp_path / folder).mkdir()
        if fits:
            assert joined(tmp_path / folder, **config).card == card()
        else:
            with pytest.raises(ValueError, match="holds another run"):
                joined(tmp_path / folder, **config)
        assert RunCard.read(tmp_path / folder / module.CARD_FILE) == card()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match=r"not empty \(notes.txt\)"):
        joined(tmp_path)


def test_a_damaged_part_is_told_and_not_taken_for_finished(tmp_path: Path) -> None:
    run = joined(tmp_path)
    run.append(0, part(0))
    (tmp_path / "parts" / "00000.parquet").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="repeat the command"):
        run.finish_if_whole(1)
    assert not Run.open(tmp_path).complete
