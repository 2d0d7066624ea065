"""docs/passk.md says what the code does: its snippets print what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "passk.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_snippets_print_what_the_page_says() -> None:
    printed = []
    for snippet in blocks("python"):
        caught = io.StringIO()
        with contextlib.redirect_stdout(caught):
            exec(snippet, {})
        printed.append(caught.getvalue())
    assert printed == blocks("text")
