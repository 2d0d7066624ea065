"""Tokens masked again, from end to end: the shipped mdm, its run, and all that reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anyorder.apps.placement import placement
from anyorder.apps.play.form import form_of
from anyorder.apps.reproduce import compare
from anyorder.cli import main
from anyorder.decode.canvas import Decoded
from anyorder.measure import arness, order, similarity
from anyorder.measure.order_scores import reveal_steps
from anyorder.model import Model, load
from anyorder.report.traces import LiveSteps, TraceGroup, pack
from anyorder.trace import Run, RunCard, Trace

REMASK = ("--remask", "cap:0.1", "--steps", "24")


@pytest.fixture(scope="module")
def model() -> Model:
    return load("mdm")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("remasking") / "run"
    words = ["sample", "mdm", "--task", "stories", "--limit", "2", *REMASK, "--out", str(out)]
    assert main(words) == 0
    return Run.open(out)


def test_the_card_and_the_traces_tell_it(run: Run) -> None:
    options = run.card.config["options"]
    assert (options["remask"], options["policy"], options["quota"]) == ("cap:0.1", "random", None)
    for trace in run.traces():
        events = trace.events or ()
        assert any(event.piece is None for event in events)
        assert trace.steps == 24 and trace.policy == "random"
        assert 0 < (trace.forwards or 0) <= 24


def test_a_card_gives_its_samples_again(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["reproduce", str(run.folder), "--batch", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["identical"] == result["samples"] == 2


def test_other_events_are_another_sample(run: Run, tmp_path: Path) -> None:
    first, second = run.traces()
    other = Run.create(tmp_path / "other", RunCard("c", {}))
    other.append(0, [replace(first, events=(first.events or ())[1:]), second])
    other.finish()
    result = compare(run, other, kept=True)
    assert result.identical == 1 and "events" in result.differences[0]


def test_order_and_arness_use_the_last_reveal(run: Run) -> None:
    """Compat looks at the first token that a slot showed; that can only be earlier."""
    for trace in run.traces():
        last, first = reveal_steps(trace), reveal_steps(trace, first_shown=True)
        assert (first <= last).all() and (first < last).any()
        assert last.tolist() == trace.timing()[1].tolist()
        shown = [
            min(s for s in range(25) if trace.replay(s).revealed[slot]) for slot in range(len(last))
        ]
        assert first.tolist() == shown
    assert arness(run).statuses == {"scored": 2}
    record = order(run, mode="exact").to_record()
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_similarity_reads_programs_only(run: Run, tmp_path: Path) -> None:
    plain = Run.create(tmp_path / "plain", RunCard("c", run.card.config))
    plain.append(0, [replace(trace, events=None) for trace in run.traces()])
    plain.finish()
    with_events, without = (
        similarity({"here": each}, {"base": plain}).to_record() for each in (run, plain)
    )
    assert with_events == without


def test_placement_agrees_with_the_sampler(run: Run, model: Model) -> None:
    table = placement(run, model, stride=1, region="all", progress=False)
    agreement = table.to_record()["agreement"]
    assert agreement["compared"] >= sum(
        int((trace.timing()[1] > 0).sum()) for trace in run.traces()
    )
    assert agreement["largest_log_prob_difference"] < 1e-4


def test_the_page_sees_every_canvas(model: Model) -> None:
    """Live messages, applied one after another, and the finished trace say the same."""
    live, shown, told = LiveSteps(model.vocab), [], [False]
    canvas: list[Any] = []

    def watch(rows: Sequence[Decoded]) -> None:
        for message in live.messages(rows[0]):
            for at in message.get("insert", []):
                canvas.insert(at, None)
            for at, piece, _ in message.get("show", []):
                canvas[at] = piece
            for at in message.get("hide", []):
                canvas[at] = None
                told[0] = True
        shown.append([piece is not None for piece in canvas])

    (trace,) = model.sample(
        "Ana has some figs. How many does she have now?\n",
        watch=watch, remask="cap:0.1", steps=16, max_new_tokens=40,
    )  # fmt: skip
    assert told[0] and len(shown) == trace.steps == 16
    for step, revealed in enumerate(shown, 1):
        assert trace.replay(step).revealed.tolist() == revealed
    (sample,) = pack([TraceGroup("run", [trace])])["samples"]
    masks = np.array(sample["events"]["piece"]) == -1
    assert masks.sum() == sum(event.piece is None for event in trace.events or ())


def test_the_form_offers_it(model: Model) -> None:
    (field,) = [field for field in form_of(model) if field.name == "remask"]
    assert field.kind == "text" and field.default == "" and "heuristic" in field.help


def test_what_is_wrong_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sample", "mdm", "--task", "stories", "--limit", "1", "--out", str(tmp_path / "no")]
    assert main([*words, "--remask", "cap:0.1"]) == 1
    assert "give --steps" in capsys.readouterr().err
    assert main([*words, "--remask", "cap", "--steps", "8"]) == 1
    assert "cap:0.02" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_gaps_are_filled_and_nothing_else_is_touched(model: Model) -> None:
    text = "def solve(figs):\n    total = <fill:3>\n    return total"
    (trace,) = model.sample(text, remask="cap:0.3", steps=12)
    assert isinstance(trace, Trace) and trace.events
    given = trace.timing()[1] == 0
    assert not {event.slot for event in trace.events} & set(np.flatnonzero(given).tolist())
    assert trace.text.endswith("\n    return total")
