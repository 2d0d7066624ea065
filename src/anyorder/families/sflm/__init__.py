"""sflm: hyperspherical flow. `family.py` lists its parts."""
