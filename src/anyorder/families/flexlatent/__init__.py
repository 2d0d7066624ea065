"""flexlatent: insertion over segments. `family.py` lists its parts."""

from __future__ import annotations
