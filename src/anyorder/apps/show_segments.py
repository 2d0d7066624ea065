"""The paper's generation trace (appendix E) in a terminal: what was proposed, step by step.

For each step a block of lines, one per segment in reading order: revealed ones grey, the committed
one highlighted, the other candidates coloured by their score within the step, the better the
stronger; open ones for which nothing was proposed as a mask. It needs a trace whose candidates were
recorded.

Not here: figures and pages (report/), and the token-by-token view (show.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from anyorder.apps.show import MASK
from anyorder.trace import Candidate, Trace

STRENGTHS = ("dim cyan", "cyan", "bold cyan")
"""Candidates by score, from the worst third of their step to the best."""
TAKEN, REVEALED = "bold black on yellow", "grey50"
EMPTY = "(empty)"
SCORE_WIDTH = 8


def print_segments(trace: Trace, console: Console | None = None) -> None:
    """All steps of one trace, one after another."""
    console = console or Console(highlight=False)
    console.print(Text(f"{trace.task_id} sample {trace.sample}", style="bold"))
    console.print(Text(trace.prompt.rstrip("\n"), style="dim"))
    for step, rows in segment_film(trace):
        console.print(Text(f"\nstep {step}"))
        for row in rows:
            console.print(row, soft_wrap=True)


def segment_film(trace: Trace) -> Iterator[tuple[int, list[Text]]]:
    """(step, its lines) for each step that proposed something."""
    if trace.candidates is None:
        raise ValueError(
            f"trace {trace.task_id!r} sample {trace.sample} holds no candidates: sample it again "
            "with candidates=True (latentmdm and flexlatent can record them)"
        )
    if trace.segment is None:
        raise ValueError(
            f"trace {trace.task_id!r} sample {trace.sample} holds no segments: import it with "
            "`segment`"
        )
    by_step: dict[int, dict[int, Candidate]] = {}
    for each in trace.candidates:
        by_step.setdefault(each.step, {})[each.segment] = each
    width = max(len(str(segment)) for segment in trace.segment.tolist())
    for step, proposed in by_step.items():
        yield step, _rows(trace, step, proposed, width)


def _rows(trace: Trace, step: int, proposed: dict[int, Candidate], width: int) -> list[Text]:
    scores = sorted(each.score for each in proposed.values() if each.score is not None)
    rows = []
    for segment, shown in sorted(_canvas(trace, step - 1).items()):
        each = proposed.get(segment)
        if each is None:
            mark, score = " ", ""
            text = Text(MASK, style="dim") if shown is None else Text(_line(shown), style=REVEALED)
        else:
            mark = ">" if each.taken else " "
            score = "" if each.score is None else f"{each.score:.2f}"
            style = TAKEN if each.taken else _strength(each.score, scores)
            text = Text(_line(each.piece), style=style)
        rows.append(Text(f"{mark} {segment:>{width}} {score:>{SCORE_WIDTH}}   ").append(text))
    return rows


def _canvas(trace: Trace, step: int) -> dict[int, str | None]:
    """The segments on the canvas after `step` steps: their text, or None while open."""
    assert trace.segment is not None
    now = trace.replay(step)
    found: dict[int, str | None] = {}
    for slot, piece, revealed in zip(now.slots, now.pieces, now.revealed, strict=True):
        segment = int(trace.segment[slot])
        if segment >= 0:
            found[segment] = (found.get(segment) or "") + piece if revealed else None
    return found


def _strength(score: float | None, scores: Sequence[float]) -> str:
    """The better a score among those of its step, the stronger."""
    if score is None or len(scores) < 2:
        return STRENGTHS[len(STRENGTHS) // 2]
    return STRENGTHS[sum(other < score for other in scores) * len(STRENGTHS) // len(scores)]


def _line(text: str) -> str:
    """A segment on one line: its closing newline goes, others are spelled."""
    plain = text.removesuffix("\n").replace("\n", "\\n").replace("\t", "    ")
    return plain if plain.strip() else repr(text) if text else EMPTY
