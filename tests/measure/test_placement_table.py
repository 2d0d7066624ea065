"""The table of placement: its file, its means over tasks, its record."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anyorder.measure.placement_scores import NOTHING, Commit, Dense, place
from anyorder.measure.placement_table import (
    PAPER_STEPS,
    SCHEMA,
    CanvasRow,
    PlacementTable,
    read_about,
    to_table,
    write_file,
)

ABOUT = {"stride": 16, "region": "code"}


def row(task: str, sample: int, step: int, table: list[list[float]], *commits: Commit) -> CanvasRow:
    found = place(Dense.of(range(len(table)), table), commits) if table else NOTHING
    return CanvasRow(
        task_id=task,
        sample=sample,
        step=step,
        steps=40,
        time=None if step else 0.25,
        span="text",
        open=len(table) + 1,
        masked=len(table),
        placed=found,
        log_prob=np.log(found.committed) + 0.125,
    )


SURE, TORN = [[1.0, 0.0], [0.0, 1.0]], [[0.6, 0.4], [0.4, 0.6]]
ROWS = [
    row("a", 0, 0, TORN, Commit(0, 0)),
    row("a", 0, 16, SURE, Commit(1, 1), Commit(0, 0)),
    row("a", 1, 0, SURE),
    row("b", 0, 0, SURE, Commit(0, 0)),
    row("b", 0, 16, []),
]


def written(folder: Path) -> PlacementTable:
    path = folder / "placement.parquet"
    write_file(path, to_table(ROWS, ABOUT).to_batches(), ABOUT)
    return PlacementTable.read(path)


@pytest.fixture(params=["memory", "file"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> PlacementTable:
    return PlacementTable.of_rows(ROWS, ABOUT) if request.param == "memory" else written(tmp_path)


def test_rows_come_back(table: PlacementTable) -> None:
    assert table.about == ABOUT
    rows = list(table.rows())
    assert [(each["task_id"], each["sample"], each["step"]) for each in rows] == [
        (each.task_id, each.sample, each.step) for each in ROWS
    ]
    for each, original in zip(rows, ROWS, strict=True):
        record = original.to_record()
        for name in ("mass", "loc", "entropy", "k_loc", "committed_localisation"):
            assert each[name].tolist() == record[name].tolist()
        assert each["time"] == original.time
    whole = table.table()
    assert whole.schema.names == SCHEMA.names
    assert np.allclose(whole.column("profile")[0].as_py(), [[0.6, 0.4]] * 2)
    assert whole.column("profile_positions")[0].as_py() == [[0, 1], [1, 0]]


def test_means_are_over_tasks(table: PlacementTable) -> None:
    first, second, overall = table.summary()
    assert (first.step, second.step, overall.step) == (0, 16, None)
    assert (first.canvases, second.canvases, overall.canvases) == (3, 1, 4)
    # Step 0: task a has LOC (.6 + 1) / 2, task b has 1.
    assert first.values["top_loc"].estimate == pytest.approx((0.8 + 1) / 2)
    assert first.values["top_loc"].n == 2
    # All: sample a/0 has (.6 + 1) / 2 = .8, a/1 has 1, so a has .9; b has 1.
    assert overall.values["top_loc"].estimate == pytest.approx(0.95)
    assert first.values["top_mass"].estimate == pytest.approx(1.0)
    assert first.values["even_loc"].estimate == pytest.approx(0.5)
    assert first.values["even_k_loc"].estimate == pytest.approx(0.5)
    # Committed: a has .6 (its other sample has none), b has 1.
    assert first.values["committed_localisation"].estimate == pytest.approx(0.8)
    assert first.values["gap_loc"].estimate == pytest.approx(0.0)
    assert second.values["top_entropy"].n == 1 and second.values["top_entropy"].estimate == 0.0
    assert math.isnan(second.values["top_entropy"].low)


def test_a_series_of_steps(table: PlacementTable) -> None:
    assert PAPER_STEPS == (0, 16, 32, 48, 64, 80)
    assert [each.step for each in table.summary(steps=PAPER_STEPS)] == [0, 16, None]
    only, overall = table.summary(steps=[16])
    assert only.values == overall.values
    (nothing,) = table.summary(steps=[3])
    assert nothing.canvases == 0 and nothing.values == {}


def test_the_record_is_json(table: PlacementTable) -> None:
    record = json.loads(json.dumps(table.to_record(), allow_nan=False))
    assert record["about"] == ABOUT
    assert (record["samples"], record["tasks"], record["spans"]) == (3, 2, {"text": 3})
    assert record["agreement"]["compared"] == 4
    assert record["agreement"]["largest_log_prob_difference"] == pytest.approx(0.125)
    assert [each["step"] for each in record["steps"]] == [0, 16]
    assert record["all"]["top_loc"]["estimate"] == pytest.approx(0.95)


def test_the_points_of_the_papers_plot(table: PlacementTable) -> None:
    points = table.points()
    assert points["top"]["step"].tolist() == [0, 0, 16, 16, 0, 0, 0, 0]
    assert points["top"]["loc"] == pytest.approx([0.6, 0.6, 1, 1, 1, 1, 1, 1])
    assert points["committed"]["step"].tolist() == [0, 16, 16, 0]
    assert points["committed"]["localisation"] == pytest.approx([0.6, 1, 1, 1])
    empty = PlacementTable.of_rows([], ABOUT).points()
    assert all(not len(values) for kind in empty.values() for values in kind.values())


def test_files_that_are_refused(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / "placement.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="missing or damaged"):
        read_about(path)
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(ValueError, match="no table of placement"):
        PlacementTable.read(path)
    with pytest.raises(ValueError, match="missing or damaged"):
        PlacementTable.read(tmp_path / "nowhere.parquet")
