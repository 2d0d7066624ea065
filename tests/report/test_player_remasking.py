"""A token that is masked again, in the player: the slot is a mask once more, and stands out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anyorder.report.traces import TraceGroup
from anyorder.trace import Event, Trace

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
