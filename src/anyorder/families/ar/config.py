"""The settings of ar: what a user may choose when it decodes. It trains without any of its own."""

from __future__ import annotations

from dataclasses import dataclass

from anyorder.families.config import DrawOptions


@dataclass(frozen=True)
class ArOptions(DrawOptions):
    """How to decode with ar: only the drawing of tokens is open, the order is not."""
