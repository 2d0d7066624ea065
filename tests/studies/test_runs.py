"""Doing runs: what is kept agrees with the measures themselves, and nothing is done twice."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from study_support import job_of

from anyorder.measure.arness_scores import arness
from anyorder.measure.order_scores import order
from anyorder.measure.placement_table import PlacementTable
from anyorder.model import load
from anyorder.trace import Run
from studies.free_setting import FreeSetting
from studies.model_plan import StudyModel, Training
from studies.models import check_made, keep, train_missing, where
from studies.plan import ARNESS, ORDER, PLACEMENT, StudyRun
from studies.questions.s2_placement import together
from studies.records import (
    CANVASES_FILE,
    POINTS_FILE,
    SAMPLES_FILE,
    Stored,
    write_table,
)
from studies.runs import words_of, wordy
from studies.view import Group

ALL = (ORDER, ARNESS, PLACEMENT)


@pytest.fixture(autouse=True)
def every_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few problems are enough here, the first ones included."""
    monkeypatch.setattr("studies.records.SEEN", 0)


def test_problems_that_were_seen_before_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studies.records.SEEN", 2)
    rows = [{"task_id": f"stories/{n}", "passed": True, "sample": 0} for n in (10, 0, 2, 1)]
    write_table(tmp_path / SAMPLES_FILE, rows, {})
    stored = Stored(tmp_path)
    assert list(stored.values("passed")) == ["stories/10", "stories/2"] and len(stored) == 2


def test_words_alone_leave_out_what_every_line_holds(tmp_path: Path) -> None:
    newline, word, other = 0, 1, 2
    row = {
        "masked": 9,
        "token_ids": [newline, word, other],
        "mass": np.array([5.0, 2.0, 1.0]),
        "loc": np.array([0.2, 0.5, 0.7]),
        "entropy": np.array([1.0, 1.0, 1.0]),
        "k_loc": np.array([1.0, 0.8, 0.6]),
        "committed_token": [newline, word],
        "committed_mass": np.array([5.0, 2.0]),
        "committed_localisation": np.array([0.1, 0.4]),
        "committed_k_loc": np.array([1.0, 0.9]),
    }
    found = wordy(row, frozenset({word, other}))
    assert found == pytest.approx(
        {
            "top_k_loc_words": 0.7,
            "gap_loc_words": 0.4 - 0.6,
            "gap_k_loc_words": 0.9 - 0.7,
            "committed_spread_words": 1.0,
        }
    )
    vocab = load("latentmdm").vocab
    kept = words_of(vocab)
    assert vocab.encode("total")[0] in kept
    assert not kept & {vocab.eos_id, vocab.mask_id, *vocab.encode("\n")}


def canvases(folder: Path, values: dict[tuple[str, int], float]) -> Stored:
    rows = [
        {"task_id": f"stories/{task}", "sample": 0, "tenth": tenth, "gap_loc": value}
        for (task, tenth), value in values.items()
    ]
    folder.mkdir()
    write_table(folder / CANVASES_FILE, rows, {})
    return Stored(folder)


def test_families_are_compared_on_the_tenths_that_both_have(tmp_path: Path) -> None:
    one = canvases(tmp_path / "one", {("0", 0): 3.0, ("0", 1): 1.0, ("1", 5): 2.0, ("2", 2): 9.0})
    two = canvases(tmp_path / "two", {("0", 1): 0.5, ("1", 5): 1.0, ("1", 6): 7.0, ("2", 3): 1.0})
    left, right = (Group("", ((0, run),)) for run in (one, two))
    found = together(left, right, "gap_loc")
    assert found.estimate == pytest.approx((0.5 + 1.0) / 2) and found.n == 2


def test_columns_by_verdict_and_less_another(tmp_path: Path) -> None:
    rows = [
        {"task_id": "stories/1", "sample": 0, "verdict": "error", "a": 3.0, "b": 1.0},
        {"task_id": "stories/1", "sample": 1, "verdict": "passed", "a": 2.0, "b": None},
    ]
    write_table(tmp_path / SAMPLES_FILE, rows, {})
    stored = Stored(tmp_path)
    assert stored.share_of("error") == {"stories/1": [1.0, 0.0]}
    assert stored.excess("a", "b") == {"stories/1": [2.0]} and stored.excess("a", "c") == {}


def test_the_records_are_what_the_measures_say(tmp_path: Path) -> None:
    run = StudyRun("latentmdm-layout1", "greedy", {"policy": "average", "k": 1}, 3, 1, ALL)
    job = job_of(run, tmp_path, "latentmdm")
    assert not job.done
    job.do()
    assert job.done
    stored, traced = Stored(job.target), Run.open(job.traced)
    lines, trees = arness(traced), order(traced, scopes=("code_only",))
    for score in ("tau", "global@1"):
        values = stored.values(f"arness.{score}")
        for sample in lines.samples:
            assert values[sample.task_id] == [pytest.approx(sample.scores[score].value)]
    own = stored.values("order.split_only.rub.random")
    for tree in trees.samples:
        scope = tree.scopes["code_only"]
        assert scope is not None
        assert own[tree.task_id] == [pytest.approx(scope.controls["random"][1, 1])]
    passed = stored.values("passed")
    assert set(passed) == {"stories/0", "stories/1", "stories/2"}
    table = PlacementTable.read(job.traced / "placement.parquet")
    masses = [float(row["mass"][0]) for row in table.rows() if row["masked"]]
    placed = stored.placement("top_mass")
    assert set(placed) == set(passed) and max(v[0] for v in placed.values()) <= max(masses)
    assert stored.card.command.startswith("anyorder sample latentmdm --task stories --limit 3")
    assert stored.points("top")[0] and stored.points("committed")[0]


def test_another_setting_is_another_run(tmp_path: Path) -> None:
    setting = FreeSetting(layout=1.0, draws=16, problems=2)
    job = job_of(StudyRun("counted", "x", {}, 2, 1, (ARNESS,), free=setting), tmp_path, "counted")
    job.do()
    assert job.done
    changed = [
        replace(job, digest="another"),
        replace(job, run=replace(job.run, samples=2)),
        replace(job, run=replace(job.run, free=replace(setting, draws=17))),
        replace(job, run=replace(job.run, measures=())),
    ]
    assert not any(each.done for each in changed)
    assert len({each.key for each in changed[:3]} | {job.key}) == 4
    (job.target / SAMPLES_FILE).write_bytes(b"nothing")
    with pytest.raises(ValueError, match="damaged"):
        _ = job.done


def test_a_run_that_is_done_again_leaves_no_tables_of_two_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = FreeSetting(layout=1.0, draws=16, problems=2)
    run = StudyRun("counted", "x", {}, 2, 1, (PLACEMENT,), free=setting)
    job = job_of(run, tmp_path, "counted")
    job.do()
    assert Stored(job.target).placement("masked")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    other = replace(job, run=replace(run, free=replace(setting, draws=17)))
    with monkeypatch.context() as patch:
        patch.setattr("studies.runs._rows", killed)
        with pytest.raises(KeyboardInterrupt):
            other.do()
    assert (job.target / CANVASES_FILE).is_file(), "those of the other run"
    assert not (job.target / SAMPLES_FILE).exists(), "old records beside new canvases"
    unplaced = replace(other, run=replace(other.run, measures=()))
    unplaced.do()
    assert unplaced.done
    assert not any((job.target / name).exists() for name in (CANVASES_FILE, POINTS_FILE))


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    changes = {"steps": 2, "data.layout": 0.5, "threads": 1, "batch": 2, "warmup": 1}
    small = {"net.width": 16, "net.layers": 1, "net.heads": 2, "net.mlp_width": 32}
    training = Training("mine", "tiny/mdm", {**changes, **small})
    model = StudyModel("mine", "mdm", "layout05", trainings=(training,))
    folder, work = tmp_path / "study", tmp_path / "work"
    assert where(model, folder) is None
    assert train_missing([model], folder, work, progress=False) == ["mine"]
    assert train_missing([model], folder, work, progress=False) == []
    found = where(model, folder)
    assert found is not None and load(found).trained_on["layout"] == 0.5
    assert not (folder / "models" / "mine" / "checkpoints").exists()
    assert json.loads((folder / "models" / "mine" / "training.json").read_bytes())
    other = replace(training, changes={**training.changes, "data.layout": 1.0})
    with pytest.raises(ValueError, match=r"trained with data\.layout 0\.5"):
        check_made(replace(model, trainings=(other,)), folder)
    keep(work / "mine", tmp_path / "kept")
    assert load(tmp_path / "kept").digest == load(found).digest


def test_a_start_is_trained_once_and_first(tmp_path: Path) -> None:
    changes = {"steps": 2, "data.layout": 0.5, "threads": 1, "batch": 2, "warmup": 1}
    base = Training("base", "tiny/mdm", changes)
    models = [
        StudyModel(
            "child",
            "flexmdm",
            "x",
            trainings=(base, Training("child", "tiny/flexmdm", changes, "base")),
        ),
        StudyModel("base", "mdm", "x", trainings=(base,)),
    ]
    made = train_missing(models, tmp_path / "study", tmp_path / "work", processes=2, progress=False)
    assert made == ["base", "child"]
    child = json.loads((tmp_path / "work" / "child" / "config.json").read_bytes())
    assert child["recipe"]["start"] == str(tmp_path / "work" / "base")
    shutil.rmtree(tmp_path / "work")
    shutil.rmtree(tmp_path / "study" / "models" / "child")
    again = train_missing(models, tmp_path / "study", tmp_path / "work", progress=False)
    assert again == ["child"] and not (tmp_path / "work" / "base").exists(), "the kept one serves"


def test_a_failed_training_is_an_error(tmp_path: Path) -> None:
    bad = Training("bad", "tiny/mdm", {"steps": 2, "warmup": 5})
    model = StudyModel("bad", "mdm", "x", trainings=(bad,))
    with pytest.raises(ValueError, match="warmup"):
        train_missing([model], tmp_path / "study", tmp_path / "work", progress=False)
    assert where(model, tmp_path / "study") is None


def test_shipped_models_need_no_training(tmp_path: Path) -> None:
    model = StudyModel("mdm-layout1", "mdm", "layout1", shipped="mdm")
    assert where(model, tmp_path) == "mdm"
    check_made(model, tmp_path)
    assert train_missing([model], tmp_path, tmp_path, progress=False) == []
