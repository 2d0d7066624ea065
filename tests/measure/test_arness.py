"""AR-ness in closed form: strict orders, chance by enumeration, ties, and which tokens count."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy.stats import kendalltau

from anyorder.measure.arness_scores import arness, order_scores, sample_arness, tau_b
from anyorder.trace import Event, Ghost, Run, RunCard, Trace

KS = (1, 2, 3)


def values(times: Any, column: str = "value") -> dict[str, float]:
    return {name: getattr(score, column) for name, score in order_scores(times, KS).items()}


@pytest.mark.parametrize("count", [4, 5, 30])
def test_left_to_right_is_1_in_everything(count: int) -> None:
    found = values(range(1, count + 1))
    assert found == dict.fromkeys(found, 1.0)
    assert values(range(1, count + 1), "left_to_right") == found


@pytest.mark.parametrize("count", [4, 5, 30])
def test_right_to_left(count: int) -> None:
    """Only the last k items are among the k leftmost; no move goes to the next place."""
    found = values(range(count, 0, -1))
    for k in KS:
        assert found[f"global@{k}"] == pytest.approx(k / count)
        assert found[f"local@{k}"] == 0
    assert (found["adjacent"], found["tau"]) == (1, -1)
    mirrored = values(range(count, 0, -1), "mirrored")
    assert mirrored == dict.fromkeys(mirrored, 1.0)


STEP_SIZES = [
    [1] * 5,
    [1] * 6,
    [2, 1, 2],
    [3, 2],
    [1, 3, 1, 1],
    [2, 2, 2],
    [5],
    [1],
    [1, 1],
    [4, 1],
]


@pytest.mark.parametrize("sizes", STEP_SIZES, ids=str)
def test_chance_is_the_mean_over_all_orders(sizes: list[int]) -> None:
    times = np.repeat(np.arange(1, len(sizes) + 1), sizes).tolist()
    found = [values(order) for order in sorted(set(permutations(times)))]
    for name, chance in values(times, "chance").items():
        mean = float(np.mean([order[name] for order in found]))
        assert mean == pytest.approx(chance, abs=1e-12, nan_ok=True)


def test_several_items_a_step_are_judged_by_what_was_hidden_before() -> None:
    """Items 0 and 2 first, then 1 and 3: hidden before are 0123, then 1 and 3."""
    found = values([1, 2, 1, 2])
    assert found["global@1"] == pytest.approx(2 / 4)  # 0 and 1
    assert found["global@2"] == pytest.approx(3 / 4)  # 0; 1, 3
    assert found["local@1"] == pytest.approx(2 / 2)  # 1 after 0, 3 after 2
    assert found["adjacent"] == 1
    # 3 pairs in order (0-1, 0-3, 2-3), 1 against (1-2), 2 tied: (3 - 1) / sqrt(6 * 4).
    assert found["tau"] == pytest.approx(2 / math.sqrt(24))
    best = values([1, 2, 1, 2], "left_to_right")
    assert (best["global@1"], best["global@2"]) == (0.5, 1)


def test_runs_of_next_places() -> None:
    """0 1 2, then 5 4 3: moves +1 +1 +3 -1 -1."""
    found = values([1, 2, 3, 6, 5, 4])
    assert found["local@1"] == pytest.approx(2 / 5)
    assert found["local@2"] == pytest.approx(1 / 4)
    assert found["local@3"] == 0
    assert values([1, 2, 3, 6, 5, 4], "mirrored")["local@1"] == pytest.approx(2 / 5)
    assert found["adjacent"] == pytest.approx(4 / 5)


@given(st.lists(st.integers(1, 8), min_size=2, max_size=30))
def test_scores_agree_with_their_definitions(times: list[int]) -> None:
    found = values(times)
    steps = sorted(set(times))
    entry = [steps.index(time) for time in times]
    for k in KS:
        hits = []
        for item, time in enumerate(times):
            hidden = [other for other, when in enumerate(times) if when >= time]
            hits.append(item in hidden[:k])
        assert found[f"global@{k}"] == pytest.approx(np.mean(hits))
        late = [i for i in range(len(times)) if entry[i] >= k]
        rows = [
            i >= k and all(entry[i - back] == entry[i] - back for back in range(k + 1))
            for i in late
        ]
        expected = np.mean(rows) if rows else math.nan
        assert found[f"local@{k}"] == pytest.approx(expected, nan_ok=True)


@given(st.lists(st.integers(1, 20), min_size=2, max_size=40))
def test_tau_is_kendalls(times: list[int]) -> None:
    expected = kendalltau(np.arange(len(times)), times).statistic
    assert tau_b(times) == pytest.approx(float(expected), nan_ok=True, abs=1e-12)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=20))
def test_mirroring(times: list[int]) -> None:
    there, back = order_scores(times, KS), order_scores(times[::-1], KS)
    for name, score in there.items():
        assert score.value == pytest.approx(back[name].mirrored, nan_ok=True)
        assert score.chance == pytest.approx(back[name].chance, nan_ok=True)
        assert score.left_to_right == pytest.approx(back[name].left_to_right, nan_ok=True)
    if not math.isnan(there["tau"].value):
        assert there["tau"].value == pytest.approx(-there["tau"].mirrored)


def test_a_long_order_is_quick_and_does_not_overflow() -> None:
    times = np.random.default_rng(0).permutation(5000)
    found = order_scores(times, (1, 16))
    assert found["local@16"].chance == pytest.approx(0, abs=1e-12)
    assert found["tau"].value == pytest.approx(0, abs=0.05)
    assert found["global@1"].value == pytest.approx(found["global@1"].chance, abs=0.01)


def trace(text: str, steps: list[int], **changes: Any) -> Trace:
    """One token per character, then tokens without text for further steps."""
    ends = [min(n, len(text)) for n in range(1, len(steps) + 1)]
    columns: dict[str, Any] = {
        "task_id": "t",
        "sample": 0,
        "prompt": "",
        "text": text,
        "char_end": ends,
        "insert_step": [0] * len(steps),
        "reveal_step": steps,
        "steps": max(steps, default=0),
    }
    return Trace(**{**columns, **changes})


def test_the_end_of_sequence_is_told_apart() -> None:
    """Padding that came first would make any canvas look right to left."""
    sample = sample_arness(trace("abcd", [5, 6, 7, 8, 4, 3, 2, 1]), KS)
    assert sample.items == 4
    assert sample.scores["global@1"].value == sample.scores["tau"].value == 1
    assert sample.silent is not None
    assert (sample.silent.share, sample.silent.early) == (0.5, 1.0)
    without = sample_arness(trace("abcd", [1, 2, 3, 4]), KS)
    assert without.silent is not None
    assert without.silent.share == 0 and math.isnan(without.silent.early)


def test_given_tokens_are_no_items() -> None:
    sample = sample_arness(trace("abcde", [0, 2, 0, 1, 3]), KS)
    assert sample.items == 3
    assert sample.scores["tau"].value == pytest.approx(1 / 3)  # 2, 1, 3


def test_only_the_program_counts() -> None:
    text = "Sure!\nx = 1\nBye"
    steps = [*range(20, 26), *range(1, 6), 19, 18, 17, 16]
    sample = sample_arness(trace(text, steps, program="x = 1"), KS)
    assert (sample.items, sample.scores["global@1"].value) == (5, 1)
    assert sample_arness(trace(text, steps), KS).items == len(text)
    none = sample_arness(trace(text, steps), KS, looked_for=True)
    assert (none.status, none.items) == ("no_program", 0)
    lost = sample_arness(trace(text, steps, program="nowhere in it"), KS)
    assert (lost.status, lost.items) == ("no_program", 0)


def test_insertion_is_judged_by_final_places() -> None:
    """Each slot is filled as it opens, so the only mask is always the leftmost one."""
    sample = sample_arness(trace("abcd", [4, 3, 2, 1], insert_step=[4, 3, 2, 1]), KS)
    assert sample.scores["global@1"].value == pytest.approx(1 / 4)


def test_the_last_reveal_counts() -> None:
    again = trace("ab", [3, 2], events=(Event(1, 0, None, "x"), Event(2, 0, None, None)))
    assert sample_arness(again, KS).scores["tau"].value == -1


def test_ties_are_a_share_of_the_choices() -> None:
    assert sample_arness(trace("abcd", [1, 2, 3, 4, 5], ties=2), KS).ties == pytest.approx(0.4)
    assert sample_arness(trace("abcd", [1, 2, 3, 4]), KS).ties is None
    # A slot that was masked again had been chosen before.
    again = trace("ab", [3, 2], events=(Event(1, 0, None, "x"), Event(2, 0, None, None)), ties=3)
    assert sample_arness(again, KS).ties == pytest.approx(1)
    # So had one that was deleted, unless it was given or still a mask.
    gone = [Ghost(0, 0, at, 2, None, None if at is None else "x") for at in (1, 0, None)]
    assert sample_arness(replace(again, ghosts=tuple(gone)), KS).ties == pytest.approx(3 / 4)
    table = arness([trace("ab", [1, 2], ties=1), trace("ab", [1, 2], sample=1)])
    assert table.ties == pytest.approx(0.5)


def test_the_table(tmp_path: Path) -> None:
    traces = [
        trace("abcd", [1, 2, 3, 4], task_id="a"),
        trace("abcd", [4, 3, 2, 1], task_id="b"),
        trace("abcd", [1, 2, 3, 4], task_id="b", sample=1),
        trace("x", [1], task_id="c"),
        Trace(task_id="d", sample=0, prompt="", text="abc"),
    ]
    table = arness(traces, ks=[1, 2])
    assert table.statuses == {"scored": 3, "too_short": 1, "no_steps": 1}
    cell = table.cells["global@1"]
    assert cell.samples == 3
    assert cell.mean == pytest.approx((1 + 0.25 + 1) / 3)
    assert cell.interval.estimate == pytest.approx(cell.mean)
    assert cell.interval.n == 2
    assert cell.chance == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert cell.mirrored == pytest.approx((0.25 + 1 + 0.25) / 3)
    assert cell.position == pytest.approx((cell.mean - cell.chance) / (1 - cell.chance))
    assert list(table.cells) == ["global@1", "global@2", "local@1", "local@2", "adjacent", "tau"]
    record = table.to_record()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    run = Run.create(tmp_path / "run", RunCard("test", {}))
    run.append(0, traces)
    run.finish()
    assert arness(Run.open(tmp_path / "run"), ks=[1, 2]).to_record() == record
    assert "samples" not in table.to_record(samples=False)


def test_a_run_says_whether_programs_were_looked_for(tmp_path: Path) -> None:
    """One sample has a program, so the other, without one, has no code: not its whole text."""
    traces = [trace("abcd", [1, 2, 3, 4], program="abcd"), trace("abcd", [4, 3, 2, 1], sample=1)]
    run = Run.create(tmp_path / "run", RunCard("test", {}))
    run.append(0, traces)
    run.finish()
    assert arness(Run.open(tmp_path / "run")).statuses == {"scored": 1, "no_program": 1}


def test_nothing_at_all() -> None:
    record = arness([]).to_record()
    assert record["aggregate"]["tau"]["mean"] is None
    assert record["statuses"] == {}


@pytest.mark.parametrize("ks", [[], [0], [1, 1]])
def test_bad_ks_are_refused(ks: list[int]) -> None:
    with pytest.raises(ValueError, match="give different whole numbers from 1 on"):
        arness([], ks=ks)
