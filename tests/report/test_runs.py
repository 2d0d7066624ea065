"""Gathering runs: what each is called, what is read, what is computed, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_runs import TASKS, make_run
from made_traces import PROGRAM, mdm

from anyorder.measure.arness_scores import arness
from anyorder.measure.order_scores import order
from anyorder.report.runs import ReportRuns, comparisons, gather
from anyorder.report.tables import labels_of
from anyorder.trace import Run, Trace
from anyorder.trace.run import MEASURES_FILE, MEASURES_SCHEMA


def test_labels_say_what_differs_and_are_all_different(gathered: ReportRuns) -> None:
    labels = [run.label for run in gathered]
    assert labels == [
        "MDM, surest token first",
        "MDM, left to right",
        "MDM, random order",
        "MDM, surest token first, temperature 0.8, 4 samples",
        "FlexMDM, surest token first, insertion temperature 0.5",
        "FlexMDM, surest token first, insertion temperature 1",
        "LatentMDM, best line first, 1 at a time",
        "LatentMDM, best line first, 2 at a time",
        "AR",
    ]
    same = [("mdm", "random", {}, name) for name in ("a/x", "b/x")]
    assert labels_of(same) == ["MDM, random order (a/x)", "MDM, random order (b/x)"]


def test_measures_are_those_of_the_measure_functions(gathered: ReportRuns) -> None:
    for run in gathered:
        assert run.measures["order"] == order(run.run, "exact").to_record(samples=False)
        assert run.measures["arness"] == arness(run.run).to_record(samples=False)


def test_stored_measures_are_read_and_those_of_other_traces_are_not(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [mdm()], family="mdm", options={"policy": "confidence"})
    record = {"schema": MEASURES_SCHEMA, "traces": Run.open(folder).card.files["traces.parquet"]}
    marked = record | {"arness": {"aggregate": {}, "marked": True}}
    (folder / MEASURES_FILE).write_text(json.dumps(marked))
    assert next(iter(gather([folder]))).measures["arness"].get("marked")
    (folder / MEASURES_FILE).write_text(json.dumps(marked | {"traces": "others"}))
    assert not next(iter(gather([folder]))).measures["arness"].get("marked")
    (folder / MEASURES_FILE).write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        gather([folder])


def test_rates_are_over_problems(gathered: ReportRuns) -> None:
    by_label = {run.label: run for run in gathered}
    again = by_label["MDM, surest token first, temperature 0.8, 4 samples"]
    assert [rate.k for rate in again.rates] == [1, 2, 4]
    assert again.rates[0].interval.n == TASKS
    # (task + sample) % 3 > 0: of four samples three or two are right.
    expected = sum(sum((t + s) % 3 > 0 for s in range(4)) / 4 for t in range(TASKS)) / TASKS
    assert again.rates[0].interval.estimate == pytest.approx(expected)
    assert again.rates[-1].interval.estimate == 1


def test_only_runs_that_differ_in_policy_alone_are_compared(gathered: ReportRuns) -> None:
    [found] = comparisons(gathered)
    assert found.reference.label == "MDM, left to right"
    assert [run.label for run in found.runs] == ["MDM, surest token first", "MDM, random order"]
    same, other = found.row("confidence"), found.row("random")
    assert same is not None and other is not None
    assert same.scores["ASTD"].estimate == 1  # the same program in another order
    assert other.scores["ASTD"].estimate < 1
    apart = same.less(other, "ASTD")
    assert apart is not None
    assert apart.estimate == pytest.approx(1 - other.scores["ASTD"].estimate)


def test_text_alone_is_enough(tmp_path: Path) -> None:
    trace = Trace(task_id="t/0", sample=0, prompt="", text="".join(PROGRAM))
    folder = make_run(tmp_path / "text", [trace], family="", options={})
    [run] = gather([folder])
    assert "order" not in run.measures and "arness" not in run.measures
    assert run.label == "unknown model"


def test_what_cannot_be_reported_is_refused(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [mdm()], family="mdm", options={})
    with pytest.raises(ValueError, match="named twice"):
        gather([folder, folder])
    with pytest.raises(ValueError, match="not a folder"):
        gather([tmp_path / "nothing"])
    with pytest.raises(ValueError, match="at least one run"):
        gather([])
