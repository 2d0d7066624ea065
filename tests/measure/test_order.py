"""Order metrics of traces: from text and steps to the table, with controls and statuses."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from anyorder.measure.order_nodes import METRICS, UNSEEN
from anyorder.measure.order_scores import CONTROLS, order, reveal_steps, revealed_at
from anyorder.trace import Event, Run, RunCard, Trace

TEXT = "def f(x):\n    a = 1\n    b = 2\n    return a + b"
TESTS = "\n\nprint(f(1))\nassert f(2)\n"


def trace(text: str, steps: list[int] | None = None, **changes: Any) -> Trace:
    """One token per character, from left to right unless told."""
    reveal = list(range(1, len(text) + 1)) if steps is None else steps
    columns: dict[str, Any] = {
        "task_id": "t",
        "sample": 0,
        "prompt": "",
        "text": text,
        "char_end": list(range(1, len(text) + 1)),
        "insert_step": [0] * len(text),
        "reveal_step": reveal,
        "steps": max(reveal, default=0),
        "entry_point": "f",
    }
    return Trace(**{**columns, **changes})


def means(record: dict[str, Any], scope: str = "full_output", part: str = "split_only") -> Any:
    return record["samples"][0]["scopes"][scope][part]


def measured(*traces: Trace, **options: Any) -> dict[str, Any]:
    record = order(traces, **options).to_record()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    return record


def test_left_to_right_by_hand() -> None:
    """docs/order.md works this example: one block after the other, 1/3 opened at a time."""
    record = measured(trace(TEXT))
    assert means(record) == pytest.approx({"cbc": 1 / 3, "rub": 0, "rub_plus": 0, "obw": 1 / 3})
    assert means(record, part="overall") == pytest.approx(
        {"cbc": 2 / 3, "rub": 0.5, "rub_plus": 0.5, "obw": 2 / 3}
    )
    (sample,) = record["samples"]
    assert (sample["status"], sample["fallback"]) == ("parsed", "whole")
    assert [node["node"] for node in sample["scopes"]["full_output"]["nodes"]] == [0, 1]
    assert sample["scopes"]["full_output"]["nodes"][1] == {
        "node": 1,
        "kind": "FunctionDef",
        "label": "FunctionDef: f",
        "depth": 1,
        "child_count": 3,
        "visits": {"2": 1, "3": 1, "4": 1},
        **means(record),
    }


def test_a_python_token_waits_for_its_last_piece() -> None:
    """Tokens of the trace and of Python do not line up; the last that overlaps decides."""
    start, end = np.array([0, 2, 5]), np.array([2, 5, 6])
    steps = np.array([[3, 1, 2], [1, 2, 3]])
    spans = np.array([[0, 1], [1, 3], [2, 5], [4, 6], [0, 6], [6, 7], [-3, 0], [-1, 1]])
    expected = [[3, 3, 1, 2, 3, UNSEEN, UNSEEN, 3], [1, 2, 2, 3, 3, UNSEEN, UNSEEN, 1]]
    assert revealed_at(start, end, steps, spans).tolist() == expected
    assert revealed_at(start, end, steps, spans[:0]).shape == (2, 0)


@given(st.data())
def test_overlaps_agree_with_a_loop(data: st.DataObject) -> None:
    widths = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=8))
    end = np.cumsum(widths)
    start = end - widths
    steps = np.array([data.draw(st.permutations(range(1, len(widths) + 1)))])
    places = st.integers(-3, int(end[-1]) + 3)
    spans = [sorted(data.draw(st.tuples(places, places), label="span")) for _ in range(4)]
    spans = [span for span in spans if span[0] < span[1]]
    found = revealed_at(start, end, steps, np.array(spans, dtype=np.int64).reshape(-1, 2))
    for column, (first, after) in enumerate(spans):
        overlapping = [
            int(step)
            for a, b, step in zip(start, end, steps[0], strict=True)
            if a < after and b > first
        ]
        assert found[0, column] == max(overlapping, default=UNSEEN)


def test_tokens_without_text_are_passed_over() -> None:
    """An end of sequence inside the canvas, revealed first or last, changes nothing."""
    plain = measured(trace(TEXT), controls=())
    ends = [*range(1, 11), 10, *range(11, len(TEXT) + 1), len(TEXT)]
    reveal = [*range(1, 11), 99, *range(11, len(TEXT) + 1), 1]
    odd = trace(TEXT, reveal, char_end=ends, insert_step=[0] * len(ends))
    assert means(measured(odd, controls=())) == means(plain)


def test_a_changed_mind_counts_when_the_final_token_comes() -> None:
    """For exact; the release takes the first token that a slot ever showed."""
    steps = list(range(1, len(TEXT) + 1))
    at = TEXT.index("1")
    late = [*steps[:at], len(TEXT) + 1, *steps[at + 1 :]]
    again = trace(TEXT, late, events=(Event(at + 1, at, None, "7"), Event(at + 2, at, None, None)))
    assert reveal_steps(again)[at] == len(TEXT) + 1
    assert reveal_steps(again, first_shown=True)[at] == at + 1
    assert means(measured(again))["rub"] == pytest.approx(1 / 3)
    assert means(measured(again, mode="compat"))["rub"] == 0


def test_noise_that_a_canvas_began_with_was_shown_by_no_step() -> None:
    """duo: every slot shows a token at step 0, and is generated all the same."""
    steps = list(range(1, len(TEXT) + 1))
    noise = tuple(Event(0, at, None, "7") for at in range(len(TEXT)))
    at = TEXT.index("1")
    noisy = trace(TEXT, steps, events=(*noise, Event(2, at, None, "8")))
    first = reveal_steps(noisy, first_shown=True)
    assert first.tolist() == [*steps[:at], 2, *steps[at + 1 :]]
    sample = measured(trace(TEXT, steps, events=noise), mode="compat")["samples"][0]
    assert sample["status"] == measured(trace(TEXT, steps), mode="compat")["samples"][0]["status"]
    assert means(measured(trace(TEXT, steps, events=noise), mode="compat")) == means(
        measured(trace(TEXT, steps), mode="compat")
    )


def test_scopes() -> None:
    record = measured(trace(TEXT + TESTS))
    nodes = {
        scope: [node["node"] for node in values["nodes"]]
        for scope, values in record["samples"][0]["scopes"].items()
    }
    assert nodes == {"full_output": [0, 1], "code_only": [0, 1], "entry_only": [1]}
    split = {scope: values["split"] for scope, values in record["samples"][0]["scopes"].items()}
    assert split == {"full_output": 2, "code_only": 1, "entry_only": 1}
    assert record["samples"][0]["scopes"]["code_only"]["excluded"] == [5]
    assert means(record)["cbc"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert means(record, "code_only")["cbc"] == pytest.approx(1 / 3)


def test_exact_does_not_exclude_by_the_words_of_a_label() -> None:
    text = "def f(examples):\n    reference = 1\n    for e in examples:\n        reference += e\n"
    exact = measured(trace(text))["samples"][0]["scopes"]["code_only"]
    compat = measured(trace(text), mode="compat")["samples"][0]["scopes"]["code_only"]
    assert (exact["excluded"], exact["nonleaf"]) == ([], 3)
    assert (compat["excluded"], compat["nonleaf"]) == ([2, 3, 4], 1)


def test_entry_points() -> None:
    text = "class Solution:\n    def f(self):\n        a = 1\n        return a\n" + TEXT
    for entry, mode, first in (
        ("f", "exact", 5),
        ("f", "compat", 5),
        ("Solution.f", "exact", 2),
        ("Solution.f", "compat", None),
        ("g", "exact", None),
        (None, "exact", None),
    ):
        record = measured(trace(text, entry_point=entry), mode=mode)
        scope = record["samples"][0]["scopes"]["entry_only"]
        assert (scope and scope["nodes"][0]["node"]) == first
        assert record["aggregate"]["entry_only"]["split_only"]["cbc"]["samples"] == (
            first is not None
        )


def test_a_text_that_goes_on_from_its_prompt() -> None:
    """exact reads both; what the prompt gave is given. The release sees a broken program."""
    prompt = 'def f(x):\n    """Add."""\n    first = 0\n'
    body = "    a = 1\n    b = 2\n    return a + b\n"
    record = measured(trace(body, prompt=prompt))
    (sample,) = record["samples"]
    assert (sample["status"], sample["fallback"]) == ("parsed", "continued")
    (_, node) = sample["scopes"]["full_output"]["nodes"]
    assert (node["kind"], node["child_count"]) == ("FunctionDef", 3)  # not `first`
    assert node["cbc"] == pytest.approx(1 / 3)
    broken = measured(trace(body, prompt=prompt), mode="compat")["samples"][0]
    assert (broken["status"], broken["fallback"]) == ("fallback", "longest_lines")


@pytest.mark.parametrize(
    ("prompt", "body"),
    [
        ("def f(x):\n", "    return x\n"),
        ("def f(x):\n    return", " x + 1\n"),
        ("def f(x):", "\n    for a in x:\n        a\n"),
    ],
)
def test_indented_text_goes_on_even_if_it_parses_without_its_indentation(
    prompt: str, body: str
) -> None:
    """Stripped, each of these is a program of its own; after its prompt it is a function's body."""
    (sample,) = measured(trace(body, prompt=prompt))["samples"]
    assert sample["fallback"] == "continued"
    assert sample["scopes"]["entry_only"]["nonleaf"] >= 1
    for other in ("Write a function.", ""):
        (alone,) = measured(trace(body, prompt=other))["samples"]
        assert alone["fallback"] == "whole"


@pytest.mark.parametrize(
    ("text", "changes", "status"),
    [
        ("x = (", {}, "unparsable"),
        ("", {}, "empty"),
        ("# nothing\n", {}, "empty"),
        ("x = '\0'", {}, "null_bytes"),
        ("x = " + "-" * 600 + "1", {}, "too_deep"),
        (TEXT, {"reveal_step": None, "insert_step": None, "steps": None}, "no_steps"),
        (TEXT, {"reveal_step": [0] * len(TEXT)}, "given"),
        ("Sure:\n```python\nx = 1\ny = 2\n```\n", {}, "fallback"),
        ("x = 1\ny = 2\n", {}, "parsed"),
        ("'only a docstring'\n", {}, "parsed"),
    ],
)
def test_every_sample_has_a_status(text: str, changes: dict[str, Any], status: str) -> None:
    record = measured(trace(text, **changes), trace(TEXT, sample=1))
    assert record["samples"][0]["status"] == status
    assert sum(record["statuses"].values()) == len(record["samples"]) == 2
    scored = record["aggregate"]["full_output"]["overall"]["cbc"]["samples"]
    assert scored == 1 + (status in ("fallback", "parsed") and "docstring" not in text)


def test_the_release_misaligns_what_it_cannot_find() -> None:
    """A spelled special token inside the body: flagged, and scored as the release would."""
    text = TEXT.replace("1\n", "1<|endoftext|>\n")
    steps = list(range(2, len(text) + 2))
    steps[TEXT.index("b")] = 1  # a character of the special token, taken for the `b`
    record = measured(trace(text, steps), mode="compat")
    assert record["misaligned"] == 1
    assert record["samples"][0]["misaligned"] is True
    assert means(record)["cbc"] == pytest.approx(2 / 3)
    assert measured(trace(text, steps))["misaligned"] == 0


def test_the_first_of_two_equal_programs_is_the_release_s_choice() -> None:
    """The same two lines stand before the fence, and are taken for the program in it."""
    text = "a = 1\nb = 2 ?\n```python\na = 1\nb = 2\n```"
    steps = list(range(1, len(text) + 1))
    steps[text.rindex("1")] = 99  # the fenced `a` is finished last
    exact, compat = (measured(trace(text, steps), mode=mode) for mode in ("exact", "compat"))
    assert [r["samples"][0]["fallback"] for r in (exact, compat)] == ["fenced", "fenced"]
    assert (means(exact)["rub"], means(compat)["rub"]) == (0.5, 0)


def test_published_aggregation_is_over_samples_and_intervals_are_over_tasks() -> None:
    """Tasks with unequal numbers of samples: score, interval, controls, position of one mean."""
    backwards = list(range(len(TEXT), 0, -1))
    shuffled = np.random.default_rng(0).permutation(len(TEXT)) + 1
    traces = [
        trace(TEXT, shuffled.tolist(), task_id="a", sample=0),
        trace(TEXT, task_id="b", sample=0),
        trace(TEXT, backwards, task_id="b", sample=1),
        trace("x = 1\n", task_id="b", sample=2),  # no node with two children
    ]
    table = order(traces)
    cell = table.cells["full_output", "split_only", "cbc"]
    assert cell.samples == 3
    first = table.samples[0].scopes["full_output"]
    assert first is not None
    top = first.means[1, 0]
    assert cell.mean == pytest.approx((top + 1 / 3 + 1 / 3) / 3)
    assert cell.interval.estimate == pytest.approx(cell.mean)
    assert cell.interval.n == 2
    low, high = cell.controls["left_to_right"], cell.controls["random"]
    assert cell.position is not None
    assert cell.position.estimate == pytest.approx((cell.mean - low) / (high - low))
    assert table.cells["full_output", "overall", "cbc"].samples == 4


def test_depths() -> None:
    text = "def f(x):\n    if x:\n        a = 1\n        b = 2\n    return x\n"
    rows = measured(trace(text), trace("x = 1\ny = 2\n", sample=1))["aggregate"]["full_output"]
    assert [(row["depth"], row["nodes"], row["samples"]) for row in rows["depth"]] == [
        (0, 2, 2),
        (1, 1, 1),
        (2, 1, 1),
    ]
    assert rows["depth"][0]["overall"]["cbc"] == pytest.approx((1 + 0.5) / 2)
    assert rows["depth"][0]["split_only"]["cbc"] == pytest.approx(0.5)
    assert rows["depth"][2]["split_only"] == pytest.approx(
        {"cbc": 0.5, "rub": 0, "rub_plus": 0, "obw": 0.5}
    )
    for row in rows["depth"]:  # written from left to right, as its control is
        for part in ("overall", "split_only"):
            assert row["controls"]["left_to_right"][part] == pytest.approx(row[part])
    at_random = rows["depth"][0]["controls"]["random"]["overall"]
    assert at_random["rub"] > rows["depth"][0]["overall"]["rub"]


def test_a_run_folder_and_its_traces_give_the_same(tmp_path: Path) -> None:
    traces = [trace(TEXT, sample=n) for n in range(3)]
    run = Run.create(tmp_path / "run", RunCard("test", {}))
    run.append(0, traces)
    run.finish()
    assert order(Run.open(tmp_path / "run")).to_record() == order(traces).to_record()
    short = order(traces).to_record(samples=False)
    assert "samples" not in short and short["statuses"] == {"parsed": 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "Exact"}, "no mode 'Exact': choose one of exact, compat"),
        ({"scopes": ["all"]}, "no scope 'all': choose one of full_output"),
        ({"controls": ["l2r"]}, "no control 'l2r': choose one of left_to_right"),
        ({"seeds": []}, "seeds is empty"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        order([], **options)


def test_no_samples_at_all() -> None:
    record = measured()
    assert record["statuses"] == {}
    cell = record["aggregate"]["full_output"]["overall"]["obw"]
    assert (cell["mean"], cell["samples"], cell["position"]["estimate"]) == (None, 0, None)


def test_too_many_pairs_are_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyorder.measure.order_program.MOST_PAIRS", 10)
    assert measured(trace(TEXT))["statuses"] == {"too_large": 1}


def test_names() -> None:
    assert METRICS == ("cbc", "rub", "rub_plus", "obw")
    whole = {"left_to_right", "right_to_left", "random", "segments"}
    assert set(CONTROLS) == whole | {"left_to_right_in_blocks", "random_in_blocks"}
    assert math.isnan(order([trace("x = 1")]).cells["full_output", "split_only", "cbc"].mean)
