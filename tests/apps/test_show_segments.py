"""The generation trace in a terminal: what stands where, and how strongly."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from anyorder.apps.show import REVEALED, STRENGTHS, TAKEN, print_segments, segment_frames
from anyorder.trace import Trace
from anyorder.trace.trace import Proposal
from anyorder.vocab import Vocab

VOCAB = Vocab.bytes()
LINES = ("a = 3\n", "b = a + 2\n", "print(b)\n", "")
REVEALS = (4, 3, 1, 2)


def made(candidates: bool = True, insert: tuple[int, ...] = (0, 0, 0, 0)) -> Trace:
    """The trace of docs/traces.md: the last line, the end, the middle, the first."""
    proposed = [
        (1, 0, "x\n", -2.0),
        (1, 1, "b = 1\n", -1.0),
        (1, 2, LINES[2], -0.1),
        (1, 3, "", -0.25),
        (2, 0, "a = 3\n", -0.6),
        (2, 1, "b = a\n", -0.7),
        (2, 3, "", -0.05),
        (3, 0, LINES[0], -0.52),
        (3, 1, LINES[1], -0.08),
        (4, 0, LINES[0], float("nan")),
    ]
    ids = [[*VOCAB.encode(line)] or [VOCAB.eos_id] for line in LINES]
    owner = np.repeat(np.arange(4), [len(each) for each in ids])
    return Trace.from_tokens(
        VOCAB,
        [token for each in ids for token in each],
        prompt_ids=VOCAB.encode("Q\n"),
        insert_step=np.asarray(insert)[owner],
        reveal_step=np.asarray(REVEALS)[owner],
        segment=owner,
        task_id="t/1",
        candidates=[
            Proposal(step, slot, [*VOCAB.encode(text)], score, REVEALS[slot] == step)
            for step, slot, text, score in proposed
        ]
        if candidates
        else None,
    )


def test_the_page_shows_what_is_printed() -> None:
    out = StringIO()
    print_segments(made(), Console(file=out, width=60))
    blocks = out.getvalue().split("\n\n")
    assert blocks[0] == "t/1 sample 0\nQ"
    assert [block.split("\n")[0] for block in blocks[1:]] == [f"step {n}" for n in (1, 2, 3, 4)]
    page = (Path(__file__).parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")
    assert f"```\n{blocks[3]}\n```" in page


def test_rows_have_the_style_of_what_they_are() -> None:
    film = {step: [row.spans[-1].style for row in rows] for step, rows in segment_frames(made())}
    assert film[1] == [STRENGTHS[0], STRENGTHS[0], TAKEN, STRENGTHS[1]]
    assert film[3] == [STRENGTHS[0], TAKEN, REVEALED, REVEALED]
    assert film[4] == [TAKEN, REVEALED, REVEALED, REVEALED]
    last = [row.plain for row in dict(segment_frames(made()))[4]]
    assert last[0] == "> 0            a = 3" and last[3] == "  3            (empty)"


def test_segments_that_are_not_there_yet_and_open_ones_without_a_proposal() -> None:
    trace = made(insert=(3, 0, 0, 0))
    assert trace.candidates is not None
    late = [each for each in trace.candidates if each.segment or each.step == 4]
    film = dict(segment_frames(_with(trace, [each for each in late if each.taken])))
    assert [row.plain.split()[-1] for row in film[1]] == ["░", "print(b)", "░"]
    assert [row.plain[:3] for row in film[3]] == ["> 1", "  2", "  3"]
    assert len(film[4]) == 4


def _with(trace: Trace, candidates: list[object]) -> Trace:
    return replace(trace, candidates=tuple(candidates))  # type: ignore[arg-type]


def test_white_space_and_lines_inside_are_spelled() -> None:
    trace = made()
    assert trace.candidates is not None
    pieces = {0: "\n", 1: "if a:\n\tb\n"}
    changed = [each._replace(piece=pieces.get(each.segment, "")) for each in trace.candidates]
    rows = dict(segment_frames(_with(trace, list(changed))))[1]
    assert [row.plain.split(maxsplit=2)[-1] for row in rows[:2]] == [r"'\n'", r"if a:\n    b"]


def test_what_cannot_be_shown() -> None:
    with pytest.raises(ValueError, match="holds no candidates: sample it again with candidates"):
        print_segments(made(candidates=False))
    with pytest.raises(ValueError, match="holds no segments"):
        print_segments(replace(made(), segment=None))
