"""The families of models, a folder each, all of the same shape; see family.py."""

from __future__ import annotations

from anyorder.families.family import (
    FAMILIES,
    Family,
    Network,
    family_names,
    find_family,
    register_family,
)

__all__ = [
    "FAMILIES",
    "Family",
    "Network",
    "family_names",
    "find_family",
    "register_family",
]
