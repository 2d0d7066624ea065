"""Loggers hold the rows of metrics.jsonl, whatever happens, and never change a training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from logged import curves, from_tensorboard, from_wandb, metrics
from waiting import kill_after

import anyorder
from anyorder.training import loggers
from anyorder.training.loggers import LoggedTraining, find_logger, numbers

SUPPORT = Path(__file__).parents[1] / "support"


class Recorder:
    """Keeps every call; fails in the call `fails`, if one is named."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.calls: list[tuple[str, Any]] = []

    def _call(self, name: str, value: Any) -> None:
        self.calls.append((name, value))
        if name == self.fails:
            raise RuntimeError(f"no {name} today")

    def start(self, training: LoggedTraining) -> None:
        self._call("start", training)

    def row(self, step: int, row: Any) -> None:
        assert step == row["step"]
        self._call("row", row)

    def end(self, status: str) -> None:
        self._call("end", status)

    def rows(self) -> list[Any]:
        return [value for name, value in self.calls if name == "row"]


def train(toy: ModuleType, out: Path, *followers: Any, **changes: Any) -> None:
    toy.train(out, replace(toy.OPTIONS, loggers=followers), **changes)


def fail_at(step: int, toy: ModuleType, out: Path, follower: Any) -> None:
    """Train until the data of this step, which cannot be read."""
    batch_of = toy.batch_of

    def broken(index: int) -> Any:
        if index == step:
            raise OSError("the disk is gone")
        return batch_of(index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy, "batch_of", broken)
        with pytest.raises(OSError, match="the disk is gone"):
            train(toy, out, follower)


def test_the_numbers_of_rows() -> None:
    row = {"kind": "train", "step": 3, "loss": 1.5, "nats_per_token": None, "seconds": 2}
    assert numbers(row) == {"train/loss": 1.5, "train/seconds": 2}
    levels = [{"level": 0.3, "nats_per_token": 2.0}, {"level": None, "nats_per_token": 1.0}]
    row = {"kind": "validation", "step": 3, "nats_per_token": 1.25, "levels": levels}
    assert numbers(row) == {
        "validation/nats_per_token": 1.25,
        "validation/nats_per_token/0.3": 2.0,
        "validation/nats_per_token/drawn": 1.0,
    }


def test_a_logger_gets_every_row_and_the_end(toy: ModuleType, tmp_path: Path) -> None:
    follower = Recorder()
    train(toy, tmp_path / "run", follower)
    (_, training), *rest, end = follower.calls
    assert (training.name, training.rows, end) == ("run", [], ("end", "done"))
    assert training.config["train"]["steps"] == 40
    assert [name for name, _ in rest] == ["row"] * len(rest)
    assert follower.rows() == metrics(tmp_path / "run")


def test_a_resumed_training_tells_which_rows_stand(toy: ModuleType, tmp_path: Path) -> None:
    first, second = Recorder(), Recorder()
    fail_at(26, toy, tmp_path / "run", first)
    assert first.calls[-1] == ("end", "failed")
    assert max(row["step"] for row in first.rows()) == 24  # the checkpoint is of step 20
    train(toy, tmp_path / "run", second)
    stand = second.calls[0][1].rows
    assert [row["step"] for row in stand] == [3, 6, 7, 9, 12, 14, 15, 18]
    assert stand + second.rows() == metrics(tmp_path / "run")


@pytest.mark.parametrize("fails", ["start", "row", "end"])
def test_a_logger_that_fails_changes_nothing(
    toy: ModuleType,
    uninterrupted: Path,
    tmp_path: Path,
    fingerprint: Any,
    capsys: pytest.CaptureFixture[str],
    fails: str,
) -> None:
    bad, good = Recorder(fails), Recorder()
    train(toy, tmp_path / "run", bad, good)
    assert fingerprint(tmp_path / "run") == fingerprint(uninterrupted)
    assert good.rows() == metrics(tmp_path / "run")
    assert [name for name, _ in bad.calls].count(fails) == 1, "called again after it failed"
    told = capsys.readouterr().err.splitlines()
    assert told == [
        f"The logger Recorder failed and is left out (RuntimeError: no {fails} today). "
        "The training goes on; metrics.jsonl has every row."
    ]


def test_a_logger_cannot_change_the_row(
    toy: ModuleType, tmp_path: Path, metrics: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    train(toy, tmp_path / "plain")

    def greedy(step: int, row: Any) -> None:
        print("mine, all mine")
        row.clear()

    train(toy, tmp_path / "run", loggers.as_logger(greedy))
    assert metrics(tmp_path / "run") == metrics(tmp_path / "plain")
    assert capsys.readouterr().out == "", "standard output is not for loggers"


def test_a_first_step_that_fails_leaves_a_folder_to_train_in(
    toy: ModuleType, tmp_path: Path
) -> None:
    fail_at(0, toy, tmp_path / "run", find_logger("tensorboard"))
    assert (tmp_path / "run" / "logs").is_dir()
    train(toy, tmp_path / "run", steps=6)


TRAIN = """
import sys, time
sys.path.insert(0, {support!r})
import toy
from dataclasses import replace
from pathlib import Path
from anyorder.training.loggers import find_logger
following = [find_logger("tensorboard"), find_logger("wandb", {{"mode": "offline"}})]
options = replace(toy.OPTIONS, loggers=following)
if {doomed}:  # never ends by itself, however late its killer comes
    options = replace(options, export=lambda net: time.sleep(600))
toy.train(Path({out!r}), options, steps=150)
"""


def start(out: Path, *, doomed: bool) -> subprocess.Popen[bytes]:
    code = TRAIN.format(support=str(SUPPORT), out=str(out), doomed=doomed)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WANDB_SILENT": "true"}
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, env=environment)


def test_killed_and_resumed_both_hold_the_rows_of_metrics(tmp_path: Path) -> None:
    out = tmp_path / "run"
    kill_after(
        start(out, doomed=True),
        lambda: (out / "checkpoints" / "step-00000020").exists() and metrics(out)[-1]["step"] > 25,
        0.02,
    )
    resumed = start(out, doomed=False)
    _, errors = resumed.communicate(timeout=240)
    assert resumed.returncode == 0, errors.decode()
    assert b"left out" not in errors, errors.decode()
    wanted = curves(metrics(out))
    assert max(wanted["train/loss"]) == 150
    shown = from_tensorboard(out / "logs" / "tensorboard")
    assert {name: sorted(each) for name, each in shown.items()} == {
        name: sorted(each) for name, each in wanted.items()
    }
    for name, each in wanted.items():
        assert shown[name] == pytest.approx(each, rel=1e-6), "TensorBoard has float32"
    files = sorted((out / "logs" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2 and len({path.name for path in files}) == 1, "one id, two starts"
    assert from_wandb(files[-1]) == wanted
    for name, each in from_wandb(files[0]).items():  # what is left of the killed one is the same
        kept = {step: wanted[name][step] for step in each}
        assert each == kept


class FakeTrackio(SimpleNamespace):
    """The calls of trackio that the logger makes, with runs in memory."""

    def __init__(self) -> None:
        self.runs: list[Any] = []
        super().__init__(Api=lambda: SimpleNamespace(runs=self._runs), init=self._init)

    def _runs(self, project: str) -> list[Any]:
        found = [run for run in self.runs if run.project == project]
        if not found:
            raise ValueError(f"Project '{project}' does not exist")
        return found

    def _init(self, *, project: str, name: str, config: Any, embed: bool) -> Any:
        assert not embed
        run = SimpleNamespace(project=project, name=name, rows=[], done=False)
        run.log = lambda row, step: run.rows.append((step, row))
        run.finish = lambda: setattr(run, "done", True)
        run.delete = lambda: self.runs.remove(run)
        self.runs.append(run)
        return run


def test_trackio_has_one_run_with_the_rows_of_metrics(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeTrackio()
    monkeypatch.setitem(sys.modules, "trackio", fake)
    monkeypatch.setattr(loggers, "find_spec", lambda name: True)
    other = fake._init(project="mine", name="run", config={}, embed=False)
    fail_at(26, toy, tmp_path / "run", find_logger("trackio", {"project": "mine"}))
    train(toy, tmp_path / "run", find_logger("trackio", {"project": "mine"}))
    assert fake.runs[0] is other and len(fake.runs) == 2
    run = fake.runs[1]
    assert run.done and run.name.startswith("run-")
    wanted: dict[int, dict[str, float]] = {}
    for row in metrics(tmp_path / "run"):
        wanted.setdefault(row["step"], {}).update(numbers(row))
    assert run.rows == list(wanted.items()), "one call for each step, in order"


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_a_missing_package_is_named_before_anything_begins(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda package: None)
    with pytest.raises(ValueError, match=f"needs a package: pip install {name}"):
        find_logger(name)


def test_unknown_names_and_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no logger 'tensorbord'.*did you mean tensorboard\?"):
        find_logger("tensorbord")
    with pytest.raises(ValueError, match=r"wandb has no setting 'proyect' \(project.*did you"):
        find_logger("wandb", {"proyect": "mine"})
    with pytest.raises(ValueError, match="3 is no logger"):
        loggers.as_logger(3)  # type: ignore[arg-type]


def test_a_function_gets_the_rows_of_a_recipe(tmp_path: Path) -> None:
    seen: list[tuple[int, Any]] = []
    settings = {"net.width": 16, "net.layers": 1, "net.heads": 2, "net.mlp_width": 32}
    anyorder.train(
        "tiny/mdm",
        out=tmp_path / "mdm",
        progress=False,
        loggers=[lambda step, row: seen.append((step, row))],
        **{"steps": 4, "warmup": 1, "batch": 4, "log_every": 2, "validate_batches": 1, **settings},
    )
    assert [row for _, row in seen] == metrics(tmp_path / "mdm")
    assert [step for step, _ in seen] == [2, 4, 4]


def test_the_configuration_is_json(toy: ModuleType, tmp_path: Path) -> None:
    follower = Recorder()
    train(toy, tmp_path / "run", follower, steps=6)
    json.dumps(follower.calls[0][1].config)
