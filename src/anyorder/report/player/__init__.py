"""The trace player's script and style, put together from the files beside this one.

The player is plain JavaScript and CSS without a build step: a page holds `style()` in a <style>,
`script()` in a <script> and a payload of report/traces.py, and calls AnyorderPlayer.create
(docs/player.md). The .js and .css files decide what it shows.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

# A file uses only names of files before it.
SCRIPTS = (
    "data.js",
    "dom.js",
    "text_view.js",
    "tree_view.js",
    "order_view.js",
    "candidates_view.js",
    "picker.js",
    "pane.js",
    "controls.js",
    "player.js",
)
STYLES = ("player.css",)


@cache
def script() -> str:
    """The whole script in a scope of its own; the only global name is `AnyorderPlayer`."""
    return '(() => {\n"use strict";\n' + "\n".join(map(_read, SCRIPTS)) + "})();\n"


@cache
def style() -> str:
    return "\n".join(map(_read, STYLES))


def _read(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")
