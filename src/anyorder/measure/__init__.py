"""Traces and programs to numbers: order, similarity, placement, pass@k, intervals. Never torch."""

from __future__ import annotations
