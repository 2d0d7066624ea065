"""Charts in a real browser: one variant at a time, nothing cut, readable type, both themes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anyorder.report import charts
from anyorder.report.charts import Drawing

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
