"""Insertion-based masked diffusion (FlexMDM): token canvases that grow."""

from __future__ import annotations
