"""docs/presets.md: the presets of `anyorder sample --preset` as a table, made from the code.

python recipes/presets_page.py > docs/presets.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyorder.recipes.presets import PRESETS, Preset


def as_markdown() -> str:
    """The page docs/presets.md."""
    rows = [
        f"| `{preset.name}` | {', '.join(preset.families)} | {', '.join(preset.tasks)} "
        f"| {_cell(preset)} | {preset.source} |"
        for preset in PRESETS.values()
    ]
    notes = [
        f"- **`{preset.name}`**: {preset.about}. {preset.remarks}".rstrip()
        for preset in PRESETS.values()
    ]
    middle = ["", "## What they are, and what their sources leave open", ""]
    return "\n".join([_HEAD, *rows, *middle, *notes]) + "\n"


_HEAD = """\
# Presets

Settings of published sampling protocols. `anyorder sample MODEL --task T --preset NAME` takes them
where the command says nothing; every flag beside it overrides it, and the run card records what
came out. A preset is refused for a model of another family and for a task that it was not
published for. This page is made by `recipes/presets_page.py`, and a test keeps it so.

| preset | family | tasks | settings | source |
|---|---|---|---|---|"""


def _cell(preset: Preset) -> str:
    lines = [_spelled(preset.always)]
    lines += _grouped("on", preset.per_task)
    lines += _grouped("under policy", preset.per_policy)
    lines += [
        f"tried: {name} {', '.join(map(str, values))}" for name, values in preset.sweep.items()
    ]
    return "; ".join(lines)


def _grouped(word: str, groups: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line for each different group of settings, with all names that share it."""
    lines: dict[str, list[str]] = {}
    for name, settings in groups.items():
        lines.setdefault(_spelled(settings), []).append(name)
    return [f"{word} {_both(names)}: {settings}" for settings, names in lines.items()]


def _spelled(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _both(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


if __name__ == "__main__":
    print(as_markdown(), end="")
