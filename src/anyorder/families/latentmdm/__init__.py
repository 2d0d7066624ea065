"""latentmdm: masked diffusion over a fixed number of segments. `family.py` lists its parts."""
