"""Draws charts with two axes: LineChart, PointChart and FrontChart.

A LineChart has bands, lines and marks. Its names are at the ends of the lines or beside the points,
moved so that none covers another; with several panels, or too little room, they are in a legend.
A PointChart has small pale marks, and above them the mean of each class as a large one. In a
FrontChart the points of one series are joined in the order of their cost, points on the front have
a ring, and a dashed staircase shows the best value for each cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from anyorder.report.charts import legend
from anyorder.report.charts.kinds import (
    MOST_DRAWN,
    MOST_NARROW,
    FrontChart,
    FrontPanel,
    FrontSeries,
    LineChart,
    LinePanel,
    LineSeries,
    PointChart,
    PointSet,
)
from anyorder.report.charts.pixel_figure import (
    LINE,
    NARROW,
    SIZE,
    SMALL,
    WIDE,
    Axis,
    Panels,
    PixelFigure,
    draw_marks,
    text_width,
    with_room,
    wrapped,
)
from anyorder.report.charts.svg import Number, bounds, drawn_range, estimate, light

SHAPES = ("o", "s", "D", "^", "v", "P", "X")
"""Marks of the series, in order, so that colour is not the only difference."""
BESIDE_NAME = 30.0
"""Room for the mark before a name at the end of a line."""
MOST_NAMES = 0.3
"""Names are at the ends of lines if they take at most this share of the width."""
FEW = 24
"""A line of more points has six marks only."""


def _framed(
    keys: Sequence[legend.Key], panels: Panels, warning: list[str]
) -> tuple[PixelFigure, list[Axes]]:
    """A figure with a warning, the legend and empty panels."""
    above = len(warning) * SIZE * LINE + (8 if warning else 0)
    top = above + legend.height(keys, panels.width)
    figure = PixelFigure(panels.width, top + panels.height)
    figure.lines(0, SIZE, warning, weight="bold", color="committed")
    legend.draw(figure, keys, above)
    return figure, panels.draw(figure, top)


def _shapes(labels: Sequence[str], shapes: Sequence[str] = SHAPES) -> dict[str, str]:
    return {label: shapes[number % len(shapes)] for number, label in enumerate(labels)}


def draw_lines(chart: LineChart, narrow: bool) -> PixelFigure:
    width = NARROW if narrow else WIDE
    unique = {each.label: each for panel in chart.panels for each in panel.series}
    shapes = _shapes(list(unique))
    room = max(text_width(label) for label in unique) + BESIDE_NAME
    at_ends = not narrow and len(chart.panels) == 1 and chart.connect and room <= MOST_NAMES * width
    keys = _line_keys(chart, list(unique.values()), shapes, named=not at_ends)
    count = len(chart.panels)
    columns = 1 if narrow else 2 if count == 4 else min(count, 3)
    panels = Panels(
        width,
        [panel.title for panel in chart.panels],
        [_line_x(chart, panel) for panel in chart.panels],
        _line_y(chart),
        columns,
        (260.0 if count == 1 else 190.0) if not narrow else (220.0 if count == 1 else 160.0),
        room if at_ends else 0.0,
    )
    figure, drawn = _framed(keys, panels, [])
    for axes, panel in zip(drawn, chart.panels, strict=True):
        for each in panel.series:
            _draw_line(axes, each, shapes[each.label], chart.connect)
        if not chart.connect and not narrow:
            name_points(axes, panel.series, (panels.panel_width, panels.panel_height))
        if at_ends:
            name_ends(figure, axes, panel.series, shapes)
    return figure


def _line_keys(
    chart: LineChart, series: Sequence[LineSeries], shapes: dict[str, str], *, named: bool
) -> list[legend.Key]:
    keys = []
    if named and (len(series) > 1 or not chart.connect):
        for each in series:
            kind = "mark" if not chart.connect else "dashed" if each.dashed else "line"
            keys.append(legend.Key(each.label, kind, each.color, shapes[each.label]))
    every = [y for panel in chart.panels for each in panel.series for y in each.y]
    return keys + legend.interval_key(every, "band" if chart.connect else "upright")


def _line_x(chart: LineChart, panel: LinePanel) -> Axis:
    """The x axis of a panel; one that names its x axis has its own limits as well."""
    among = [panel] if panel.x_label else chart.panels
    xs = [float(x) for each in among for series in each.series for x in series.x]
    low, high = min(xs), max(xs)
    to_the_edge = chart.connect and not (chart.log_x or chart.x_ticks or low == high)
    limits = (low, high) if to_the_edge else with_room(low, high, chart.log_x)
    return Axis(panel.x_label or chart.x_label, limits, chart.log_x, ticks=chart.x_ticks)


def _line_y(chart: LineChart) -> Axis:
    ys = [y for panel in chart.panels for each in panel.series for y in each.y]
    edges = [edge for y in ys for edge in drawn_range(y)]
    low, high = with_room(min(edges), max(edges), chart.log_y)
    if chart.percent and not chart.log_y:  # shares end at 0 and 1, so no room is needed beyond
        low, high = max(low, 0.0), min(high, 1.0 if max(edges) <= 1 else high)
    return Axis(chart.y_label, chart.y_limits or (low, high), chart.log_y, chart.percent)


def _draw_line(axes: Axes, series: LineSeries, shape: str, connect: bool) -> None:
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
    size = 6.5 if connect else 8.5
    look = {"color": color, "mec": light("paper"), "mew": 1, "zorder": 3.5}
    draw_marks(axes, series.x, ys, shape, size, markevery=few, **look)


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
    figure: PixelFigure, axes: Axes, series: Sequence[LineSeries], shapes: dict[str, str]
) -> None:
    """Draw each line's name at its end, after its mark; names that would meet are moved apart."""
    drawn = [each for each in series if len(each.x)]
    frame = axes.get_position()
    bottom, height = figure.height * (1 - frame.y0), figure.height * frame.height
    x = frame.x1 * figure.width
    ends = [_share(axes, float(each.x[-1]), estimate(each.y[-1]))[1] * height for each in drawn]
    for each, end in zip(drawn, move_apart(ends, SIZE * 1.35, height), strict=True):
        y, color = bottom - end, light(each.color)
        figure.stroke([x + 14], [y], marker=shapes[each.label], ms=6.5, color=color, mew=0)
        figure.text(x + 22, y + 0.36 * SIZE, each.label)


def move_apart(places: Sequence[float], least: float, most: float) -> list[float]:
    """Places from 0 to `most`, moved as little as possible to be `least` apart, in order."""
    order = sorted(range(len(places)), key=lambda number: places[number])
    # Places that are too near form one block, centred on the mean of its members.
    blocks: list[list[float]] = []
    for number in order:
        blocks.append([places[number]])
        while len(blocks) > 1 and _bottom(blocks[-2], least) + len(blocks[-2]) * least > _bottom(
            blocks[-1], least
        ):
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


def draw_points(chart: PointChart, narrow: bool) -> PixelFigure:
    width = NARROW if narrow else WIDE
    shapes = _shapes([each.label for each in chart.classes], SHAPES[:4])
    keys = [
        legend.Key(each.label, "mark", each.color, shapes[each.label]) for each in chart.classes
    ]
    keys.append(legend.Key("large: mean", "mean", "muted", SHAPES[0]))
    every = [found for panel in chart.panels for found in panel.points.values()]
    means = [value for found in every for value in found.mean or ()]
    keys += legend.interval_key(means, "whisker")
    count = len(chart.panels)
    columns = min(count, 3) if not narrow else 1 if count <= 2 else 2
    across = Axis(chart.x_label, _point_limits(chart, "x"), chart.log_x)
    panels = Panels(
        width,
        [panel.title for panel in chart.panels],
        [across] * count,
        Axis(chart.y_label, chart.y_limits or _point_limits(chart, "y")),
        columns,
        {1: 240.0, 2: 240.0 if not narrow else 140.0}.get(columns, 170.0),
    )
    figure, drawn = _framed(keys, panels, [])
    for axes, panel in zip(drawn, chart.panels, strict=True):
        for number, each in enumerate(chart.classes):
            found = panel.points.get(each.label)
            if found is not None and len(found.x):
                most = MOST_NARROW if narrow else MOST_DRAWN
                _draw_cloud(axes, found, light(each.color), shapes[each.label], most)
                _draw_mean(axes, found, light(each.color), shapes[each.label], number)
    return figure


def _point_limits(chart: PointChart, name: str) -> tuple[float, float]:
    every = np.concatenate(
        [getattr(found, name) for panel in chart.panels for found in panel.points.values()]
    )
    return with_room(float(every.min()), float(every.max()), log=chart.log_x and name == "x")


def _draw_cloud(axes: Axes, found: PointSet, color: str, shape: str, most: int) -> None:
    x, y = np.asarray(found.x, dtype=float), np.asarray(found.y, dtype=float)
    if len(x) > most:
        # Evenly spaced rather than drawn at random: the same file every time.
        chosen = np.linspace(0, len(x) - 1, most).round().astype(int)
        x, y = x[chosen], y[chosen]
    axes.plot(x, y, ls="", marker=shape, ms=4.2, color=color, alpha=0.38, mew=0, zorder=2)


def _draw_mean(axes: Axes, found: PointSet, color: str, shape: str, number: int) -> None:
    across, up = found.mean or (float(np.mean(found.x)), float(np.mean(found.y)))
    _draw_cross(axes, across, up)
    # Ink around the colour and paper around the ink: visible on any cloud.
    for size, face, order in ((15.0, light("paper"), 4.0), (11.0, color, 4.05)):
        look = {"color": face, "mec": light("ink"), "mew": 0 if face != color else 1.5}
        x, y = [estimate(across)], [estimate(up)]
        draw_marks(axes, x, y, shape, size, zorder=order + 0.1 * number, **look)


def _draw_cross(axes: Axes, across: Number, up: Number) -> None:
    """The intervals of a mean, below its mark."""
    for ink, wide in (("paper", 4.0), ("ink", 1.5)):
        if limits := bounds(across):
            axes.plot(limits, [estimate(up)] * 2, color=light(ink), lw=wide, zorder=3.5)
        if limits := bounds(up):
            axes.plot([estimate(across)] * 2, limits, color=light(ink), lw=wide, zorder=3.5)


STAIRCASE = "Pareto front"
ROOM = 0.08
"""Room for names above the highest value and below the lowest, as a share of the range."""
ALONG = 8
"""Steps along a whisker."""


def draw_front(chart: FrontChart, narrow: bool) -> PixelFigure:
    width = NARROW if narrow else WIDE
    shapes = _shapes(
        list(dict.fromkeys(each.label for panel in chart.panels for each in panel.series))
    )
    panels = Panels(
        width,
        [panel.title for panel in chart.panels],
        [_front_x(panel) for panel in chart.panels],
        Axis(chart.value_label, _front_limits(chart), percent=True),
        1 if narrow else len(chart.panels),
        220.0 if narrow else 300.0,
    )
    warning = wrapped(chart.warning, width, bold=True)
    figure, drawn = _framed(_front_keys(chart, shapes), panels, warning)
    for axes, panel in zip(drawn, chart.panels, strict=True):
        _staircase(axes, panel)
        for each in panel.series:
            _draw_front_series(axes, each, shapes[each.label])
        if not narrow:
            size = (panels.panel_width, panels.panel_height)
            taken = [_whiskers(each) for each in panel.series]
            name_points(axes, [*map(_named, panel.series), *taken], size)
    return figure


def _front_keys(chart: FrontChart, shapes: dict[str, str]) -> list[legend.Key]:
    unique = {each.label: each for panel in chart.panels for each in panel.series}
    keys = [legend.Key(label, "line", each.color, shapes[label]) for label, each in unique.items()]
    keys.append(legend.Key(STAIRCASE, "hollow"))
    values = [point.value for each in unique.values() for point in each.points]
    return keys + legend.interval_key(values, "upright")


def _front_x(panel: FrontPanel) -> Axis:
    edges = [
        edge for each in panel.series for point in each.points for edge in drawn_range(point.cost)
    ]
    return Axis(panel.cost_label, with_room(min(edges), max(edges), True), log=True)


def _front_limits(chart: FrontChart) -> tuple[float, float]:
    points = [point for panel in chart.panels for each in panel.series for point in each.points]
    edges = [edge for point in points for edge in drawn_range(point.value)]
    low, high = min(edges), max(edges)
    room = max(ROOM * (high - low), 0.02)
    return low - room, high + room


def _staircase(axes: Axes, panel: FrontPanel) -> None:
    """The best value for each cost: flat until the next point of the front."""
    best = sorted(
        (estimate(point.cost), estimate(point.value))
        for each in panel.series
        for point in each.points
        if point.front
    )
    if not best:
        return
    right = axes.get_xlim()[1]
    axes.plot(
        [cost for cost, _ in best] + [right],
        [value for _, value in best] + [best[-1][1]],
        drawstyle="steps-post",
        color=light("ink"),
        lw=1.0,
        ls=(0, (3, 3)),
        zorder=1.5,
    )


def _draw_front_series(axes: Axes, series: FrontSeries, shape: str) -> None:
    color = light(series.color)
    points = sorted(series.points, key=lambda point: estimate(point.cost))
    xs = [estimate(point.cost) for point in points]
    ys = [estimate(point.value) for point in points]
    axes.plot(xs, ys, color=color, lw=1.2, alpha=0.6, zorder=2)
    for point, x, y in zip(points, xs, ys, strict=True):
        if limits := bounds(point.value):
            axes.plot([x, x], limits, color=color, lw=1.4, zorder=2.5)
        if limits := bounds(point.cost):
            axes.plot(limits, [y, y], color=color, lw=1.4, zorder=2.5)
        size, edge, width = (9.5, "ink", 1.6) if point.front else (7.5, "paper", 1.0)
        look = {"color": color, "mec": light(edge), "mew": width, "zorder": 3.5}
        draw_marks(axes, [x], [y], shape, size, **look)


def _whiskers(series: FrontSeries) -> LineSeries:
    """Unnamed points along the whiskers of the costs, so that no name covers these."""
    xs, ys = [], []
    for point in series.points:
        low, high = drawn_range(point.cost)
        for share in range(ALONG + 1):
            xs.append(low * (high / low) ** (share / ALONG))
            ys.append(estimate(point.value))
    return LineSeries(series.label, series.color, xs, ys)


def _named(series: FrontSeries) -> LineSeries:
    """The points as `name_points` takes them."""
    return LineSeries(
        series.label,
        series.color,
        [estimate(point.cost) for point in series.points],
        [point.value for point in series.points],
        point_labels=[point.label for point in series.points],
    )
