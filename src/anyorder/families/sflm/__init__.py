"""sflm: hyperspherical flow. `family.py` lists its parts."""

from __future__ import annotations
