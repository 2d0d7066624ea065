"""Replay: each moment of a trace, also where slots were masked again."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from anyorder.trace import Event, Trace

MASK = 99


def test_a_canvas_grows_and_fills_in(make_trace: Any) -> None:
    trace = make_trace()
    texts = [trace.replay(step).text("_") for step in range(5)]
    assert texts == ["__", "__de", "_bc_de", "abc_de", "abcde"]
    ids = [trace.replay(step).ids(MASK).tolist() for step in range(5)]
    assert ids == [
        [MASK, MASK],
        [MASK, MASK, 13],
        [MASK, 11, MASK, 13],
        [10, 11, MASK, 13],
        [10, 11, 12, 13],
    ]


def test_a_snapshot_knows_its_slots(make_trace: Any) -> None:
    snapshot = make_trace().replay(1)
    assert (snapshot.step, len(snapshot)) == (1, 3)
    assert snapshot.slots.tolist() == [0, 2, 3]
    assert snapshot.revealed.tolist() == [False, False, True]
    assert snapshot.masked.tolist() == [0, 2]
    assert str(snapshot) == "▁▁de"


def test_the_prompt_comes_on_request(make_trace: Any) -> None:
    snapshot = make_trace().replay(4)
    assert snapshot.text(prompt=True) == "P:abcde"
    assert snapshot.ids(MASK, prompt=True).tolist() == [80, 58, 10, 11, 12, 13]


def test_frozen_text_is_there_from_the_start(make_trace: Any) -> None:
    trace = make_trace(insert_step=[0] * 4, reveal_step=[0, 1, 2, 0])
    assert trace.replay(0).text("_") == "a__de"


def test_events_show_what_was_there_before_the_last_reveal(make_trace: Any) -> None:
    events = [Event(0, 0, 20, "x"), Event(1, 0, None, None), Event(2, 0, 21, "yy")]
    trace = make_trace(events=events)
    assert [str(trace.replay(step))[:2] for step in range(5)] == ["x▁", "▁▁", "yy", "ab", "ab"]
    assert [int(trace.replay(step).ids(MASK)[0]) for step in range(5)] == [20, MASK, 21, 10, 10]


@pytest.mark.parametrize("step", [-1, 5, True, 1.0, "1"])
def test_steps_outside_the_run_are_refused(make_trace: Any, step: Any) -> None:
    with pytest.raises(ValueError, match="step"):
        make_trace().replay(step)


def test_strings_have_no_ids(make_trace: Any) -> None:
    trace = make_trace(token_ids=None, prompt_ids=None)
    assert trace.replay(4).text() == "abcde"
    with pytest.raises(ValueError, match=r"use text\(\)"):
        trace.replay(4).ids(MASK)


@given(st.data())
def test_the_last_snapshot_is_the_text(
    trace_strategy: st.SearchStrategy[Trace], data: st.DataObject
) -> None:
    trace = data.draw(trace_strategy)
    assert trace.steps is not None
    last = trace.replay(trace.steps)
    assert last.text() == trace.text
    assert not len(last.masked)
    if trace.token_ids is not None:
        assert np.array_equal(last.ids(MASK), trace.token_ids)
