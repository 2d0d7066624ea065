"""Masked diffusion over a canvas of fixed length."""

from __future__ import annotations
