"""Packing: what the player would show at every step is what Trace.replay says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from anyorder.report.traces import FORMAT, TraceGroup, embed, pack
from anyorder.trace import Candidate, Trace

MEGABYTES_OF_A_THOUSAND = 15


def column(packed: Mapping[str, Any], name: str, count: int, absent: int) -> list[Any]:
    values = packed.get(name, absent)
    return values if isinstance(values, list) else [values] * count


def read_canvas(payload: Mapping[str, Any], number: int, step: int) -> list[tuple[int, str | None]]:
    """A second reader of the format, as plain as can be: (slot, what it shows or None)."""
    packed, strings = payload["samples"][number], payload["strings"]
    count = len(packed["piece"])
    insert, reveal = (column(packed, name, count, 0) for name in ("insert", "reveal"))
    ghosts = packed.get("ghosts", {"after": []})
    dead = len(ghosts["after"])
    born, last, gone = (column(ghosts, name, dead, 0) for name in ("insert", "reveal", "delete"))
    shown: list[str | None] = [None] * (count + dead)
    events = packed.get("events")
    if events:
        lists = [value for value in events.values() if isinstance(value, list)]
        size = len(lists[0]) if lists else 1
        rows = [column(events, name, size, 0) for name in ("step", "slot", "piece")]
        for when, slot, piece in zip(*rows, strict=True):
            if when <= step:
                shown[slot] = None if piece < 0 else strings[piece]
    for slot in range(count):
        if reveal[slot] <= step:
            shown[slot] = strings[packed["piece"][slot]]
    for ghost, piece in enumerate(column(ghosts, "piece", dead, 0)):
        if 0 <= last[ghost] <= step:
            shown[count + ghost] = strings[piece]
    canvas = [(slot, slot) for slot in range(count) if insert[slot] <= step]
    canvas += [
        (after + 0.5, count + ghost)
        for ghost, after in enumerate(ghosts["after"])
        if born[ghost] <= step < gone[ghost]
    ]
    return [(slot, shown[slot]) for _, slot in sorted(canvas)]


def replayed(trace: Trace, step: int) -> list[tuple[int, str | None]]:
    moment = trace.replay(step)
    rows = zip(moment.slots.tolist(), moment.pieces, moment.revealed.tolist(), strict=True)
    return [(slot, piece if revealed else None) for slot, piece, revealed in rows]


@given(st.data())
def test_every_step_comes_back(
    trace_strategy: st.SearchStrategy[Trace], data: st.DataObject
) -> None:
    traces = data.draw(st.lists(trace_strategy, min_size=1, max_size=3))
    payload = json.loads(embed(pack([TraceGroup("run", traces)])))
    for number, trace in enumerate(traces):
        assert trace.steps is not None
        assert payload["samples"][number]["steps"] == trace.steps
        for step in range(trace.steps + 1):
            assert read_canvas(payload, number, step) == replayed(trace, step)


def test_seconds_of_a_batch_are_nobodys(groups: list[TraceGroup]) -> None:
    trace = replace(groups[0].traces[0], seconds=0.25)
    for timed in (False, True):
        [packed] = pack([TraceGroup("run", [trace], timed=timed)])["samples"]
        assert packed.get("seconds") == (0.25 if timed else None)


@given(st.data())
def test_numbers_come_back_to_a_thousandth(
    trace_strategy: st.SearchStrategy[Trace], data: st.DataObject
) -> None:
    trace = data.draw(trace_strategy)
    payload = json.loads(embed(pack([TraceGroup("run", [trace])])))
    packed = payload["samples"][0]
    count = len(trace.pieces)
    logp = column(packed, "logp", count, -1)
    for value, back in zip(
        [np.nan] * count if trace.log_prob is None else trace.log_prob, logp, strict=True
    ):
        if np.isnan(value):
            assert back == -1
        else:
            assert abs(value + back / 1000) <= 0.0006
    segment = [-1] * count if trace.segment is None else trace.segment.tolist()
    assert column(packed, "segment", count, -1) == segment


def test_what_a_sample_says_about_itself(groups: list[TraceGroup]) -> None:
    payload = json.loads(embed(pack(groups)))
    strings, first = payload["strings"], payload["samples"][0]
    assert payload["format"] == FORMAT
    assert payload["groups"][first["group"]] == {
        "run": "mdm run",
        "family": "mdm",
        "policy": "confidence",
    }
    assert strings[first["task"]] == "t/0"
    assert strings[first["prompt"]] == "Do it:\n"
    assert strings[first["verdict"]] == "passed"
    assert all("verdict" not in packed for packed in payload["samples"][-5:])
    alone = payload["samples"][-1]
    assert [strings[number] for number in alone["piece"]] == ["x = 1\ny = 2"]
    assert "steps" not in alone


def test_equal_strings_and_trees_stand_once_and_common_pieces_first(
    groups: list[TraceGroup],
) -> None:
    payload = pack(groups)
    assert len(set(payload["strings"])) == len(payload["strings"])
    assert payload["strings"][0] == "plums"  # four times in each program
    trees = {packed["tree"] for packed in payload["samples"] if "tree" in packed}
    assert trees == set(range(len(payload["trees"])))
    assert len(trees) < len(payload["samples"]) / 3
    assert all("tree" not in packed for packed in pack(groups, trees=False)["samples"])


def test_segments_carry_their_scores_and_candidates(groups: list[TraceGroup]) -> None:
    payload = pack(groups)
    (packed,) = [packed for packed in payload["samples"] if "candidates" in packed]
    assert packed["score"] == {"0": 0, "1": -250, "2": -500, "3": -750, "4": -1000}
    found = packed["candidates"]
    (trace,) = [trace for group in groups for trace in group.traces if trace.candidates]
    assert trace.candidates is not None
    for number, candidate in enumerate(trace.candidates):
        assert isinstance(candidate, Candidate)
        assert found["step"][number] == candidate.step
        assert found["segment"][number] == candidate.segment
        assert payload["strings"][found["piece"][number]] == candidate.piece
        assert found["score"][number] == round(1000 * candidate.score)
        assert found["taken"][number] == candidate.taken


def test_a_page_cannot_be_broken_out_of() -> None:
    trace = Trace(task_id="</script>", sample=0, prompt="<!--", text="<script>\u2028\U0001f600")
    text = embed(pack([TraceGroup("<b>", [trace])]))
    assert "<" not in text
    assert text.isascii()
    assert json.loads(text)["strings"][0] == trace.text


def test_a_thousand_traces_are_small() -> None:
    rng = np.random.default_rng(0)
    words = np.array([f" word{number}" for number in range(3000)])
    traces = []
    for number in range(1000):
        pieces = words[rng.integers(0, len(words), 100)].tolist()
        insert = rng.integers(0, 100, 100)
        traces.append(
            Trace(
                task_id=f"task/{number}",
                sample=0,
                prompt=f"A problem of one or two sentences, number {number}. " * 3,
                text="".join(pieces),
                char_end=np.cumsum([len(piece) for piece in pieces]),
                insert_step=insert,
                reveal_step=insert + rng.integers(0, 156, 100),
                log_prob=-rng.exponential(1, 100),
                steps=256,
            )
        )
    size = len(embed(pack([TraceGroup("run", traces)], trees=False)))
    assert size < MEGABYTES_OF_A_THOUSAND * 1_000_000 / 5, "leaves room for the report's own part"


@pytest.mark.parametrize("count", [0, 1])
def test_few_samples(count: int) -> None:
    traces = [Trace(task_id="a", sample=0, prompt="", text="")][:count]
    assert len(pack([TraceGroup("run", traces)])["samples"]) == count
