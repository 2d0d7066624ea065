"""Generations as data: traces, their replay, their files. numpy and pyarrow only."""

from __future__ import annotations

from anyorder.trace.adapters import active_masks
from anyorder.trace.events import Event, Ghost, SlotChange, slot_history
from anyorder.trace.interchange import read_jsonl, write_jsonl
from anyorder.trace.run import Run, RunCard
from anyorder.trace.trace import About, Candidate, Snapshot, Trace

__all__ = [
    "About",
    "Candidate",
    "Event",
    "Ghost",
    "Run",
    "RunCard",
    "SlotChange",
    "Snapshot",
    "Trace",
    "active_masks",
    "read_jsonl",
    "slot_history",
    "write_jsonl",
]
