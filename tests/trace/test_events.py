"""Edits, masks that return and deletions: a simulated canvas against the trace made from it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from plain_canvases import MASK, Canvas, canvases

from anyorder.trace import Event, Ghost, Trace, slot_history, table, trace_of_slots


def traced(history: Sequence[Canvas], **about: Any) -> Trace:
    return trace_of_slots(history, MASK, prompt_ids=[1], **about)


def text_of(canvas: Canvas) -> str:
    return "".join("_" if token == MASK else f"<{token}>" for _, token in canvas)


@settings(deadline=None)
@given(canvases(), st.booleans())
def test_every_canvas_comes_back(history: list[Canvas], timed: bool) -> None:
    times = np.linspace(0.1, 0.7, len(history) - 1)
    trace = traced(history, times=times if timed else None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traces.parquet"
        table.write_traces(path, [trace])
        (stored,) = table.read_traces(path, remedy="")
    sent = Trace.from_jsonl(trace.to_jsonl())
    assert stored == trace
    assert sent.to_jsonl() == trace.to_jsonl()
    assert sent.times is None if not timed else sent.times.tolist() == times.tolist()  # type: ignore[union-attr]
    identity: dict[int, int] = {}  # the trace's number -> the plain slot
    for step, canvas in enumerate(history):
        for each in (trace, stored):
            assert each.replay(step).ids(MASK).tolist() == [token for _, token in canvas]
        for each in (trace, stored, sent):
            assert each.replay(step).text("_") == text_of(canvas)
        slots = trace.replay(step).slots.tolist()
        for number, (slot, _) in zip(slots, canvas, strict=True):
            assert identity.setdefault(number, slot) == slot
    assert len(set(identity.values())) == len(identity) == len(trace.slot_order)


def expected_changes(history: list[Canvas]) -> Counter[tuple[int, int, str]]:
    """(step, identity, kind), from neighbouring canvases."""
    found: Counter[tuple[int, int, str]] = Counter()
    for step in range(1, len(history)):
        before, now = dict(history[step - 1]), dict(history[step])
        for slot in before.keys() | now.keys():
            was, shows = before.get(slot, MASK), now.get(slot)
            if shows is None:
                found[step, slot, "delete"] += 1
            elif was != shows:
                kind = "reveal" if was == MASK else "mask" if shows == MASK else "edit"
                found[step, slot, kind] += 1
    return found


@settings(deadline=None)
@given(canvases())
def test_changes_have_kinds_and_first_reveals_are_kept(history: list[Canvas]) -> None:
    trace = traced(history)
    identity = {
        number: slot
        for step, canvas in enumerate(history)
        for number, (slot, _) in zip(trace.replay(step).slots.tolist(), canvas, strict=True)
    }
    changes = trace.changes()
    assert [change[:2] for change in changes] == sorted(change[:2] for change in changes)
    found = Counter((change.step, identity[change.slot], change.kind) for change in changes)
    assert found == expected_changes(history)
    for change in changes:
        assert change.old_token_id != change.token_id or change.kind == "delete"
    for slot, first in enumerate(trace.first_reveal_step.tolist()):
        shown = [each.step for each in changes if each.slot == slot and each.token_id is not None]
        assert first == min(shown, default=0)


def test_a_slot_keeps_its_name_when_others_come_and_go() -> None:
    history = [
        [(7, MASK), (8, MASK)],
        [(7, 1), (8, MASK)],
        [(3, 4), (7, 1), (4, MASK), (8, MASK)],
        [(3, 4), (7, 2), (4, MASK), (8, MASK)],
        [(7, 2), (8, MASK)],
        [(7, MASK), (5, 6), (8, 3)],
        [(7, 2), (5, 6), (8, 3)],
    ]
    found = slot_history(history, MASK)
    assert found.slots == [7, 5, 8]
    assert found.ghosts == [Ghost(-1, 2, 2, 4, 4, None), Ghost(1, 2, None, 4, None, None)]
    trace = traced(history)
    assert trace.events == (
        Event(1, 0, 1, "<1>"),
        Event(3, 0, 2, "<2>"),
        Event(5, 0, None, None),
    )
    kinds = [(each.step, each.slot, each.kind) for each in trace.changes()]
    assert kinds == [
        *((1, 0, "reveal"), (2, 3, "reveal"), (3, 0, "edit"), (4, 3, "delete"), (4, 4, "delete")),
        *((5, 0, "mask"), (5, 1, "reveal"), (5, 2, "reveal"), (6, 0, "reveal")),
    ]
    assert trace.first_reveal_step.tolist() == [1, 5, 5]


def test_what_is_never_revealed_keeps_the_mask() -> None:
    history = [[(0, 3), (1, MASK)], [(0, MASK), (1, MASK)]]
    trace = traced(history)
    assert trace.token_ids is not None and trace.token_ids.tolist() == [MASK, MASK]
    assert trace.timing()[1].tolist() == [2, 2]
    assert trace.replay(0).ids(MASK).tolist() == [3, MASK]
    assert trace.replay(1).ids(MASK).tolist() == [MASK, MASK]


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ([], "no canvases"),
        ([[(0, 1), (0, 2)]], "canvas 0: a slot is there twice"),
        ([[(0, 1), (1, 2)], [(1, 2), (0, 1)]], "canvas 1: slot 0 has moved"),
        ([[(0, 1)], [], [(0, 1)]], "canvas 2: slot 0 was deleted before"),
    ],
)
def test_canvases_that_cannot_be_followed(history: list[Canvas], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        slot_history(history, MASK)


@pytest.mark.parametrize(
    ("ghosts", "message"),
    [
        ([Ghost(4, 0, 1, 2, 7, "x")], r"ghosts\[0\].after = 4, but there are 4 tokens"),
        ([Ghost(-2, 0, 1, 2, 7, "x")], r"ghosts\[0\].after = -2 is outside -1"),
        ([Ghost(2, 0, 1, 2, 7, "x"), Ghost(1, 0, 1, 2, 7, "x")], r"ghosts\[1\]: sort ghosts"),
        ([Ghost(0, 2, 2, 2, 7, "x")], r"ghosts\[0\] is inserted at 2 and deleted at 2"),
        ([Ghost(0, 2, 3, 5, 7, "x")], r"and by step 4, the last"),
        (
            [Ghost(0, 2, 1, 4, 7, "x")],
            r"ghosts\[0\].reveal_step = 1, but the slot is inserted at 2",
        ),
        ([Ghost(0, 2, 4, 4, 7, "x")], r"ghosts\[0\].reveal_step = 4.*deleted at 4"),
        ([Ghost(0, 2, None, 4, 7, "x")], r"ghosts\[0\].piece: give it where"),
        ([Ghost(0, 2, 3, 4, 7, None)], r"ghosts\[0\].piece: give it where"),
        ([Ghost(0, 2, 3, 4, None, "x")], r"ghosts\[0\].token_id: give it where"),
        ([Ghost(0, "2", 3, 4, 7, "x")], r"ghosts\[0\].insert_step: a whole number"),  # type: ignore[arg-type]
    ],
)
def test_ghosts_are_checked(make_trace: Any, ghosts: list[Ghost], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_trace(ghosts=ghosts)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (Event(1, 6, None, None), r"events\[0\].slot = 6, but there are 4 tokens and 2 ghosts"),
        (Event(3, 4, None, None), r"slot 4 is inserted at 1 and last revealed at 3"),
        (Event(0, 4, None, None), r"slot 4 is inserted at 1 and last revealed at 3"),
        (Event(2, 5, None, None), r"slot 5 is inserted at 0 and deleted at 2"),
        (Event(1, 5, 8, "y"), r"ghosts\[1\] has no reveal_step, but its last event, of step 1"),
    ],
)
def test_events_of_ghosts_are_checked(make_trace: Any, event: Event, message: str) -> None:
    ghosts = [Ghost(-1, 1, 3, 4, 7, "x"), Ghost(3, 0, None, 2, None, None)]
    make_trace(ghosts=ghosts, events=[Event(0, 5, 8, "y"), Event(1, 5, None, None)])
    with pytest.raises(ValueError, match=message):
        make_trace(ghosts=ghosts, events=[event])


def test_times_are_checked(make_trace: Any) -> None:
    assert make_trace(times=[0.0, 0.5, float("nan"), 1]).times.dtype == np.float64
    with pytest.raises(ValueError, match="times has 3 entries for 4 steps"):
        make_trace(times=[0.0, 0.5, 1.0])
    with pytest.raises(ValueError, match=r"times\[1\] = inf is no time"):
        make_trace(times=[0.0, float("inf"), 1.0, 1.0])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"delete_step": 4', '"delete_step": "4"', "field 'ghosts': entry 0 is"),
        ('"text": "x"', '"texts": "x"', "give a list of {after, insert_step"),
        ('"delete_step": 4', '"delete_step": 4, "token_id": 7', "field 'ghosts': entry 0 is"),
        ('"times": [0.5', '"times": ["0.5"', "field 'times': entry 0 is '0.5'"),
        ('"ghosts"', '"ghost"', "did you mean 'ghosts'"),
    ],
)
def test_jsonl_names_what_is_wrong(make_trace: Any, old: str, new: str, message: str) -> None:
    trace = make_trace(ghosts=[Ghost(-1, 1, 3, 4, 7, "x")], times=[0.5, 0.5, 0.5, float("nan")])
    line = trace.to_jsonl()
    assert line.count(old) == 1
    assert Trace.from_jsonl(line).to_jsonl() == line
    with pytest.raises(ValueError, match=message):
        Trace.from_jsonl(line.replace(old, new))
