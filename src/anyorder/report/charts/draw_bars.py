"""Draws a BarChart: rows from top to bottom, all places in pixels.

A row is a bar, a whisker over it, its value in figures, and below it the marks of its controls.
Group names are left of their bars, or above them on narrow sheets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from anyorder.report.charts import legend
from anyorder.report.charts.kinds import Bar, BarChart, BarGroup, BarPanel
from anyorder.report.charts.pixel_figure import (
    LINE,
    NARROW,
    SIZE,
    SMALL,
    WIDE,
    PixelFigure,
    draw_marks,
    linear_ticks,
    shown,
    text_width,
    wrapped,
    written,
)
from anyorder.report.charts.svg import Number, Series, bounds, drawn_range, estimate, light

THICK, TRACK, BETWEEN, APART = 17.0, 11.0, 4.0, 16.0
"""Heights: a bar; its controls; between bars; between groups."""
AXIS = 22.0
"""Room for the numbers below an axis."""
MARKS = (("mark", "^"), ("hollow", "^"), ("hollow", "s"))
"""Shapes of the controls, in order."""
SIDE = 24.0
"""Between panels side by side."""
NO_VALUE = "not measured"


@dataclass(frozen=True)
class _Layout:
    """Places of the rows of a panel, from its top."""

    names: list[list[str]]
    """The lines of each group's name."""
    tops: list[list[float]]
    """Tops of the bars of each group."""
    name_tops: list[float]
    height: float


def draw_bars(chart: BarChart, narrow: bool) -> PixelFigure:
    width = NARROW if narrow else WIDE
    keys = _keys(chart)
    blocks = _blocks(chart, narrow)
    named = any(group.label for panel in chart.panels for group in panel.groups)
    left = 0.0 if narrow or not named else _name_width(chart)
    top = legend.height(keys, width)
    layouts = [[_layout(panel, chart, left, narrow) for panel in block] for block in blocks]
    heights = [_block_height(b, rows, left, width) for b, rows in zip(blocks, layouts, strict=True)]
    figure = PixelFigure(width, top + sum(heights) + APART * (len(blocks) - 1))
    y = legend.draw(figure, keys, 0)
    for block, rows, height in zip(blocks, layouts, heights, strict=True):
        _draw_block(figure, chart, block, rows, (left, y))
        y += height + APART
    return figure


def _keys(chart: BarChart) -> list[legend.Key]:
    every = [bar for panel in chart.panels for group in panel.groups for bar in group.bars]
    used = {bar.series for bar in every}
    keys = [
        legend.Key(each.label, "pale" if each.pale else "bar", each.color)
        for each in chart.series
        if each.label in used and len(used) > 1
    ]
    values = [bar.value for bar in every if bar.value is not None]
    keys += legend.interval_key(values, "whisker")
    marked = {name for bar in every for name in bar.controls}
    keys += [
        legend.Key(name, shape, marker=marker)
        for name, (shape, marker) in zip(chart.controls, MARKS, strict=False)
        if name in marked
    ]
    return keys


def _blocks(chart: BarChart, narrow: bool) -> list[list[BarPanel]]:
    """Panels that are drawn side by side: up to three if all have the same groups."""
    rows = {tuple((g.label, len(g.bars)) for g in panel.groups) for panel in chart.panels}
    at_once = 3 if len(rows) == 1 and not narrow else 1
    panels = list(chart.panels)
    return [panels[start : start + at_once] for start in range(0, len(panels), at_once)]


def _name_width(chart: BarChart) -> float:
    names = [group.label for panel in chart.panels for group in panel.groups]
    most = 170.0 if len(chart.panels) > 1 else 190.0
    return min(most, max(text_width(name) for name in names)) + 14


def _layout(panel: BarPanel, chart: BarChart, left: float, narrow: bool) -> _Layout:
    row = THICK + (TRACK if chart.controls else 0)
    names, tops, name_tops = [], [], []
    y = 4.0
    for number, group in enumerate(panel.groups):
        lines = wrapped(group.label, NARROW if narrow else left - 14)
        inside = len(group.bars) * row + (len(group.bars) - 1) * BETWEEN
        words = len(lines) * SIZE * LINE
        y += APART if number else 0
        if narrow:
            name_tops.append(y)
            y += words + (2 if lines else 0)
            begin = y
            y += inside
        else:
            both = max(inside, words)
            # A name beside a single bar is level with the bar, not with its controls.
            level = both - (TRACK if chart.controls and len(group.bars) == 1 else 0)
            name_tops.append(y + max(0.0, (level - words) / 2))
            begin = y + (both - inside) / 2
            y += both
        names.append(lines)
        tops.append([begin + place * (row + BETWEEN) for place in range(len(group.bars))])
    return _Layout(names, tops, name_tops, y + 6)


def _heads(block: Sequence[BarPanel], width: float) -> tuple[float, float]:
    """The heights of the titles above and of the axes' names below."""
    above = max(len(wrapped(panel.title, width, bold=True)) for panel in block)
    below = max(len(wrapped(panel.value_label, width, SMALL)) for panel in block)
    return above * SIZE * LINE + (6 if above else 0), AXIS + below * SMALL * LINE + 4


def _panel_width(block: Sequence[BarPanel], left: float, width: float) -> float:
    return (width - left - SIDE * (len(block) - 1)) / len(block)


def _block_height(
    block: Sequence[BarPanel], layouts: Sequence[_Layout], left: float, width: float
) -> float:
    above, below = _heads(block, _panel_width(block, left, width))
    return above + max(layout.height for layout in layouts) + below


def _draw_block(
    figure: PixelFigure,
    chart: BarChart,
    block: Sequence[BarPanel],
    layouts: Sequence[_Layout],
    corner: tuple[float, float],
) -> None:
    left, y = corner
    width = _panel_width(block, left, figure.width)
    above, _ = _heads(block, width)
    for number, (panel, layout) in enumerate(zip(block, layouts, strict=True)):
        x = left + number * (width + SIDE)
        figure.lines(x, y + SIZE, wrapped(panel.title, width, bold=True), weight="bold")
        top = y + above
        if number == 0:
            for lines, begin in zip(layout.names, layout.name_tops, strict=True):
                figure.lines(0, top + begin + SIZE * 1.02, lines)
        _draw_panel(figure, chart, panel, layout, (x, top, width))


def _draw_panel(
    figure: PixelFigure,
    chart: BarChart,
    panel: BarPanel,
    layout: _Layout,
    place: tuple[float, float, float],
) -> None:
    x, y, width = place
    low, high = panel.limits or _limits(panel.groups)
    values = [bar.value for group in panel.groups for bar in group.bars if bar.value is not None]
    figures = max([text_width(shown(estimate(v), panel.percent), SMALL) for v in values] or [0.0])
    inner = width - figures - 8
    axes = figure.axes(x, y, inner, layout.height)
    axes.set_xlim(low, high)
    axes.set_ylim(layout.height, 0)  # pixels from the top, as on the figure
    ticks = linear_ticks(low, high, 6 if inner > 240 else 4)
    names = [written(tick, panel.percent) for tick in ticks]
    axes.set_xticks(ticks, names)
    if text_width(names[0], SMALL) / 2 > x + (ticks[0] - low) / (high - low) * inner:
        axes.get_xticklabels()[0].set_horizontalalignment("left")  # else it would leave the figure
    axes.set_yticks([])
    axes.spines["bottom"].set_visible(False)
    axes.plot([0, 0], [0, layout.height], color=light("muted"), lw=1, zorder=1.5)
    label = wrapped(panel.value_label, width, SMALL)
    figure.lines(x, y + layout.height + AXIS + SMALL, label, size=SMALL, color="muted")
    series = {each.label: each for each in chart.series}
    for group, tops in zip(panel.groups, layout.tops, strict=True):
        for bar, top in zip(group.bars, tops, strict=True):
            _draw_bar(axes, bar, series[bar.series], top, panel.percent)
            _draw_controls(axes, bar, chart.controls, top)


def _limits(groups: Sequence[BarGroup]) -> tuple[float, float]:
    """From zero to a little beyond the largest number."""
    numbers = [
        edge
        for group in groups
        for bar in group.bars
        for value in [bar.value, *bar.controls.values()]
        if value is not None
        for edge in drawn_range(value)
    ]
    low, high = min([0.0, *numbers]), max([0.0, *numbers])
    if low == high:
        return 0.0, 1.0
    return low * 1.04, high * 1.04


def _draw_bar(axes: Axes, bar: Bar, series: Series, top: float, percent: bool) -> None:
    middle = top + THICK / 2
    if bar.value is None:
        _note(axes, 0.0, middle, NO_VALUE)
        return
    value, color = estimate(bar.value), light(series.color)
    axes.barh(middle, value, THICK, color=color, alpha=0.28 if series.pale else 1, lw=0, zorder=2)
    if series.pale:
        axes.barh(middle, value, THICK - 1, facecolor="none", edgecolor=color, lw=1.2, zorder=2.1)
    _draw_whisker(axes, bar.value, middle, covered=0.0 if series.pale else value)
    _note(axes, max(drawn_range(bar.value)[1], 0.0), middle, shown(value, percent))


def _draw_whisker(axes: Axes, number: Number, middle: float, covered: float) -> None:
    """Draw it in ink, and in paper colour over the bar's filling (0 to `covered`)."""
    limits = bounds(number)
    if limits is None:
        return
    inside = [min(max(edge, min(0.0, covered)), max(0.0, covered)) for edge in limits]
    for edges, color, order in ((limits, "ink", 3.0), (inside, "paper", 3.1)):
        if color == "ink" or edges[1] > edges[0]:
            axes.plot(edges, [middle, middle], color=light(color), lw=1.5, zorder=order)
    for edge in limits:
        color = "paper" if min(0.0, covered) < edge < max(0.0, covered) else "ink"
        ends = [middle - 3.5, middle + 3.5]
        axes.plot([edge, edge], ends, color=light(color), lw=1.5, zorder=3.2, clip_on=False)


def _note(axes: Axes, x: float, y: float, words: str) -> None:
    axes.annotate(
        words,
        (x, y),
        xytext=(6, -0.36 * SMALL),
        textcoords="offset points",
        fontsize=SMALL,
        color=light("ink" if words != NO_VALUE else "muted"),
        va="baseline",
        annotation_clip=False,
        zorder=4,
    )


def _draw_controls(axes: Axes, bar: Bar, names: Sequence[str], top: float) -> None:
    for name, (shape, marker) in zip(names, MARKS, strict=False):
        if name in bar.controls:
            x, y = [estimate(bar.controls[name])], [top + THICK + TRACK / 2]
            face, width, order = ("ink", 0.0, 3.0) if shape == "mark" else ("paper", 1.3, 2.9)
            look = {"mfc": light(face), "mec": light("ink"), "mew": width, "zorder": order}
            draw_marks(axes, x, y, marker, 6.5, **look)
