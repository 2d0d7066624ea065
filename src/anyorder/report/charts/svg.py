"""Matplotlib's SVG made fit for a page: small, without ids or rules that reach into others.

Colours become CSS variables (palette.py), fonts the reader's own, ids begin with the drawing's
name, and matplotlib's style sheet, which would hold for the whole page, becomes a property of this
element. A colour that is not of the palette is our mistake.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from anyorder.report.charts.palette import COLORS, variable

SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
SANS = (
    'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif'
).replace('"', "'")
MONO = (
    'ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "DejaVu Sans Mono", monospace'
).replace('"', "'")
_NAMES = {color.light: name for name, color in COLORS.items()}
assert len(_NAMES) == len(COLORS), "two colours of the palette are equal on light paper"


def for_page(source: str, name: str, kind: str, alt: str) -> str:
    """The `<svg>` element of a whole file by matplotlib; `kind` is its class."""
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
    _prune(root)
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
    """Shorter numbers, our fonts, named colours; text between elements is only line breaks."""
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
    def found(match: re.Match[str]) -> str:
        return variable(_NAMES[match[0].lower()])

    return re.sub(r"#[0-9a-fA-F]{6}\b", found, style)


def _fonts(style: str) -> str:
    style = re.sub(r"'DejaVu Sans Mono'(, [^;]*)?", f"var(--ao-mono, {MONO})", style)
    return re.sub(r"(?<!, )'DejaVu Sans'(, [^;]*)?", f"var(--ao-sans, {SANS})", style)


def _gather_style(group: ElementTree.Element) -> None:
    """Hundreds of equal marks have their style once."""
    styles = {child.get("style") for child in group if child.tag == f"{SVG}use"}
    uses = [child for child in group if child.tag == f"{SVG}use"]
    if len(uses) > 1 and len(styles) == 1 and "style" not in group.attrib:
        shared = styles.pop()
        if shared:
            group.set("style", shared)
            for use in uses:
                use.attrib.pop("style")


def _prefix_ids(root: ElementTree.Element, prefix: str) -> None:
    """Only ids that are used stay, numbered in their order."""
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
    """Groups that hold nothing go."""
    for child in list(element):
        _prune(child)
        if child.tag in (f"{SVG}g", f"{SVG}defs") and len(child) == 0:
            element.remove(child)
