"""Masked diffusion over a canvas of fixed length."""
