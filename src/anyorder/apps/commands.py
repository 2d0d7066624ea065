"""The command line that does a job: every setting that is not its default, as a flag."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

_POSITIONAL = ("model", "runs")


def command(
    verb: str, job: Any, options: Mapping[str, Any] | None = None, *, named: Sequence[str] = ()
) -> str:
    """Such as `anyorder sample mdm --task stories`; `named` stands before the flags."""
    words = ["anyorder", verb, *named]
    settings: dict[str, Any] = {}
    for field in fields(job):
        value = getattr(job, field.name)
        if field.name in _POSITIONAL:
            words += [value] if isinstance(value, str) else map(str, value)
        elif not _is_default(field, value):
            settings[field.name] = value
    out = settings.pop("out", None)  # at the end, where a reader looks for it
    for name, value in {**settings, **(options or {})}.items():
        words += _flag(name.replace("_", "-"), value)
    return shlex.join(words if out is None else [*words, "--out", str(out)])


def _flag(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", str(value)]


def _is_default(field: Any, value: Any) -> bool:
    if field.default_factory is not MISSING:
        assert is_dataclass(value), f"{field.name} is no flag"
        return bool(value == field.default_factory())
    return bool(value == field.default)
