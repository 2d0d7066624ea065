"""The colours of charts, by what they mean, on light and dark paper.

A family has the same colour in every chart, which its description gives
(families/descriptions.py); so have policies and kinds of tokens. What can meet in one chart differs
for colour-blind readers too (tests/report/charts/test_palette.py), and charts never tell by colour
alone. The grounds are those of the player (player/player.css).

Charts are drawn in the light colours; as no two names share one, svg.py can turn each into a CSS
variable afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

from anyorder.families.descriptions import DESCRIPTIONS


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
"""Paper, text, quiet text, lines of a grid, what is still masked."""

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
    # What a score is shown by: the better, the stronger.
    "score": Color("#2d5ba9", "#8eb5fe"),
}
"""What has a colour besides families."""


def chart_colors() -> dict[str, Color]:
    """Name -> colour: the names that records may use. Families registered later are there too."""
    known = DESCRIPTIONS.values()
    return {each.name: Color(*each.color) for each in known if each.color} | MEANINGS


def spare_colors() -> list[str]:
    """The names of families' colours in the order in which they serve something without one."""
    known = sorted(DESCRIPTIONS.values(), key=lambda each: each.spare_color)
    return [each.name for each in known if each.color]


def all_colors() -> dict[str, Color]:
    """The same and the grounds."""
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
    """Light colour -> its name. A family may not take the colour of something else."""
    found: dict[str, str] = {}
    for name, color in all_colors().items():
        other = found.setdefault(color.light, name)
        if other != name:
            raise ValueError(f"{other} and {name} are both {color.light}: give one another colour")
    return found


def light(name: str) -> str:
    """What to draw with; a name that is unknown is our mistake."""
    return all_colors()[name].light


def variable(name: str) -> str:
    """The CSS variable of a colour, with its light value where no style sheet sets it."""
    return f"var(--ao-{name.replace('_', '-')}, {all_colors()[name].light})"


def style() -> str:
    """The style sheet that a page needs once for all its charts; light and dark as the player."""
    lines = [
        f"  --ao-{name.replace('_', '-')}: light-dark({color.light}, {color.dark});"
        for name, color in all_colors().items()
    ]
    # Without weight of its own, so that a page may set other colours.
    head = ":where(.ao-chart) {\n  color-scheme: light dark;\n"
    return head + "\n".join(lines) + "\n}" + STYLE
