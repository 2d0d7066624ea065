"""Whether a checkpoint belongs to the run that wants to go on from it, and if not, why.

The two runs' fixed fields are compared leaf by leaf, under the names that a command line gives
them: `net.width` and not the whole of `net`. Fields that are free to change are not among them
(config.py). This does not look for damage: see checkpoint.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anyorder.train.config import MAY_CHANGE

ABOUT = "about."
"""Before the name of what the caller says of its network and data (FitOptions.about)."""
SHOWN = 4
"""Differences named in one message."""

_PLAIN = {
    "data_digest": "data (the file has changed since)",
    "vocab_digest": "vocabulary",
}
"""What a digest that differs means; its value tells people nothing."""
_NAMES = {"levels": "validation levels"}
_DIGEST = re.compile(r"[0-9a-f]{64}")


def check_same_run(folder: Path, before: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    """Refuse to go on with another configuration, naming the fields that differ."""
    differ = differences(before, run)
    if not differ:
        return
    more = f" and {len(differ) - SHOWN} more" if len(differ) > SHOWN else ""
    raise ValueError(
        f"{folder} was trained with another configuration: {', '.join(differ[:SHOWN])}{more}. "
        "Give the earlier values to go on, or choose another output folder to start anew "
        f"(free to change: {', '.join(sorted(MAY_CHANGE))})"
    )


def differences(before: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    """One phrase for each field that differs, in the order of their names."""
    old, new = _leaves(before), _leaves(run)
    names = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    if any(name.startswith("data.") for name in names):
        names.discard("data_digest")  # other settings make other data: the file is not to blame
    return [_phrase(name, old.get(name), new.get(name)) for name in sorted(names)]


def _leaves(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields under dotted names, without the mark of the caller's own."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        name = f"{prefix}{key.removeprefix(ABOUT)}"
        found |= _leaves(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return found


def _phrase(name: str, old: Any, new: Any) -> str:
    if name in _PLAIN:
        return _PLAIN[name]
    return f"{_NAMES.get(name, name)} (checkpoint {_short(old)}, now {_short(new)})"


def _short(value: Any) -> str:
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return value[:8]
    return repr(value)
