"""A chart that can be put into a page, or saved for a paper.

It is drawn anew for every use: wide, and narrow for a phone. Both are in `inline()`, where the
width of the place decides which one is seen. The output depends on the chart alone: no dates, and
ids from a fixed salt.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyorder.files import replacing
from anyorder.report.charts.svg import for_page

if TYPE_CHECKING:
    from anyorder.report.charts.sheet import Sheet

DPI = 200
NO_MATPLOTLIB = "drawing charts needs matplotlib: pip install 'anyorder[report]'"
_NO_DATES = {
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@dataclass(frozen=True)
class Drawing:
    """A checked chart, not drawn yet."""

    name: str
    """The name of its files, and the beginning of the ids in its SVG."""
    alt: str
    """What it shows, for those who cannot see it."""
    draw: Callable[[bool], Sheet]
    """(narrow) -> the finished sheet."""

    def svg(self, narrow: bool = False) -> str:
        """An `<svg>` element: text is text, colours are CSS variables with light fall-backs."""
        source = self._saved("svg", narrow=narrow).decode("utf-8")
        return for_page(source, self.name, "narrow" if narrow else "wide", self.alt)

    def inline(self) -> str:
        """Both variants, for a page that has `style()` in its head; CSS shows the one that fits."""
        return f'<div class="ao-chart">{self.svg()}{self.svg(narrow=True)}</div>'

    def save(self, folder: Path) -> list[Path]:
        """`<name>.png` (200 dpi) and `<name>.pdf` in `folder`, light colours on white."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for kind in ("png", "pdf"):
            paths.append(folder / f"{self.name}.{kind}")
            content = self._saved(kind)
            with replacing(paths[-1]) as file:
                file.write(content)
        return paths

    def _saved(self, kind: str, narrow: bool = False) -> bytes:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            raise ValueError(NO_MATPLOTLIB) from None
        from anyorder.report.charts.sheet import drawing_settings

        with drawing_settings():
            sheet = self.draw(narrow)
            target = io.BytesIO()
            settings: dict[str, Any] = {"facecolor": "none"}
            if kind != "svg":  # a page has its own margins and its own paper
                settings = {"dpi": DPI, "bbox_inches": sheet.with_margins()}
            sheet.figure.savefig(target, format=kind, metadata=_NO_DATES[kind], **settings)
        return target.getvalue()
