"""The player's live mode: steps appended as they come, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anyorder.report.traces import LiveSteps, TraceGroup, pack
from anyorder.trace import Trace
from anyorder.vocab import Vocab

Open = Callable[..., Any]
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
