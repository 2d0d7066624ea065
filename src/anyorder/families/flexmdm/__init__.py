"""Insertion-based masked diffusion (FlexMDM): token canvases that grow."""
