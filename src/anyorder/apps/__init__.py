"""What needs several rooms at once: the verbs of the command line, as functions."""

from __future__ import annotations
