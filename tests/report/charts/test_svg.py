"""What every drawing promises: its SVG, its files, and that matplotlib comes late or not at all."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray

from anyorder.report import charts, player
from anyorder.report.charts import Drawing
from anyorder.report.charts.svg import GROUNDS, all_colors, chart_colors, style, variable

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["bars", "points", "lines", "named", "schedule", "segments"]
Svgs = dict[tuple[str, bool], str]


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_an_svg_is_text_and_variables(
    drawings: dict[str, Drawing], svgs: Svgs, name: str, narrow: bool
) -> None:
    root = ElementTree.fromstring(svgs[name, narrow])
    assert root.tag == f"{SVG}svg"
    assert root.get("aria-label") == drawings[name].alt
    assert float(root.get("viewBox", "").split()[2]) == (352 if narrow else 720)
    assert root.find(f".//{SVG}text") is not None
    # Nothing that would reach beyond this element, and nothing that names the day.
    assert not {element.tag for element in root.iter()} & {f"{SVG}style", f"{SVG}metadata"}
    for element in root.iter():
        style = element.get("style", "")
        for color in all_colors():
            style = style.replace(variable(color), "")
        assert not re.search(r"#[0-9a-fA-F]{3}|rgb|black|white", style), style
        for key in ("fill", "stroke", "color"):
            assert element.get(key) in (None, "none")


def test_ids_are_its_own_and_all_are_used(svgs: Svgs) -> None:
    page = "".join(svgs.values())
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids)) > 10
    assert set(ids) == set(re.findall(r'(?:href="|url\()#([\w-]+)', page))


def test_words_are_whole_and_escaped(svgs: Svgs) -> None:
    def words(name: str) -> list[str]:
        root = ElementTree.fromstring(svgs[name, False])
        return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]

    assert "by <confidence> & $x$" in words("bars")
    assert "not measured" in words("bars")
    assert "93.0%" in words("bars")
    assert "95% interval" in words("bars")
    assert "far right" in words("named")
    assert {"insertion schedule", "still masked", "100%"} <= set(words("schedule"))
    code = [text.replace("\N{NO-BREAK SPACE}", " ") for text in words("segments")]
    assert "    x = 1" in code
    assert "def f(x):" in code
    assert {"4\N{EN DASH}8", "\N{MINUS SIGN}2.50", "Step 2"} <= set(code)


def test_a_large_cloud_stays_small(svgs: Svgs) -> None:
    for narrow, count, size in ((False, 600, 120_000), (True, 300, 80_000)):
        source = svgs["points", narrow]
        groups = ElementTree.fromstring(source).iter(f"{SVG}g")
        marks = [len(group.findall(f"{SVG}use")) for group in groups]
        assert [found for found in marks if found > 100] == [count, count]
        assert len(source) < size


@pytest.mark.parametrize("name", NAMES)
def test_the_same_chart_gives_the_same_svg(
    drawings: dict[str, Drawing], svgs: Svgs, name: str
) -> None:
    assert drawings[name].svg() == svgs[name, False]


def test_a_page_gets_both_variants(drawings: dict[str, Drawing], svgs: Svgs) -> None:
    both = svgs["named", False] + svgs["named", True]
    assert drawings["named"].inline() == f'<div class="ao-chart">{both}</div>'


def test_files_are_whole_the_same_and_on_white_paper(
    drawings: dict[str, Drawing], tmp_path: Path
) -> None:
    first = drawings["named"].save(tmp_path / "one")
    second = drawings["named"].save(tmp_path / "two")
    assert [path.name for path in first] == ["named.png", "named.pdf"]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
    assert first[1].read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in first[1].read_bytes()
    assert {path.name for path in (tmp_path / "one").iterdir()} == {"named.png", "named.pdf"}
    with pytest.importorskip("PIL.Image").open(first[0]) as picture:
        assert picture.format == "PNG"
        assert picture.width == pytest.approx(740 / 72 * 200, abs=2)
        corners = [(x, y) for x in (0, picture.width - 1) for y in (0, picture.height - 1)]
        assert {picture.convert("RGBA").getpixel(at) for at in corners} == {(255,) * 4}


def test_keys_are_where_their_words_are(drawings: dict[str, Drawing], tmp_path: Path) -> None:
    """Margins move everything together: the middle of the first swatch, in pixels of the file."""
    with pytest.importorskip("PIL.Image").open(drawings["bars"].save(tmp_path)[0]) as picture:
        middle = (round(20 * 200 / 72), round(20 * 200 / 72))
        found = picture.convert("RGB").getpixel(middle)
    assert "#{:02x}{:02x}{:02x}".format(*found) == all_colors()["confidence"].light


def test_the_readers_settings_neither_matter_nor_change(
    drawings: dict[str, Drawing], svgs: Svgs
) -> None:
    import matplotlib as mpl

    usual = svgs["lines", False]
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.fonttype": "path"}):
        assert drawings["lines"].svg() == usual
        assert mpl.rcParams["font.size"] == 30


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)


CHART = """
import sys
from anyorder.report import charts
panel = charts.BarPanel("share", (charts.BarGroup("a", (charts.Bar("s", 0.5),)),))
drawing = charts.bars(charts.BarChart("b", "b", (charts.Series("s", "mdm"),), (panel,)))
"""


def test_matplotlib_comes_when_something_is_drawn() -> None:
    done = run(
        CHART + "assert not {'matplotlib', 'torch'} & set(sys.modules)\ndrawing.svg()\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr


def test_without_matplotlib_the_remedy_is_named() -> None:
    done = run(CHART + "sys.modules['matplotlib'] = None\ndrawing.svg()")
    assert done.stderr.strip().splitlines()[-1] == (
        "ValueError: drawing charts needs matplotlib: pip install 'anyorder[report]'"
    )


# Charts in a real browser: one variant at a time, nothing cut, readable type, both themes.


PHONE, DESKTOP = 390, 1280
SMALLEST = 10.0  # pixels of type, as seen

TEXTS = """() => [...document.querySelectorAll(".ao-chart > svg")]
  .filter((svg) => svg.checkVisibility())
  .flatMap((svg) => {
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    return [...svg.querySelectorAll("text")].map((text) => {
      const box = text.getBoundingClientRect();
      return {chart: svg.getAttribute("aria-label"), words: text.textContent,
        left: box.left, right: box.right, top: box.top, bottom: box.bottom,
        size: parseFloat(getComputedStyle(text).fontSize) * scale};
    });
  })"""


@pytest.fixture(scope="module")
def page_file(svgs: dict[tuple[str, bool], str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    pairs = [(svgs[name, False], svgs[name, True]) for name, narrow in svgs if narrow]
    body = "".join(f'<div class="ao-chart">{wide}{small}</div>' for wide, small in pairs)
    path = tmp_path_factory.mktemp("charts") / "page.html"
    path.write_text(
        f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Charts</title>
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <style>body {{ margin: 16px }} {charts.style()}</style></head><body>{body}</body></html>""",
        encoding="utf-8",
    )
    return path


@pytest.fixture(params=[PHONE, DESKTOP])
def page(request: pytest.FixtureRequest, browser: Any, page_file: Path) -> Iterator[Any]:
    size = {"width": request.param, "height": 900}
    context = browser.new_context(offline=True, viewport=size, color_scheme="dark")
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.goto(page_file.as_uri())
    yield page
    context.close()
    assert not troubles


def test_one_variant_is_seen_and_nothing_is_cut(page: Any, drawings: dict[str, Drawing]) -> None:
    width = page.viewport_size["width"]
    kind = page.evaluate(
        """() => [...document.querySelectorAll(".ao-chart > svg")]
          .filter((svg) => svg.checkVisibility()).map((svg) => svg.getAttribute("class"))"""
    )
    assert kind == ["is-narrow" if width == PHONE else "is-wide"] * len(drawings)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for text in page.evaluate(TEXTS):
        assert text["left"] >= 0 and text["right"] <= width, text
        assert text["size"] >= SMALLEST, text


def test_no_words_cover_others(page: Any) -> None:
    texts = page.evaluate(TEXTS)
    for number, one in enumerate(texts):
        for two in texts[number + 1 :]:
            across = min(one["right"], two["right"]) - max(one["left"], two["left"])
            down = min(one["bottom"], two["bottom"]) - max(one["top"], two["top"])
            # Boxes of lines of text are taller than their letters.
            assert across <= 1 or down <= 6, (one, two)


def test_colours_follow_the_theme(page: Any) -> None:
    ink = """() => getComputedStyle([...document.querySelectorAll(".ao-chart text")]
      .find((text) => text.textContent.startsWith("Panel 0"))).fill"""
    assert page.evaluate(ink) == "rgb(229, 231, 235)"
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    assert page.evaluate(ink) == "rgb(29, 33, 38)"


# Colours: as the player's, seen on both papers, and told apart by colour-blind readers.


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
