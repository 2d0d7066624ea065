"""Panels in rows: where each is on the sheet, and its axes with round numbers and names.

Used by charts with two axes (points_drawn.py, lines_drawn.py). The name of the y axis lies above
the panels, where it can be read without turning one's head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from anyorder.report.charts.axis import linear_ticks, log_ticks, written
from anyorder.report.charts.palette import light
from anyorder.report.charts.sheet import LINE, SIZE, SMALL, Sheet, text_width, wrapped

NUMBERS = 20.0
"""Room of the numbers below a panel."""
ACROSS, DOWN = 22.0, 18.0
"""Between panels."""
OVER = 6.0
"""Above a panel's frame: half a number of the y axis reaches there."""


@dataclass(frozen=True)
class Axis:
    """One axis of all panels."""

    label: str
    limits: tuple[float, float]
    log: bool = False
    percent: bool = False
    ticks: tuple[float, ...] = ()

    def chosen(self, most: int) -> list[float]:
        low, high = self.limits
        if self.ticks:
            return [tick for tick in self.ticks if low <= tick <= high]
        return (log_ticks if self.log else linear_ticks)(low, high, most)


@dataclass(frozen=True)
class Panels:
    """The plan of all panels below the legend; each has an x axis, all the same y axis."""

    width: float
    titles: Sequence[str]
    x: Sequence[Axis]
    y: Axis
    columns: int
    panel_height: float
    right: float = 0.0
    """Room kept free at the right, for names at the ends of lines."""

    @property
    def rows(self) -> int:
        return -(-len(self.titles) // self.columns)

    @property
    def left(self) -> float:
        """Room of the numbers of the y axis."""
        ticks = self.y.chosen(self._most_y)
        return max(text_width(written(tick, self.y.percent), SMALL) for tick in ticks) + 8

    @property
    def panel_width(self) -> float:
        inside = self.width - self.left - self.right - 10
        return (inside - ACROSS * (self.columns - 1)) / self.columns

    @property
    def _most_y(self) -> int:
        return 6 if self.panel_height > 150 else 4

    @property
    def height(self) -> float:
        last = 0.0 if self._each_says else self._label_height
        return self._above + self.rows * self._row - DOWN + last

    @property
    def _above(self) -> float:
        return len(self._y_lines) * SMALL * LINE + 6

    @property
    def _y_lines(self) -> list[str]:
        return wrapped(self.y.label, self.width, SMALL)

    @property
    def _title_height(self) -> float:
        lines = max(len(self._title_lines(title)) for title in self.titles)
        return lines * SIZE * LINE + OVER

    def _title_lines(self, title: str) -> list[str]:
        return wrapped(title, self.panel_width, bold=True)

    @property
    def _row(self) -> float:
        below = NUMBERS + (self._label_height if self._each_says else 4)
        return self._title_height + self.panel_height + below + DOWN

    @property
    def _each_says(self) -> bool:
        """Whether each panel has the name of its x axis, or the last row for all."""
        return self.columns == 1 or len({axis.label for axis in self.x}) > 1

    @property
    def _label_height(self) -> float:
        lines = max(len(lines) for lines in map(self._x_lines, range(len(self.x))))
        return lines * SMALL * LINE + 4

    def _x_lines(self, number: int) -> list[str]:
        if not self._each_says and number != (self.rows - 1) * self.columns:
            return []
        room = self.panel_width if self._each_says else self.width - self.left
        return wrapped(self.x[number].label, room, SMALL)

    def draw(self, sheet: Sheet, top: float) -> list[Axes]:
        """All axes, their names and titles."""
        lines = self._y_lines
        sheet.lines(0, top + SMALL, lines, size=SMALL, color="muted")
        return [self._draw_one(sheet, top + self._above, number) for number in range(len(self.x))]

    def _draw_one(self, sheet: Sheet, top: float, number: int) -> Axes:
        row, column = divmod(number, self.columns)
        x = self.left + column * (self.panel_width + ACROSS)
        y = top + row * self._row
        title = self._title_lines(self.titles[number])
        sheet.lines(x, y + SIZE, title, weight="bold")
        y += self._title_height
        axes = sheet.axes(x, y, self.panel_width, self.panel_height)
        self._scale(axes, number, numbered=column == 0)
        place = y + self.panel_height + NUMBERS + SMALL
        sheet.lines(x, place, self._x_lines(number), size=SMALL, color="muted")
        return axes

    def _scale(self, axes: Axes, number: int, numbered: bool) -> None:
        across = self.x[number]
        if across.log:
            axes.set_xscale("log")
        if self.y.log:
            axes.set_yscale("log")
        axes.set_xlim(across.limits)
        axes.set_ylim(self.y.limits)
        ticks = across.chosen(max(3, int(self.panel_width / 52)))
        axes.set_xticks(ticks, [written(tick) for tick in ticks])
        ticks = self.y.chosen(self._most_y)
        words = [written(tick, self.y.percent) if numbered else "" for tick in ticks]
        axes.set_yticks(ticks, words)
        axes.set_xticks([], minor=True)
        axes.set_yticks([], minor=True)
        axes.spines["bottom"].set_color(light("muted"))
