"""Masked again, changed and deleted, in the player: masks return, deleted slots are struck out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anyorder.report.traces import TraceGroup
from anyorder.trace import Event, Ghost, Trace

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
