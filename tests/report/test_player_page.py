"""The trace player in a real browser: from a file, offline, step by step against Trace.replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from made_traces import trace_of

from anyorder.report.traces import TraceGroup
from anyorder.trace import Event, Trace

Open = Callable[..., Any]

# What a side shows, read off the page: per slot on the canvas its number and its text (null: mask).
SHOWN = """(side) => [...document.querySelectorAll(".ao-pane")[side].querySelectorAll(".ao-slot")]
  .filter((slot) => !slot.classList.contains("is-absent"))
  .map((slot) => [Number(slot.dataset.slot),
    slot.classList.contains("is-shown") ? slot.textContent : null])"""


def replayed(trace: Trace, step: int) -> list[list[Any]]:
    if trace.steps is None:
        return [[0, trace.text]]
    moment = trace.replay(step)
    rows = zip(moment.slots.tolist(), moment.pieces, moment.revealed.tolist(), strict=True)
    return [[slot, piece if revealed else None] for slot, piece, revealed in rows]


def step_of(page: Any) -> int:
    return int(page.locator(".ao-counter").inner_text().split(" / ")[0])


def test_it_opens_at_the_last_step_of_the_first_sample(
    open_player: Open, groups: list[TraceGroup], samples: list[Trace]
) -> None:
    page = open_player(groups)
    assert page.locator(".ao-counter").inner_text() == f"{samples[0].steps} / {samples[0].steps}"
    assert page.locator(".ao-pick-title").inner_text().split() == [
        *("t/0", "#0", "passed"),
        *("mdm", "run", "·", "confidence"),
    ]
    assert page.locator(".ao-prompt-text:visible").inner_text() == "Do it:"
    assert page.locator(".ao-pane").count() == 1


def test_every_sample_ends_in_its_text(
    open_player: Open, groups: list[TraceGroup], samples: list[Trace]
) -> None:
    page = open_player(groups)
    for number, trace in enumerate(samples):
        page.evaluate("(number) => { player.select(number); player.last(); }", number)
        shown = page.evaluate(SHOWN, 0)
        assert "".join(text for _, text in shown) == trace.text
        assert page.evaluate("player.text()") == trace.text


@pytest.mark.parametrize("layout", ["grown", "final"])
def test_masks_and_text_are_right_at_every_step(
    open_player: Open, groups: list[TraceGroup], samples: list[Trace], layout: str
) -> None:
    page = open_player(groups, f'{{layout: "{layout}"}}', reduced_motion="reduce")
    for number, trace in enumerate(samples):
        page.evaluate("(number) => player.select(number)", number)
        steps = trace.steps or 0
        # What is shown depends on the step alone, not on where one comes from.
        for order in (range(steps, -1, -1), range(0, steps + 1, 2)):
            walk = f"(steps) => steps.map((step) => {{ player.go(step); return ({SHOWN})(0); }})"
            shown = page.evaluate(walk, list(order))
            assert shown == [replayed(trace, step) for step in order], number


@pytest.mark.parametrize("number", [0, 3, 8])
def test_every_step_is_reached_by_keyboard(
    open_player: Open, groups: list[TraceGroup], samples: list[Trace], number: int
) -> None:
    page = open_player(groups, f"{{sample: {number}}}")
    trace = samples[number]
    assert trace.steps is not None
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "ao-player"
    page.keyboard.press("Home")
    for step in range(trace.steps + 1):
        assert step_of(page) == step
        assert page.evaluate(SHOWN, 0) == replayed(trace, step)
        page.keyboard.press("ArrowRight")
    assert step_of(page) == trace.steps
    page.keyboard.press("ArrowLeft")
    assert step_of(page) == trace.steps - 1
    page.keyboard.press("Shift+ArrowLeft")
    assert step_of(page) == max(0, trace.steps - 11)
    page.keyboard.press("End")
    assert step_of(page) == trace.steps


def test_keys_play_search_compare_and_help(
    open_player: Open, groups: list[TraceGroup], samples: list[Trace]
) -> None:
    page = open_player(groups, "{speed: 0.25}")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # at the end: from the beginning
    page.wait_for_function("player.state().playing && player.state().step > 0")
    page.keyboard.press("Space")
    assert not page.evaluate("player.state().playing")
    assert step_of(page) < page.evaluate("player.steps")
    for speed in ("0.5", "1", "2", "4", "8", "8"):
        page.keyboard.press("+")
        assert page.locator(".ao-select").input_value() == speed
    page.keyboard.press("Space")
    page.wait_for_function("!player.state().playing && player.state().step === player.steps")
    page.keyboard.press("o")
    assert page.evaluate("player.state().color") == "confidence"

    page.keyboard.press("/")
    page.keyboard.type("flex t/2 wrong")
    assert page.locator(".ao-row").count() == 1
    page.keyboard.press("Enter")
    assert page.evaluate("player.state().samples") == [5]
    page.keyboard.press("n")
    page.keyboard.press("p")
    page.keyboard.press("p")
    assert page.evaluate("player.state().samples") == [4]

    page.keyboard.press("c")
    assert page.evaluate("player.state().samples") == [4, 1]  # the same problem in another family
    page.keyboard.press("2")
    page.keyboard.press("n")
    assert page.evaluate("player.state().samples") == [4, 2]
    page.keyboard.press("1")
    page.keyboard.press("n")
    assert page.evaluate("player.state().samples") == [5, 2]
    page.keyboard.press("c")
    assert page.evaluate("player.state().samples") == [5]

    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("ArrowLeft")
    assert step_of(page) == page.evaluate("player.steps")
    page.keyboard.press("Escape")
    assert not page.locator("dialog").is_visible()


def test_the_list_is_searched_and_filtered(open_player: Open, groups: list[TraceGroup]) -> None:
    page = open_player(groups)
    page.locator(".ao-pick").click()
    assert page.locator(".ao-count").inner_text() == "14 samples"
    page.get_by_text("Not passed").click()
    assert page.locator(".ao-count").inner_text() == "5 samples"
    page.locator(".ao-search").fill("no code")
    assert page.locator(".ao-count").inner_text() == "3 samples"
    page.locator(".ao-search").press("Escape")
    assert not page.locator(".ao-panel").is_visible()
    assert page.evaluate("document.activeElement.className") == "ao-pick"
    page.locator(".ao-pick").click()
    page.locator(".ao-row").nth(1).click()
    assert not page.locator(".ao-panel").is_visible()


def test_slider_buttons_and_plot_scrub(open_player: Open, groups: list[TraceGroup]) -> None:
    page = open_player(groups)
    steps = page.evaluate("player.steps")
    page.get_by_role("slider", name="Step").fill("5")
    assert step_of(page) == 5
    page.get_by_role("slider", name="Step").press("ArrowRight")
    assert step_of(page) == 6  # once, not once for the slider and once for the player
    for name, step in {
        "Step forward": 7,
        "Step back": 6,
        "First step": 0,
        "Last step": steps,
    }.items():
        page.get_by_role("button", name=name).click()
        assert step_of(page) == step
    box = page.locator(".ao-plot").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 20)
    assert abs(step_of(page) - steps / 2) <= 1


def test_a_growing_canvas_glides_unless_motion_is_unwanted(
    open_player: Open, groups: list[TraceGroup]
) -> None:
    moving = "player.go(20); player.next(); document.getAnimations().length"
    page = open_player(groups, "{sample: 3}")
    assert page.evaluate(moving) > 0
    page = open_player(groups, "{sample: 3}", reduced_motion="reduce")
    assert page.evaluate(moving) == 0


def test_segments_are_lines_with_scores_and_candidates(
    open_player: Open, groups: list[TraceGroup], samples: list[Trace]
) -> None:
    number = next(i for i, trace in enumerate(samples) if trace.candidates)
    page = open_player(groups, f"{{sample: {number}, step: 0}}")
    assert page.locator(".is-line:visible").count() == 5
    assert page.locator(".ao-slot:visible").count() == 5
    page.evaluate("player.next()")
    assert page.locator(".is-line:visible").count() == 4
    assert page.locator(".ao-tag").get_attribute("data-text") == "\u22120.75"
    rows = page.locator(".ao-candidates tbody tr")
    assert rows.count() == 5
    taken = page.locator(".ao-candidates .is-taken")
    assert "return plums" in taken.inner_text()
    page.evaluate("player.next()")
    assert page.locator(".ao-candidates .is-done").inner_text().split() == ["4", "return", "plums"]
    assert page.locator(".ao-note").inner_text().startswith("Step 2: revealed segment 1")


def test_the_tree_fills_up(
    open_player: Open, groups: list[TraceGroup], samples: list[Trace]
) -> None:
    page = open_player(groups, "{step: 0}")
    nodes = page.locator(".ao-node")
    assert nodes.count() == 4
    assert page.locator(".ao-node.is-none").count() == 4
    trace = samples[0]
    assert trace.reveal_step is not None
    for step in range(1, (trace.steps or 0) + 1):
        page.evaluate("player.next()")
        # The last node is `return plums`: the two last tokens that have text.
        known = int((trace.reveal_step[17:19] <= step).sum())
        assert nodes.nth(3).get_attribute("title") == f"Return: {known} of 2 tokens"
        name = "".join(
            piece if reveal <= step else "".join("·" if c != " " else c for c in piece)
            for piece, reveal in zip(trace.pieces[17:19], trace.reveal_step[17:19], strict=True)
        )
        assert page.locator(".ao-node-name").nth(3).text_content() == name.strip(" ")
    assert page.locator(".ao-node.is-full").count() == 4
    nodes.nth(3).hover()
    marked = page.locator(".ao-slot.is-marked").all_text_contents()
    assert marked == ["    return ", "plums"]
    page.evaluate("(number) => player.select(number)", len(samples) - 5)
    assert not page.locator(".ao-tree").is_visible()


def test_pointing_at_a_token_tells_when_it_came(
    open_player: Open, groups: list[TraceGroup], samples: list[Trace]
) -> None:
    page = open_player(groups, "{sample: 3}")
    page.locator('.ao-slot[data-slot="1"] .ao-ink').hover()
    trace = samples[3]
    assert trace.insert_step is not None
    assert trace.reveal_step is not None
    detail = page.locator(".ao-detail").inner_text()
    assert f"inserted in step {trace.insert_step[1]}" in detail
    assert f"revealed in step {trace.reveal_step[1]}" in detail


def test_the_sentence_tells_remasking_and_the_end_of_the_text(
    open_player: Open, groups: list[TraceGroup]
) -> None:
    page = open_player(groups, "{sample: 11, step: 2}")
    note = page.locator(".ao-note")
    assert note.inner_text().endswith("remasked \u201cwrong\u201d.")
    page.evaluate("player.go(4)")
    assert note.inner_text() == "Step 4: revealed end of text."
    page.evaluate("player.go(0)")
    assert note.inner_text() == "Before the first step: 4 masked slots."


def test_what_will_change_is_not_given(open_player: Open) -> None:
    """A model without masks begins with tokens that are not its answer."""
    events = (Event(0, 0, None, "x"), Event(0, 1, None, "y"), Event(1, 1, None, "z"))
    trace = trace_of(["a", "b"], [2, 2], events=events, family="duo")
    page = open_player([TraceGroup("run", [trace])], "{step: 0}")
    assert page.locator(".ao-note").inner_text() == (
        "Before the first step: 2 tokens that may change."
    )
    assert page.evaluate("player.text()") == "xy"


def test_seconds_are_shown_of_samples_decoded_alone(open_player: Open) -> None:
    trace = trace_of(["a"], [1], seconds=0.5)
    for timed in (False, True):
        page = open_player([TraceGroup("run", [trace], timed=timed)])
        assert ("0.50 s" in page.locator(".ao-facts").inner_text()) == timed


def test_two_samples_in_step_or_by_progress(
    open_player: Open, groups: list[TraceGroup], samples: list[Trace]
) -> None:
    page = open_player(groups, "{compare: 3}")
    short, long = samples[0].steps, samples[3].steps
    assert (short, long) == (27, 44)
    assert page.locator(".ao-shared").is_visible()
    for step in (0, 10, 30, 44):
        page.evaluate("(step) => player.go(step)", step)
        assert page.evaluate(SHOWN, 0) == replayed(samples[0], min(step, 27))
        assert page.evaluate(SHOWN, 1) == replayed(samples[3], step)
    page.get_by_text("By progress").click()
    for step in (0, 22, 44):
        page.evaluate("(step) => player.go(step)", step)
        assert page.evaluate("player.state().sideSteps") == [round(27 * step / 44 + 1e-9), step]
        assert page.evaluate(SHOWN, 0) == replayed(samples[0], round(27 * step / 44 + 1e-9))
    page.get_by_role("button", name="One sample").click()
    assert page.locator(".ao-pane").count() == 1
    assert page.evaluate("player.steps") == 27


def test_an_unknown_option_is_refused(open_player: Open, groups: list[TraceGroup]) -> None:
    page = open_player(groups)
    error = page.evaluate(
        """() => { try { AnyorderPlayer.create(document.body, null, {colour: 1}); }
                   catch (error) { return error.message; } }"""
    )
    assert error.startswith("no option colour")
