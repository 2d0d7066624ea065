"""duo: uniform-state diffusion. `family.py` lists its parts."""

from __future__ import annotations
