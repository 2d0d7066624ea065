"""Trace: its checks, pieces, order, and building it from ids."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from anyorder.trace import Candidate, Event, Trace
from anyorder.trace.trace import Proposal
from anyorder.vocab import Vocab


def test_pieces_are_slices_of_the_text(make_trace: Any) -> None:
    assert make_trace().pieces == ("a", "bc", "", "de")


def test_order_is_by_reveal_step_then_left_to_right(make_trace: Any) -> None:
    assert make_trace(reveal_step=[3, 2, 2, 1]).order().tolist() == [3, 1, 2, 0]


def test_columns_have_their_stored_types_and_cannot_be_changed(make_trace: Any) -> None:
    given_ids = np.array([10, 11, 12, 13])
    trace = make_trace(token_ids=given_ids, log_prob=[-1, -2, np.nan, 0])
    assert trace.token_ids.dtype == trace.insert_step.dtype == np.int32
    assert trace.log_prob.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        trace.token_ids[0] = 1
    given_ids[0] = 99
    assert trace.token_ids[0] == 10


def test_equality_looks_at_every_column(make_trace: Any) -> None:
    assert make_trace(log_prob=[np.nan, -1, -1, -1]) == make_trace(log_prob=[np.nan, -1, -1, -1])
    for change in (
        {"sample": 1},
        {"token_ids": [10, 11, 12, 14]},
        {"reveal_step": [3, 2, 4, 2]},
        {"log_prob": [-1, -1, -1, -1]},
        {"steps": 5},
        {"seconds": 1.0},
        {"events": [Event(0, 0, None, None)]},
        {"score": [-1, -1, np.nan, -1]},
        {"candidates": [Candidate(1, 0, (10,), "a", None, False)]},
    ):
        assert make_trace(**change) != make_trace()
    assert make_trace() != "abcde"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task_id": 3}, "task_id: a string"),
        ({"sample": True}, "sample: a whole number"),
        ({"sample": -1}, "sample = -1 is outside"),
        ({"sample": None}, "sample: a whole number"),
        ({"text": None}, "text: a string"),
        ({"prompt": "\ud83d"}, "prompt: character 0 is half a surrogate pair"),
        ({"token_ids": [1, 2, 3]}, "token_ids has 3 entries for 4 tokens"),
        ({"token_ids": [1, 2, 3, -4]}, r"token_ids\[3\] = -4"),
        ({"token_ids": [1.0, 2.0, 3.0, 4.0]}, "token_ids: whole numbers"),
        ({"token_ids": [True, False, True, True]}, "token_ids: whole numbers"),
        ({"token_ids": [[1, 2, 3, 4]]}, "token_ids: a flat list"),
        ({"token_ids": [1, 2, 3, 2**31]}, r"token_ids\[3\] = 2147483648"),
        ({"prompt_ids": None}, "prompt_ids and token_ids go together"),
        ({"char_end": [1, 3, 2, 5]}, r"char_end\[2\] = 2 is before char_end\[1\] = 3"),
        ({"char_end": [1, 3, 3, 4]}, "char_end ends at 4 but the text has 5"),
        ({"char_end": None}, "token_ids is given but char_end is not"),
        ({"insert_step": None}, "insert_step and reveal_step go together"),
        ({"insert_step": [0, 2, 5, 0]}, r"reveal_step\[2\] = 4 is before insert_step\[2\] = 5"),
        ({"reveal_step": [5, 2, 4, 1]}, r"reveal_step\[0\] = 5 is after the last step"),
        ({"steps": None}, "steps is needed"),
        ({"steps": -1}, "steps = -1"),
        ({"log_prob": [0.5, -1, -1, -1]}, r"log_prob\[0\] = 0.5 is no log-probability"),
        ({"log_prob": [-1, -np.inf, -1, -1]}, r"log_prob\[1\]"),
        ({"log_prob": [-1, -1e300, -1, -1]}, r"log_prob\[1\]"),
        ({"log_prob": ["-1", "-1", "-1", "-1"]}, "log_prob: numbers"),
        ({"segment": [0, 0, 0, -2]}, r"segment\[3\] = -2"),
        ({"seconds": -1.0}, "seconds = -1.0"),
        ({"seconds": float("nan")}, "seconds = nan"),
        ({"seconds": "1"}, "seconds: a number"),
        ({"ties": 1.5}, "ties: a whole number"),
        ({"seed": 2**63}, "seed = "),
        (
            {"events": [Event(3, 0, None, None)]},
            r"events\[0\].step = 3, but slot 0 .* revealed at 3",
        ),
        (
            {"events": [Event(0, 2, None, None)]},
            r"events\[0\].step = 0, but slot 2 is inserted at 1",
        ),
        ({"events": [Event(0, 4, None, None)]}, r"events\[0\].slot = 4, but there are 4"),
        ({"events": [Event(0, 0, None, "x")]}, r"events\[0\].token_id"),
        ({"events": [Event(0, 0, 5, None)]}, r"events\[0\].token_id"),
        ({"events": [Event(1, 0, None, None), Event(0, 0, 5, "x")]}, r"events\[1\]: sort"),
        ({"score": [1, 2, 3]}, "score has 3 entries for 4 tokens"),
        ({"score": [1, np.inf, 3, 4]}, r"score\[1\] = inf is no score"),
        ({"score": ["1"] * 4}, "score: numbers are needed"),
        ({"candidates": [(0, 0, (), "", -1.0, True)]}, r"candidates\[0\].step = 0 is outside 1"),
        ({"candidates": [(5, 0, (), "", -1.0, True)]}, r"\[0\].step = 5, but there are 4 steps"),
        ({"candidates": [(1, -1, (), "", -1.0, True)]}, r"candidates\[0\].segment = -1"),
        ({"candidates": [(1, 0, (-2,), "", -1.0, True)]}, r"\[0\].token_ids\[0\] = -2"),
        ({"candidates": [(1, 0, (), None, -1.0, True)]}, r"\[0\].piece: a string"),
        ({"candidates": [(1, 0, (), "", -np.inf, True)]}, r"\[0\].score\[0\] = -inf"),
        ({"candidates": [(1, 0, (), "", -1.0, 1)]}, r"\[0\].taken: true or false"),
        ({"candidates": [(1, 0, None, "", -1.0, True)]}, r"\[0\].token_ids: give it where"),
        ({"candidates": [(1, 1, (), "", 0, True), (1, 1, (), "", 0, True)]}, r"\[1\]: sort"),
        ({"candidates": [(2, 1, (), "", 0, True), (1, 2, (), "", 0, True)]}, r"\[1\]: sort"),
        (
            {"segment": [0, 0, 1, 2], "candidates": [(1, 3, (), "", 0, False)]},
            r"\[0\].segment = 3, which no token belongs to",
        ),
        (
            {"segment": [0, 1, 2, 3], "candidates": [(2, 3, (13,), "de", 0, True)]},
            r"segment 3 is taken in step 2, but was revealed in step 1",
        ),
    ],
)
def test_wrong_values_are_refused_by_column(
    make_trace: Any, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make_trace(**changes)
    assert str(caught.value).startswith("trace ")


def test_what_a_decoder_proposed_is_spelled() -> None:
    vocab = Vocab.bytes()
    proposed = [
        Proposal(1, 0, [*b"x=1\n"], -0.1, False),
        Proposal(1, 1, [], -0.05, True),
        Proposal(2, 0, [*b"x=2\n"], float("nan"), True),
    ]
    trace = Trace.from_tokens(
        vocab,
        [*b"x=2\n", vocab.eos_id],
        prompt_ids=[],
        insert_step=[0] * 5,
        reveal_step=[2] * 4 + [1],
        segment=np.array([0, 0, 0, 0, 1]),
        score=np.array([np.nan] * 4 + [-0.05]),
        candidates=proposed,
    )
    assert trace.candidates is not None
    assert [each.piece for each in trace.candidates] == ["x=1\n", "", "x=2\n"]
    assert [each.score for each in trace.candidates] == [
        *(float(np.float32(-0.1)), float(np.float32(-0.05)), None),
    ]
    assert [each.taken for each in trace.candidates] == [False, True, True]
    assert trace.candidates[0].token_ids == tuple(b"x=1\n")
    plain = Trace.from_tokens(
        None, [5], prompt_ids=[], insert_step=[0], reveal_step=[2], candidates=proposed[:1]
    )
    assert plain.candidates is not None
    assert plain.candidates[0].piece == "<120><61><49><10>"


def test_candidates_need_tokens_with_steps() -> None:
    given: Any = {"task_id": "t", "sample": 0, "prompt": "", "text": "ab"}
    candidates: Any = [Candidate(1, 0, None, "a", None, True)]
    with pytest.raises(ValueError, match="candidates is given but char_end is not"):
        Trace(**given, candidates=candidates)
    with pytest.raises(ValueError, match="has text but no steps"):
        Trace(**given, char_end=[1, 2], candidates=candidates)  # type: ignore[arg-type]


def test_text_alone_is_a_trace_without_an_order() -> None:
    trace = Trace(task_id="t", sample=0, prompt="", text="print(1)")
    for use in (trace.order, lambda: trace.replay(0)):
        with pytest.raises(ValueError, match=r"'t' sample 0 has text but no steps.*import it with"):
            use()
    with pytest.raises(ValueError, match="no tokens"):
        _ = trace.pieces


def test_no_tokens_at_all_is_an_empty_text() -> None:
    trace = Trace.from_tokens(Vocab.bytes(), [], prompt_ids=[], insert_step=[], reveal_step=[])
    assert (trace.text, trace.pieces, trace.steps, str(trace.replay(0))) == ("", (), 0, "")


def test_text_stops_at_the_first_end_of_sequence() -> None:
    vocab = Vocab.bytes()
    ids = [*b"ab", vocab.pad_id, *b"c", vocab.eos_id, *b"d", vocab.eos_id]
    trace = Trace.from_tokens(
        vocab,
        ids,
        prompt_ids=list(b"hi"),
        insert_step=[0] * 7,
        reveal_step=range(1, 8),
        task_id="x/1",
        family="mdm",
    )
    assert (trace.text, trace.prompt, trace.steps) == ("abc", "hi", 7)
    assert trace.char_end is not None
    assert trace.char_end.tolist() == [1, 2, 2, 3, 3, 3, 3]
    assert trace.pieces == ("a", "b", "", "c", "", "", "")
    assert (trace.task_id, trace.sample, trace.family) == ("x/1", 0, "mdm")


def test_a_token_ends_with_the_last_character_it_touches() -> None:
    ids = list("aé€b".encode())  # 1 + 2 + 3 + 1 bytes
    zeros = [0] * len(ids)
    trace = Trace.from_tokens(
        Vocab.bytes(), ids, prompt_ids=[], insert_step=zeros, reveal_step=zeros
    )
    assert trace.char_end is not None
    assert trace.char_end.tolist() == [1, 2, 2, 3, 3, 3, 4]
    assert trace.pieces == ("a", "é", "", "€", "", "", "b")


@given(st.lists(st.integers(0, 259), max_size=20))
def test_any_bytes_make_a_trace_whose_pieces_are_its_text(ids: list[int]) -> None:
    vocab = Vocab.bytes()
    steps = list(range(len(ids)))
    trace = Trace.from_tokens(vocab, ids, prompt_ids=[], insert_step=steps, reveal_step=steps)
    stop = ids.index(vocab.eos_id) if vocab.eos_id in ids else len(ids)
    assert "".join(trace.pieces) == trace.text == vocab.decode(ids[:stop])
    assert len(trace.pieces) == len(ids)


def test_without_a_vocabulary_ids_show_as_numbers() -> None:
    trace = Trace.from_tokens(None, [5, 17], prompt_ids=[3], insert_step=[0, 0], reveal_step=[1, 2])
    assert (trace.prompt, trace.text, trace.pieces) == ("<3>", "<5><17>", ("<5>", "<17>"))


def test_traces_are_read_without_torch() -> None:
    code = "import sys, anyorder.trace; sys.exit('torch' in sys.modules or 'pandas' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)


def test_a_trace_says_briefly_what_it_is(make_trace: Any) -> None:
    assert repr(make_trace()) == "Trace(task_id='t', sample=0, steps=4, text='abcde')"
    long = Trace(task_id="t", sample=1, prompt="p", text="word\n" * 9)
    shown = r"'word\nword\nword\nword\nword\nword\nword\nword\n'"
    assert repr(long) == f"Trace(task_id='t', sample=1, steps=None, text={shown}...)"


# Replay: each moment of a trace, also where slots were masked again.


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
