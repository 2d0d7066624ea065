"""From networks to sequences: loops that propose, score, take and record."""

from __future__ import annotations
