"""A sheet to draw on: matplotlib with our type, measured in CSS pixels from the top left.

A unit of the SVG is a pixel of the page when the sheet has its own width, so sizes of type are
those that a reader sees: 720 wide, or 352 narrow, which is a phone of 390 less its margins.

The only file that imports matplotlib, and nobody imports it before something is drawn (drawing.py).
Figures are made without pyplot, hence without global state; settings hold only while drawing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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

from anyorder.report.charts.palette import light

WIDE, NARROW = 720.0, 352.0
SIZE, SMALL = 12.5, 11.5
"""Type: names and titles; numbers and notes."""
LINE = 1.35
"""Height of a line of text, in its size."""
MARGIN = 10.0
"""Around a chart that is saved as a file."""
UNIT = 72.0
"""Units to matplotlib's inch."""

_SETTINGS: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same widths everywhere
    "svg.fonttype": "none",
    "svg.hashsalt": "anyorder",
    "pdf.fonttype": 42,
    "text.parse_math": False,
    "axes.unicode_minus": True,
    "path.simplify": False,
}

_NOT_ABOUT_LOOKS = ("backend", "interactive", "toolbar", "webagg", "tk.", "figure.hooks")


@contextmanager
def drawing_settings() -> Iterator[None]:
    """Matplotlib's own defaults and ours, whatever the reader's configuration says."""
    settings: Any = {
        name: value
        for name, value in mpl.rcParamsDefault.items()
        if not name.startswith(_NOT_ABOUT_LOOKS)
    }
    settings.update(_SETTINGS)
    with mpl.rc_context(settings):
        yield


class Sheet:
    """A figure whose places are pixels from its top left corner."""

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
        """Lines below each other, the first baseline at `y`; the next baseline would be there."""
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
        """A line, or marks, through places of the sheet."""
        heights = [self.height - y for y in ys]
        self.figure.add_artist(Line2D(xs, heights, transform=self._pixels(), **more))

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Axes in this place: no frame, a light grid, quiet numbers."""
        axes = self.figure.add_axes(
            (
                x / self.width,
                1 - (y + height) / self.height,
                width / self.width,
                height / self.height,
            )
        )
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
        """What to save: some white paper around everything."""
        self.box(
            -MARGIN,
            -MARGIN,
            self.width + 2 * MARGIN,
            self.height + 2 * MARGIN,
            facecolor=light("paper"),
            zorder=-1,
        )
        return self.figure.bbox_inches.padded(MARGIN / UNIT)

    def _pixels(self) -> Any:
        # As shares of the figure, like its text: at any resolution, with or without margins.
        return Affine2D().scale(1 / self.width, 1 / self.height) + self.figure.transFigure


@cache
def text_width(words: str, size: float = SIZE, *, bold: bool = False, mono: bool = False) -> float:
    """How wide words are in our type; most readers' own type is narrower."""
    font = FontProperties(
        family="DejaVu Sans Mono" if mono else "DejaVu Sans",
        weight="bold" if bold else "normal",
        size=size,
    )
    return float(text_to_path.get_text_width_height_descent(words, font, ismath=False)[0])


def wrapped(words: str, width: float, size: float = SIZE, *, bold: bool = False) -> list[str]:
    """Words on as few lines as fit, of about equal length; a single long word is left whole."""
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
    narrower = (filled(width * share / 20) for share in range(19, 8, -1))
    return [best, *(lines for lines in narrower if len(lines) == len(best))][-1]
