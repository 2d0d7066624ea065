"""Packing: what the player would show at every step is what Trace.replay says."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from made_tokenizers import wordpiece
from plain_canvases import MASK, canvases

from anyorder.measure.order_program import OrderProgram, prepare
from anyorder.measure.order_scores import revealed_at
from anyorder.report.traces import FORMAT, NAME_LIMIT, LiveSteps, TraceGroup, embed, pack, pack_tree
from anyorder.trace import Candidate, Ghost, Trace, slot_history
from anyorder.vocab import Vocab

MEGABYTES_OF_A_THOUSAND = 15


def column(packed: Mapping[str, Any], name: str, count: int, absent: int) -> list[Any]:
    values = packed.get(name, absent)
    return values if isinstance(values, list) else [values] * count


def read_canvas(payload: Mapping[str, Any], number: int, step: int) -> list[tuple[int, str | None]]:
    """A second reader of the format, as plain as can be: (slot, what it shows or None)."""
    packed, strings = payload["samples"][number], payload["strings"]
    count = len(packed["piece"])
    insert, reveal = (column(packed, name, count, 0) for name in ("insert", "reveal"))
    ghosts = packed.get("ghosts", {"after": []})
    dead = len(ghosts["after"])
    born, last, gone = (column(ghosts, name, dead, 0) for name in ("insert", "reveal", "delete"))
    shown: list[str | None] = [None] * (count + dead)
    events = packed.get("events")
    if events:
        lists = [value for value in events.values() if isinstance(value, list)]
        size = len(lists[0]) if lists else 1
        rows = [column(events, name, size, 0) for name in ("step", "slot", "piece")]
        for when, slot, piece in zip(*rows, strict=True):
            if when <= step:
                shown[slot] = None if piece < 0 else strings[piece]
    for slot in range(count):
        if reveal[slot] <= step:
            shown[slot] = strings[packed["piece"][slot]]
    for ghost, piece in enumerate(column(ghosts, "piece", dead, 0)):
        if 0 <= last[ghost] <= step:
            shown[count + ghost] = strings[piece]
    canvas = [(slot, slot) for slot in range(count) if insert[slot] <= step]
    canvas += [
        (after + 0.5, count + ghost)
        for ghost, after in enumerate(ghosts["after"])
        if born[ghost] <= step < gone[ghost]
    ]
    return [(slot, shown[slot]) for _, slot in sorted(canvas)]


def replayed(trace: Trace, step: int) -> list[tuple[int, str | None]]:
    moment = trace.replay(step)
    rows = zip(moment.slots.tolist(), moment.pieces, moment.revealed.tolist(), strict=True)
    return [(slot, piece if revealed else None) for slot, piece, revealed in rows]


@given(st.data())
def test_every_step_comes_back(
    trace_strategy: st.SearchStrategy[Trace], data: st.DataObject
) -> None:
    traces = data.draw(st.lists(trace_strategy, min_size=1, max_size=3))
    payload = json.loads(embed(pack([TraceGroup("run", traces)])))
    for number, trace in enumerate(traces):
        assert trace.steps is not None
        assert payload["samples"][number]["steps"] == trace.steps
        for step in range(trace.steps + 1):
            assert read_canvas(payload, number, step) == replayed(trace, step)


def test_seconds_of_a_batch_are_nobodys(groups: list[TraceGroup]) -> None:
    trace = replace(groups[0].traces[0], seconds=0.25)
    for timed in (False, True):
        [packed] = pack([TraceGroup("run", [trace], timed=timed)])["samples"]
        assert packed.get("seconds") == (0.25 if timed else None)


@given(st.data())
def test_numbers_come_back_to_a_thousandth(
    trace_strategy: st.SearchStrategy[Trace], data: st.DataObject
) -> None:
    trace = data.draw(trace_strategy)
    payload = json.loads(embed(pack([TraceGroup("run", [trace])])))
    packed = payload["samples"][0]
    count = len(trace.pieces)
    logp = column(packed, "logp", count, -1)
    for value, back in zip(
        [np.nan] * count if trace.log_prob is None else trace.log_prob, logp, strict=True
    ):
        if np.isnan(value):
            assert back == -1
        else:
            assert abs(value + back / 1000) <= 0.0006
    segment = [-1] * count if trace.segment is None else trace.segment.tolist()
    assert column(packed, "segment", count, -1) == segment


def test_what_a_sample_says_about_itself(groups: list[TraceGroup]) -> None:
    payload = json.loads(embed(pack(groups)))
    strings, first = payload["strings"], payload["samples"][0]
    assert payload["format"] == FORMAT
    assert payload["groups"][first["group"]] == {
        "run": "mdm run",
        "family": "mdm",
        "policy": "confidence",
    }
    assert strings[first["task"]] == "t/0"
    assert strings[first["prompt"]] == "Do it:\n"
    assert strings[first["verdict"]] == "passed"
    assert all("verdict" not in packed for packed in payload["samples"][-5:])
    alone = payload["samples"][-1]
    assert [strings[number] for number in alone["piece"]] == ["x = 1\ny = 2"]
    assert "steps" not in alone


def test_equal_strings_and_trees_stand_once_and_common_pieces_first(
    groups: list[TraceGroup],
) -> None:
    payload = pack(groups)
    assert len(set(payload["strings"])) == len(payload["strings"])
    assert payload["strings"][0] == "plums"  # four times in each program
    trees = {packed["tree"] for packed in payload["samples"] if "tree" in packed}
    assert trees == set(range(len(payload["trees"])))
    assert len(trees) < len(payload["samples"]) / 3
    assert all("tree" not in packed for packed in pack(groups, trees=False)["samples"])


def test_segments_carry_their_scores_and_candidates(groups: list[TraceGroup]) -> None:
    payload = pack(groups)
    (packed,) = [packed for packed in payload["samples"] if "candidates" in packed]
    assert packed["score"] == {"0": 0, "1": -250, "2": -500, "3": -750, "4": -1000}
    found = packed["candidates"]
    (trace,) = [trace for group in groups for trace in group.traces if trace.candidates]
    assert trace.candidates is not None
    for number, candidate in enumerate(trace.candidates):
        assert isinstance(candidate, Candidate)
        assert found["step"][number] == candidate.step
        assert found["segment"][number] == candidate.segment
        assert payload["strings"][found["piece"][number]] == candidate.piece
        assert found["score"][number] == round(1000 * candidate.score)
        assert found["taken"][number] == candidate.taken


def test_a_page_cannot_be_broken_out_of() -> None:
    trace = Trace(task_id="</script>", sample=0, prompt="<!--", text="<script>\u2028\U0001f600")
    text = embed(pack([TraceGroup("<b>", [trace])]))
    assert "<" not in text
    assert text.isascii()
    assert json.loads(text)["strings"][0] == trace.text


def test_a_thousand_traces_are_small() -> None:
    rng = np.random.default_rng(0)
    words = np.array([f" word{number}" for number in range(3000)])
    traces = []
    for number in range(1000):
        pieces = words[rng.integers(0, len(words), 100)].tolist()
        insert = rng.integers(0, 100, 100)
        traces.append(
            Trace(
                task_id=f"task/{number}",
                sample=0,
                prompt=f"A problem of one or two sentences, number {number}. " * 3,
                text="".join(pieces),
                char_end=np.cumsum([len(piece) for piece in pieces]),
                insert_step=insert,
                reveal_step=insert + rng.integers(0, 156, 100),
                log_prob=-rng.exponential(1, 100),
                steps=256,
            )
        )
    size = len(embed(pack([TraceGroup("run", traces)], trees=False)))
    assert size < MEGABYTES_OF_A_THOUSAND * 1_000_000 / 5, "leaves room for the report's own part"


@pytest.mark.parametrize("count", [0, 1])
def test_few_samples(count: int) -> None:
    traces = [Trace(task_id="a", sample=0, prompt="", text="")][:count]
    assert len(pack([TraceGroup("run", traces)])["samples"]) == count


# The packed tree is the tree of the order metrics, in places that a script can use.


def trace_of(pieces: list[str], prompt: str = "") -> Trace:
    return Trace(
        task_id="t",
        sample=0,
        prompt=prompt,
        text="".join(pieces),
        char_end=list(accumulate(map(len, pieces))),
        insert_step=[0] * len(pieces),
        reveal_step=[1 + (7 * i) % len(pieces) for i in range(len(pieces))],
        steps=len(pieces),
    )


class Tree:
    """A packed tree, unpacked as the player does it."""

    def __init__(self, trace: Trace) -> None:
        self.strings: list[str] = []
        packed = pack_tree(trace, self._number)
        assert packed is not None
        self.packed: dict[str, Any] = packed
        self.units = (trace.prompt + trace.text).encode("utf-16-le", "surrogatepass")
        self.kinds = [self.strings[kind] for kind in packed["kind"]]
        self.names = [
            self._slice(at, at + size)
            for at, size in zip(packed["at"], packed["size"], strict=True)
        ]
        self.tokens: list[tuple[int, int]] = []
        end = 0
        for gap, width in zip(packed["gap"], packed["width"], strict=True):
            self.tokens.append((end + gap, end + gap + width))
            end += gap + width
        self.spellings = [self._slice(*span) for span in self.tokens]

    def _number(self, text: str) -> int:
        self.strings.append(text)
        return len(self.strings) - 1

    def _slice(self, start: int, end: int) -> str:
        return self.units[2 * start : 2 * end].decode("utf-16-le", "surrogatepass")


PIECES = ["def f(a):", "\n", "    for x in a", ":\n        y", " = x; z", " = 2\n", "    if a: ret"]
PIECES += ["urn 1\n", "    re", "turn 2\n", "print(f(", "1))"]


def test_nodes_are_named_by_their_own_first_line() -> None:
    tree = Tree(trace_of(PIECES))
    assert tree.packed["depth"] == [0, 1, 2, 3, 3, 2, 3, 2, 1]
    assert tree.names == [
        "",
        "def f(a):",
        "for x in a:",
        "y = x",
        "z = 2",
        "if a:",
        "return 1",
        "return 2",
        "print(f(1))",
    ]
    assert tree.kinds[1:3] == ["FunctionDef", "For"]
    assert tree.strings[tree.packed["found"]] == "whole"


def test_tokens_and_their_steps_are_those_of_the_order_metrics() -> None:
    trace = trace_of(PIECES)
    tree = Tree(trace)
    program = prepare(trace, ["full_output"])
    assert isinstance(program, OrderProgram)
    assert trace.char_end is not None
    assert trace.reveal_step is not None
    end = trace.char_end.astype(np.int64)
    start = np.concatenate([[0], end])[:-1]
    steps = revealed_at(start, end, trace.reveal_step[None].astype(np.int64), program.spans)[0]
    owned = dict(zip(map(tuple, program.spans.tolist()), steps.tolist(), strict=True))
    per_unit = np.repeat(trace.reveal_step, [len(piece) for piece in trace.pieces])
    assert len(tree.tokens) > 30
    for span in tree.tokens:
        assert per_unit[slice(*span)].max() == owned[span]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_places_count_utf16_units(newline: str) -> None:
    tree = Tree(trace_of(["x = '\U0001f600'", newline, "naïve = '\U0001f600\U0001f600'; y = x"]))
    assert tree.names[1:] == ["x = '\U0001f600'", "naïve = '\U0001f600\U0001f600'", "y = x"]
    assert tree.spellings[:3] == ["x", "=", "'\U0001f600'"]


def test_a_program_may_begin_in_its_prompt() -> None:
    tree = Tree(trace_of(["    return", " a"], prompt="def g(a):\n"))
    assert tree.names == ["", "def g(a):", "return a"]
    assert tree.strings[tree.packed["found"]] == "continued"


def test_decorators_do_not_name_their_function_and_long_names_are_cut() -> None:
    tree = Tree(trace_of(["@cache\ndef f():\n    pass\n", "x = " + "1 + " * 60 + "1"]))
    assert tree.names[1] == "def f():"
    assert len(tree.names[-1]) == NAME_LIMIT


@pytest.mark.parametrize("text", ["", "# nothing", "this is no program", "x = \0"])
def test_no_tree_where_there_is_no_program(text: str) -> None:
    assert pack_tree(trace_of([text]), lambda _: 0) is None


def test_the_part_that_parses_says_so() -> None:
    tree = Tree(trace_of(["x = 1\n", "y = 2\n", "if if:\n"]))
    assert tree.names[1:] == ["x = 1", "y = 2"]
    assert tree.strings[tree.packed["found"]] == "longest_lines"


# Live messages: applied one after another they give every canvas that the decoder showed.


VOCAB = Vocab.bytes()


@dataclass
class Canvas:
    """What a decoder shows; `segment` where it reveals segments."""

    step: int
    token_ids: list[int]
    insert_step: list[int]
    log_prob: list[float] = field(default_factory=list)
    segment: list[int] | None = None
    reveal_step: list[int] = field(default_factory=list)
    ghosts: list[Ghost] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log_prob = self.log_prob or [math.nan] * len(self.token_ids)
        self.reveal_step = self.reveal_step or [0] * len(self.token_ids)


def apply(canvas: list[Any], message: dict[str, Any]) -> list[Any]:
    """The message on a canvas of pieces (None: masked), in the documented order."""
    canvas = list(canvas)
    old = [(at, [piece for piece, _ in tokens]) for at, tokens in message.get("replace", [])]
    old += [(at, []) for at in message.get("delete", [])]
    for at, pieces in sorted(old, reverse=True):
        canvas[at : at + 1] = pieces
    for at in message.get("insert", []):
        canvas.insert(at, None)
    for at, piece, _ in message.get("show", []):
        canvas[at] = piece
    for at in message.get("hide", []):
        canvas[at] = None
    return canvas


def only(live: LiveSteps, seen: Canvas) -> dict[str, Any]:
    (message,) = live.messages(seen)
    return message


def ids(text: str) -> list[int]:
    """Letters as ids, `_` as the mask, `$` as the end of sequence."""
    special = {"_": VOCAB.mask_id, "$": VOCAB.eos_id}
    return [special.get(letter, letter.encode()[0]) for letter in text]


@st.composite
def generations(draw: st.DrawFn) -> list[Canvas]:
    """Slots inserted and revealed at any steps, as a decoder shows them step by step."""
    steps = draw(st.integers(0, 6))
    count = draw(st.integers(0, 8))
    spans = [sorted(draw(st.tuples(*[st.integers(0, steps)] * 2))) for _ in range(count)]
    tokens = [draw(st.sampled_from(ids("abc$"))) for _ in range(count)]
    shown = []
    for step in range(steps + 1):
        here = [slot for slot in range(count) if spans[slot][0] <= step]
        open_ids = [tokens[s] if spans[s][1] <= step else VOCAB.mask_id for s in here]
        reveal = [spans[s][1] if spans[s][1] <= step else 0 for s in here]
        insert = [spans[slot][0] for slot in here]
        shown.append(Canvas(step, open_ids, insert, reveal_step=reveal))
    return shown


@given(generations())
def test_messages_rebuild_every_canvas(shown: list[Canvas]) -> None:
    live, canvas = LiveSteps(VOCAB), []
    for seen in shown:
        (message,) = live.messages(seen)
        assert message["step"] == seen.step
        canvas = apply(canvas, message)
        assert [piece is None for piece in canvas] == [
            number == VOCAB.mask_id for number in seen.token_ids
        ]
    last = shown[-1]
    trace = Trace.from_tokens(
        VOCAB,
        last.token_ids,
        prompt_ids=[],
        insert_step=[0] * len(last.token_ids),
        reveal_step=[0] * len(last.token_ids),
    )
    assert canvas == list(trace.pieces)


@given(generations())
def test_the_start_is_told_by_the_first_step(shown: list[Canvas]) -> None:
    whole, late = LiveSteps(VOCAB), LiveSteps(VOCAB)
    told = [message for seen in shown for message in whole.messages(seen)]
    assert [message for seen in shown[1:] for message in late.messages(seen)] == (
        told if shown[1:] else []
    )


@given(canvases(), st.booleans())
def test_slots_may_be_deleted(history: list[Any], late: bool) -> None:
    """The decoder's rows after each step, as it would record them."""
    letters = {MASK: VOCAB.mask_id, **{token: ids("abcdef")[token] for token in range(6)}}
    live, canvas = LiveSteps(VOCAB), []
    for step in range(late, len(history)):
        found = slot_history(history[: step + 1], MASK)
        seen = Canvas(
            step,
            [letters[token] for token in found.token_ids],
            found.insert_step,
            reveal_step=found.reveal_step,
            ghosts=[
                ghost
                if ghost.token_id is None
                else ghost._replace(token_id=letters[ghost.token_id])
                for ghost in found.ghosts
            ],
        )
        for message in live.messages(seen):
            canvas = apply(canvas, message)
        text = "".join("_" if token == MASK else "abcdef"[token] for _, token in history[step])
        assert "".join(piece or "_" for piece in canvas) == text


def test_segments_may_be_deleted() -> None:
    live = LiveSteps(VOCAB)
    only(live, Canvas(0, ids("__"), [0, 0], segment=[0, 1]))
    only(live, Canvas(1, ids("ab_"), [0, 0, 0], segment=[0, 0, 1]))
    gone = [Ghost(-1, 0, 1, 2, 97, None), Ghost(-1, 0, 1, 2, 98, None)]
    message = only(live, Canvas(2, ids("xyz"), [0, 0, 0], segment=[0, 0, 0], ghosts=gone))
    assert message == {
        "step": 2,
        "replace": [[2, [["x", -1], ["y", -1], ["z", -1]]]],
        "delete": [0, 1],
    }
    assert apply(["a", "b", None], message) == ["x", "y", "z"]
    with pytest.raises(ValueError, match="one that deletes slots `ghosts`"):
        only(live, Canvas(3, [], [], segment=[]))


def test_nothing_is_said_of_what_stays() -> None:
    live = LiveSteps(VOCAB)
    first = only(live, Canvas(0, ids("a__"), [0, 0, 0]))
    assert first == {"step": 0, "insert": [0, 1, 2], "show": [[0, "a", -1]]}
    second = only(live, Canvas(1, ids("a_bc"), [0, 0, 1, 0], [math.nan, math.nan, -0.5, -2.0]))
    assert second == {"step": 1, "insert": [2], "show": [[2, "b", 500], [3, "c", 2000]]}
    assert only(live, Canvas(2, ids("a_bc"), [0, 0, 1, 0])) == {"step": 2}
    assert only(live, Canvas(3, ids("a_b_"), [0, 0, 1, 0])) == {"step": 3, "hide": [3]}


def test_words_after_a_mask_keep_their_space() -> None:
    vocab = Vocab.from_transformers(wordpiece())
    words = vocab.encode("def return")
    assert len(words) == 2, "two pieces, each a word"
    live, mask = LiveSteps(vocab), vocab.mask_id
    only(live, Canvas(0, [mask, mask], [0, 0]))
    assert only(live, Canvas(1, [mask, words[1]], [0, 0]))["show"] == [[1, " return", -1]]
    assert only(live, Canvas(2, words, [0, 0]))["show"] == [[0, "def", -1]]


def test_every_end_of_a_vocabulary_cuts() -> None:
    vocab = Vocab.from_transformers(wordpiece(), ends=["[CLS]"])
    [word] = vocab.encode("def")
    ends = vocab.end_ids
    assert len(ends) == 2 and [vocab.end_of([word, end, word]) for end in ends] == [1, 1]
    assert vocab.end_of([word, word]) == 2
    live = LiveSteps(vocab)
    only(live, Canvas(0, [vocab.mask_id] * 3, [0] * 3))
    shown = only(live, Canvas(1, [word, ends[1], word], [0] * 3))["show"]
    assert shown == [[0, "def", -1], [1, "", -1], [2, "", -1]]


def test_what_stands_after_the_end_has_no_text() -> None:
    live = LiveSteps(VOCAB)
    only(live, Canvas(0, ids("___"), [0, 0, 0]))
    assert only(live, Canvas(1, ids("_$b"), [0, 0, 0]))["show"] == [[1, "", -1], [2, "", -1]]
    assert only(live, Canvas(2, ids("a$b"), [0, 0, 0]))["show"] == [[0, "a", -1]]


def test_what_stands_after_an_end_that_may_change_is_shown() -> None:
    live = LiveSteps(VOCAB, cuts=False)
    only(live, Canvas(0, ids("___"), [0, 0, 0]))
    assert only(live, Canvas(1, ids("a$b"), [0, 0, 0]))["show"] == [
        [0, "a", -1],
        [1, "", -1],
        [2, "b", -1],
    ]


def test_a_character_of_two_bytes_waits_for_its_second() -> None:
    live = LiveSteps(VOCAB)
    first, second = "é".encode()
    only(live, Canvas(0, ids("__"), [0, 0]))
    assert only(live, Canvas(1, [first, *ids("_")], [0, 0]))["show"] == [[0, "\ufffd", -1]]
    assert only(live, Canvas(2, [first, second], [0, 0]))["show"] == [[0, "é", -1], [1, "", -1]]


def test_segments_are_replaced_by_their_tokens() -> None:
    live, canvas = LiveSteps(VOCAB), []
    shown = [
        Canvas(0, ids("__"), [0, 0], segment=[0, 1]),
        Canvas(1, ids("_xy"), [0, 0, 0], segment=[0, 1, 1]),
        Canvas(2, ids("_abxy"), [2, 0, 0, 0, 0], segment=[0, 1, 1, 2, 2]),
        Canvas(3, ids("$abxy"), [2, 0, 0, 0, 0], segment=[0, 1, 1, 2, 2]),
    ]
    messages = [only(live, seen) for seen in shown]
    assert messages[1] == {"step": 1, "replace": [[1, [["x", -1], ["y", -1]]]]}
    assert messages[2] == {"step": 2, "replace": [[0, [["a", -1], ["b", -1]]]], "insert": [0]}
    for message in messages:
        canvas = apply(canvas, message)
    assert canvas == ["", "a", "b", "x", "y"]


def test_segments_that_came_in_the_first_step_were_open_before() -> None:
    shown = Canvas(1, ids("ab_xy"), [0] * 5, segment=[0, 0, 1, 2, 2], reveal_step=[1, 1, 0, 0, 0])
    start, first = LiveSteps(VOCAB).messages(shown)
    assert apply([], start) == [None, None, "x", "y"]
    assert apply(apply([], start), first) == ["a", "b", None, "x", "y"]


def test_a_canvas_that_does_not_fit_is_refused() -> None:
    live = LiveSteps(VOCAB)
    only(live, Canvas(0, ids("__"), [0, 0]))
    with pytest.raises(ValueError, match="must say `segment`"):
        only(live, Canvas(1, ids("abc_"), [0, 0, 0, 0]))
