"""Time accounting: by hand on made-up traces, and on a real run of a fresh model."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anyorder.measure.passk import Timing, against_time, pass_table, timing
from anyorder.model import Card, build
from anyorder.nets.shapes import TransformerConfig
from anyorder.trace import Run, RunCard, Trace
from anyorder.trace import trace as trace_module
from anyorder.vocab import Vocab


def make_run(
    folder: Path,
    tasks: Sequence[str],
    seconds: Sequence[float | None],
    *,
    batch: int | None,
    forwards: Sequence[int | None] | None = None,
    finish: bool = True,
) -> Run:
    """A run of one-word samples, in the order of their batches."""
    config: dict[str, Any] = {} if batch is None else {"batch": batch}
    run = Run.create(folder, RunCard("made up", config, device="cpu", dtype="float32"))
    numbers: dict[str, int] = {}
    traces = []
    for row, (task, spent) in enumerate(zip(tasks, seconds, strict=True)):
        number = numbers[task] = numbers.get(task, -1) + 1
        calls = 4 if forwards is None else forwards[row]
        traces.append(
            Trace(task_id=task, sample=number, prompt="", text="x", seconds=spent, forwards=calls)
        )
    run.append(0, traces)
    if finish:
        run.finish()
    return run


def test_alone_every_sample_is_a_latency_and_tasks_are_drawn(tmp_path: Path) -> None:
    """Tasks a, b, c with two samples each; the very first one warms up."""
    seconds = [9.0, 1.0, 2.0, 4.0, 5.0, 5.0]
    run = make_run(tmp_path, list("aabbcc"), seconds, batch=1, forwards=[4, 4, 6, 8, 2, 2])
    found = timing(run)
    assert (found.batch, found.shared, found.unit, found.warm) == (1, False, "task", True)
    assert found.first_batch == 9.0 and found.total_seconds == 26.0
    assert found.samples == 5
    assert found.seconds.estimate == pytest.approx(17 / 5)
    assert found.median_seconds.estimate == 3.0  # of 1, 3 and 5
    assert found.forwards is not None and found.median_forwards is not None
    assert found.forwards.estimate == pytest.approx(22 / 5)
    assert found.median_forwards.estimate == 4.0  # of 4, 7 and 2
    assert found.seconds.n == found.forwards.n == 3
    assert found.seconds.low == 1.0 and found.seconds.high == 5.0
    assert (found.device, found.dtype) == ("cpu", "float32")


def test_in_batches_time_is_shared_and_batches_are_drawn(tmp_path: Path) -> None:
    """Seven samples in batches of three: the last one has one row."""
    seconds = [3.0] * 3 + [1.0] * 3 + [2.0]
    run = make_run(tmp_path, list("aaabbbc"), seconds, batch=3)
    found = timing(run)
    assert (found.shared, found.unit, found.samples) == (True, "batch", 4)
    assert found.first_batch == 3.0
    assert found.seconds.estimate == pytest.approx(5 / 4)  # three seconds and two, for four samples
    assert found.median_seconds.estimate == 1.5
    assert found.seconds.n == 2
    assert found.forwards is not None and found.forwards.n == 2  # tasks b and c
    assert found.total_seconds == 14.0


def test_one_batch_is_all_there_is(tmp_path: Path) -> None:
    found = timing(make_run(tmp_path, list("aab"), [2.0] * 3, batch=32))
    assert not found.warm and found.samples == 3 and found.first_batch == 2.0
    assert found.seconds.estimate == 2.0 and math.isnan(found.seconds.low)
    assert found.seconds.method == "single"


def test_a_card_without_a_batch_size_leaves_it_open(tmp_path: Path) -> None:
    found = timing(make_run(tmp_path, list("ab"), [2.0, 4.0], batch=None, forwards=[1, None]))
    assert (found.batch, found.shared, found.first_batch, found.warm) == (None, None, None, False)
    assert found.seconds.estimate == 3.0 and found.unit == "task"
    assert found.forwards is None and found.median_forwards is None
    assert found.to_record()["forwards"] is None


def test_what_cannot_be_accounted_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"without seconds .* sample with anyorder"):
        timing(make_run(tmp_path / "a", list("ab"), [1.0, None], batch=1))
    with pytest.raises(ValueError, match="batch of 2 do not share one time"):
        timing(make_run(tmp_path / "b", list("aabb"), [1.0, 1.0, 2.0, 3.0], batch=2))
    with pytest.raises(ValueError, match="unfinished"):
        timing(make_run(tmp_path / "c", list("ab"), [1.0, 1.0], batch=1, finish=False))
    with pytest.raises(ValueError, match="no samples"):
        timing(make_run(tmp_path / "d", [], [], batch=1))


def test_intervals_cover_the_cost_of_a_sample(tmp_path: Path) -> None:
    """Times that vary by task: the interval over tasks holds the mean of the population."""
    rng = np.random.default_rng(5)
    hits = 0
    for trial in range(40):
        of_task = rng.gamma(4, 0.25, 60)  # mean 1
        seconds = np.repeat(of_task, 2) * rng.gamma(50, 0.02, 120)
        tasks = [f"t{number // 2}" for number in range(120)]
        found = timing(make_run(tmp_path / str(trial), tasks, seconds.tolist(), batch=1))
        hits += found.seconds.low <= 1 <= found.seconds.high
    assert hits >= 34


def test_accuracy_against_time(tmp_path: Path) -> None:
    cost = timing(make_run(tmp_path, list("aabb"), [8.0, 1.0, 2.0, 3.0], batch=1))
    points = against_time(pass_table({"a": [True, False], "b": [False, False]}, [1, 2]), cost)
    assert [point.rate.interval.estimate for point in points] == [0.25, 0.5]
    assert [point.seconds.estimate for point in points] == [2.0, 4.0]
    assert points[1].seconds.high == 2 * points[0].seconds.high
    assert points[1].forwards is not None and points[1].forwards.estimate == 8.0
    record = json.loads(json.dumps([point.to_record() for point in points]))
    assert record[1]["rate"]["k"] == 2 and record[1]["seconds"]["estimate"] == 4.0
    without = against_time([points[0].rate], replace(cost, forwards=None))
    assert without[0].forwards is None


def test_seconds_are_those_of_decoding_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real network: slow spelling of the text is not counted, a slow network call is."""
    vocab = Vocab.words(["a", "b", " "])
    config = TransformerConfig(
        vocab_size=vocab.size, width=8, layers=1, heads=1, kv_heads=1, head_width=8, mlp_width=8
    )
    model = build(Card("mdm", asdict(config), 3, 16, {}), vocab, name="tiny")
    spell, hidden = trace_module.spell, model.net.hidden

    clock = [0.0]

    def slow_spell(*args: Any, **kwargs: Any) -> Any:
        clock[0] += 100.0
        return spell(*args, **kwargs)

    def slow_hidden(*args: Any, **kwargs: Any) -> Any:
        clock[0] += 1.0
        return hidden(*args, **kwargs)

    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    monkeypatch.setattr(trace_module, "spell", slow_spell)
    monkeypatch.setattr(model.net, "hidden", slow_hidden)
    traces = model.sample(["a", "b"], batch=1, eos="forbid")
    run = Run.create(tmp_path, RunCard("here", {"batch": 1}))
    for number, trace in enumerate(traces):
        run.append(number, [trace])
    run.finish()
    found = timing(run)
    assert found.forwards is not None and found.forwards.estimate == 3.0  # one for each slot
    assert clock[0] > 100 and found.seconds.estimate == 3.0 and found.total_seconds == 6.0


def test_a_record_is_json(tmp_path: Path) -> None:
    found = timing(make_run(tmp_path, list("aab"), [2.0] * 3, batch=2))
    record = json.loads(json.dumps(found.to_record(), allow_nan=False))
    assert record["shared"] is True and record["batch"] == 2 and record["warm"] is True
    assert record["seconds"]["low"] is None  # one batch is left: no bounds
    assert set(record) == {*Timing.__dataclass_fields__, "shared"}
