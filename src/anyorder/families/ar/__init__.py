"""Autoregressive models: the baseline family."""

from __future__ import annotations
