"""Tasks: prompts to sample from, and what a right answer is."""

from __future__ import annotations
