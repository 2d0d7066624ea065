"""Clouds of points in panels with shared axes: mass and localisation (paper, section 3).

Classes (the tokens with most mass, the tokens committed) have a colour and a shape each; their
means are marked. Of a large class evenly spaced members are drawn, so that files stay small; means
are of all. How it is drawn: points_drawn.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from anyorder.report.charts.drawing import Drawing
from anyorder.report.charts.values import Number, Series, check_finite, check_name, check_series

if TYPE_CHECKING:
    from anyorder.report.charts.sheet import Sheet

MOST_DRAWN, MOST_NARROW = 600, 300
"""Points of one class in one panel, wide and narrow."""


@dataclass(frozen=True)
class PointSet:
    """The points of one class in one panel; arrays are fine."""

    x: Sequence[float]
    y: Sequence[float]
    mean: tuple[Number, Number] | None = None
    """What to mark, with intervals if known; unset: the plain mean of both coordinates."""


@dataclass(frozen=True)
class PointPanel:
    title: str
    points: Mapping[str, PointSet]
    """By the label of a class."""


@dataclass(frozen=True)
class PointChart:
    """Panels side by side (below each other on narrow pages), all with the same axes."""

    name: str
    alt: str
    x_label: str
    y_label: str
    classes: tuple[Series, ...]
    panels: tuple[PointPanel, ...]
    log_x: bool = False
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None


def points(chart: PointChart) -> Drawing:
    """The chart, checked; drawn when asked for."""
    check_name(chart.name)
    found = [(panel, label, each) for panel in chart.panels for label, each in panel.points.items()]
    check_series(chart.classes, [label for _, label, _ in found])
    if not any(len(each.x) for _, _, each in found):
        raise ValueError(f"chart {chart.name!r} has no points: leave it out")
    for panel, label, each in found:
        what = f"{label!r} in the panel {panel.title!r}"
        if len(each.x) != len(each.y):
            raise ValueError(f"{what}: {len(each.x)} x values and {len(each.y)} y values")
        x, y = np.asarray(each.x, dtype=float), np.asarray(each.y, dtype=float)
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise ValueError(f"{what} has values that are not finite: leave such points out")
        if chart.log_x and (x <= 0).any():
            raise ValueError(f"{what} has x values of 0 or less, which a log axis cannot show")
        check_finite(what, each.mean or ())

    def draw(narrow: bool) -> Sheet:
        from anyorder.report.charts.points_drawn import draw_points

        return draw_points(chart, narrow)

    return Drawing(chart.name, chart.alt, draw)
