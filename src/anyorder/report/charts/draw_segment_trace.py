"""Draws a SegmentTraceChart: a panel of rows for each step, two side by side if wide.

A row has the number of its segment, its text in a monospaced font (wrapped if long, on a background
whose strength shows the score), and the score in figures.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyorder.report.charts import legend
from anyorder.report.charts.kinds import SegmentRow, SegmentStep, SegmentTraceChart
from anyorder.report.charts.pixel_figure import (
    NARROW,
    SIZE,
    SMALL,
    WIDE,
    PixelFigure,
    signed,
    text_width,
)
from anyorder.report.charts.svg import light

MONO = 11.0
LINE = 15.0
"""The height of a line of text in a row."""
ROOM, BETWEEN = 5.0, 3.0
"""Room above and below the text of a row, together; between rows."""
HEAD = 25.0
ACROSS, DOWN = 28.0, 20.0
WEAK, STRONG = 0.06, 0.45
"""Opacity of the background of the worst and the best score; text is readable on both."""
MOST_LINES = 3
EMPTY = "(empty)"


def draw_segment_trace(chart: SegmentTraceChart, narrow: bool) -> PixelFigure:
    width = NARROW if narrow else WIDE
    columns = 1 if narrow or len(chart.steps) == 1 else 2
    panel = (width - ACROSS * (columns - 1)) / columns
    keys = _keys(chart)
    scores = sorted(row.score for step in chart.steps for row in step.rows if row.score is not None)
    sides = _sides(chart, scores)
    letters = int((panel - sum(sides) - 14) / text_width("m" * 100, MONO, mono=True) * 100)
    blocks = [chart.steps[i : i + columns] for i in range(0, len(chart.steps), columns)]
    heights = [
        HEAD + max(sum(_row_height(row, letters) + BETWEEN for row in s.rows) for s in block)
        for block in blocks
    ]
    top = legend.height(keys, width)
    figure = PixelFigure(width, top + sum(heights) + DOWN * (len(blocks) - 1) + 2)
    y = legend.draw(figure, keys, 0)
    for block, height in zip(blocks, heights, strict=True):
        for number, step in enumerate(block):
            x = number * (panel + ACROSS)
            _draw_step(figure, step, (x, y, panel), (letters, *sides), scores)
        y += height + DOWN
    return figure


def _keys(chart: SegmentTraceChart) -> list[legend.Key]:
    states = {row.state for step in chart.steps for row in step.rows}
    ranked = any(row.score is not None for step in chart.steps for row in step.rows)
    stronger = f", the stronger the higher its {chart.score_label}" if ranked else ""
    every = {
        "committed": legend.Key("committed in this step", "chosen", "score"),
        "candidate": legend.Key(f"candidate{stronger}", "ramp", "score"),
        "revealed": legend.Key("revealed in an earlier step", "earlier"),
        "open": legend.Key("open, nothing proposed", "slot"),
    }
    return [key for state, key in every.items() if state in states]


def _sides(chart: SegmentTraceChart, scores: Sequence[float]) -> tuple[float, float]:
    """Room for the numbers of segments at the left and for scores at the right."""
    rows = [row for step in chart.steps for row in step.rows]
    left = max(text_width(_number(row), SMALL) for row in rows) + 8
    right = max([text_width(_figure(score), SMALL) for score in scores] or [-8.0]) + 8
    return left, right


def _number(row: SegmentRow) -> str:
    """Segments are counted from 1, as lines are."""
    first = str(row.segment + 1)
    return first if row.last is None else f"{first}\N{EN DASH}{row.last + 1}"


def _figure(score: float) -> str:
    return signed(f"{score:.2f}")


def folded(text: str, letters: int) -> list[str]:
    """A line of code, wrapped to `letters`, with indented continuations; cut after a few."""
    plain = text.removesuffix("\n").replace("\n", "\\n").replace("\t", "    ")
    if not plain.strip():
        return [EMPTY]
    indent = " " * min(len(plain) - len(plain.lstrip()) + 2, letters // 2)
    lines: list[str] = []
    while len(plain) > letters and len(lines) < MOST_LINES - 1:
        at = plain.rfind(" ", len(indent) + 1, letters + 1)
        at = at if at > letters // 2 else letters
        lines.append(plain[:at].rstrip())
        plain = indent + plain[at:].lstrip()
    lines.append(plain if len(plain) <= letters else plain[: letters - 1] + "…")
    return lines


def _row_height(row: SegmentRow, letters: int) -> float:
    lines = 1 if row.state == "open" else len(folded(row.text, letters))
    return lines * LINE + ROOM


def _draw_step(
    figure: PixelFigure,
    step: SegmentStep,
    place: tuple[float, float, float],
    inner: tuple[int, float, float],
    scores: Sequence[float],
) -> None:
    x, y, width = place
    letters, left, right = inner
    figure.text(x, y + SIZE, f"Step {step.step}", weight="bold")
    y += HEAD
    for row in step.rows:
        height = _row_height(row, letters)
        base = y + ROOM / 2 + 0.76 * LINE
        box = (x + left, y, width - left - right, height)
        _draw_ground(figure, row, box, scores)
        number = "ink" if row.state == "committed" else "muted"
        figure.text(x + left - 8, base, _number(row), size=SMALL, color=number, align="right")
        if row.state != "open":
            _draw_words(figure, row, folded(row.text, letters), (x + left + 7, base))
        if row.score is not None:
            words = _figure(row.score)
            figure.text(x + width, base, words, size=SMALL, color=number, align="right")
        y += height + BETWEEN


def _draw_ground(
    figure: PixelFigure,
    row: SegmentRow,
    box: tuple[float, float, float, float],
    scores: Sequence[float],
) -> None:
    if row.state == "revealed":
        return
    if row.state == "open":
        figure.box(*box, radius=4, facecolor=light("slot"))
        return
    color = light("score")
    figure.box(*box, radius=4, facecolor=color, alpha=strength(row.score, scores))
    if row.state == "committed":
        figure.box(*box, radius=4, facecolor="none", edgecolor=color, linewidth=1.8)


def strength(score: float | None, scores: Sequence[float]) -> float:
    """Opacity by rank among all scores, so that a few very low ones do not make the rest alike."""
    if score is None or len(scores) < 2:
        return (WEAK + STRONG) / 2
    below = sum(other < score for other in scores)
    return WEAK + (STRONG - WEAK) * below / (len(scores) - 1)


def _draw_words(
    figure: PixelFigure, row: SegmentRow, lines: Sequence[str], place: tuple[float, float]
) -> None:
    x, y = place
    for number, line in enumerate(lines):
        # Browsers drop spaces at the beginning of a text.
        figure.text(
            x,
            y + number * LINE,
            line.replace(" ", "\N{NO-BREAK SPACE}"),
            size=MONO,
            color="muted" if row.state == "revealed" else "ink",
            family="DejaVu Sans Mono",
            weight="bold" if row.state == "committed" else "normal",
        )
