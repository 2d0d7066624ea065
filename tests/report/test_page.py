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
from anyorder.measure.intervals import Interval
from anyorder.report.findings import Finding, findings, listed
from anyorder.report.glossary import TERMS
from anyorder.report.page import lead, player_text
from anyorder.report.runs import Material, again, family_mains, gather, main_runs, series_of
from anyorder.report.sections.order import METRICS
from anyorder.report.tables import (
    POLICIES_MEAN,
    difference,
    digits_of,
    interval_of,
    is_different,
    percent,
    points,
    shown,
)
from anyorder.trace import Event, Ghost, Trace

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


# The lead and the findings: every number is one that was measured, no claim across zero.


def topics(material: Material) -> dict[str, Finding]:
    return {finding.topic: finding for finding in findings(material)}


def interval(estimate: float, low: float, high: float) -> Interval:
    return Interval(estimate, low, high, 9, 0.95)


def test_every_topic_has_its_numbers(material: Material) -> None:
    told = {topic: finding.text for topic, finding in topics(material).items()}
    runs = {run.label: run for run in material.gathered}
    rate = runs["MDM, surest token first"].rates[0].interval
    assert f"MDM (surest token first) {percent(rate.estimate)} (" in told["Right programs"]
    record = runs["MDM, surest token first"].measures["arness"]["aggregate"]["global@1"]
    assert percent(record["mean"]) in told["Order"]
    assert percent(record["chance"]) in told["Order"]
    gap = interval_of(runs["MDM, surest token first"].measures["placement"]["all"]["gap_loc"])
    assert difference(gap) in told["What but not where"]
    assert set(told) >= {"Blocks", "Same programs", "Trying again", "Insertion"}


def test_a_finding_begins_with_one_plain_sentence(material: Material) -> None:
    """Short, without brackets and without a word that would have to be looked up."""
    for finding in findings(material):
        assert finding.details
        assert len(finding.says.split()) <= 45, finding.says
        assert not re.search(r"\[\[|\(|tau|localisation", finding.says), finding.says
        assert finding.says.endswith((".", "?"))
        assert finding.text.startswith(f"**{finding.topic}.** {finding.says} ")


def test_the_order_is_told_in_words(material: Material) -> None:
    says = topics(material)["Order"].says
    assert "AR writes strictly from left to right" in says
    # Written in a random permutation: no direction can be seen.
    assert "MDM in no direction" in says or "MDM and" in says


def test_blocks_go_by_all_scores(material: Material) -> None:
    """One score that does not differ says nothing about the others."""
    finding = topics(material)["Blocks"]
    [own] = [detail for detail in finding.details if detail.startswith("MDM (")]
    for name, says in METRICS.values():
        assert f"[[{name}|{says}]]" in own
    assert re.search(r"different from strict left to right in \d of 4 scores", own)
    assert "one after the other" in finding.says


def test_no_claim_where_the_interval_holds_zero(material: Material) -> None:
    # Both insertion temperatures have the same verdicts here: their difference is exactly zero.
    assert "no difference could be seen" in topics(material)["Insertion"].says
    assert is_different(interval(-0.1, -0.2, -0.01))
    assert not is_different(interval(0.1, -0.01, 0.2))
    assert not is_different(interval(0.1, 0.0, 0.2))
    assert not is_different(interval(0.1, float("nan"), float("nan")))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (interval(0.28, 0.25, 0.31), "0.28 (0.25 to 0.31)"),
        (interval(0.0054, 0.0, 0.0138), "0.005 (0 to 0.014)"),  # not 0.01 (0.00 to 0.01)
        (interval(0.006, -0.002, 0.014), "0.006 (\N{MINUS SIGN}0.002 to 0.014)"),
        (interval(0.0, 0.0, 0.0), "0 (0 to 0)"),
        (interval(1e-17, -1e-17, 0.5), "0 (0 to 0.50)"),
        (interval(0.00001, 0.000001, 0.0002), "0.0000 (0.0000 to 0.0002)"),
        (interval(0.5, float("nan"), float("nan")), "0.50 (\N{EN DASH})"),
    ],
)
def test_rounding_does_not_contradict_an_interval(found: Interval, says: str) -> None:
    assert difference(found) == says


def test_a_zero_has_no_sign_and_shares_differ_in_points() -> None:
    assert shown(-0.001) == "0.00" and shown(-0.1) == "\N{MINUS SIGN}0.10"
    assert digits_of(interval(0.5, 0.4, 0.6)) == 2
    assert points(interval(-0.03, -0.1, 0.031)) == (
        "\N{MINUS SIGN}3 (\N{MINUS SIGN}10 to 3) percentage points"
    )


def test_every_marked_term_is_explained(material: Material) -> None:
    texts = [lead(material), *player_text(material)]
    for text in [*texts, *(finding.text for finding in findings(material))]:
        for term in re.findall(r"\[\[([^|\]]+)", text):
            assert term in TERMS


def test_the_lead_says_what_the_task_asks(material: Material) -> None:
    assert "[[stories]], small word problems" in lead(material)


def traced(folder: Path, trace: Trace, **options: object) -> Material:
    settings = {"policy": "confidence", "temperature": 0.0, **options}
    return Material(gather([make_run(folder, [trace], family="mdm", options=settings)]), ())


def test_remasking_is_told_where_it_happens(tmp_path: Path) -> None:
    assert "remask" not in " ".join(player_text(traced(tmp_path / "plain", mdm())))
    trace = replace(mdm(), reveal_step=[20] * 27, events=(Event(1, 0, None, "x"),))
    changing = " ".join(player_text(traced(tmp_path / "changing", trace)))
    assert "change after they were written" in changing
    trace = replace(trace, events=(*(trace.events or ()), Event(2, 0, None, None)))
    assert "[[remask|remasked]]" in " ".join(player_text(traced(tmp_path / "again", trace)))
    trace = replace(mdm(), ghosts=(Ghost(3, 0, 2, 5, None, "x"),))
    deleting = " ".join(player_text(traced(tmp_path / "deleting", trace)))
    assert "Some slots are deleted" in deleting and "remask" not in deleting


def test_new_families_and_policies_have_names(tmp_path: Path) -> None:
    rows = (("duo", "DUO", "ancestral"), ("sflm", "S-FLM", "flow"))
    for family, title, policy in rows:
        options = {"policy": policy}
        folder = make_run(tmp_path / family, [mdm()], family=family, options=options)
        material = Material(gather([folder]), ())
        assert f"[[{title}]]" in lead(material) and title in TERMS
        assert policy in POLICIES_MEAN and policy not in material.gathered.runs[0].label
        assert series_of(material.gathered.runs)[0].color == family
    planned = traced(tmp_path / "planned", mdm(), policy="planner")
    assert planned.gathered.runs[0].label == "MDM, as its planner says"


def test_families_are_known_by_their_plainest_run(material: Material) -> None:
    names = [run.label for run in family_mains(material.gathered.runs)]
    assert names == [
        "MDM, surest token first",
        "FlexMDM, surest token first, insertion temperature 1",
        "LatentMDM, best line first, 1 at a time",
        "AR",
    ]
    shown_runs = main_runs(material.gathered.runs)
    assert [run.label for run in shown_runs[:3]] == [
        "MDM, surest token first",
        "MDM, left to right",
        "MDM, random order",
    ]
    series = series_of(shown_runs)
    assert len({(each.color, each.pale) for each in series}) == len(series)
    assert (series[0].color, series[-1].color) == ("mdm", "ar")


def test_lists_of_words() -> None:
    assert listed([]) == ""
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(["a", "b", "c"]) == "a, b, and c"
    assert listed(["a, 1", "b"]) == "a, 1; and b"


def test_commands_are_changed_not_repeated(material: Material) -> None:
    run = material.gathered.runs[0]
    assert run.run.card.command.endswith("--out mdm-confidence")
    assert again(run, "--task", "gsm8k", "--k", "2") == (
        "anyorder sample models/mdm --task gsm8k --k 2 --out RUN",
    )
