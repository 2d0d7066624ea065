"""latentmdm: masked diffusion over a fixed number of segments. `family.py` lists its parts."""

from __future__ import annotations
