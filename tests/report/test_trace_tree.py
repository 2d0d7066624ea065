"""The packed tree is the tree of the order metrics, in places that a script can use."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from anyorder.measure.order_program import OrderProgram, prepare
from anyorder.measure.order_scores import revealed_at
from anyorder.report.traces import NAME_LIMIT, pack_tree
from anyorder.trace import Trace


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
