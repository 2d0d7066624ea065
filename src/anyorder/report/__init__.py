"""Figures, and the one-file report with its trace player; reads run folders, decodes nothing."""

from __future__ import annotations
