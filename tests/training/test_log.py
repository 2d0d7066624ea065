"""metrics.jsonl, and the meter behind its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from anyorder.training.log import Meter, MetricsFile, rows_up_to


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


def test_looking_at_an_unfinished_row_leaves_it_as_it_is() -> None:
    looked, alone = Meter(), Meter()
    assert looked.so_far() is None
    for number in range(1, 4):
        for meter in (looked, alone):
            add(meter, 1 / number, 0.1 * number, 7)
        seen = looked.so_far()
    assert seen is not None
    row = looked.row(3, 0.1)
    assert row == alone.row(3, 0.1)
    assert seen["loss"] == row["loss"]
    assert seen["nats_per_token"] == row["nats_per_token"]
    assert seen["tokens_per_second"] == pytest.approx(row["tokens_per_second"])
    assert looked.so_far() is None, "nothing since the row"


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": None},
        {"busy": "1"},
        {"steps": {}},
        {"steps": [3]},
        {"steps": [{"loss": 1.0}]},
        {"steps": [{"loss": "x", "nats": 1, "tokens": 1, "read": 1, "grad_norm": 1}]},
    ],
)
def test_what_is_no_state_of_a_meter(changes: dict[str, Any]) -> None:
    meter = Meter()
    add(meter, 1.0, 1.0, 1)
    assert Meter.is_state(meter.state())
    assert Meter.is_state(Meter().state())
    assert not Meter.is_state(meter.state() | changes)
