"""The generation trace in a terminal: what stands where, and how strongly."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from anyorder.apps import show as watching
from anyorder.apps.show import (
    FRESH,
    LINE_END,
    MASK,
    REVEALED,
    STRENGTHS,
    TAKEN,
    canvas_text,
    caption,
    pieces,
    print_segments,
    segment_frames,
)
from anyorder.cli import main
from anyorder.decode.canvas import Canvas, Decoded
from anyorder.model import Request
from anyorder.trace import Event, Ghost, Run, Trace
from anyorder.trace.events import Change
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


# `sample --watch`: what is drawn, in a terminal and without one, and what is left alone.


WORDS = Vocab.words(["def", " ", "x", "\n", "return"])
NAN = math.nan


def seen(tokens: Sequence[str | None], insert: list[int], reveal: list[int], step: int) -> Decoded:
    ids = [WORDS.mask_id if token is None else WORDS.encode(token)[0] for token in tokens]
    return Decoded(ids, insert, reveal, [NAN] * len(ids), steps=step, forwards=step, ties=0)


def request(number: int = 0) -> Request:
    canvas = Canvas.of([WORDS.encode("def x"), 4], WORDS)
    return Request(f"toy/{number}", 0, "def x", canvas, noise=str(number))


def test_pieces_tell_masks_from_tokens_without_text() -> None:
    ids = [WORDS.mask_id, *WORDS.encode("x"), WORDS.eos_id, WORDS.mask_id]
    assert pieces(WORDS, ids) == [None, "x", "", None]
    # A character of several bytes is in the piece of the first; half of one is no error.
    vocab = Vocab.bytes()
    first, second = vocab.encode("é")
    assert pieces(vocab, [first, second]) == ["é", ""]
    assert pieces(vocab, [first, vocab.mask_id]) == ["\N{REPLACEMENT CHARACTER}", None]


def test_masks_are_visible_and_what_is_new_stands_out() -> None:
    text = canvas_text(
        WORDS, seen(["x", None, " ", "\n", None], [0, 0, 0, 0, 3], [1, 0, 2, 3, 0], 3)
    )
    assert text.plain == f"x{MASK} {LINE_END}\n{MASK}"
    styles = {text.plain[span.start : span.end]: span.style for span in text.spans}
    assert styles[LINE_END] == FRESH and "x" not in styles
    masks = [span.style for span in text.spans if text.plain[span.start : span.end] == MASK]
    assert masks == [watching.MASKED, watching.OPENED]


def test_what_is_masked_again_stands_out() -> None:
    row = replace(seen(["x", None, None], [0] * 3, [1, 0, 0], 3), changes=[Change(3, 2, None)])
    masks = [span.style for span in canvas_text(WORDS, row).spans]
    assert masks == [watching.MASKED, watching.MASKED_AGAIN]
    assert caption(WORDS, row) == "step 3: 1 shown, 2 masked (1 of them again)"


def test_what_is_deleted_is_struck_out_once() -> None:
    x, end = WORDS.encode("x")[0], WORDS.encode("\n")[0]
    lives = [(-1, 0, 1, 2, x), (0, 0, 1, 3, end), (1, 0, None, 3, None)]
    ghosts = [Ghost(*life, None) for life in lives]
    row = replace(seen(["def", "x"], [0] * 2, [1, 1], 3), ghosts=ghosts)
    text = canvas_text(WORDS, row)
    assert text.plain == f"def{LINE_END}x{MASK}"
    assert [span.style for span in text.spans] == [watching.STRUCK] * 2
    assert canvas_text(WORDS, replace(row, steps=4)).plain == "defx"


def test_the_film_of_a_corrected_trace() -> None:
    trace = Trace(
        task_id="t", sample=0, prompt="", text="ab", char_end=[1, 2], insert_step=[0, 1],
        reveal_step=[3, 1], steps=4, events=(Event(1, 0, None, "c"), Event(1, 2, None, "e")),
        ghosts=(Ghost(0, 1, 2, 3, None, "d"), Ghost(1, 2, None, 4, None, None)),
    )  # type: ignore[arg-type]  # fmt: skip
    frames = dict(watching.frames_of(trace, frames=20))
    assert {step: text.plain for step, text in frames.items()} == {
        1: "ceb",
        3: f"adb{MASK}",
        4: f"ab{MASK}",
    }
    third = frames[3]
    struck = [span for span in third.spans if span.style == watching.STRUCK]
    assert [third.plain[span.start : span.end] for span in struck] == ["d"]


def test_the_film_ends_with_the_masks_that_were_never_revealed() -> None:
    trace = Trace(
        task_id="t", sample=0, prompt="", text="ab", char_end=[1, 1, 2], insert_step=[0] * 3,
        reveal_step=[1, 3, 2], steps=2,
    )  # type: ignore[arg-type]  # fmt: skip
    frames = dict(watching.frames_of(trace, frames=20))
    assert {step: text.plain for step, text in frames.items()} == {
        1: f"a{MASK}{MASK}",
        2: f"a{MASK}b",
    }


def test_an_open_segment_is_a_line() -> None:
    row = seen([None, "x", "\n", None], [0] * 4, [0, 1, 1, 0], 1)
    text = canvas_text(WORDS, replace(row, segment=[0, 1, 1, 2]))
    assert text.plain == f"{8 * MASK}\nx{LINE_END}\n{8 * MASK}\n"


def test_the_caption_counts() -> None:
    assert caption(WORDS, seen(["x", None], [0, 0], [7, 0], 7)) == "step 7: 1 shown, 1 masked"


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the display slept, by a clock that only its sleep moves: drawing takes no time."""
    taken: list[float] = []
    clock = SimpleNamespace(sleep=taken.append, monotonic=lambda: sum(taken))
    monkeypatch.setattr(watching, "time", clock)
    return taken


def test_a_terminal_shows_as_many_samples_as_fit(naps: list[float]) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=60, height=30, color_system=None)
    with watching.watching(WORDS, 3, console=console) as begin:
        watch = begin([request(0), request(1), request(2)])
        rows = [seen(["x", None], [0, 0], [1, 0], 1)]
        rows += [replace(rows[0], row=number) for number in (1, 2)]
        watch(rows)
        watch([seen(["x", " "], [0, 0], [1, 2], 2)])  # the others have left the batch
    drawn = out.getvalue()
    assert f"def xx{MASK}" in drawn and "step 1: 1 shown, 1 masked" in drawn
    assert "step 2: 2 shown, 0 masked" in drawn
    assert "toy/0 sample 0" in drawn and "toy/1 sample 0" in drawn and "toy/2" not in drawn
    assert "1 more are decoded with these" in drawn
    assert naps == pytest.approx([watching.STEP_SECONDS] * 2), "each step stays to be seen"


def test_the_end_of_a_batch_stays_for_longer(naps: list[float]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60, height=30)
    with watching.watching(WORDS, 2, console=console) as begin:
        for number in range(2):
            begin([request(number)])([seen(["x"], [0], [1], 1)])
    step, rest = watching.STEP_SECONDS, watching.REST_SECONDS
    assert naps == pytest.approx([step, rest, step])


def test_without_a_terminal_there_are_plain_lines(naps: list[float]) -> None:
    out = io.StringIO()
    with watching.watching(WORDS, 1, console=Console(file=out)) as begin:
        watch = begin([request()])
        watch([seen(["x", None, "\n"], [0, 0, 0], [1, 0, 1], 1)])
    message, line = out.getvalue().splitlines()
    assert "no terminal" in message
    assert line == f"toy/0 sample 0 step 1: 2 shown, 1 masked | x{MASK}{LINE_END}"
    assert not naps


def test_the_command_watches_and_keeps_its_json(
    small_models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sample", str(small_models / "mdm"), "--task", "stories", "--limit", "3"]
    words += ["--batch", "2", "--max-new-tokens", "5", "--json", "--out"]
    assert main([*words, str(tmp_path / "seen"), "--watch"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["samples"] == 3
    lines = output.err.splitlines()
    assert [line.partition(" step")[0] for line in lines[1:]] == (
        ["stories/0 sample 0"] * 5 + ["stories/2 sample 0"] * 5
    )
    assert main([*words, str(tmp_path / "unseen")]) == 0
    left, right = (Run.open(tmp_path / name) for name in ("seen", "unseen"))
    assert left.card.identity() == right.card.identity()
    for a, b in zip(left.traces(), right.traces(), strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
    capsys.readouterr()
    assert main([*words, str(tmp_path / "seen"), "--watch"]) == 0
    assert "all 3 samples exist already" in capsys.readouterr().err


def test_interrupting_leaves_a_run_that_goes_on(
    small_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["sample", str(small_models / "mdm"), "--task", "stories", "--limit", "3"]
    words += ["--batch", "1", "--max-new-tokens", "5", "--out", str(tmp_path / "run")]
    calls = []

    def interrupt(vocab: Vocab, seen: Decoded) -> str:
        calls.append(seen.step)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return ""

    with monkeypatch.context() as patch:
        patch.setattr(watching, "caption", interrupt)
        assert main([*words, "--watch"]) == 130
    assert calls == [1, 2, 3, 4, 5, 1, 2]
    assert main(words) == 0
    assert len(list(Run.open(tmp_path / "run").traces())) == 3
