"""The report in a real browser: one file, offline, light and dark, wide and narrow."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run
from made_traces import mdm
from seen_colors import READABLE, contrast

from anyorder.apps.jobs import ReportJob
from anyorder.apps.report import Reported, report

Open = Callable[..., Any]

PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}
FIRST_PAINT_MS = 2000
MOST_BYTES = 15_000_000

# How many variants of each drawing are shown.
SEEN = """() => [...document.querySelectorAll(".drawing")].map((drawing) =>
  [...drawing.querySelectorAll("svg")].filter((svg) => svg.getClientRects().length).length)"""


@pytest.fixture(scope="module")
def reported(report_runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Reported:
    out = tmp_path_factory.mktemp("report") / "report.html"
    job = ReportJob(tuple(report_runs), out=out, title="Orders <of> writing", figures=False)
    return report(job, progress=False)


@pytest.fixture
def open_page(open_file: Open) -> Open:
    """A report once its player is there."""

    def opened(file: Path, **context: Any) -> Any:
        page = open_file(file, **context)
        page.wait_for_selector(".ao-player")
        return page

    return opened


def test_one_file_holds_everything(reported: Reported) -> None:
    text = reported.page.read_text(encoding="utf-8")
    assert "<h1>Orders &lt;of&gt; writing</h1>" in text
    assert not re.search(r"<(link|img|iframe)\b|<script[^>]+src=|@import|url\(\s*['\"]?http", text)
    anchors = re.findall(r'href="#([^"]+)"', text)
    ids = re.findall(r'\bid="([^"]+)"', text.split('<script type="application/json"')[0])
    assert set(anchors) <= set(ids)
    assert len(ids) == len(set(ids)), "an id stands twice"
    for command in ("anyorder sample models/mdm", "anyorder grade", "anyorder measure"):
        assert command in text
    assert reported.sections and reported.summary and not reported.figures


def test_nothing_is_said_twice_in_the_glossary_and_every_link_is_explained(
    open_page: Open, reported: Reported
) -> None:
    page = open_page(reported.page, viewport=DESKTOP)
    term = page.locator("a.term").first
    term.hover()
    assert page.locator("#tip").is_visible()
    assert page.locator("#tip").inner_text().startswith("MDM (masked diffusion model)")
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()
    term.click()
    assert page.evaluate("location.hash") == "#term-mdm"
    titles = page.locator(".glossary dt").all_inner_texts()
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["wide", "narrow"])
def test_nothing_sticks_out(
    open_page: Open, reported: Reported, scheme: str, size: dict[str, int]
) -> None:
    page = open_page(reported.page, viewport=size, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    outside = """() => [...document.querySelectorAll("figure, .drawing svg, .prose, .findings li")]
      .filter((element) => element.getClientRects().length)
      .map((element) => element.getBoundingClientRect())
      .filter((box) => box.left < -1 || box.right > innerWidth + 1).length"""
    assert page.evaluate(outside) == 0
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    paper = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(paper)
    assert (sum(map(int, re.findall(r"\d+", before)[:3])) < 200) == dark
    page.locator("#theme").click()
    assert page.evaluate(paper) != before


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["wide", "narrow"])
def test_words_of_drawings_stay_inside(
    open_page: Open, reported: Reported, size: dict[str, int]
) -> None:
    page = open_page(reported.page, viewport=size)
    outside = """() => [...document.querySelectorAll(".drawing svg")]
      .filter((svg) => svg.getClientRects().length)
      .flatMap((svg) => { const box = svg.getBoundingClientRect();
        return [...svg.querySelectorAll("text")].filter((text) => {
          const at = text.getBoundingClientRect();
          return at.left < box.left - 0.5 || at.right > box.right + 0.5; })
        .map((text) => text.textContent); })"""
    assert page.evaluate(outside) == []


def test_a_table_that_scrolls_says_so(open_page: Open, reported: Reported) -> None:
    page = open_page(reported.page, viewport=PHONE)
    told = """() => [...document.querySelectorAll(".scroll")]
      .filter((box) => box.checkVisibility())
      .map((box) => [box.scrollWidth > box.clientWidth + 1, box.tabIndex === 0,
        box.previousElementSibling?.className === "more-columns"])"""
    found = page.evaluate(told)
    assert [True, True, True] in found
    assert all(len(set(each)) == 1 for each in found)
    agrees = f"({told})().every((each) => new Set(each).size === 1)"
    page.evaluate("document.querySelectorAll('details.more').forEach((each) => each.open = true)")
    page.wait_for_function(agrees)
    assert len(page.evaluate(told)) > len(found)
    page.set_viewport_size(DESKTOP)
    page.wait_for_function("!document.querySelector('.glance .is-wide')")
    page.wait_for_function(agrees)


def test_the_outline_has_no_gaps_and_everything_has_a_name(
    open_page: Open, reported: Reported
) -> None:
    page = open_page(reported.page, viewport=DESKTOP)
    levels = page.evaluate(
        """() => [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")]
          .filter((each) => each.getClientRects().length).map((each) => Number(each.tagName[1]))"""
    )
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    regions = page.evaluate(
        """() => [...document.querySelectorAll("[role=region], [role=img]")]
          .filter((each) => each.getClientRects().length)
          .map((each) => each.getAttribute("aria-label")
            ?? document.getElementById(each.getAttribute("aria-labelledby") ?? "")?.textContent)"""
    )
    assert all(regions)
    tables = [name for name in regions if name.startswith("Table: ")]
    assert len(set(tables)) == len(tables)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_the_page(open_page: Open, reported: Reported, scheme: str) -> None:
    page = open_page(reported.page, viewport=DESKTOP, color_scheme=scheme)
    colors = page.evaluate(
        """() => { const canvas = document.createElement("canvas")
            .getContext("2d", {willReadFrequently: true});
          const pixel = (color) => { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3); };
          const color = (query) => pixel(getComputedStyle(document.querySelector(query)).color);
          const texts = ["body", ".lead", ".numbers", ".hint", ".contents a", ".theme", "th",
            "td small", "figcaption p", ".commands summary", ".glossary dd", ".term"].map(color);
          return [pixel(getComputedStyle(document.body).backgroundColor), texts]; }"""
    )
    paper, texts = colors
    assert min(contrast(color, paper) for color in texts) >= READABLE


def test_each_drawing_is_seen_once_and_has_words(open_page: Open, reported: Reported) -> None:
    for size in (DESKTOP, PHONE):
        page = open_page(reported.page, viewport=size)
        counts = page.evaluate(SEEN)
        assert counts and set(counts) == {1}
        words = page.locator(".drawing svg:visible text").all_text_contents()
        assert any("left-to-right order" in word for word in words)


def test_the_player_begins_with_two_and_ends_with_the_program(
    open_page: Open, reported: Reported, gathered: Any
) -> None:
    page = open_page(reported.page, viewport=DESKTOP)
    state = page.evaluate("player.state()")
    traces = [trace for run in gathered for trace in run.traces]
    assert len(state["samples"]) == 2
    one, two = (traces[number] for number in state["samples"])
    assert one.task_id == two.task_id and (one.family, two.family) == ("mdm", "flexmdm")
    assert 0 < state["step"] < state["steps"]
    page.locator(".ao-player").focus()
    page.keyboard.press("End")
    assert page.evaluate("player.text(0)") == one.text
    assert page.evaluate("player.text(1)") == two.text


def test_contents_lead_to_every_section(open_page: Open, reported: Reported) -> None:
    page = open_page(reported.page, viewport=DESKTOP)
    links = page.locator(".contents a")
    targets = [links.nth(number).get_attribute("href") for number in range(links.count())]
    sections = page.evaluate(
        "() => [...document.querySelectorAll('main > section')].map((each) => '#' + each.id)"
    )
    assert targets == sections


@pytest.mark.long
def test_a_thousand_traces_open_at_once(open_page: Open, tmp_path: Path) -> None:
    options = {"policy": "confidence", "temperature": 0.0}
    traces = [replace(mdm(f"t/{i}", i), sample=s) for i in range(250) for s in range(4)]
    folder = make_run(tmp_path / "many", traces, family="mdm", options=options)
    out = tmp_path / "many.html"
    report(ReportJob((folder,), out=out, figures=False), progress=False)
    assert out.stat().st_size < MOST_BYTES
    page = open_page(out, viewport=DESKTOP)
    painted = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    assert page.evaluate(painted) < FIRST_PAINT_MS
