"""The player's files: small, complete, on their own, and without a word to the network."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from seen_colors import READABLE, contrast, luminance

from anyorder.report import player
from anyorder.report.traces import LiveSteps, TraceGroup, pack
from anyorder.trace import Event, Ghost, Run, RunCard, Trace
from anyorder.vocab import Vocab

FOLDER = Path(player.__file__).parent
SCRIPTS = sorted(FOLDER.glob("*.js"))
MOST_LINES = 400

# An address in a namespace is a name and asks for nothing.
NAMESPACE = "http://www.w3.org/2000/svg"


def test_every_file_is_used() -> None:
    assert {path.name for path in SCRIPTS} == set(player.SCRIPTS)
    assert {path.name for path in FOLDER.glob("*.css")} == set(player.STYLES)
    for path in SCRIPTS:
        assert path.read_text(encoding="utf-8") in player.script()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_says_what_it_is_and_is_small(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("// ")
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 110


def test_nothing_is_fetched_and_nothing_can_end_the_element() -> None:
    script, style = player.script().replace(NAMESPACE, ""), player.style()
    for text in (script, style):
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|fetch\(|XMLHttp|import\(", text)
        assert "</" not in text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|document\.write", script)


def test_only_one_name_is_defined() -> None:
    assert player.script().startswith("(() => {")
    assert re.findall(r"window\.(\w+) = ", player.script()) == ["AnyorderPlayer"]


def test_the_page_of_the_docs_can_be_made(
    groups: list[TraceGroup], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = Path(__file__).resolve().parents[2] / "docs" / "player.md"
    (snippet,) = re.findall(r"```python\n(.*?)```", docs.read_text(encoding="utf-8"), re.DOTALL)
    run = Run.create(tmp_path / "runs" / "stories", RunCard(command="", config={}))
    run.append(0, groups[0].traces)
    run.finish()
    monkeypatch.chdir(tmp_path)
    made: dict[str, str] = {}
    exec(snippet, made)
    assert "AnyorderPlayer.create(" in made["page"]
    assert '"my run"' in made["page"]


# How the player looks: narrow and wide, light and dark, readable colours, a thousand samples.


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


# The player's live mode: steps appended as they come, in a real browser.


VOCAB = Vocab.bytes()

TEXT = "def f(a):\n    return a"
STEPS = 12


@dataclass
class Seen:
    """As a decoder shows it."""

    step: int
    token_ids: list[int]
    insert_step: list[int]
    reveal_step: list[int]
    log_prob: list[float]


def generation() -> tuple[Trace, list[Seen]]:
    """A canvas that grows, as a trace and as its decoder showed it."""
    ids = VOCAB.encode(TEXT)
    insert = [1 + (5 * i) % 7 for i in range(len(ids))]
    reveal = [first + 1 + i % 5 for i, first in enumerate(insert)]
    log_prob = [-0.1 * (i % 9) for i in range(len(ids))]
    trace = Trace.from_tokens(
        VOCAB,
        ids,
        prompt_ids=VOCAB.encode("Write f:\n"),
        insert_step=insert,
        reveal_step=reveal,
        steps=STEPS,
        log_prob=log_prob,
        family="flexmdm",
    )
    shown = []
    for step in range(STEPS + 1):
        here = [slot for slot in range(len(ids)) if insert[slot] <= step]
        shown.append(
            Seen(
                step,
                [ids[slot] if reveal[slot] <= step else VOCAB.mask_id for slot in here],
                [insert[slot] for slot in here],
                [reveal[slot] if reveal[slot] <= step else 0 for slot in here],
                [log_prob[slot] if reveal[slot] <= step else float("nan") for slot in here],
            )
        )
    return trace, shown


def shown_text(page: Any) -> str:
    """What stands on the page, `_` for each mask."""
    return page.evaluate(
        """() => [...document.querySelectorAll(".ao-slot:not(.is-absent)")]
            .map((slot) => slot.classList.contains("is-mask") ? "_" : slot.textContent).join("")"""
    )


def start(page: Any, about: str = '{prompt: "Write f:", task: "now", planned: 12}') -> None:
    page.evaluate(f"() => {{ window.live = player.live({about}); }}")


def append(page: Any, message: dict[str, Any]) -> None:
    page.evaluate("(message) => live.append(message)", message)


def test_steps_are_shown_as_they_come_and_can_be_gone_back_to(open_player: Open) -> None:
    trace, shown = generation()
    page = open_player([])
    start(page)
    assert page.locator(".ao-facts").inner_text() == "Being generated"
    steps = LiveSteps(VOCAB)
    for seen in shown:
        (message,) = steps.messages(seen)
        append(page, message)
        assert shown_text(page) == trace.replay(seen.step).text("_")
    for step in reversed(range(STEPS)):
        page.evaluate("player.back()")
        assert shown_text(page) == trace.replay(step).text("_")

    payload = pack([TraceGroup("play", [trace])])
    page.evaluate("player.last()")
    page.evaluate("(payload) => live.finish(payload)", payload)
    assert shown_text(page) == TEXT
    assert page.evaluate("player.state().samples") == [0]
    assert page.locator(".ao-node").count() == 2
    assert "tokens" in page.locator(".ao-facts").inner_text()


def test_whoever_looks_back_is_left_in_peace(open_player: Open) -> None:
    _, shown = generation()
    page = open_player([])
    start(page)
    steps = LiveSteps(VOCAB)
    messages = [message for seen in shown for message in steps.messages(seen)]
    for message in messages[:6]:
        append(page, message)
    assert page.evaluate("player.state().step") == 5
    page.evaluate("player.go(2)")
    before = shown_text(page)
    for message in messages[6:9]:
        append(page, message)
    assert page.evaluate("player.state().step") == 2
    assert shown_text(page) == before
    page.get_by_role("button", name="Follow").click()
    assert page.evaluate("player.state().step") == 8
    append(page, messages[9])
    assert page.evaluate("player.state().step") == 9


def test_masked_again_and_segments(open_player: Open) -> None:
    page = open_player([])
    start(page, "{}")
    append(page, {"step": 0, "insert": [0, 1], "show": [[0, "a", -1]]})
    append(page, {"step": 1, "show": [[1, "b", 10]], "hide": [0]})
    assert shown_text(page) == "_b"
    append(page, {"step": 2, "show": [[0, "c", 10]]})
    assert shown_text(page) == "cb"
    page.evaluate("player.go(0)")
    assert shown_text(page) == "a_"

    start(page, "{segments: true}")
    append(page, {"step": 0, "insert": [0, 1]})
    assert page.locator(".is-line:visible").count() == 2
    append(page, {"step": 1, "replace": [[1, [["x", 5], [" = 1", 5]]]]})
    assert page.locator(".is-line:visible").count() == 1
    assert shown_text(page) == "_x = 1"
    append(page, {"step": 2, "replace": [[0, [["y\n", 5]]]], "insert": [0]})
    assert page.locator(".is-line:visible").count() == 1
    assert shown_text(page) == "_y\nx = 1"


def test_two_generations_side_by_side_and_a_failure(open_player: Open) -> None:
    trace, shown = generation()
    page = open_player([])
    page.evaluate("() => { window.both = [player.live({}, 0), player.live({}, 1)]; }")
    left, right = LiveSteps(VOCAB), LiveSteps(VOCAB)
    for seen in shown[:7]:
        page.evaluate("(message) => both[0].append(message)", left.messages(seen)[0])
    for seen in shown[:4]:
        page.evaluate("(message) => both[1].append(message)", right.messages(seen)[0])
    assert page.evaluate("player.state().step") == 6
    assert page.evaluate("[player.text(0, '_'), player.text(1, '_')]") == [
        trace.replay(6).text("_"),
        trace.replay(3).text("_"),
    ]
    page.evaluate("() => both[1].fail('The model was not found.')")
    assert page.locator(".ao-facts.is-failed").inner_text() == "The model was not found."
    page.evaluate("() => both[0].finish()")
    assert not page.evaluate("player.state().live")


def test_steps_out_of_order_are_refused(open_player: Open) -> None:
    page = open_player([])
    start(page)
    append(page, {"step": 3})
    error = page.evaluate(
        "() => { try { live.append({step: 2}); } catch (error) { return error.message; } }"
    )
    assert "in order" in error


# Masked again, changed and deleted, in the player: masks return, deleted slots are struck out.


CLASSES = """() => [...document.querySelectorAll(".ao-pane .ao-slot")].map(
  (slot) => ["is-shown", "is-mask", "is-again"].filter((name) => slot.classList.contains(name)))"""


def remasked() -> Trace:
    """Slot 0 shows x, is masked again, then shows a; slot 1 is revealed once."""
    return Trace(
        task_id="t", sample=0, prompt="", text="ab", char_end=[1, 2], insert_step=[0, 0],
        reveal_step=[5, 2], steps=5, events=(Event(1, 0, None, "x"), Event(3, 0, None, None)),
    )  # type: ignore[arg-type]  # fmt: skip


@pytest.mark.parametrize("layout", ["grown", "final"])
def test_the_mask_comes_back(open_player: Callable[..., Any], layout: str) -> None:
    page = open_player([TraceGroup("run", [remasked()])], f'{{layout: "{layout}"}}')
    expected = {
        0: [["is-mask"], ["is-mask"]],
        1: [["is-shown"], ["is-mask"]],
        2: [["is-shown"], ["is-shown"]],
        3: [["is-mask", "is-again"], ["is-shown"]],
        4: [["is-mask"], ["is-shown"]],
        5: [["is-shown"], ["is-shown"]],
    }
    for step, classes in expected.items():
        page.evaluate("(step) => player.go(step)", step)
        assert page.evaluate(CLASSES) == classes
    page.evaluate("() => player.go(3)")
    assert "masked" in page.locator(".ao-note").inner_text()


def corrected() -> Trace:
    """`a-b`: slot 1 stays; x and y before a, and a mask behind b, are deleted; b was edited."""
    ghosts = (
        Ghost(-1, 0, 3, 4, None, "x"),
        Ghost(-1, 1, 2, 5, None, "y\n"),
        Ghost(2, 2, None, 4, None, None),
    )
    events = (Event(1, 2, None, "c"), Event(1, 3, None, "w"), Event(2, 3, None, None))
    return Trace(
        task_id="t", sample=0, prompt="", text="a-b", char_end=[1, 2, 3], insert_step=[0, 2, 0],
        reveal_step=[1, 3, 4], steps=6, events=events, ghosts=ghosts,
    )  # type: ignore[arg-type]  # fmt: skip


SHOWN = """() => [...document.querySelectorAll(".ao-pane .ao-slot")]
  .filter((slot) => !slot.classList.contains("is-absent"))
  .map((slot) => [Number(slot.dataset.slot),
    slot.classList.contains("is-shown") ? slot.textContent : null])"""
STRUCK = """() => [...document.querySelectorAll(".ao-pane .ao-slot.is-gone")]
  .map((slot) => [slot.textContent, slot.offsetParent !== null])"""


@pytest.mark.parametrize("layout", ["grown", "final"])
def test_a_deleted_slot_is_struck_out_and_then_gone(
    open_player: Callable[..., Any], layout: str
) -> None:
    trace = corrected()
    page = open_player([TraceGroup("run", [trace])], f'{{layout: "{layout}"}}')
    place = {slot: at for at, slot in enumerate(trace.slot_order.tolist())}
    for step in [*range(7), 3, 0]:
        page.evaluate("(step) => player.go(step)", step)
        now = trace.replay(step)
        rows = zip(now.slots.tolist(), now.pieces, now.revealed.tolist(), strict=True)
        shown = [[place[slot], piece if revealed else None] for slot, piece, revealed in rows]
        if layout == "grown":
            assert page.evaluate(SHOWN) == shown
        assert page.evaluate("player.text(0, '_')") == now.text("_")
        struck = {4: [["x", True], ["", True]], 5: [["y\n", True]]}
        assert page.evaluate(STRUCK) == struck.get(step, [])
    note = page.locator(".ao-note")
    page.evaluate("() => player.go(4)")
    assert note.inner_text() == (
        "Step 4: changed \u201cc\u201d to \u201cb\u201d, deleted \u201cx\u201d, a mask."
    )
    assert page.locator(".ao-facts").inner_text().startswith("3 tokens")


def test_deletions_live(open_player: Callable[..., Any]) -> None:
    page = open_player([], "{}")
    page.evaluate("() => { window.live = player.live({task: 'now'}); }")
    messages: list[dict[str, Any]] = [
        {"step": 0, "insert": [0, 1, 2]},
        {"step": 1, "show": [[0, "a", 1], [1, "b", 1]]},
        {"step": 2, "delete": [1], "insert": [1], "show": [[2, "c", 1]]},
        {"step": 3, "delete": [0], "show": [[0, "d", 1]]},
    ]
    for message in messages:
        page.evaluate("(message) => live.append(message)", message)
    texts = []
    for step in range(4):
        page.evaluate("(step) => player.go(step)", step)
        texts.append(page.evaluate("player.text(0, '_')"))
    assert texts == ["___", "ab_", "a_c", "dc"]
    assert page.evaluate(STRUCK) == [["a", True]]
