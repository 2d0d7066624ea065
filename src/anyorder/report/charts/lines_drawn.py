"""How a LineChart is drawn: bands, lines and marks, and names where there is room for them."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from anyorder.report.charts import legend
from anyorder.report.charts.axis import spread
from anyorder.report.charts.lines import LineChart, LinePanel, LineSeries
from anyorder.report.charts.names import MARKED, name_ends, name_points
from anyorder.report.charts.palette import light
from anyorder.report.charts.panels import Axis, Panels
from anyorder.report.charts.sheet import NARROW, WIDE, Sheet, text_width
from anyorder.report.charts.values import bounds, estimate, reach

SHAPES = ("o", "s", "D", "^", "v", "P", "X")
"""Of the lines in their order, so that colour is not all that tells them apart."""
MOST_NAMES = 0.3
"""Names stand at the ends of lines where they take at most this share of the width."""
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
    """Panels with a name of their own for x have limits of their own as well."""
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
    if chart.percent and not chart.log_y:  # no room is needed for what cannot be
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
