"""A figure whose places are CSS pixels from the top left; axes; and a grid of panels.

At its own width, a unit of the SVG is a pixel of the page, so type has the size that a reader sees:
720 pixels wide, or 352 narrow, which is a phone of 390 minus its margins. The name of the y axis is
above the panels, where it is easy to read.

This file and draw_*.py import matplotlib; they are imported only when something is drawn.
Figures are made without pyplot, hence without global state; settings hold only while drawing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.text import Text
from matplotlib.textpath import text_to_path
from matplotlib.transforms import Affine2D

from anyorder.report.charts.svg import light

WIDE, NARROW = 720.0, 352.0
SIZE, SMALL = 12.5, 11.5
"""Type sizes: names and titles; numbers and notes."""
LINE = 1.35
"""The height of a line of text, relative to its size."""
MARGIN = 10.0
"""Around a chart that is saved as a file."""
UNIT = 72.0
"""Pixels per inch of matplotlib, so that a pixel is a unit of its SVG."""

_SETTINGS: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same widths everywhere
    "svg.fonttype": "none",
    "svg.hashsalt": "anyorder",  # the same ids on every run
    "pdf.fonttype": 42,  # TrueType: many journals refuse Type 3 fonts
    "text.parse_math": False,  # a dollar in a program is a dollar
    "axes.unicode_minus": True,
    "path.simplify": False,
}

_NOT_ABOUT_LOOKS = ("backend", "interactive", "toolbar", "webagg", "tk.", "figure.hooks")


@contextmanager
def drawing_settings() -> Iterator[None]:
    """Matplotlib's defaults and ours; the user's matplotlibrc has no effect."""
    settings: Any = {
        name: value
        for name, value in mpl.rcParamsDefault.items()
        if not name.startswith(_NOT_ABOUT_LOOKS)
    }
    settings.update(_SETTINGS)
    with mpl.rc_context(settings):
        yield


class PixelFigure:
    """A figure with places in pixels from its top left corner."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width / UNIT, height / UNIT), facecolor=light("paper"))

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = SIZE,
        color: str = "ink",
        align: Literal["left", "center", "right"] = "left",
        **more: Any,
    ) -> Text:
        """Words whose baseline is at `y`; `more` goes to matplotlib (family, weight)."""
        return self.figure.text(
            x / self.width,
            1 - y / self.height,
            words,
            fontsize=size,
            color=light(color),
            ha=align,
            va="baseline",
            **more,
        )

    def lines(self, x: float, y: float, lines: list[str], **more: Any) -> float:
        """Lines below each other, the first baseline at `y`; returns the next baseline."""
        step = more.get("size", SIZE) * LINE
        for number, line in enumerate(lines):
            self.text(x, y + number * step, line, **more)
        return y + len(lines) * step

    def box(
        self, x: float, y: float, width: float, height: float, *, radius: float = 0, **more: Any
    ) -> None:
        """A rectangle; `more` goes to matplotlib (facecolor, edgecolor, linewidth, alpha)."""
        place = (x, self.height - y - height)
        settings = {"transform": self._pixels(), "linewidth": 0, **more}
        if radius:
            shape = f"round,pad=0,rounding_size={radius}"
            patch: Any = FancyBboxPatch(place, width, height, boxstyle=shape, **settings)
        else:
            patch = Rectangle(place, width, height, **settings)
        self.figure.add_artist(patch)

    def stroke(self, xs: list[float], ys: list[float], **more: Any) -> None:
        """A line through places of the figure, or marks at them."""
        heights = [self.height - y for y in ys]
        self.figure.add_artist(Line2D(xs, heights, transform=self._pixels(), **more))

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Axes without a frame, with a light grid and quiet numbers."""
        corner = x / self.width, 1 - (y + height) / self.height
        axes = self.figure.add_axes((*corner, width / self.width, height / self.height))
        axes.set_facecolor("none")
        for side in ("left", "right", "top"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(light("muted"))
        axes.spines["bottom"].set_linewidth(0.8)
        axes.tick_params(length=0, pad=5, labelsize=SMALL, labelcolor=light("muted"), which="both")
        axes.set_axisbelow(True)
        axes.grid(True, color=light("rule"), linewidth=0.9)
        return axes

    def with_margins(self) -> Any:
        """The region to save; it adds white paper around the figure."""
        size = self.width + 2 * MARGIN, self.height + 2 * MARGIN
        self.box(-MARGIN, -MARGIN, *size, facecolor=light("paper"), zorder=-1)
        return self.figure.bbox_inches.padded(MARGIN / UNIT)

    def _pixels(self) -> Any:
        # Shares of the figure, as its text has, hold at any resolution and with margins.
        return Affine2D().scale(1 / self.width, 1 / self.height) + self.figure.transFigure


@cache
def text_width(words: str, size: float = SIZE, *, bold: bool = False, mono: bool = False) -> float:
    """The width of words in our type; most readers' own type is narrower."""
    font = FontProperties(
        family="DejaVu Sans Mono" if mono else "DejaVu Sans",
        weight="bold" if bold else "normal",
        size=size,
    )
    return float(text_to_path.get_text_width_height_descent(words, font, ismath=False)[0])


def wrapped(words: str, width: float, size: float = SIZE, *, bold: bool = False) -> list[str]:
    """Words on as few lines as fit, of about equal length; a long word is not broken."""
    pieces = {word: text_width(word, size, bold=bold) for word in set(words.split())}
    space = text_width(" ", size, bold=bold)

    def filled(limit: float) -> list[str]:
        lines: list[str] = []
        used = 0.0
        for word in words.split():
            if lines and used + space + pieces[word] <= limit:
                lines[-1] += f" {word}"
                used += space + pieces[word]
            else:
                lines.append(word)
                used = pieces[word]
        return lines

    best = filled(width)
    # The narrowest limit that needs no further line gives the most even lines.
    narrower = (filled(width * share / 20) for share in range(19, 8, -1))
    return [best, *(lines for lines in narrower if len(lines) == len(best))][-1]


STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def linear_ticks(low: float, high: float, most: int) -> list[float]:
    """At most `most` round numbers from `low` to `high`."""
    assert high > low and most >= 2
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = [power * step for step in (*STEPS, 20.0, 50.0)]
    for step in steps:
        # The tolerance keeps ends that are multiples of the step, such as 0.3 of 0.1.
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [number * step for number in range(first, last + 1)]
    raise AssertionError("the steps reach two powers of ten")


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of ten, with multiples of 2 and 5 if there is room; at most about `most`.

    Within a decade that has fewer than three of these: round numbers at even distances.
    """
    assert 0 < low < high
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [digit * 10.0**decade for decade in decades for digit in digits]
        found = [tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(found) <= most:
            break
    if len(found) < 3 and high < 10 * low:
        return linear_ticks(low, high, most)
    return found[:: math.ceil(len(found) / most)] if found else [low, high]


def written(value: float, percent: bool = False) -> str:
    """A number of an axis, without trailing zeros."""
    if percent:
        return signed(f"{100 * value:.6g}%")
    if value and not 1e-4 <= abs(value) < 1e5:
        mantissa, exponent = f"{value:.0e}".split("e")
        return signed(f"{mantissa}e{int(exponent)}")
    return signed(f"{value:.6g}")


def shown(value: float, percent: bool = False) -> str:
    """A value beside its bar, in about three figures; a table has the exact number."""
    if percent:
        return signed(f"{100 * value:.1f}%")
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return signed(f"{value:.{digits}f}")


def signed(number: str) -> str:
    """The number with a real minus sign, and none before a zero."""
    if not any(digit in number for digit in "123456789"):
        number = number.removeprefix("-")
    return number.replace("-", "\N{MINUS SIGN}")


def with_room(low: float, high: float, log: bool = False) -> tuple[float, float]:
    """Limits with a little room on both sides, also if all values are equal."""
    if log:
        room = 10 ** (0.05 * max(math.log10(high / low), 0.4))
        return low / room, high * room
    room = 0.06 * (high - low)
    if low - room == low or high + room == high:  # equal, or but for rounding
        room = 0.5 * max(abs(low), abs(high), 0.1)
    return low - room, high + room


def draw_marks(
    axes: Axes, xs: Sequence[float], ys: Sequence[float], shape: str, size: float, **look: Any
) -> None:
    """Marks without a line between them, whole at the edge of the axes too."""
    axes.plot(xs, ys, ls="", marker=shape, ms=size, clip_on=False, **look)


NUMBERS = 20.0
"""Room for the numbers below a panel."""
ACROSS, DOWN = 22.0, 18.0
"""Between panels."""
OVER = 6.0
"""Above a panel's frame, for the upper half of the top number of the y axis."""


@dataclass(frozen=True)
class Axis:
    """An axis: its name, limits and numbers."""

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
    """The layout of the panels below the legend; each has an x axis, all share the y axis."""

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
        """Room for the numbers of the y axis."""
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
        """Whether each panel names its x axis; else the last row does so for all."""
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

    def draw(self, figure: PixelFigure, top: float) -> list[Axes]:
        """Draw all axes, their names and titles."""
        figure.lines(0, top + SMALL, self._y_lines, size=SMALL, color="muted")
        return [self._draw_one(figure, top + self._above, number) for number in range(len(self.x))]

    def _draw_one(self, figure: PixelFigure, top: float, number: int) -> Axes:
        row, column = divmod(number, self.columns)
        x = self.left + column * (self.panel_width + ACROSS)
        y = top + row * self._row
        figure.lines(x, y + SIZE, self._title_lines(self.titles[number]), weight="bold")
        y += self._title_height
        axes = figure.axes(x, y, self.panel_width, self.panel_height)
        self._scale(axes, number, numbered=column == 0)
        place = y + self.panel_height + NUMBERS + SMALL
        figure.lines(x, place, self._x_lines(number), size=SMALL, color="muted")
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
