"""The order of lines seen from the anchor: by hand, by scipy's tau, and in awkward programs."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from anyorder.measure import order
from anyorder.measure.order_anchors import Units, anchor_order, by_anchor, kendall
from anyorder.trace import Ghost, Trace

LINES = [
    "def solve():\n",
    "    boxes = cousins // 2\n",
    "    guests = boxes * 2\n",
    "    trays = guests // 2\n",
    "    bags = min(trays, 20)\n",
    "    return bags",
]
GOAL = {"anchor": "goal", "anchor_name": "bags"}
START = {"anchor": "start", "anchor_name": "cousins"}
MIDDLE = {"anchor": "middle", "anchor_name": "trays"}


def written(steps: list[int], lines: list[str] = LINES, **changes: Any) -> Trace:
    """A trace whose tokens are lines."""
    about: dict[str, Any] = {"task_id": "t", "sample": 0, "prompt": "", "entry_point": "solve"}
    about |= {"insert_step": [0] * len(lines), "steps": max([0, *steps])}
    ends = list(accumulate(map(len, lines)))
    return Trace(text="".join(lines), char_end=ends, reveal_step=steps, **(about | changes))


def measured(trace: Trace, facts: dict[str, Any]) -> Any:
    (sample,) = order([trace], facts={trace.task_id: facts}).samples
    return sample.anchor


@pytest.mark.parametrize(
    ("steps", "facts", "tau", "outwards"),
    [
        ([1, 2, 3, 4, 5, 6], START, 1, 1),
        ([1, 6, 5, 4, 3, 2], START, -1, -1),
        ([6, 5, 4, 3, 2, 1], GOAL, -1, None),
        ([1, 6, 5, 4, 3, 2], GOAL, -1, None),  # the header does not count, whenever it comes
        ([1, 2, 3, 4, 5, 6], GOAL, 1, None),
        # trays is in lines 3 and 4; then come their neighbours, then the line beyond
        ([1, 6, 5, 2, 3, 4], MIDDLE, None, None),
    ],
)
def test_lines_by_hand(
    steps: list[int], facts: dict[str, Any], tau: int | None, outwards: int | None
) -> None:
    distance = {"start": [0, 1, 2, 3, 4], "middle": [2, 1, 0, 0, 1], "goal": [3, 2, 1, 0, 0]}
    found = measured(written(steps), facts)
    assert (found.anchor, found.unit, found.count) == (facts["anchor"], "line", 5)
    places, far = np.arange(5), np.array(distance[facts["anchor"]])
    assert found.order.tau == pytest.approx(kendalltau(steps[1:], places).statistic)
    assert found.outwards.tau == pytest.approx(kendalltau(steps[1:], far).statistic)
    assert tau in (None, found.order.tau) and outwards in (None, found.outwards.tau)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=9))
def test_tau_is_scipys(pairs: list[tuple[int, int]]) -> None:
    one, other = (np.array([pair[at] for pair in pairs], dtype=np.int64) for at in (0, 1))
    alike = len(set(one.tolist())) < 2 or len(set(other.tolist())) < 2
    expected = np.nan if alike else kendalltau(one, other).statistic
    assert kendall(one, other) == pytest.approx(expected, nan_ok=True, abs=1e-12)


def test_segments_count_as_lines_do_and_empty_ones_not_at_all() -> None:
    """Segment models end a short program with empty slots: they have no text, and do not count."""
    lines = [*LINES, "", ""]
    steps = [8, 7, 6, 5, 4, 3, 1, 2]
    segments = written(steps, lines, segment=list(range(8)))
    plain = measured(written(steps[:6]), GOAL)
    found = measured(segments, GOAL)
    assert (found.unit, found.count, found.order.chance) == ("segment", 5, 0.0)
    assert (found.order.tau, found.outwards.tau) == (plain.order.tau, plain.outwards.tau)


def test_deleted_slots_do_not_count() -> None:
    ghost = Ghost(
        after=2, insert_step=0, reveal_step=1, delete_step=2, token_id=None, piece="    bags = 1\n"
    )
    steps = [9, 8, 7, 6, 5, 4]
    with_ghost = measured(written(steps, ghosts=[ghost]), GOAL)
    assert with_ghost == measured(written(steps), GOAL)


def test_the_anchor_is_looked_for_in_the_program_that_was_written() -> None:
    top_down = [
        "def solve():\n",
        "    return bags()\n",
        "def bags():\n",
        "    return min(trays(), 20)\n",
        "def trays():\n",
        "    return guests // 2",
    ]
    found = measured(written([1, 2, 3, 4, 5, 6], top_down), GOAL)
    assert found.order.tau == 1 and found.count == 5
    far = [0, 0, 1, 2, 3]
    assert found.outwards.tau == pytest.approx(kendalltau(range(5), far).statistic)
    # A name inside another word is no mention; without one only `outwards` is unknown.
    other = [line.replace("bags", "handbags") for line in LINES]
    found = measured(written([1, 2, 3, 4, 5, 6], other), GOAL)
    assert found.order.tau == 1 and np.isnan(found.outwards.tau)
    found = measured(written([1, 2, 3, 4, 5, 6]), {"anchor": "goal"})
    assert found.order.tau == 1 and np.isnan(found.outwards.tau)


@pytest.mark.parametrize(
    ("lines", "count"),
    [([], None), (["x = = 1"], None), (["def solve(): pass"], 1), (["def solve():\n", "  0"], 1)],
)
def test_short_programs_have_no_tau(lines: list[str], count: int | None) -> None:
    """An unparsable or empty text has no order at all; a single line has no pair."""
    found = measured(written(list(range(1, len(lines) + 1)), lines), GOAL)
    if count is None:
        assert found is None
    else:
        assert found.count == count and np.isnan(found.order.tau) and np.isnan(found.outwards.tau)


def test_lines_that_come_at_once_have_no_tau() -> None:
    found = measured(written([1] * 6), GOAL)
    assert np.isnan(found.order.tau) and np.isnan(found.order.chance)


def test_the_table_is_by_anchor_and_chance_is_the_random_control() -> None:
    traces = [
        written([1, 2, 3, 4, 5, 6], task_id="a"),
        written([1, 2, 3, 4, 6, 5], task_id="b"),
        written([1, 6, 5, 4, 3, 2], task_id="c"),
        written([1, 2, 3, 4, 5, 6], task_id="d"),
    ]
    facts = {"a": START, "b": START, "c": GOAL, "d": {"language": "python"}}
    table = order(traces, facts=facts, seeds=range(200))
    cells = table.anchors["line"]
    assert list(cells) == ["start", "goal", "all"]
    start = cells["start"].order
    assert (start.samples, start.tau.estimate) == (2, pytest.approx((1 + 0.8) / 2))
    assert (start.tau.low, start.tau.high) == pytest.approx((0.8, 1))
    assert cells["goal"].order.tau.estimate == -1
    assert cells["all"].order.samples == 3
    # Every token is a line here, so that permuted ones have no order.
    assert abs(cells["all"].order.chance) < 0.1 and abs(cells["all"].outwards.chance) < 0.1
    record = table.to_record()
    assert record["anchors"]["line"]["goal"]["order"]["tau"]["estimate"] == -1
    assert [("anchor" in sample) for sample in record["samples"]] == [True, True, True, False]


def test_without_anchors_nothing_is_said() -> None:
    for facts in (None, {}, {"t": {"language": "python"}}):
        record = order([written([1, 2, 3, 4, 5, 6])], facts=facts).to_record()
        assert "anchors" not in record and "anchor" not in record["samples"][0]
    units = Units("line", np.arange(2), ("a", "b"))
    assert anchor_order(units, np.array([[1, 2]]), {}, None) is None


def test_values_are_grouped_by_anchor() -> None:
    facts = {"a": GOAL, "b": {"anchor": "elsewhere"}, "c": START, "d": {}}
    found = by_anchor({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}, facts)
    assert list(found.items()) == [("start", {"c": 3}), ("goal", {"a": 1}), ("elsewhere", {"b": 2})]
