"""docs/stories.md says what the corpus does: its snippets are run and its examples looked up."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from anyorder.data.corpora.stories import (
    HELD_OUT,
    OPERATIONS,
    StoriesConfig,
    core,
    render,
    structures,
)

PAGE = (Path(__file__).parents[2] / "docs" / "stories.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_snippets_print_what_the_page_says() -> None:
    printed = []
    for snippet in blocks("python"):
        caught = io.StringIO()
        with contextlib.redirect_stdout(caught):
            exec(snippet, {})
        printed.append(caught.getvalue())
    assert [text for text in printed if text] == blocks("text")


def test_examples_are_renderings_of_one_problem() -> None:
    index = int(re.findall(r'problem\(StoriesConfig\(seed=0, split="train"\), (\d+)\)', PAGE)[0])
    settings = [(0.0, 0.0, False), (1.0, 0.0, False), (0.0, 1.0, False), (1.0, 0.0, True)]
    known = set()
    for dials in settings:
        config = StoriesConfig(0, "train", *dials)
        for draw in range(500):
            found = render(core(config, index), config, draw)
            known.add(f"{found.prompt}{found.program}\n")
    examples = blocks("example")
    assert len(examples) == 5
    assert set(examples) <= known


def test_structures_are_listed() -> None:
    for name in OPERATIONS:
        assert f"| `{name}` |" in PAGE
    for first, second in HELD_OUT:
        assert f"- `{first}` then `{second}`" in PAGE
    counts = [sum(map(len, structures(split).values())) for split in ("train", "heldout")]
    assert f"There are {sum(counts)} of\nthem" in PAGE
    assert f"({counts[1]} structures, {counts[0]} are left" in PAGE
