"""duo: uniform-state diffusion. `family.py` lists its parts."""
