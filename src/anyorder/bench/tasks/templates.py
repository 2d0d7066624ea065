"""Prompt templates: a text with {fields}, published ones by name, others from a file.

`{prompt}` stands for a field of the problem; `{{` and `}}` stand for single braces; other braces
are left alone, so that a template may hold code. A field that the task does not have is an error.
Chat markup is not added here: a template that needs it writes it out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

_PIECE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")


def find_template(
    wanted: str | None, named: Mapping[str, str], fields: Sequence[str], task: str
) -> str:
    """The template's text: a published one, or a file's. None: the first of the published ones."""
    if wanted is None:
        return next(iter(named.values()))
    text = named.get(wanted)
    if text is None:
        text = _read(Path(wanted), f"{task} has no template {wanted!r}", named)
    for match in _PIECE.finditer(text):
        if match[1] is not None and match[1] not in fields:
            raise ValueError(
                f"template {wanted}: no field {{{match[1]}}}: {task} has "
                f"{', '.join(f'{{{name}}}' for name in fields)}; write {{{{ for a plain brace"
            )
    return text


def fill(template: str, values: Mapping[str, str]) -> str:
    """The prompt of one problem."""

    def piece(match: re.Match[str]) -> str:
        return match[0][0] if match[1] is None else values[match[1]]

    return _PIECE.sub(piece, template)


def _read(path: Path, problem: str, named: Mapping[str, str]) -> str:
    if not path.is_file():
        raise ValueError(f"{problem}: give a file, or one of {', '.join(named)}")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            text = file.read().replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"template {path} cannot be read ({error}): give a text file") from None
    if not text.strip():
        raise ValueError(f"template {path} is empty: write at least {{prompt}}")
    return text
