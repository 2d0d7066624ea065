"""Where things go: round numbers, names that do not meet, code that is folded whole."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from anyorder.report.charts.pixel_figure import linear_ticks, log_ticks, shown, with_room, written

pytest.importorskip("matplotlib", reason="no matplotlib: pip install anyorder[report]")

from anyorder.report.charts.draw_plots import move_apart
from anyorder.report.charts.draw_segment_trace import STRONG, WEAK, folded, strength
from anyorder.report.charts.pixel_figure import text_width, wrapped

NUMBERS = st.floats(-1e4, 1e4)


@given(NUMBERS, st.floats(1e-3, 1e4), st.integers(3, 8))
def test_ticks_are_few_inside_and_even(low: float, span: float, most: int) -> None:
    ticks = linear_ticks(low, low + span, most)
    assert 1 <= len(ticks) <= most
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)
    gaps = [b - a for a, b in pairwise(ticks)]
    assert gaps == pytest.approx([gaps[0]] * len(gaps)) if gaps else True


@given(st.floats(1e-6, 1e3), st.floats(1.01, 1e6), st.integers(3, 7))
def test_log_ticks_are_few_and_inside(low: float, factor: float, most: int) -> None:
    high = low * factor
    ticks = log_ticks(low, high, most)
    assert 1 <= len(ticks) <= most
    assert ticks == sorted(ticks)
    assert all(low * 0.999 <= tick <= high * 1.001 for tick in ticks)


def test_a_range_within_a_decade_has_several_numbers() -> None:
    assert log_ticks(0.021, 0.045, 5) == pytest.approx([0.025, 0.03, 0.035, 0.04, 0.045])
    assert log_ticks(1.0, 8.0, 5) == [1.0, 2.0, 5.0]


def test_numbers_are_short() -> None:
    assert written(0.30000000000000004) == "0.3"
    assert written(0.25, percent=True) == "25%"
    assert written(-2.0) == "\N{MINUS SIGN}2"
    assert written(1e-6) == "1e\N{MINUS SIGN}6"
    assert [shown(v) for v in (0.126, 12.34, 123.4, -0.001)] == ["0.13", "12.3", "123", "0.00"]
    assert shown(0.9123, percent=True) == "91.2%"


@given(st.lists(st.floats(0, 100), max_size=6))
def test_names_lie_apart_in_their_order(places: list[float]) -> None:
    found = move_apart(places, 15, 100)
    ranked = sorted(range(len(places)), key=lambda i: places[i])
    ordered = [found[i] for i in ranked]
    assert all(b - a >= 15 - 1e-6 for a, b in pairwise(ordered))
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in found)
    if all(b - a >= 15 for a, b in pairwise(sorted(places))):
        assert found == pytest.approx(places)


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=12), min_size=1, max_size=12))
def test_wrapping_loses_no_word_and_fits(words: list[str]) -> None:
    lines = wrapped(" ".join(words), 150)
    assert " ".join(lines).split() == words
    assert all(text_width(line) <= 151 or " " not in line for line in lines)


@given(st.text("ab (", min_size=1, max_size=70), st.integers(0, 8))
def test_folded_code_is_whole(code: str, indent: int) -> None:
    text = " " * indent + code.strip()
    lines = folded(text, 30)
    assert all(len(line) <= 30 for line in lines)
    if not text.strip():
        assert lines == ["(empty)"]
    elif "…" not in lines[-1]:
        assert "".join("".join(lines).split()) == "".join(text.split())
        assert len(lines[0]) - len(lines[0].lstrip()) == indent or len(lines) > 1


def test_a_better_score_is_stronger() -> None:
    scores = sorted([-5.0, -1.0, -0.5, -0.1])
    strengths = [strength(score, scores) for score in scores]
    assert strengths == sorted(strengths)
    assert (strengths[0], strengths[-1]) == pytest.approx((WEAK, STRONG))
    assert WEAK < strength(None, scores) < STRONG


@given(NUMBERS, st.floats(0, 100))
@example(1e4, 1e-12)
def test_limits_hold_what_they_are_for(low: float, span: float) -> None:
    bottom, top = with_room(low, low + span)
    assert bottom < low <= low + span < top
