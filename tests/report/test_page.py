"""The report in a real browser: one file, offline, light and dark, wide and narrow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run
from made_traces import mdm

from anyorder.apps.report_job import ReportJob
from anyorder.apps.reporting import Reported, report

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
def open_page(browser: Any) -> Iterator[Open]:
    """A page from a file with the network off; nothing may go wrong or be asked for."""
    troubles: list[str] = []
    contexts = []

    def opened(file: Path, **context: Any) -> Any:
        contexts.append(browser.new_context(offline=True, **context))
        page = contexts[-1].new_page()
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "request",
            lambda request: request.url == file.as_uri() or troubles.append(request.url),
        )
        page.goto(file.as_uri())
        page.wait_for_selector(".ao-player")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not troubles


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
