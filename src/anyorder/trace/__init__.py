"""Generations as data: traces, their replay, their files. numpy and pyarrow only."""

from __future__ import annotations

from anyorder.trace.adapters import active_masks
from anyorder.trace.interchange import read_jsonl, write_jsonl
from anyorder.trace.run import Run, RunCard
from anyorder.trace.trace import About, Candidate, Event, Snapshot, Trace

__all__ = [
    "About",
    "Candidate",
    "Event",
    "Run",
    "RunCard",
    "Snapshot",
    "Trace",
    "active_masks",
    "read_jsonl",
    "write_jsonl",
]
