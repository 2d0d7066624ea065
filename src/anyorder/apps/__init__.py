"""The verbs of the command line as functions: work that needs several parts of the library."""

from __future__ import annotations
