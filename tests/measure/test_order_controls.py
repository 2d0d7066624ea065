"""Controls keep program and steps, deal them out anew, and frame every score."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from anyorder.measure.arness_scores import control_keys
from anyorder.measure.order_nodes import METRICS
from anyorder.measure.order_scores import (
    CONTROLS,
    MovableTokens,
    control_rows,
    order,
    segment_steps,
)
from anyorder.trace import Trace

STRAIGHT = """\
def f(x):
    a = 1
    b = 2
    return a + b
"""
NESTED = """\
import os
@cache
def f(x):
    'doc'
    for i in x:
        if i:
            y = i
        else:
            y = 0
    return y

print(f([1]))
assert f([2]) == 2
"""
CLASS = """\
class A:
    x = 1; y = 2
    def g(self):
        try:
            z = 1
        except E as e:
            z = 2
        finally:
            w = 3
        return z
"""
PROGRAMS = (STRAIGHT, NESTED, CLASS)


def trace(text: str, steps: Any, **changes: Any) -> Trace:
    count = len(text)
    return Trace(
        **{
            "task_id": "t",
            "sample": 0,
            "prompt": "",
            "text": text,
            "char_end": np.arange(1, count + 1),
            "insert_step": np.zeros(count, dtype=np.int64),
            "reveal_step": np.asarray(steps),
            "steps": int(np.max(steps)),
            **changes,
        }
    )


@pytest.mark.parametrize("mode", ["exact", "compat"])
@pytest.mark.parametrize("text", PROGRAMS)
@pytest.mark.parametrize("backwards", [False, True])
def test_strict_order_scores_one_block_at_a_time(mode: str, text: str, backwards: bool) -> None:
    """The floor of the scale: RUB and RUB+ are 0, CBC and OBW 1/k, in either direction."""
    steps = np.arange(1, len(text) + 1)
    table = order([trace(text, steps[::-1] if backwards else steps)], mode=mode, controls=())
    for scope in ("full_output", "code_only"):
        found = table.samples[0].scopes[scope]
        assert found is not None
        split = found.children > 1
        assert split.any()
        by_name = dict(zip(METRICS, found.scores[:, split], strict=True))
        assert by_name["rub"].tolist() == by_name["rub_plus"].tolist() == [0] * int(split.sum())
        # A block of one character is finished by the step that opens it, and is never open.
        assert (by_name["obw"] <= 1 / found.children[split] + 1e-12).all()
        assert by_name["cbc"] == pytest.approx(1 / found.children[split])


@given(st.sampled_from(PROGRAMS), st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=30)
def test_the_control_of_a_sorted_sample_is_the_sample(
    text: str, seed: int, backwards: bool
) -> None:
    """Whatever the steps: several tokens at once, gaps, any order."""
    chance = np.random.default_rng(seed)
    steps = chance.integers(1, chance.integers(2, 60), size=len(text))
    table = order([trace(text, steps)])
    name = "right_to_left" if backwards else "left_to_right"
    # A program ends before the newline behind it, and what is outside keeps its step.
    inside = len(text.rstrip())
    own = np.sort(steps[:inside])
    dealt = np.concatenate([own[::-1] if backwards else own, steps[inside:]])
    alone = order([trace(text, dealt)], controls=())
    for scope in ("full_output", "code_only"):
        found, expected = table.samples[0].scopes[scope], alone.samples[0].scopes[scope]
        assert found is not None and expected is not None
        assert np.allclose(found.controls[name], expected.means, equal_nan=True)


def test_what_is_given_or_outside_stays() -> None:
    steps = np.array([5, 0, 3, 4, 1, 9])
    movable = np.array([False, False, True, True, True, True])
    dealt = MovableTokens(steps[movable], None, ((0, 0, 0), (1, 0, 0)))
    rows, where = control_rows(steps, movable, dealt, list(CONTROLS))
    assert where == {
        "left_to_right": slice(1, 2),
        "right_to_left": slice(2, 3),
        "random": slice(3, 5),
        "segments": slice(5, 5),
        "left_to_right_in_blocks": slice(5, 5),
        "random_in_blocks": slice(5, 5),
    }
    assert rows[:3].tolist() == [[5, 0, 3, 4, 1, 9], [5, 0, 1, 3, 4, 9], [5, 0, 9, 4, 3, 1]]
    assert (rows[:, :2] == [5, 0]).all()
    assert (np.sort(rows, axis=1) == np.sort(steps)).all()


def test_permutations_depend_on_seed_task_and_sample_alone() -> None:
    text = PROGRAMS[0]
    steps = np.arange(1, len(text) + 1)
    own = trace(text, steps)
    assert control_keys(own, (0, 1)) != control_keys(trace(text, steps, sample=1), (0, 1))
    assert control_keys(own, (0,)) != control_keys(trace(text, steps, task_id="u"), (0,))

    def random_mean(traces: list[Trace], at: int, **options: Any) -> Any:
        found = order(traces, **options).samples[at].scopes["full_output"]
        assert found is not None
        return found.controls["random"].tolist()

    other = trace(text, steps[::-1], task_id="other")
    assert random_mean([own], 0) == random_mean([other, own], 1)
    assert random_mean([own], 0) != random_mean([own], 0, seeds=(100,))


def test_positions_frame_the_score() -> None:
    """0 for a strict sample, about 1 for a shuffled one."""
    strict, shuffled = [], []
    for number in range(12):
        text = PROGRAMS[number % len(PROGRAMS)]
        steps = np.arange(1, len(text) + 1)
        about = {"task_id": f"t{number}"}
        strict.append(trace(text, steps, **about))
        chance = np.random.default_rng(number)
        shuffled.append(trace(text, chance.permutation(steps), **about))
    low, high = order(strict), order(shuffled)
    for metric in METRICS:
        cell = low.cells["full_output", "split_only", metric]
        assert cell.position is not None
        assert cell.position.estimate == pytest.approx(0, abs=0.02)
        assert cell.controls["left_to_right"] == pytest.approx(cell.mean, abs=0.01)
        cell = high.cells["full_output", "split_only", metric]
        assert cell.position is not None
        assert cell.position.estimate == pytest.approx(1, abs=0.1)
        assert cell.position.low <= cell.position.estimate <= cell.position.high
    without = order(strict, controls=["left_to_right"])
    assert without.cells["full_output", "overall", "cbc"].position is None


def test_random_order_scores_higher_than_any_strict_one() -> None:
    """Why the controls are there: chance is near the top of the scale, not at its bottom."""
    cells = order(
        [trace(text, np.arange(1, len(text) + 1), task_id=text) for text in PROGRAMS]
    ).cells
    for metric, least in (("cbc", 0.8), ("rub", 0.8), ("rub_plus", 0.6), ("obw", 0.8)):
        assert cells["full_output", "split_only", metric].controls["random"] > least
        assert cells["full_output", "split_only", metric].controls["left_to_right"] < 0.5


def test_equal_controls_have_no_position() -> None:
    table = order([trace("x = 1\n", [1, 1, 1, 1, 1, 1])])
    position = table.cells["full_output", "overall", "cbc"].position
    assert position is not None
    assert np.isnan(position.estimate) and position.method == "controls too close"


LINES = "a = 1\nb = 2\nc = 3\nd = 4\n"


def by_line(order_of_lines: list[int], **changes: Any) -> Trace:
    """Line k is committed whole at the k-th given step."""
    segment = np.repeat(np.arange(4), 6)
    steps = np.array(order_of_lines)[segment]
    return trace(LINES, steps, segment=segment, **changes)


def test_segments_have_an_order_of_their_own() -> None:
    """A line that comes whole cannot be returned to, and is never open; its order still shows."""
    record = order([by_line([2, 1, 4, 3])]).to_record()
    (sample,) = record["samples"]
    tau = {"tau": pytest.approx(1 / 3), "chance": 0}
    assert sample["segments"] == {"unit": "segment", "count": 4, **tau}
    assert sample["scopes"]["full_output"]["split_only"] == {
        "cbc": 0.25,
        "rub": 0,
        "rub_plus": 0,
        "obw": 0,
    }
    # Token by token, chance would score near 1; segment by segment it scores what the sample does.
    controls = sample["scopes"]["full_output"]["controls"]
    assert controls["segments"]["split_only"] == sample["scopes"]["full_output"]["split_only"]
    assert controls["random"]["split_only"]["obw"] > 0.3
    assert record["segments"]["segment"]["samples"] == 1


def test_without_segments_lines_are_measured() -> None:
    text = LINES
    steps = np.repeat([3, 2, 1, 4], 6)
    (sample,) = order([trace(text, steps)]).to_record()["samples"]
    found = sample["segments"]
    assert (found["unit"], found["count"], found["tau"]) == ("line", 4, 0.0)
    backwards = trace(text, np.arange(len(text), 0, -1))
    assert order([backwards]).segments["line"].tau.estimate == -1
    without = order([backwards], controls=()).to_record()
    assert without["segments"]["line"]["chance"] is None


def test_chance_for_lines_is_that_of_random_tokens() -> None:
    """A longer line ends later in a random order: with a long first line tau is far below 0."""
    text = "def f(a_long_argument, and_another_one, a_third):\n    a = 1\n    b = 2\n"
    size = len(text)
    traces = [
        trace(text, np.random.default_rng(n).permutation(size) + 1, task_id=f"t{n}")
        for n in range(40)
    ]
    samples, tau, chance = order(traces, seeds=range(4)).segments["line"]
    assert samples == 40 and chance < -0.3
    assert tau.low < chance < tau.high


def test_segment_steps_are_the_last_of_their_tokens() -> None:
    assert segment_steps(np.array([3, 1, 2, 5]), np.array([0, 0, 2, 2])).tolist() == [3, 0, 5]
    assert segment_steps(np.array([], dtype=np.int64), np.array([], dtype=np.int64)).tolist() == []
