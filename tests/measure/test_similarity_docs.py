"""docs/similarity.md says what the code does: its snippets, and every number of the example."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import re
from pathlib import Path

from anyorder.measure.programs import TreeLimits
from anyorder.measure.syntax import ParseLimits, Status
from anyorder.measure.tree_edit import distance
from anyorder.measure.trees import TreeOptions, ast_tree, coarse_tree, grammar_tree

PAGE = (Path(__file__).parents[2] / "docs" / "similarity.md").read_text(encoding="utf-8")

ADD = "def f(x):\n    y = x + 1\n    return y\n"
SHORT = "def f(x):\n    return x + 2\n"
NONE = "def f(x):\n    return x\n"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_the_snippets_print_what_the_page_says() -> None:
    for snippet, printed in zip(blocks("python"), blocks("text"), strict=True):
        caught = io.StringIO()
        with contextlib.redirect_stdout(caught):
            exec(snippet, {})
        assert caught.getvalue() == printed


def test_the_example_by_hand() -> None:
    add, short, none = (ast_tree(ast.parse(text)) for text in (ADD, SHORT, NONE))
    drawn = "\n".join(f"    {line}" for line in str(add).split("\n"))
    assert drawn in PAGE
    assert f"has 9: `{', '.join(short.labels)}`" in PAGE
    assert (add.size, short.size, none.size) == (12, 9, 6)
    assert (distance(short, add), distance(short, none)) == (5, 3)
    grammar = [grammar_tree(text) for text in (ADD, SHORT, NONE)]
    assert [tree.size for tree in grammar] == [14, 10, 8]
    assert [distance(grammar[1], tree, 0) for tree in (grammar[0], grammar[2])] == [4, 2]
    assert coarse_tree(ast.parse(SHORT)) == coarse_tree(ast.parse(NONE))
    assert coarse_tree(ast.parse(SHORT)).size == 3


def test_options_statuses_and_limits_are_those_of_the_code() -> None:
    section = PAGE.split("## What the paper leaves open")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE) == [
        field.name for field in dataclasses.fields(TreeOptions)
    ]
    assert all(f"`{status}`" in PAGE for status in Status)
    assert f"more than {ParseLimits.depth} levels" in PAGE
    assert f"more than {ParseLimits.characters:,} characters or {TreeLimits.nodes:,} nodes" in PAGE
    assert f"among the first {ParseLimits.lines}" in PAGE
