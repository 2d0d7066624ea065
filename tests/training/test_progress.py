"""What people see while it trains: a bar, plain lines, or nothing."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from anyorder.training import log as progress
from anyorder.training.log import Meter, Reporter
from anyorder.training.loop import FitOptions

ROW = {"kind": "train", "step": 3, "loss": 1.5, "nats_per_token": 1.25, "tokens_per_second": 900.0}
NUMBERS = "loss 1.5000  1.2500 nats/token  900 tokens/s"
TOLD = FitOptions(levels=(0.3, 0.9, None), progress=True)


class Clock:
    """Stands for time.monotonic."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(progress, "monotonic", found)
    return found


def test_plain_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], clock: Clock
) -> None:
    with Reporter(10, 0, progress=True) as reporter:
        reporter.row(ROW)
        reporter.advance(3, Meter())
        assert capsys.readouterr().err == "", "not on every row"
        clock.now += 15
        reporter.advance(4, Meter())
        reporter.advance(5, Meter())
        reporter.row({"kind": "validation", "step": 4, "nats_per_token": 0.5})
        reporter.row({"kind": "validation", "step": 5, "nats_per_token": None})
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second, third = captured.err.splitlines()
    assert first == f"step 4/10: {NUMBERS}  0:22 left"
    assert second == "step 4: validation 0.5000 nats/token"
    assert "no finite" in third


def test_a_line_comes_every_quarter_of_a_minute_without_any_row(
    capsys: pytest.CaptureFixture[str], clock: Clock
) -> None:
    meter = Meter()
    with Reporter(1000, 100, progress=True) as reporter:
        for step in range(101, 161):
            clock.now += 1
            numbers = {"loss": 2.0, "nats": 6.0, "tokens": 4.0, "read": 50.0, "grad_norm": 1.0}
            meter.add({name: torch.tensor(value) for name, value in numbers.items()}, busy=0.5)
            reporter.advance(step, meter)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        f"step {step}/1000" for step in (115, 130, 145, 160)
    ]
    assert lines[0].endswith("loss 2.0000  1.5000 nats/token  100 tokens/s  14:45 left")


@pytest.mark.parametrize(
    ("minutes", "left"),
    [(None, "1:00:00 left"), (90.0, "1:00:00 left"), (5.0, "4:00 left"), (0.5, "0:00 left")],
)
def test_the_time_left_is_the_lesser_of_steps_and_minutes(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
    minutes: float | None,
    left: str,
) -> None:
    def shown() -> str:
        clock.now = 1000.0
        with Reporter(5061, 5000, progress=True, minutes=minutes) as reporter:
            clock.now += 60
            reporter.row(ROW)
            reporter.advance(5001, Meter())
        return capsys.readouterr().err

    assert shown().endswith(f"tokens/s  {left}\n")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    assert f" {left}" in shown()


def test_silence_when_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter(10, 0, progress=False) as reporter:
        reporter.say("hello")
        reporter.advance(3, Meter())
        reporter.row({"kind": "validation", "step": 4, "nats_per_token": 0.5})
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with Reporter(10, 2, progress=True) as reporter:
        reporter.row(ROW)
        reporter.advance(5, Meter())
        reporter.say("[half] way")
    shown = capsys.readouterr().err
    assert "5/10" in shown
    assert NUMBERS in shown
    assert "0:00 left" in shown
    assert "[half] way" in shown


def test_going_on_is_announced(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], rewrite_state: Any
) -> None:
    toy.train(tmp_path)
    newest = tmp_path / "checkpoints" / "step-00000040"
    rewrite_state(newest, versions={"torch": "1.0.0"})
    capsys.readouterr()
    toy.train(tmp_path, TOLD)
    said = capsys.readouterr().err
    assert said.startswith(
        f"Training 248 parameters for 40 steps, going on from step 40 ({newest})."
    )
    assert "may differ in the last bits" in said


def test_a_start_is_announced_and_slow_steps_are_told(
    toy: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However rare the log's rows are: here there is one, at the last step."""
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    toy.train(tmp_path, TOLD, log_every=100, validate_every=0)
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "Training 248 parameters for 40 steps, starting from the beginning."
    assert len(lines) == 40
    form = r"step \d+/40: loss [\d.]+  [\d.]+ nats/token  [\d,]+ tokens/s  \d+:\d\d left"
    assert all(re.fullmatch(form, line) for line in lines), lines
