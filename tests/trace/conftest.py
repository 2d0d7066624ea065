"""Traces to test with: a strategy for any trace, and a small fixed one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest

from anyorder.trace import Candidate, Event, Ghost, Trace

LETTERS = st.text(st.characters(codec="utf-8"), max_size=3)


def any_ghosts(draw: st.DrawFn, count: int, steps: int, with_ids: bool) -> list[Ghost]:
    """Deleted slots, from left to right."""
    ghosts = []
    for after in sorted(draw(st.lists(st.integers(-1, count - 1), max_size=3)) if steps else ()):
        insert, delete = sorted(draw(st.sets(st.integers(0, steps), min_size=2, max_size=2)))
        reveal = draw(st.none() | st.integers(insert, delete - 1))
        piece = None if reveal is None else draw(LETTERS)
        token = 8 if with_ids and piece is not None else None
        ghosts.append(Ghost(after, insert, reveal, delete, token, piece))
    return ghosts


@st.composite
def any_trace(draw: st.DrawFn, sample: int = 0) -> Trace:
    """A trace with steps, with or without ids, log-probabilities, segments, events, candidates."""
    pieces = draw(st.lists(LETTERS, max_size=12))
    count = len(pieces)
    steps = draw(st.integers(0, 9))
    spans = [sorted(draw(st.tuples(*[st.integers(0, steps)] * 2))) for _ in pieces]
    with_ids = draw(st.booleans())
    ids = draw(st.lists(st.integers(0, 2**31 - 1), min_size=count, max_size=count))
    numbers = st.one_of(st.just(np.nan), st.floats(-99, 0, width=32))
    log_prob = draw(st.none() | st.lists(numbers, min_size=count, max_size=count))
    events = []
    for slot, (insert, reveal) in enumerate(spans):
        for step in draw(st.sets(st.integers(insert, max(insert, reveal - 1)), max_size=2)):
            if step < reveal:
                piece = draw(st.none() | LETTERS)
                shows_id = with_ids and piece is not None
                events.append(Event(step, slot, 7 if shows_id else None, piece))
    scores = st.one_of(st.just(np.nan), st.floats(-99, 99, width=32))
    score = draw(st.none() | st.lists(scores, min_size=count, max_size=count))
    keys = st.tuples(st.integers(1, max(steps, 1)), st.integers(0, 9))
    candidates = [
        Candidate(
            *key,
            tuple(draw(st.lists(st.integers(0, 99), max_size=2))) if with_ids else None,
            draw(LETTERS),
            draw(st.none() | st.floats(-99, 99, width=32)),
            draw(st.booleans()),
        )
        for key in sorted(draw(st.sets(keys, max_size=4)) if steps else ())
    ]
    # Candidates of a trace with segments must be of these: here one or the other.
    segment = None if candidates else np.arange(-1, count - 1, dtype=np.int32)
    return Trace(
        task_id=draw(st.text(st.characters(codec="utf-8"), max_size=5)),
        sample=sample,
        prompt=draw(LETTERS),
        text="".join(pieces),
        program=draw(st.none() | LETTERS),
        entry_point=draw(st.none() | LETTERS),
        prompt_ids=np.array([1, 2]) if with_ids else None,
        token_ids=np.array(ids, dtype=np.int64) if with_ids else None,
        char_end=np.cumsum([len(piece) for piece in pieces], dtype=np.int64),
        insert_step=np.array([span[0] for span in spans], dtype=np.int64),
        reveal_step=np.array([span[1] for span in spans], dtype=np.int64),
        log_prob=None if log_prob is None else np.array(log_prob, dtype=np.float32),
        segment=draw(st.none() | st.just(segment)),
        score=None if score is None else np.array(score, dtype=np.float32),
        steps=steps,
        forwards=draw(st.none() | st.integers(0, 99)),
        columns=draw(st.none() | st.integers(0, 9999)),
        seconds=draw(st.none() | st.floats(0, 1e6)),
        ties=draw(st.none() | st.integers(0, 99)),
        family=draw(st.sampled_from([None, "mdm"])),
        policy=draw(st.sampled_from([None, "confidence"])),
        seed=draw(st.none() | st.integers(-(2**63) + 1, 2**63 - 1)),
        events=tuple(sorted(events)) or None,
        candidates=tuple(candidates) or None,
        ghosts=tuple(any_ghosts(draw, count, steps, with_ids)) or None,
        times=draw(st.none() | st.lists(st.floats(0, 1), min_size=steps, max_size=steps)),
        block=draw(st.none() | st.just(np.arange(count, dtype=np.int32) // 3)),
    )


@pytest.fixture(scope="session")
def trace_strategy() -> st.SearchStrategy[Trace]:
    return any_trace()


@pytest.fixture(scope="session")
def make_trace() -> Callable[..., Trace]:
    """A small valid trace, any of whose columns can be replaced."""

    def make(**changes: Any) -> Trace:
        columns: dict[str, Any] = {
            "task_id": "t",
            "sample": 0,
            "prompt": "P:",
            "text": "abcde",
            "prompt_ids": [80, 58],
            "token_ids": [10, 11, 12, 13],
            "char_end": [1, 3, 3, 5],
            "insert_step": [0, 2, 1, 0],
            "reveal_step": [3, 2, 4, 1],
            "steps": 4,
        }
        return Trace(**{**columns, **changes})

    return make


@pytest.fixture(scope="session")
def golden_order_metrics(data_file: Callable[[str], Path]) -> Path:
    """Traces with known metrics, in a folder beside the data."""
    return data_file("../golden/order_metrics.jsonl")
