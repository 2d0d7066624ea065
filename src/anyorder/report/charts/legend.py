"""The legend of a chart: keys for colours and marks, in one line or several above the chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from anyorder.measure.intervals import Interval
from anyorder.report.charts.pixel_figure import LINE, SIZE, PixelFigure, text_width, wrapped
from anyorder.report.charts.svg import Number, bounds, light

ROW, BELOW = 20.0, 12.0
"""The height of a line of keys; the room below the last."""
SWATCH, GAP, BETWEEN = 20.0, 7.0, 20.0


@dataclass(frozen=True)
class Key:
    label: str
    shape: str
    """One of the names in SHAPES."""
    color: str = "ink"
    marker: str = "o"


def interval_key(values: Iterable[Number], shape: str) -> list[Key]:
    """The key of whiskers or bands, if there are any."""
    levels = {value.level for value in values if isinstance(value, Interval) and bounds(value)}
    words = " and ".join(f"{100 * level:.3g}%" for level in sorted(levels))
    return [Key(f"{words} interval", shape)] if levels else []


def height(keys: Sequence[Key], width: float) -> float:
    """The height that `draw` needs."""
    return sum(_row_height(row, width) for row in _rows(keys, width)) + BELOW if keys else 0.0


def draw(figure: PixelFigure, keys: Sequence[Key], y: float) -> float:
    """Draw keys from `y` downwards; returns the y below them."""
    for row in _rows(keys, figure.width):
        x = 0.0
        for key in row:
            SHAPES[key.shape](figure, key, x, y + ROW / 2)
            words = _words(key, figure.width)
            figure.lines(x + SWATCH + GAP, y + ROW / 2 + 0.36 * SIZE, words)
            x += _width(key) + BETWEEN
        y += _row_height(row, figure.width)
    return y + BELOW if keys else y


def _width(key: Key) -> float:
    return SWATCH + GAP + text_width(key.label)


def _words(key: Key, width: float) -> list[str]:
    return wrapped(key.label, width - SWATCH - GAP)


def _row_height(row: Sequence[Key], width: float) -> float:
    return ROW + (max(len(_words(key, width)) for key in row) - 1) * SIZE * LINE


def _rows(keys: Sequence[Key], width: float) -> list[list[Key]]:
    rows: list[list[Key]] = []
    used = 0.0
    for key in keys:
        if rows and used + BETWEEN + _width(key) <= width:
            rows[-1].append(key)
            used += BETWEEN + _width(key)
        else:
            rows.append([key])
            used = _width(key)
    return rows


def _pale(figure: PixelFigure, key: Key, x: float, y: float) -> None:
    color = light(key.color)
    figure.box(x + 3, y - 6, 14, 12, radius=2, facecolor=color, alpha=0.28)
    figure.box(x + 3.6, y - 5.4, 12.8, 10.8, radius=2, facecolor="none", edgecolor=color, lw=1.2)


def _line(figure: PixelFigure, key: Key, x: float, y: float, dashes: str = "-") -> None:
    figure.stroke([x, x + SWATCH], [y, y], color=light(key.color), lw=2, ls=dashes)
    _mark(figure, key, x, y)


def _mark(
    figure: PixelFigure,
    key: Key,
    x: float,
    y: float,
    size: float = 6.5,
    width: float = 0,
    **look: Any,
) -> None:
    look = {"color": light(key.color), "marker": key.marker, "ms": size, "mew": width, **look}
    figure.stroke([x + SWATCH / 2], [y], **look)


def _hollow(figure: PixelFigure, key: Key, x: float, y: float) -> None:
    _mark(figure, key, x, y, width=1.3, mfc=light("paper"), mec=light(key.color))


def _mean(figure: PixelFigure, key: Key, x: float, y: float) -> None:
    _mark(figure, key, x, y, size=11, width=1.5, mec=light("ink"))


def _whisker(figure: PixelFigure, key: Key, x: float, y: float) -> None:
    color = light(key.color)
    figure.stroke([x + 1, x + SWATCH - 1], [y, y], color=color, lw=1.4)
    for end in (x + 1, x + SWATCH - 1):
        figure.stroke([end, end], [y - 3.5, y + 3.5], color=color, lw=1.4)


def _ramp(figure: PixelFigure, key: Key, x: float, y: float) -> None:
    for number, strength in enumerate((0.08, 0.25, 0.45)):
        left = x + number * SWATCH / 3
        figure.box(left, y - 6, SWATCH / 3, 12, facecolor=light(key.color), alpha=strength)


def _chosen(figure: PixelFigure, key: Key, x: float, y: float) -> None:
    color = light(key.color)
    figure.box(x, y - 6, SWATCH, 12, radius=3, facecolor=color, alpha=0.45)
    figure.box(x, y - 6, SWATCH, 12, radius=3, facecolor="none", edgecolor=color, lw=1.6)


def _upright(figure: PixelFigure, key: Key, x: float, y: float) -> None:
    middle = x + SWATCH / 2
    figure.stroke([middle, middle], [y - 7, y + 7], color=light(key.color), lw=1.5)


SHAPES: dict[str, Callable[[PixelFigure, Key, float, float], object]] = {
    "bar": lambda figure, key, x, y: figure.box(
        x + 3, y - 6, 14, 12, radius=2, facecolor=light(key.color)
    ),
    "pale": _pale,
    "line": _line,
    "dashed": partial(_line, dashes="--"),
    "mark": _mark,
    "hollow": _hollow,
    "mean": _mean,
    "whisker": _whisker,
    "upright": _upright,
    "ramp": _ramp,
    "chosen": _chosen,
    "slot": lambda figure, _, x, y: figure.box(
        x, y - 6, SWATCH, 12, radius=3, facecolor=light("slot")
    ),
    "earlier": lambda figure, _, x, y: figure.text(
        x + SWATCH / 2, y + 4, "abc", size=SIZE - 2, color="muted", align="center"
    ),
    "band": lambda figure, _, x, y: figure.box(
        x, y - 6, SWATCH, 12, facecolor=light("muted"), alpha=0.25
    ),
}
