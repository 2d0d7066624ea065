"""Broken, odd and hostile programs: a status each, a bound on time, never an exception."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import cycle, islice

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from mutator import programs

from anyorder.measure.arness_scores import arness
from anyorder.measure.order_scores import order
from anyorder.trace import Trace

STATUSES = {
    *("parsed", "fallback", "empty", "unparsable", "null_bytes", "not_text", "too_deep"),
    *("too_large", "given", "no_steps"),
}
# Seconds of processor time for one program with its controls; generous, because machines are busy.
LONGEST = 10.0


def as_trace(text: str, seed: int, number: int) -> Trace:
    """Random cuts and steps. Surrogates cannot be in a trace, so they are replaced first."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    chance = np.random.default_rng([seed, number])
    cuts = np.flatnonzero(chance.random(len(text)) < 0.3)
    ends = np.append(cuts[cuts > 0], len(text))
    count = len(ends)
    steps = chance.integers(0 if number % 7 == 0 else 1, 1 + max(1, count // 2), size=count)
    return Trace(
        task_id=f"t{number % 5}",
        sample=number,
        prompt="def f(x):\n" if number % 3 == 0 else "",
        text=text,
        char_end=ends,
        insert_step=np.zeros(count, dtype=np.int64),
        reveal_step=steps,
        segment=np.sort(chance.integers(-1, 9, size=count)) if number % 2 else None,
        steps=int(steps.max(initial=0)),
        entry_point="f",
    )


class Watch:
    """Hands out traces and notes how long the consumer took over each."""

    def __init__(self, traces: list[Trace]) -> None:
        self.traces, self.slowest = traces, 0.0

    def __iter__(self) -> Iterator[Trace]:
        for trace in self.traces:
            began = time.process_time()
            yield trace
            self.slowest = max(self.slowest, time.process_time() - began)


def measure_all(seed: int, count: int) -> dict[str, int]:
    seen: Counter[str] = Counter()
    texts = enumerate(programs(seed, count))
    every = cycle([("exact", "compat"), ("exact",), ("exact",), ("exact",)])  # to save time
    while some := [as_trace(text, seed, number) for number, text in islice(texts, 500)]:
        modes = next(every)
        for mode in modes:
            watch = Watch(some)
            table = order(watch, mode=mode, seeds=(0,))
            assert watch.slowest < LONGEST
            assert len(table.samples) == sum(table.statuses.values()) == len(some)
            assert set(table.statuses) <= STATUSES
            for sample in table.samples:
                for scope in sample.scopes.values():
                    assert scope is None or ((scope.scores >= 0) & (scope.scores <= 1)).all()
        seen += Counter(table.statuses)
        if len(modes) > 1:
            assert sum(arness(some).statuses.values()) == len(some)
    return seen


def test_two_hundred() -> None:
    seen = measure_all(seed=1, count=200)
    assert sum(seen.values()) == 200
    assert {"parsed", "fallback", "unparsable"} <= set(seen)


@pytest.mark.long
def test_four_thousand() -> None:
    assert sum(measure_all(seed=3, count=4_000).values()) == 4_000


@pytest.mark.long
@pytest.mark.soak
def test_twenty_thousand() -> None:
    assert sum(measure_all(seed=2, count=20_000).values()) == 20_000


@given(st.text(max_size=80), st.integers(0, 99))
def test_any_text(text: str, number: int) -> None:
    trace = as_trace(text, 0, number)
    for mode in ("exact", "compat"):
        record = order([trace], mode=mode, seeds=(0,)).to_record()
        assert sum(record["statuses"].values()) == 1
    assert sum(arness([trace]).statuses.values()) == 1
