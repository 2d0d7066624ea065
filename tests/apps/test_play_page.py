"""The playground's page in a real browser: it streams, stops, complains, compares and saves."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra [report] is not installed")
pytest.importorskip("uvicorn", reason="the extra [report] is not installed")
pytest.importorskip("playwright", reason="playwright is not installed")

from play_support import Playground, playground
from playwright import sync_api as playwright

from anyorder.trace import Trace

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
WIDTHS = pytest.mark.parametrize("width", [1280, 390])
PATIENCE = 90_000
"""Milliseconds; a busy machine needs them."""
SLOW = {"pause": "1", "max_new_tokens__1": "80"}  # it would take 80 seconds

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def place(small_models: Path) -> Iterator[Playground]:
    with playground(str(small_models / "mdm")) as running:
        yield running


class Tab:
    """A page with the playground open, and what went wrong on it."""

    def __init__(self, browser: Any, place: Playground, width: int = 1280, **context: Any) -> None:
        size = {"width": width, "height": 860}
        self.context = browser.new_context(viewport=size, **context)
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.faults: list[str] = []
        self.wanted: list[str] = []
        self.page.on("console", lambda m: self.faults.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self.wanted.append(request.url))
        self.page.goto(place.address)
        self.find("#temperature-1").wait_for()

    def find(self, selector: str) -> Any:
        return self.page.locator(selector)

    def says(self, pattern: str) -> None:
        """Wait until the status line does."""
        playwright.expect(self.find("#status")).to_have_text(re.compile(pattern), timeout=PATIENCE)

    def set(self, **fields: str) -> None:
        """Fill inputs by id; those behind the fold are opened."""
        for name, value in fields.items():
            field = self.find(f"#{name.replace('__', '-')}")
            if not field.is_visible():
                field.locator("xpath=ancestor::details/summary").click()
            if field.evaluate("each => each.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)

    def shown(self, side: int = 0) -> str:
        """The letters on a canvas, without white space and signs for line ends."""
        text = self.find(".ao-text").nth(side).evaluate("each => each.textContent")
        return re.sub(r"[\s\u21b5]", "", text)

    def save(self, which: str = "") -> Trace:
        with self.page.expect_download() as download:
            self.page.get_by_text(f"Save trace{which}", exact=True).click()
        assert download.value.suggested_filename.endswith(".jsonl")
        (line,) = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
        return Trace.from_jsonl(line)


@pytest.fixture
def tab(browser: Any, place: Playground, request: pytest.FixtureRequest) -> Iterator[Tab]:
    called = getattr(request.node, "callspec", None)
    opened = Tab(browser, place, called.params["width"] if called else 1280)
    yield opened
    assert opened.faults == []
    assert all(url.startswith((place.address, "data:", "blob:")) for url in opened.wanted)
    opened.context.close()
    assert place.idle()


DIARY = """() => {
  const status = document.getElementById("status");
  window.diary = [];
  new MutationObserver(() => window.diary.push(
    [status.textContent, document.querySelectorAll(".ao-slot.is-mask").length],
  )).observe(status, { childList: true });
}"""


@WIDTHS
def test_it_streams_a_generation_and_saves_it(tab: Tab, width: int) -> None:
    tab.set(max_new_tokens__1="12", pause="0.05", temperature__1="1.0")
    tab.page.evaluate(DIARY)
    tab.find("#generate").click()
    tab.says("done in 12 steps")
    waiting, *steps, done = tab.page.evaluate("window.diary")
    assert waiting[0].endswith("waiting \u2026") and done[0].endswith("done in 12 steps.")
    # Masks are visible while it is written, one less with every step.
    assert steps == [[f"Generation: step {step}", 12 - step] for step in range(13)]
    playwright.expect(tab.find(".ao-counter")).to_have_text("12 / 12")
    assert tab.find(".ao-slot.is-mask:visible").count() == 0
    trace = tab.save()
    assert trace.steps == 12 and trace.task_id == "stories/0"
    assert tab.shown() == re.sub(r"\s", "", trace.text)
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert tab.page.evaluate(overflow) <= 0, "the page is wider than the screen"


def test_stop_stops(tab: Tab, place: Playground) -> None:
    tab.set(**SLOW)
    tab.find("#generate").click()
    tab.says(r"step \d")
    playwright.expect(tab.find("#generate")).to_be_disabled()
    tab.find("#stop").click()
    tab.says("stopped after step")
    assert place.idle()
    playwright.expect(tab.find("#stop")).to_be_disabled()
    playwright.expect(tab.find("#generate")).to_be_enabled()


def complaint(tab: Tab, field: str) -> str:
    box = tab.find(f".field.is-wrong[data-field='{field}']")
    box.wait_for()
    assert tab.find(".is-wrong").count() == 1
    assert box.locator("[aria-invalid=true]").count() == 1
    return box.locator(".error").inner_text()


@WIDTHS
def test_bad_input_shows_its_message_beside_the_field(tab: Tab, width: int) -> None:
    tab.set(steps__1="999")
    tab.find("#generate").click()
    assert complaint(tab, "steps") == "999 steps for 24 slots: give at most one for each"
    tab.set(steps__1="", temperature__1="warm")
    tab.find("#generate").click()
    assert complaint(tab, "temperature") == "temperature='warm' does not fit: give a number"
    tab.set(temperature__1="", top_k__1="0.5")
    tab.find("#generate").click()
    assert "give a whole number" in complaint(tab, "top_k")
    tab.set(top_k__1="", prompt="some < fill> text")
    tab.find("#generate").click()
    assert "is no fill mark" in complaint(tab, "prompt")
    tab.set(prompt="", seed="first")
    tab.find("#generate").click()
    assert "seed must be a whole number" in complaint(tab, "seed")
    tab.set(seed="0")
    playwright.expect(tab.find(".is-wrong")).to_have_count(0)  # it is being mended
    tab.find("#model-1").select_option(label="Another folder \u2026")
    tab.find("[data-field=model] input").fill("runs/nothing-here")
    tab.find("[data-field=model] input").press("Tab")
    assert "no model 'runs/nothing-here'" in complaint(tab, "model")


@WIDTHS
def test_two_policies_side_by_side(tab: Tab, small_models: Path, width: int) -> None:
    tab.find("#compare").check()
    tab.find("#temperature-2").wait_for()
    tab.set(pause="0", seed="4", max_new_tokens__1="9")
    tab.set(policy__2="left_to_right", max_new_tokens__2="9")
    tab.find("#generate").click()
    tab.says("Side 2: done in 9 steps")
    assert tab.find(".ao-pane").count() == 2
    first, second = tab.save(" 1"), tab.save(" 2")
    assert (first.policy, second.policy) == ("confidence", "left_to_right")
    assert second.reveal_step.tolist() == list(range(1, 10))
    assert [tab.shown(side) for side in (0, 1)] == [
        re.sub(r"\s", "", trace.text) for trace in (first, second)
    ]
    boxes = [tab.find(".ao-pane").nth(side).bounding_box() for side in (0, 1)]
    assert (boxes[0]["y"] == boxes[1]["y"]) == (width == 1280), "beside each other where they fit"
    tab.find("#compare").uncheck()
    tab.find("#generate").click()
    tab.says("Generation: done")
    assert tab.find(".ao-pane").count() == 1


def test_another_family_brings_its_own_options(
    browser: Any, place: Playground, small_models: Path
) -> None:
    tab = Tab(browser, place)
    assert tab.find("#insertion_temperature-1").count() == 0
    tab.find("#model-1").select_option(label="Another folder \u2026")
    tab.find("[data-field=model] input").fill(str(small_models / "flexmdm"))
    tab.find("[data-field=model] input").press("Tab")
    tab.find("#insertion_temperature-1").wait_for()
    assert tab.find("#block-1").count() == 0
    tab.set(insertion_temperature__1="0.5", steps__1="6", pause="0")
    tab.find("#generate").click()
    tab.says("done in")
    assert tab.faults == []
    tab.context.close()


def test_a_gap_is_marked_at_the_cursor(tab: Tab) -> None:
    tab.set(prompt="one two")
    tab.find("#prompt").evaluate("each => each.setSelectionRange(4, 4)")
    tab.find("#fill").click()
    assert tab.find("#prompt").input_value() == "one <fill>two"
    assert tab.find("#prompt").evaluate("each => each.selectionStart") == 10
    tab.find("#pick").select_option("stories/1")
    tab.find("#gap").check()
    assert "<fill:" in tab.find("#prompt").input_value()
    tab.set(pause="0")
    tab.find("#generate").click()
    tab.says("done in")


def test_closing_the_tab_ends_the_work(browser: Any, place: Playground) -> None:
    tab = Tab(browser, place)
    tab.set(**SLOW)
    tab.find("#generate").click()
    tab.says(r"step \d")
    assert place.queue.busy() == 1
    tab.page.close()
    assert place.idle()
    tab.context.close()


def test_two_tabs_at_once(browser: Any, place: Playground) -> None:
    tabs = [Tab(browser, place), Tab(browser, place)]
    for tab in tabs:
        tab.set(**SLOW)
        tab.find("#generate").click()
    for tab in tabs:
        tab.says(r"step \d")
    tabs[0].find("#stop").click()
    tabs[0].says("stopped")
    assert place.queue.busy() == 1
    tabs[1].says(r"step \d")
    for tab in tabs:
        assert tab.faults == []
        tab.context.close()
    assert place.idle()


def test_the_command_can_be_copied(browser: Any, place: Playground, small_models: Path) -> None:
    tab = Tab(browser, place, permissions=["clipboard-read", "clipboard-write"])
    tab.set(pause="0", max_new_tokens__1="4")
    tab.find("#generate").click()
    tab.says("done in")
    tab.page.get_by_text("Copy command").click()
    tab.says("on the clipboard")
    command = tab.page.evaluate("navigator.clipboard.readText()")
    assert command.startswith(f"anyorder sample {small_models / 'mdm'} --prompt ")
    tab.context.close()


def test_a_server_that_has_ended_is_told(browser: Any, small_models: Path) -> None:
    with playground(str(small_models / "mdm")) as place:
        tab = Tab(browser, place)
    tab.find("#generate").click()
    problem = tab.find("#problem")
    problem.wait_for()
    assert "does not answer" in problem.inner_text()
    tab.context.close()


def test_without_any_model_the_page_says_what_to_do(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anyorder.apps.play import work as play_models

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(play_models, "SHIPPED", tmp_path / "none")
    with playground() as place:
        context = browser.new_context()
        page = context.new_page()
        page.goto(place.address)
        hint = page.locator(".side .hint")
        playwright.expect(hint).to_contain_text("anyorder train", timeout=PATIENCE)
        page.locator("#generate").click()
        error = page.locator("[data-field=model] .error")
        playwright.expect(error).to_contain_text("choose a model", timeout=PATIENCE)
        context.close()
