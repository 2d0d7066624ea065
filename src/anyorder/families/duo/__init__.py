"""Part of anyorder, see the files."""

from __future__ import annotations
