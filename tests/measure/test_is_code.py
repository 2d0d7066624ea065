"""Which runs say that their texts are programs; and which scores are placed between controls."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_traces import trace_of

from anyorder.bench.tasks import TASKS
from anyorder.measure.arness_scores import ArnessCell
from anyorder.measure.intervals import LEAST_ROOM, Interval
from anyorder.measure.order_table import _position
from anyorder.measure.programs import CODE_TASKS, is_code
from anyorder.trace import Run, RunCard

MOLECULE = trace_of(["C", "C", "O"], [3, 1, 2])


def run_of(folder: Path, trace: Any = MOLECULE, **card: Any) -> Run:
    run = Run.create(folder, RunCard("made by a test", card.pop("config", {}), **card))
    run.append(0, [trace])
    run.finish()
    return run


def test_all_our_tasks_are_code() -> None:
    assert {*CODE_TASKS} == {*TASKS}


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ({}, False),
        ({"config": {"task": "molecules"}}, False),
        ({"config": {"task": None}}, False),
        ({"config": {"task": "mbpp:378,compat"}}, True),
        ({"config": {"task": "molecules"}, "facts": {"t/0": {"language": "python"}}}, True),
        # What a problem says counts more than the name of its task.
        ({"config": {"task": "humaneval"}, "facts": {"t/0": {"language": "java"}}}, False),
        ({"facts": {"t/0": {"language": "python"}, "t/1": {"language": "java"}}}, False),
        ({"config": {"task": "humaneval"}, "facts": {"t/0": {"anchor": "start"}}}, True),
    ],
)
def test_task_and_facts_say_what_the_texts_are(
    tmp_path: Path, card: dict[str, Any], said: bool
) -> None:
    assert is_code(run_of(tmp_path / "run", **card)) is said


@pytest.mark.parametrize("mark", ["entry_point", "program", "verdicts"])
def test_so_do_entry_points_programs_and_verdicts(tmp_path: Path, mark: str) -> None:
    if mark == "verdicts":
        run = run_of(tmp_path / "run")
        (tmp_path / "run" / "verdicts.parquet").touch()
    else:
        run = run_of(tmp_path / "run", replace(MOLECULE, **{mark: "f"}))
    assert is_code(run)


NONE = Interval(0.5, 0.4, 0.6, 3, 0.95, "made up")


@pytest.mark.parametrize("room", [LEAST_ROOM * 0.9, LEAST_ROOM * 1.1, -LEAST_ROOM * 1.1])
def test_a_score_is_placed_where_its_controls_differ_enough(room: float) -> None:
    enough = abs(room) >= LEAST_ROOM
    cell = ArnessCell(0.5, 3, NONE, chance=0.4, left_to_right=0.4 + room, mirrored=0.1)
    assert math.isnan(cell.position) is not enough
    # Tasks with 1, 2 and 3 samples: the room is that of the mean over samples.
    counts = np.array([1.0, 2.0, 3.0])
    own, low = 0.5 * counts, 0.4 * counts
    found = _position(own, low, low + room * counts, counts)
    assert math.isnan(found.estimate) is not enough
    if enough:
        assert found.estimate == pytest.approx(0.1 / room)
        assert cell.position == pytest.approx(0.1 / room)
