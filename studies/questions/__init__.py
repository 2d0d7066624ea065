"""The questions of the study: each is a file with one function from stored records to a section."""

from __future__ import annotations
