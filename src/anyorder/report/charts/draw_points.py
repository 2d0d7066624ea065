"""Draws a PointChart (small pale marks, the mean of each class large above them) and a FrontChart.

In a FrontChart, points of one series are joined in the order of their cost, points on the front
have a ring, and a dashed staircase shows the best value for each cost.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from anyorder.report.charts import legend
from anyorder.report.charts.draw_lines import SHAPES, name_points
from anyorder.report.charts.kinds import (
    MOST_DRAWN,
    MOST_NARROW,
    FrontChart,
    FrontPanel,
    FrontSeries,
    LineSeries,
    PointChart,
    PointSet,
)
from anyorder.report.charts.sheet import (
    LINE,
    NARROW,
    SIZE,
    WIDE,
    Axis,
    Panels,
    Sheet,
    spread,
    wrapped,
)
from anyorder.report.charts.svg import Number, bounds, estimate, light, reach

CLASS_SHAPES = ("o", "s", "D", "^")
"""Marks of the classes, in order, so that colour is not the only difference."""


def draw_points(chart: PointChart, narrow: bool) -> Sheet:
    width = NARROW if narrow else WIDE
    shapes = dict(zip([each.label for each in chart.classes], CLASS_SHAPES * 3, strict=False))
    keys = [
        legend.Key(each.label, "mark", each.color, shapes[each.label]) for each in chart.classes
    ]
    keys.append(legend.Key("large: mean", "mean", "muted", CLASS_SHAPES[0]))
    every = [found for panel in chart.panels for found in panel.points.values()]
    means = [value for found in every for value in found.mean or ()]
    keys += legend.interval_key(means, "whisker")
    count = len(chart.panels)
    columns = min(count, 3) if not narrow else 1 if count <= 2 else 2
    across = Axis(chart.x_label, chart.x_limits or _limits(chart, "x"), chart.log_x)
    panels = Panels(
        width,
        [panel.title for panel in chart.panels],
        [across] * count,
        Axis(chart.y_label, chart.y_limits or _limits(chart, "y")),
        columns,
        {1: 240.0, 2: 240.0 if not narrow else 140.0}.get(columns, 170.0),
    )
    top = legend.height(keys, width)
    sheet = Sheet(width, top + panels.height)
    legend.draw(sheet, keys, 0)
    for axes, panel in zip(panels.draw(sheet, top), chart.panels, strict=True):
        for number, each in enumerate(chart.classes):
            found = panel.points.get(each.label)
            if found is not None and len(found.x):
                most = MOST_NARROW if narrow else MOST_DRAWN
                _draw_cloud(axes, found, light(each.color), shapes[each.label], most)
                _draw_mean(axes, found, light(each.color), shapes[each.label], number)
    return sheet


def _limits(chart: PointChart, name: str) -> tuple[float, float]:
    every = np.concatenate(
        [getattr(found, name) for panel in chart.panels for found in panel.points.values()]
    )
    return spread(float(every.min()), float(every.max()), log=chart.log_x and name == "x")


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
        axes.plot(
            [estimate(across)],
            [estimate(up)],
            marker=shape,
            ms=size,
            color=face,
            mec=light("ink"),
            mew=0 if face != color else 1.5,
            clip_on=False,
            zorder=order + 0.1 * number,
        )


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


def draw_front(chart: FrontChart, narrow: bool) -> Sheet:
    width = NARROW if narrow else WIDE
    labels = list(dict.fromkeys(each.label for panel in chart.panels for each in panel.series))
    shapes = dict(zip(labels, SHAPES * len(labels), strict=False))
    keys = _keys(chart, shapes)
    warning = wrapped(chart.warning, width, bold=True)
    above = len(warning) * SIZE * LINE + (8 if warning else 0)
    panels = Panels(
        width,
        [panel.title for panel in chart.panels],
        [_across(panel) for panel in chart.panels],
        Axis(chart.value_label, _front_limits(chart), percent=True),
        1 if narrow else len(chart.panels),
        220.0 if narrow else 300.0,
    )
    top = above + legend.height(keys, width)
    sheet = Sheet(width, top + panels.height)
    sheet.lines(0, SIZE, warning, weight="bold", color="committed")
    legend.draw(sheet, keys, above)
    for axes, panel in zip(panels.draw(sheet, top), chart.panels, strict=True):
        _staircase(axes, panel)
        for each in panel.series:
            _draw_series(axes, each, shapes[each.label])
        if not narrow:
            size = (panels.panel_width, panels.panel_height)
            kept_free = [_whiskers(each) for each in panel.series]
            name_points(axes, [*map(_named, panel.series), *kept_free], size)
    return sheet


def _keys(chart: FrontChart, shapes: dict[str, str]) -> list[legend.Key]:
    unique = {each.label: each for panel in chart.panels for each in panel.series}
    keys = [legend.Key(label, "line", each.color, shapes[label]) for label, each in unique.items()]
    keys.append(legend.Key(STAIRCASE, "hollow"))
    values = [point.value for each in unique.values() for point in each.points]
    return keys + legend.interval_key(values, "upright")


def _across(panel: FrontPanel) -> Axis:
    edges = [edge for each in panel.series for point in each.points for edge in reach(point.cost)]
    return Axis(panel.cost_label, spread(min(edges), max(edges), True), log=True)


def _front_limits(chart: FrontChart) -> tuple[float, float]:
    points = [point for panel in chart.panels for each in panel.series for point in each.points]
    edges = [edge for point in points for edge in reach(point.value)]
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


def _draw_series(axes: Axes, series: FrontSeries, shape: str) -> None:
    color = light(series.color)
    points = sorted(series.points, key=lambda point: estimate(point.cost))
    xs = [estimate(point.cost) for point in points]
    ys = [estimate(point.value) for point in points]
    axes.plot(xs, ys, color=color, lw=1.2, alpha=0.6, zorder=2)
    for point, x, y in zip(points, xs, ys, strict=True):
        if (edge := bounds(point.value)) is not None:
            axes.plot([x, x], edge, color=color, lw=1.4, zorder=2.5)
        if (edge := bounds(point.cost)) is not None:
            axes.plot(edge, [y, y], color=color, lw=1.4, zorder=2.5)
        edge_color = light("ink" if point.front else "paper")
        axes.plot(
            [x],
            [y],
            ls="",
            marker=shape,
            ms=9.5 if point.front else 7.5,
            color=color,
            mec=edge_color,
            mew=1.6 if point.front else 1.0,
            clip_on=False,
            zorder=3.5,
        )


def _whiskers(series: FrontSeries) -> LineSeries:
    """Unnamed points along the whiskers of the costs, so that no name covers these."""
    xs, ys = [], []
    for point in series.points:
        low, high = reach(point.cost)
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
