"""The generation trace (paper, appendix E): what each step proposed, and what it committed.

A panel for each step: the candidate of every open slot on a ground that is the stronger the better
its score, the committed one marked, lines revealed earlier in grey. How it is drawn:
segment_trace_drawn.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from anyorder.report.charts.drawing import Drawing
from anyorder.report.charts.values import check_finite, check_name
from anyorder.trace import Candidate, Trace

if TYPE_CHECKING:
    from anyorder.report.charts.sheet import Sheet

SOME_STEPS = 6
FOLDED = 3
"""So many neighbours with nothing in them are one row."""


@dataclass(frozen=True)
class SegmentRow:
    """One segment of the canvas in one step."""

    segment: int
    text: str
    """The line in full, or the candidate; ignored for an open slot without a candidate."""
    state: Literal["revealed", "committed", "candidate", "open"]
    score: float | None = None
    last: int | None = None
    """The row stands for all segments from `segment` to this one."""


@dataclass(frozen=True)
class SegmentStep:
    step: int
    rows: tuple[SegmentRow, ...]
    """From the first segment to the last."""


@dataclass(frozen=True)
class SegmentTraceChart:
    name: str
    alt: str
    steps: tuple[SegmentStep, ...]
    score_label: str = "score"
    """What candidates were ranked by, in words."""


def segment_trace_chart(
    trace: Trace,
    name: str = "generation-trace",
    steps: Sequence[int] | None = None,
    score_label: str = "score",
) -> SegmentTraceChart:
    """The chart of a trace that has candidates (`anyorder sample --candidates`).

    `steps` chooses some; unset: every step that commits a line with text, and others that proposed
    something, up to six in all.
    """
    if trace.segment is None or not trace.candidates:
        raise ValueError("the trace has no candidates: sample with candidates=True")
    there = sorted({each.step for each in trace.candidates})
    telling = {each.step for each in trace.candidates if each.taken and each.piece.strip()}
    chosen = _some(there, telling) if steps is None else list(steps)
    if missing := [step for step in chosen if step not in there]:
        raise ValueError(f"steps {missing} proposed nothing: choose among {there}")
    alt = (
        f"Generation trace of {trace.task_id}, sample {trace.sample}: the candidates for every "
        f"open line in {len(chosen)} of {len(there)} steps, and which of them were committed."
    )
    made = tuple(SegmentStep(step, tuple(_folded(_rows(trace, step)))) for step in chosen)
    return SegmentTraceChart(name, alt, made, score_label)


def _some(steps: Sequence[int], telling: Collection[int]) -> list[int]:
    """All telling steps, and some of the others, spread evenly, where there is room for them."""
    others = [step for step in steps if step not in telling]
    room = min(len(others), max(0, SOME_STEPS - len(telling)))
    places = [round(i * (len(others) - 1) / max(1, room - 1)) for i in range(room)]
    return sorted({*telling, *(others[place] for place in places)})


def _rows(trace: Trace, step: int) -> list[SegmentRow]:
    """The canvas on which a step worked, with what it proposed."""
    assert trace.segment is not None and trace.candidates is not None
    proposed: dict[int, Candidate] = {
        each.segment: each for each in trace.candidates if each.step == step
    }
    before = trace.replay(step - 1)
    found: dict[int, str | None] = {}
    for slot, piece, revealed in zip(before.slots, before.pieces, before.revealed, strict=True):
        segment = int(trace.segment[slot])
        if segment >= 0:
            found[segment] = (found.get(segment) or "") + piece if revealed else None
    rows = []
    for segment in sorted(found.keys() | proposed.keys()):
        each, text = proposed.get(segment), found.get(segment)
        if each is not None:
            state: Literal["committed", "candidate"] = "committed" if each.taken else "candidate"
            rows.append(SegmentRow(segment, each.piece, state, each.score))
        elif text is None:
            rows.append(SegmentRow(segment, "", "open"))
        else:
            rows.append(SegmentRow(segment, text, "revealed"))
    return rows


def _folded(rows: Sequence[SegmentRow]) -> list[SegmentRow]:
    """Long runs of rows that show nothing are one row."""
    result: list[SegmentRow] = []
    for kind, group in groupby(rows, key=lambda row: None if row.text.strip() else row.state):
        members = list(group)
        if kind in (None, "committed") or len(members) < FOLDED:
            result += members
        else:
            scores = [row.score for row in members if row.score is not None]
            best = max(scores, default=None)
            first = members[0]
            result.append(
                SegmentRow(first.segment, "", first.state, best, last=members[-1].segment)
            )
    return result


def segment_trace(chart: SegmentTraceChart) -> Drawing:
    """The chart, checked; drawn when asked for."""
    check_name(chart.name)
    if not any(step.rows for step in chart.steps):
        raise ValueError(f"chart {chart.name!r} has no rows: leave it out")
    scores = [row.score for step in chart.steps for row in step.rows if row.score is not None]
    check_finite(f"chart {chart.name!r}", scores)

    def draw(narrow: bool) -> Sheet:
        from anyorder.report.charts.segment_trace_drawn import draw_segment_trace

        return draw_segment_trace(chart, narrow)

    return Drawing(chart.name, chart.alt, draw)
