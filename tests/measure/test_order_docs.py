"""docs/order.md and docs/arness.md say what the code does: their snippets print what they show."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from anyorder.measure.order_nodes import METRICS, RULES
from anyorder.measure.order_program import EXCLUDED_WORDS, SCOPES
from anyorder.measure.order_scores import SEEDS
from anyorder.measure.syntax import Status

DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["order.md", "arness.md"])
def test_snippets_print_what_the_page_says(name: str) -> None:
    printed = []
    for snippet in blocks(page(name), "python"):
        caught = io.StringIO()
        with contextlib.redirect_stdout(caught):
            exec(snippet, {})
        printed.append(caught.getvalue())
    assert printed == blocks(page(name), "text")


def test_the_page_names_what_there_is() -> None:
    text = page("order.md")
    for word in (*EXCLUDED_WORDS, *RULES, *(scope for scope in SCOPES if scope != "full_output")):
        assert word in text
    for status in Status:
        assert f"`{status}`" in text or status is Status.NOT_TEXT
    assert f"mean over {len(SEEDS)} seeds" in text
    assert len(METRICS) == 4
