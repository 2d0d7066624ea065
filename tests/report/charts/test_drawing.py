"""What every drawing promises: its SVG, its files, and that matplotlib comes late or not at all."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from anyorder.report.charts import Drawing
from anyorder.report.charts.svg import all_colors, variable

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
