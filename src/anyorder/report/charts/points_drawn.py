"""How a PointChart is drawn: small pale marks, and the mean of each class large, above them."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from anyorder.report.charts import legend
from anyorder.report.charts.axis import spread
from anyorder.report.charts.palette import light
from anyorder.report.charts.panels import Axis, Panels
from anyorder.report.charts.points import MOST_DRAWN, MOST_NARROW, PointChart, PointSet
from anyorder.report.charts.sheet import NARROW, WIDE, Sheet
from anyorder.report.charts.values import Number, bounds, estimate

CLASS_SHAPES = ("o", "s", "D", "^")
"""Of the classes in their order, so that colour is not all that tells them apart."""


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
    """Evenly spaced members where there are too many to draw."""
    x, y = np.asarray(found.x, dtype=float), np.asarray(found.y, dtype=float)
    if len(x) > most:
        chosen = np.linspace(0, len(x) - 1, most).round().astype(int)
        x, y = x[chosen], y[chosen]
    axes.plot(x, y, ls="", marker=shape, ms=4.2, color=color, alpha=0.38, mew=0, zorder=2)


def _draw_mean(axes: Axes, found: PointSet, color: str, shape: str, number: int) -> None:
    across, up = found.mean or (float(np.mean(found.x)), float(np.mean(found.y)))
    _draw_cross(axes, across, up)
    # Ink around the colour and paper around the ink: seen on any cloud.
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
