"""How the player looks: narrow and wide, light and dark, readable colours, a thousand samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from seen_colors import READABLE, contrast, luminance

from anyorder.report.traces import TraceGroup
from anyorder.trace import Trace

Open = Callable[..., Any]

PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}
FIRST_PAINT_MS = 2000

# A colour, however it is written, as three numbers; painted over the player's paper.
PIXEL = """
  const paper = (...layers) => {
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    for (const layer of layers) { canvas.fillStyle = layer; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const probe = document.createElement("i");
  document.querySelector(".ao-player").append(probe);
  const color = (css) => { probe.style.color = css; return getComputedStyle(probe).color; };
"""


@pytest.mark.parametrize("options", ["{step: 9}", "{step: 9, compare: 3}", "{sample: 8, step: 2}"])
def test_a_phone_shows_all_without_scrolling_sideways(
    open_player: Open, groups: list[TraceGroup], options: str
) -> None:
    page = open_player(groups, options, viewport=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    inside = """() => [...document.querySelectorAll(
        ".ao-text-box, .ao-tree:not([hidden]), .ao-order, .ao-pick, .ao-button, .ao-slider, "
        + ".ao-choice:not([hidden]), .ao-candidates:not([hidden])")]
      .filter((element) => element.offsetParent)
      .map((element) => element.getBoundingClientRect())
      .every((box) => box.left >= 0 && box.right <= innerWidth)"""
    assert page.evaluate(inside)
    # Playing is at hand wherever the page is scrolled to.
    assert page.get_by_role("button", name="Play", exact=True).evaluate(
        "(button) => button.getBoundingClientRect().bottom <= innerHeight"
    )


def test_a_wide_page_has_the_tree_beside_the_text(
    open_player: Open, groups: list[TraceGroup]
) -> None:
    beside = """() => document.querySelector(".ao-tree").getBoundingClientRect().left
      >= document.querySelector(".ao-text-box").getBoundingClientRect().right"""
    page = open_player(groups, viewport=DESKTOP)
    assert page.evaluate(beside)
    page.set_viewport_size(PHONE)
    assert not page.evaluate(beside)


def test_the_theme_is_the_readers_or_the_pages(open_player: Open, groups: list[TraceGroup]) -> None:
    paper = f"() => {{ {PIXEL} return paper(color('var(--ao-paper)')); }}"
    set_theme = "(theme) => { document.documentElement.dataset.theme = theme; }"
    for own, other in (("light", "dark"), ("dark", "light")):
        page = open_player(groups, color_scheme=own)
        assert (luminance(page.evaluate(paper)) > 0.5) == (own == "light")
        page.evaluate(set_theme, other)
        assert (luminance(page.evaluate(paper)) > 0.5) == (other == "light")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_every_colour(
    open_player: Open, groups: list[TraceGroup], scheme: str
) -> None:
    page = open_player(groups, color_scheme=scheme)
    found = page.evaluate(
        f"""() => {{ {PIXEL}
          const rows = [];
          for (const ramp of ["step", "doubt"]) {{
            for (let i = 0; i < 5; i += 1) {{
              const full = color(`var(--ao-${{ramp}}-${{i}})`);
              const pale = color(
                `color-mix(in oklab, var(--ao-${{ramp}}-${{i}}) 24%, transparent)`);
              const box = color("var(--ao-raised)");
              rows.push([ramp, paper(color("var(--ao-ink)")), paper(box, pale), paper(box, full)]);
            }}
          }}
          const text = ["ink", "muted", "good", "bad", "accent"].map(
            (name) => paper(color(`var(--ao-${{name}})`)));
          return [rows, text, paper(color("var(--ao-paper)")), paper(color("var(--ao-raised)"))];
        }}"""
    )
    rows, text, paper, raised = found
    for _, ink, tint, _ in rows:
        assert contrast(ink, tint) >= READABLE
    for color in text:
        assert min(contrast(color, paper), contrast(color, raised)) >= READABLE
    # Along a ramp the lightness goes one way: it can be read without telling hues apart.
    for ramp in ("step", "doubt"):
        lights = [luminance(full) for name, _, _, full in rows if name == ramp]
        assert lights in (sorted(lights), sorted(lights, reverse=True)), ramp
        assert max(lights) > 1.8 * min(lights)


def test_colours_follow_steps_and_confidence(
    open_player: Open, groups: list[TraceGroup], samples: list[Trace]
) -> None:
    page = open_player(groups)
    colors = """() => Object.fromEntries([...document.querySelectorAll(".ao-slot.is-shown")]
      .map((slot) => [slot.dataset.slot, slot.style.getPropertyValue("--ao-c")]))"""
    reveal, log_prob = samples[0].reveal_step, samples[0].log_prob
    assert reveal is not None
    assert log_prob is not None
    by_step = page.evaluate(colors)
    first, last = str(int(reveal.argmin())), str(int(reveal.argmax()))
    assert "var(--ao-step-1) 0%" in by_step[first]
    assert "var(--ao-step-4) 100%" in by_step[last]
    page.get_by_text("Confidence", exact=True).click()
    by_confidence = page.evaluate(colors)
    assert "var(--ao-doubt-1) 0%" in by_confidence[str(len(reveal) - 1)]  # log-probability 0
    assert "var(--ao-doubt-4)" in by_confidence["0"]  # the least likely
    assert page.locator(".ao-legend").get_attribute("aria-label").startswith("From certain")
    page.evaluate("player.select(10)")  # its first two tokens were given
    assert page.evaluate(colors)["0"] == ""


def test_focus_can_be_seen(open_player: Open, groups: list[TraceGroup]) -> None:
    page = open_player(groups)
    seen = set()
    for _ in range(14):
        page.keyboard.press("Tab")
        outline = page.evaluate(
            """() => { const at = document.activeElement;
              const shown = at.type === "radio" ? at.nextElementSibling : at;
              return [at.getAttribute("aria-label") || at.className || at.type,
                getComputedStyle(shown).outlineStyle]; }"""
        )
        assert outline[1] == "solid", outline
        seen.add(outline[0])
    assert {"Play", "Step", "Step forward", "Speed"} <= seen
    assert "Sample on side 1: t/0, passed, mdm run, confidence" in seen


def test_code_stands_on_the_grid_of_its_font(open_player: Open, groups: list[TraceGroup]) -> None:
    """Indentation and line ends are those of the text, and no token shifts the letters after it."""
    page = open_player(groups, "{sample: 6}", viewport=DESKTOP)
    inks = page.evaluate(
        """() => { const box = document.querySelector(".ao-text").getBoundingClientRect();
          return [...document.querySelectorAll(".ao-ink")].map((ink) => {
            const at = ink.getBoundingClientRect();
            return [ink.textContent, at.left - box.left, at.top, at.width]; }); }"""
    )
    letter = inks[0][3] / len(inks[0][0])
    lines = ["def f(plums, bags):", "    if plums > bags:", "        plums = bags"]
    lines += ["    return plums"]
    tops = sorted({top for _, _, top, _ in inks})
    assert len(tops) == len(lines)
    for text, left, top, _ in inks:
        column = round(left / letter)
        assert abs(left - column * letter) < 1
        assert lines[tops.index(top)][column : column + len(text)] == text


def test_a_thousand_samples_open_at_once(open_player: Open, groups: list[TraceGroup]) -> None:
    many = [TraceGroup(f"run {i}", groups[i % 2].traces * 3, groups[i].verdicts) for i in (0, 1)]
    page = open_player([*many] * 60)
    assert page.evaluate("player.library.size") == 1080
    page.wait_for_function("performance.getEntriesByType('paint').length > 0")
    painted = page.evaluate("performance.getEntriesByType('paint')[0].startTime")
    assert painted < FIRST_PAINT_MS
    assert page.evaluate("player.library.parts[0].payload.decoded.size") == 1
    page.locator(".ao-pick").click()
    assert page.locator(".ao-count").inner_text() == "1080 samples"
    assert page.locator(".ao-row").count() < 30
    for _ in range(3):
        page.locator(".ao-search").press("PageDown")
    active = page.locator(".ao-row.is-active")
    assert int(active.get_attribute("aria-posinset")) > 12
    assert active.is_visible()
