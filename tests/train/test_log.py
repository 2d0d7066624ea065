"""metrics.jsonl and what people see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from anyorder.train import log
from anyorder.train.log import Meter, MetricsFile, Reporter, rows_up_to


def lines(*steps: int) -> str:
    return "".join(json.dumps({"kind": "train", "step": step}) + "\n" for step in steps)


def test_rows_after_the_checkpoint_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(lines(1, 2, 2, 3) + '{"kind": "tra')
    file = MetricsFile(path, 2)
    file.write({"kind": "train", "step": 5})
    file.close()
    assert path.read_text() == lines(1, 2, 2, 5)
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_broken_line_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(lines(1) + "nonsense\n" + lines(2))
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2"):
        rows_up_to(path, 5)


def add(meter: Meter, loss: float, nats: float, tokens: int, norm: float = 1.0) -> None:
    numbers = {"loss": loss, "nats": nats, "tokens": tokens, "read": 10, "grad_norm": norm}
    meter.add({name: torch.tensor(value) for name, value in numbers.items()}, busy=0.5)


def test_a_row_weighs_tokens_and_not_steps() -> None:
    meter = Meter()
    add(meter, 1.0, 10.0, 10)
    add(meter, 3.0, 90.0, 30)
    row = meter.row(2, 0.1)
    assert row["loss"] == 2.0
    assert row["nats_per_token"] == 2.5
    assert row["tokens_per_second"] == 20.0
    assert row["lr"] == 0.1
    add(meter, 5.0, 5.0, 5)
    assert meter.row(3, 0.1)["loss"] == 5.0, "a row starts anew"


def test_an_unfinished_row_travels_through_json() -> None:
    whole, first, second = Meter(), Meter(), Meter()
    for meter in (whole, first):
        add(meter, 1 / 3, 0.1, 7)
    second.restore(json.loads(json.dumps(first.state())))
    for meter in (whole, second):
        add(meter, 2 / 7, 0.7, 3)
    assert whole.row(2, 0.1) == second.row(2, 0.1)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_first_non_finite_step_is_found(bad: float) -> None:
    meter = Meter()
    add(meter, 1.0, 1.0, 1)
    assert meter.first_non_finite(21) is None
    add(meter, 1.0, 1.0, 1, norm=bad)
    add(meter, bad, 1.0, 1)
    found = meter.first_non_finite(23)
    assert found is not None
    assert found[:2] == (22, "grad_norm")


ROW = {"kind": "train", "step": 3, "loss": 1.5, "nats_per_token": 1.25, "tokens_per_second": 900.0}


def test_plain_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Reporter(10, 0, progress=True) as reporter:
        reporter.row(ROW)
        assert capsys.readouterr().err == "", "not on every row"
        monkeypatch.setattr(log, "QUIET_SECONDS", 0.0)
        reporter.row(ROW)
        reporter.row({"kind": "validation", "step": 4, "nats_per_token": 0.5})
        reporter.row({"kind": "validation", "step": 5, "nats_per_token": None})
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second, third = captured.err.splitlines()
    assert first == "step 3/10: loss 1.5000  1.2500 nats/token  900 tokens/s"
    assert second == "step 4: validation 0.5000 nats/token"
    assert "no finite" in third


def test_silence_when_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter(10, 0, progress=False) as reporter:
        reporter.say("hello")
        reporter.advance(3)
        reporter.row({"kind": "validation", "step": 4, "nats_per_token": 0.5})
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with Reporter(10, 2, progress=True) as reporter:
        reporter.advance(5)
        reporter.row(ROW)
        reporter.say("[half] way")
    shown = capsys.readouterr().err
    assert "5/10" in shown
    assert "900 tokens/s" in shown
    assert "[half] way" in shown
