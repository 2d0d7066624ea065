"""Colours: as the player's, seen on both papers, and told apart by colour-blind readers."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from anyorder.report import player
from anyorder.report.charts.svg import GROUNDS, all_colors, chart_colors, style, variable

THEMES = {"light": 0, "dark": 1}
SEEN = 3.0  # WCAG: graphics
# What meets in one chart.
TOGETHER = [
    ("ar", "mdm", "flexmdm", "latentmdm", "flexlatent", "duo", "sflm"),
    ("left_to_right", "confidence", "random", "planner"),
    ("top", "committed"),
    ("inserted", "masked", "clean"),
]
# Machado, Oliveira, Fernandes (2009), severity 1, on linear RGB.
VISION = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
    "usual": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
}
LEAST = {"tritanopia": 0.07}  # rare; elsewhere as below
APART = 0.1  # in OKLab, where 0.02 can just be seen


def linear(color: str) -> NDArray[np.float64]:
    parts = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def oklab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    opponents = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return opponents @ np.cbrt(np.clip(cones @ rgb, 0, None))


def contrast(one: str, two: str) -> float:
    lights = [float(np.array([0.2126, 0.7152, 0.0722]) @ linear(color)) for color in (one, two)]
    return (max(lights) + 0.05) / (min(lights) + 0.05)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", chart_colors())
def test_a_colour_is_seen_on_its_paper(name: str, theme: str) -> None:
    which = THEMES[theme]
    assert contrast(chart_colors()[name][which], GROUNDS["paper"][which]) >= SEEN


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("names", TOGETHER, ids=lambda names: names[0])
def test_colours_that_meet_are_told_apart(names: tuple[str, ...], theme: str, vision: str) -> None:
    palette = chart_colors()
    seen = {
        name: oklab(np.clip(np.array(VISION[vision]) @ linear(palette[name][THEMES[theme]]), 0, 1))
        for name in names
    }
    least = LEAST.get(vision, APART)
    for one, two in combinations(names, 2):
        assert np.linalg.norm(seen[one] - seen[two]) >= least, (one, two)


def test_grounds_are_those_of_the_player() -> None:
    sheet = player.style()
    for name, color in GROUNDS.items():
        assert f"--ao-{name}: light-dark({color.light}, {color.dark});" in sheet


def test_the_style_sheet_sets_every_variable_and_names_only_itself() -> None:
    sheet = style()
    for name, color in all_colors().items():
        bare = variable(name).removeprefix("var(").split(",")[0]
        assert f"{bare}: light-dark({color.light}, {color.dark});" in sheet
    rules = re.sub(
        r"\{[^{}]*\}", "", re.sub(r"@container[^{]*\{([^{}]*\{[^{}]*\})\s*\}", r"\1", sheet)
    )
    for selector in filter(None, map(str.strip, re.split(r"[\n,]", rules))):
        assert ".ao-chart" in selector
