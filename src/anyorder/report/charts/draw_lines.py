"""Draws a LineChart: bands, lines and marks, and names at the ends of lines or beside points.

Names are moved so that none covers another. With several panels, or too little room, they are in a
legend instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from anyorder.report.charts import legend
from anyorder.report.charts.kinds import LineChart, LinePanel, LineSeries
from anyorder.report.charts.sheet import (
    NARROW,
    SIZE,
    SMALL,
    WIDE,
    Axis,
    Panels,
    Sheet,
    spread,
    text_width,
)
from anyorder.report.charts.svg import bounds, estimate, light, reach

MARKED = 30.0
"""Room for the mark before a name at the end of a line."""


class Box(NamedTuple):
    left: float
    low: float
    right: float
    high: float

    def meets(self, other: Box) -> float:
        """The area that both cover."""
        across = min(self.right, other.right) - max(self.left, other.left)
        up = min(self.high, other.high) - max(self.low, other.low)
        return across * up if across > 0 and up > 0 else 0.0


def name_ends(
    sheet: Sheet, axes: Axes, series: Sequence[LineSeries], shapes: dict[str, str]
) -> None:
    """Draw each line's name at its end, after its mark; names that would meet are moved apart."""
    drawn = [each for each in series if len(each.x)]
    frame = axes.get_position()
    bottom, height = sheet.height * (1 - frame.y0), sheet.height * frame.height
    x = frame.x1 * sheet.width
    ends = [_share(axes, float(each.x[-1]), estimate(each.y[-1]))[1] * height for each in drawn]
    for each, end in zip(drawn, apart(ends, SIZE * 1.35, height), strict=True):
        y, color = bottom - end, light(each.color)
        sheet.stroke([x + 14], [y], marker=shapes[each.label], ms=6.5, color=color, mew=0)
        sheet.text(x + 22, y + 0.36 * SIZE, each.label)


def apart(places: Sequence[float], least: float, most: float) -> list[float]:
    """Places from 0 to `most`, moved as little as possible to be `least` apart, in order."""
    order = sorted(range(len(places)), key=lambda number: places[number])
    # Places that are too near form one block, centred on the mean of its members.
    blocks: list[list[float]] = []
    for number in order:
        blocks.append([places[number]])
        while len(blocks) > 1 and _top(blocks[-2], least) + least > _bottom(blocks[-1], least):
            last = blocks.pop()
            blocks[-1] = blocks[-1] + last
    found = [_bottom(block, least) + i * least for block in blocks for i in range(len(block))]
    for number in reversed(range(len(found))):  # keep inside the top, then inside the bottom
        found[number] = min(found[number], most - (len(found) - 1 - number) * least)
    for number in range(len(found)):
        found[number] = max(found[number], number * least)
    return [found[order.index(number)] for number in range(len(places))]


def _bottom(block: Sequence[float], least: float) -> float:
    return sum(block) / len(block) - (len(block) - 1) * least / 2


def _top(block: Sequence[float], least: float) -> float:
    return _bottom(block, least) + (len(block) - 1) * least


def _share(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """A point's place, as shares of the axes' width and height."""
    place = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))
    return float(place[0]), float(place[1])


def name_points(axes: Axes, series: Sequence[LineSeries], size: tuple[float, float]) -> None:
    """Draw names beside their points where they cover least of points, whiskers and other names."""
    width, height = size
    taken: list[Box] = []
    places: list[tuple[float, float, str]] = []
    for each in series:
        for number, (x, y) in enumerate(zip(each.x, each.y, strict=True)):
            across, up = _share(axes, float(x), estimate(y))
            low, high = (_share(axes, float(x), edge)[1] for edge in bounds(y) or [estimate(y)] * 2)
            across, up = across * width, up * height
            taken.append(Box(across - 5, up - 5, across + 5, up + 5))
            taken.append(Box(across - 1, low * height, across + 1, high * height))
            if each.point_labels:
                places.append((across, up, each.point_labels[number]))
    # After all points are known: a name must not cover a point that comes later.
    for across, up, words in places:
        boxes = _around(across, up, text_width(words, SMALL))
        best = min(boxes, key=lambda box: _cost(box, taken, width, height))
        taken.append(best)
        axes.annotate(
            words,
            (best.left / width, (best.low + 3) / height),
            xycoords="axes fraction",
            fontsize=SMALL,
            color=light("ink"),
            va="baseline",
            annotation_clip=False,
            zorder=4,
        )


def _around(x: float, y: float, wide: float) -> list[Box]:
    """Places for a name right and left of a point: level, above, below; the best first."""
    tall = SMALL * 1.2
    found = []
    for up in (0.0, 9.0, -9.0, 18.0, -18.0):
        low = y + up - tall / 2
        found.append(Box(x + 8, low, x + 8 + wide, low + tall))
        found.append(Box(x - 8 - wide, low, x - 8, low + tall))
    return found


def _cost(box: Box, taken: Sequence[Box], width: float, height: float) -> float:
    """The area that a name covers; outside of the panel is worse than anything inside."""
    outside = max(0.0, -box.left) + max(0.0, box.right - width)
    outside += max(0.0, -box.low) + max(0.0, box.high - height)
    return sum(box.meets(other) for other in taken) + 1000 * outside


SHAPES = ("o", "s", "D", "^", "v", "P", "X")
"""Marks of the lines, in order, so that colour is not the only difference."""
MOST_NAMES = 0.3
"""Names are at the ends of lines if they take at most this share of the width."""
FEW = 24
"""A line of more points has six marks only."""


def draw_lines(chart: LineChart, narrow: bool) -> Sheet:
    width = NARROW if narrow else WIDE
    unique = {each.label: each for panel in chart.panels for each in panel.series}
    shapes = dict(zip(unique, SHAPES * len(unique), strict=False))
    room = max(text_width(label) for label in unique) + MARKED
    at_ends = not narrow and len(chart.panels) == 1 and chart.connect and room <= MOST_NAMES * width
    keys = _keys(chart, list(unique.values()), shapes, named=not at_ends)
    count = len(chart.panels)
    columns = 1 if narrow else 2 if count == 4 else min(count, 3)
    right = room if at_ends else 0.0
    panels = Panels(
        width,
        [panel.title for panel in chart.panels],
        [_across(chart, panel) for panel in chart.panels],
        _up(chart),
        columns,
        (260.0 if count == 1 else 190.0) if not narrow else (220.0 if count == 1 else 160.0),
        right,
    )
    top = legend.height(keys, width)
    sheet = Sheet(width, top + panels.height)
    legend.draw(sheet, keys, 0)
    for axes, panel in zip(panels.draw(sheet, top), chart.panels, strict=True):
        for each in panel.series:
            _draw_series(axes, each, shapes[each.label], chart.connect)
        if not chart.connect and not narrow:
            name_points(axes, panel.series, (panels.panel_width, panels.panel_height))
        if at_ends:
            name_ends(sheet, axes, panel.series, shapes)
    return sheet


def _keys(
    chart: LineChart, series: Sequence[LineSeries], shapes: dict[str, str], *, named: bool
) -> list[legend.Key]:
    keys = []
    if named and (len(series) > 1 or not chart.connect):
        for each in series:
            kind = "mark" if not chart.connect else "dashed" if each.dashed else "line"
            keys.append(legend.Key(each.label, kind, each.color, shapes[each.label]))
    every = [y for panel in chart.panels for each in panel.series for y in each.y]
    return keys + legend.interval_key(every, "band" if chart.connect else "upright")


def _across(chart: LineChart, panel: LinePanel) -> Axis:
    """The x axis of a panel; one that names its x axis has its own limits as well."""
    among = [panel] if panel.x_label else chart.panels
    xs = [float(x) for each in among for series in each.series for x in series.x]
    low, high = min(xs), max(xs)
    limits = spread(low, high, chart.log_x) if not chart.connect else (low, high)
    if chart.connect and (chart.log_x or chart.x_ticks or low == high):
        limits = spread(low, high, chart.log_x)
    return Axis(panel.x_label or chart.x_label, limits, chart.log_x, ticks=chart.x_ticks)


def _up(chart: LineChart) -> Axis:
    ys = [y for panel in chart.panels for each in panel.series for y in each.y]
    edges = [edge for y in ys for edge in reach(y)]
    low, high = spread(min(edges), max(edges), chart.log_y)
    if chart.percent and not chart.log_y:  # shares end at 0 and 1, so no room is needed beyond
        low, high = max(low, 0.0), min(high, 1.0 if max(edges) <= 1 else high)
    return Axis(chart.y_label, chart.y_limits or (low, high), chart.log_y, chart.percent)


def _draw_series(axes: Axes, series: LineSeries, shape: str, connect: bool) -> None:
    color = light(series.color)
    ys = [estimate(y) for y in series.y]
    limits = [bounds(y) for y in series.y]
    if connect:
        lows = [edge[0] if edge else y for edge, y in zip(limits, ys, strict=True)]
        highs = [edge[1] if edge else y for edge, y in zip(limits, ys, strict=True)]
        if any(limits):
            axes.fill_between(series.x, lows, highs, color=color, alpha=0.14, lw=0, zorder=2)
        dashes = (0, (4, 2)) if series.dashed else "-"
        axes.plot(series.x, ys, color=color, lw=2, ls=dashes, zorder=3)
    else:
        for x, edge in zip(series.x, limits, strict=True):
            if edge:
                axes.plot([x, x], edge, color=color, lw=1.5, zorder=2.5)
    count = len(ys)
    few = [round(i * (count - 1) / 5) for i in range(6)] if count > FEW and connect else None
    axes.plot(
        series.x,
        ys,
        ls="",
        marker=shape,
        ms=6.5 if connect else 8.5,
        color=color,
        mec=light("paper"),
        mew=1,
        markevery=few,
        clip_on=False,
        zorder=3.5,
    )
