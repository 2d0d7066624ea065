"""Drawings: matplotlib's SVG made fit for a page, the colours, and the parts that charts share.

A `Drawing` is rendered on every use, wide and narrow (for a phone). `inline()` holds both, and CSS
shows the one that fits. The output depends on the chart alone: no dates, ids from a fixed salt.

`for_page` makes the SVG small and self-contained: colours become CSS variables, fonts become those
of the reader, ids begin with the drawing's name, and matplotlib's style sheet, which would apply to
the whole page, becomes a property of this element. A colour outside the palette is a bug.

A family has the same colour in every chart (families/descriptions.py); so have policies and kinds
of tokens. Colours that can meet in one chart differ for colour-blind readers too
(tests/report/charts/test_svg.py), and colour is never the only difference. Paper and ink are
those of player/player.css. Charts are drawn in the light colours. No two names share a light
colour, so `for_page` can map each one back to its name.

Not here: shapes and layout (pixel_figure.py, legend.py, draw_*.py).
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from xml.etree import ElementTree

from anyorder.checks import refuse_unknown
from anyorder.families.descriptions import DESCRIPTIONS
from anyorder.files import replacing
from anyorder.measure.intervals import Interval

if TYPE_CHECKING:
    from anyorder.report.charts.pixel_figure import PixelFigure


class Color(NamedTuple):
    light: str
    dark: str


GROUNDS: dict[str, Color] = {
    "paper": Color("#ffffff", "#15171b"),
    "ink": Color("#1d2126", "#e5e7eb"),
    "muted": Color("#5d6671", "#9ca5b1"),
    "rule": Color("#e6e4df", "#2c3139"),
    "slot": Color("#e4e2dd", "#343a43"),
}
"""Paper, text, quiet text, grid lines, masked slots."""

MEANINGS: dict[str, Color] = {
    # Policies: which slot is revealed next.
    "left_to_right": Color("#5f6872", "#c6ccd4"),
    "confidence": Color("#3b4aa0", "#7d86f0"),
    "random": Color("#d9552f", "#f0784f"),
    "planner": Color("#6b1038", "#b43c6c"),
    # Kinds of tokens in the mass-localisation plot.
    "top": Color("#16a06f", "#86ecc4"),
    "committed": Color("#a82c18", "#e56f50"),
    # Shares of the schedule.
    "inserted": Color("#2c5aa8", "#8fb6ff"),
    "masked": Color("#868e99", "#8d96a2"),
    "clean": Color("#c9660f", "#f2a15c"),
    # Scores: the better, the stronger.
    "score": Color("#2d5ba9", "#8eb5fe"),
}
"""Colours besides those of families."""


def chart_colors() -> dict[str, Color]:
    """Name -> colour, for records of charts. It includes families that are registered later."""
    known = DESCRIPTIONS.values()
    return {each.name: Color(*each.color) for each in known if each.color} | MEANINGS


def spare_colors() -> list[str]:
    """The names of families whose colours may serve something else, in order of preference."""
    known = sorted(DESCRIPTIONS.values(), key=lambda each: each.spare_color)
    return [each.name for each in known if each.color]


def all_colors() -> dict[str, Color]:
    """`chart_colors` and the grounds."""
    return GROUNDS | chart_colors()


STYLE = """
.ao-chart { container: ao-chart / inline-size; display: block; }
[data-theme="light"] .ao-chart, .ao-chart[data-theme="light"] { color-scheme: light; }
[data-theme="dark"] .ao-chart, .ao-chart[data-theme="dark"] { color-scheme: dark; }
.ao-chart > svg { display: block; width: 100%; height: auto; overflow: visible; }
.ao-chart > .is-wide { max-width: 50rem; }
.ao-chart > .is-narrow { max-width: 26rem; }
@container ao-chart (max-width: 599.9px) { .ao-chart > .is-wide { display: none; } }
@container ao-chart (min-width: 600px) { .ao-chart > .is-narrow { display: none; } }
"""


def names_by_light() -> dict[str, str]:
    """Light colour -> name. Fails if two names share a colour."""
    found: dict[str, str] = {}
    for name, color in all_colors().items():
        other = found.setdefault(color.light, name)
        if other != name:
            raise ValueError(f"{other} and {name} are both {color.light}: give one another colour")
    return found


def light(name: str) -> str:
    """The colour to draw with."""
    return all_colors()[name].light


def variable(name: str) -> str:
    """The CSS variable of a colour, with its light value as the fallback."""
    return f"var(--ao-{name.replace('_', '-')}, {all_colors()[name].light})"


def style() -> str:
    """The style sheet that a page needs once for all its charts; light and dark as the player."""
    lines = [
        f"  --ao-{name.replace('_', '-')}: light-dark({color.light}, {color.dark});"
        for name, color in all_colors().items()
    ]
    # `:where` has no specificity, so a page can set other colours.
    head = ":where(.ao-chart) {\n  color-scheme: light dark;\n"
    return head + "\n".join(lines) + "\n}" + STYLE


SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
SANS = (
    'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif'
).replace('"', "'")
MONO = (
    'ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "DejaVu Sans Mono", monospace'
).replace('"', "'")


def for_page(source: str, name: str, kind: str, alt: str) -> str:
    """The `<svg>` element of matplotlib's SVG file; `kind` is its class."""
    root = ElementTree.fromstring(source)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{SVG}metadata", f"{SVG}style"):
                parent.remove(child)
    for element in root.iter():
        _tidy(element)
    for group in list(root.iter(f"{SVG}g")):
        _gather_style(group)
    _prefix_ids(root, f"{name}-{kind[0]}")
    _prune(root)  # last: the steps before leave groups empty
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.attrib |= {
        "class": f"is-{kind}",
        "role": "img",
        "aria-label": alt,
        "style": "stroke-linejoin: round; stroke-linecap: butt",
    }
    ElementTree.register_namespace("", SVG[1:-1])
    return ElementTree.tostring(root, encoding="unicode")


def _tidy(element: ElementTree.Element) -> None:
    """Shorten numbers, name colours, set fonts; text between elements is only line breaks."""
    if element.tag not in (f"{SVG}text", f"{SVG}tspan"):
        element.text = None
    element.tail = None
    if f"{XLINK}href" in element.attrib:
        element.set("href", element.attrib.pop(f"{XLINK}href"))
    for attribute in ("d", "x", "y", "width", "height", "transform"):
        if attribute in element.attrib:
            element.set(attribute, _rounded(element.attrib[attribute]))
    if "style" in element.attrib:
        element.set("style", _named(_fonts(element.attrib["style"])))
    assert not any(
        re.search(r"#[0-9a-fA-F]{6}", value)
        for key, value in element.attrib.items()
        if key != "style"
    ), "a colour outside of a style"


def _rounded(text: str) -> str:
    def shorter(match: re.Match[str]) -> str:
        number = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
        return "0" if number == "-0" else number

    return re.sub(r"-?\d+\.\d+", shorter, " ".join(text.split()))


def _named(style: str) -> str:
    names = names_by_light()

    def found(match: re.Match[str]) -> str:
        return variable(names[match[0].lower()])

    return re.sub(r"#[0-9a-fA-F]{6}\b", found, style)


def _fonts(style: str) -> str:
    style = re.sub(r"'DejaVu Sans Mono'(, [^;]*)?", f"var(--ao-mono, {MONO})", style)
    return re.sub(r"(?<!, )'DejaVu Sans'(, [^;]*)?", f"var(--ao-sans, {SANS})", style)


def _gather_style(group: ElementTree.Element) -> None:
    """Move the style of equal marks to their group: there may be hundreds of them."""
    styles = {child.get("style") for child in group if child.tag == f"{SVG}use"}
    uses = [child for child in group if child.tag == f"{SVG}use"]
    if len(uses) > 1 and len(styles) == 1 and "style" not in group.attrib:
        shared = styles.pop()
        if shared:
            group.set("style", shared)
            for use in uses:
                use.attrib.pop("style")


def _prefix_ids(root: ElementTree.Element, prefix: str) -> None:
    """Number the ids that are used and drop the others."""
    # A colour such as #e6e4df looks like a reference, too: only known ids are renamed.
    text = " ".join(value for element in root.iter() for value in element.attrib.values())
    used = dict.fromkeys(re.findall(r"#([A-Za-z][\w-]*)", text))
    known = {element.get("id") for element in root.iter()}
    names = {old: f"{prefix}{count}" for count, old in enumerate(used) if old in known}

    def renamed(match: re.Match[str]) -> str:
        return f"#{names.get(match[1], match[1])}"

    for element in root.iter():
        old: Any = element.attrib.pop("id", None)
        if old in names:
            element.set("id", names[old])
        for key in ("href", "clip-path", "style"):
            if key in element.attrib:
                element.set(key, re.sub(r"#([A-Za-z][\w-]*)", renamed, element.attrib[key]))


def _prune(element: ElementTree.Element) -> None:
    """Remove empty groups."""
    for child in list(element):
        _prune(child)
        if child.tag in (f"{SVG}g", f"{SVG}defs") and len(child) == 0:
            element.remove(child)


DPI = 200
NO_MATPLOTLIB = "drawing charts needs matplotlib: pip install 'anyorder[report]'"
# Equal charts give equal files.
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
    """A description for screen readers."""
    draw: Callable[[bool], PixelFigure]
    """(narrow) -> the finished figure."""

    def svg(self, narrow: bool = False) -> str:
        """An `<svg>` element: text stays text, colours are CSS variables with light fallbacks."""
        source = self._saved("svg", narrow=narrow).decode("utf-8")
        return for_page(source, self.name, "narrow" if narrow else "wide", self.alt)

    def inline(self) -> str:
        """Both widths, for a page that has `style()` in its head; CSS shows the one that fits."""
        return f'<div class="ao-chart">{self.svg()}{self.svg(narrow=True)}</div>'

    def save(self, folder: Path) -> list[Path]:
        """`<name>.png` (200 dpi) and `<name>.pdf` in `folder`, light colours on white."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for kind in ("png", "pdf"):
            paths.append(folder / f"{self.name}.{kind}")
            content = self._saved(kind)  # before the file: a failure leaves an older one whole
            with replacing(paths[-1]) as file:
                file.write(content)
        return paths

    def _saved(self, kind: str, narrow: bool = False) -> bytes:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            raise ValueError(NO_MATPLOTLIB) from None
        from anyorder.report.charts.pixel_figure import drawing_settings

        with drawing_settings():
            drawn = self.draw(narrow)
            target = io.BytesIO()
            settings: dict[str, Any] = {"facecolor": "none"}
            if kind != "svg":  # a page has its own margins and its own paper
                settings = {"dpi": DPI, "bbox_inches": drawn.with_margins()}
            drawn.figure.savefig(target, format=kind, metadata=_NO_DATES[kind], **settings)
        return target.getvalue()


Number: TypeAlias = float | Interval
"""A value, or an estimate with its interval; NaN bounds are not drawn."""


@dataclass(frozen=True)
class Series:
    """A label and a colour throughout a chart, with a key in its legend."""

    label: str
    """Unique in its chart; other records name the series by it."""
    color: str
    """A name in `chart_colors()`, such as a family or a policy."""
    pale: bool = False
    """A lighter filling with a full outline: a second series of the same colour."""


def estimate(value: Number) -> float:
    return value.estimate if isinstance(value, Interval) else float(value)


def bounds(value: Number) -> tuple[float, float] | None:
    """The ends of the value's interval, if known."""
    if not isinstance(value, Interval) or math.isnan(value.low) or math.isnan(value.high):
        return None
    return value.low, value.high


def drawn_range(value: Number) -> tuple[float, float]:
    """The lowest and highest value to draw: the estimate and its interval."""
    low, high = bounds(value) or (estimate(value), estimate(value))
    return min(low, estimate(value)), max(high, estimate(value))


def check_name(name: str) -> None:
    """Names become file names and ids."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise ValueError(f"chart name {name!r}: give small letters, digits and hyphens")


def check_color(name: str) -> None:
    refuse_unknown("colour", name, sorted(chart_colors()))


def check_series(series: Sequence[Series], used: Iterable[str]) -> None:
    labels = [each.label for each in series]
    if len(set(labels)) < len(labels):
        raise ValueError(f"series share a label: {', '.join(labels)}")
    for each in series:
        check_color(each.color)
    for label in used:
        if label not in labels:
            raise ValueError(f"no series {label!r}: add it to the chart's series ({labels})")


def check_finite(what: str, values: Iterable[Number]) -> None:
    for value in values:
        if not math.isfinite(estimate(value)):
            raise ValueError(f"{what} has a value {estimate(value)}: leave missing values out")
