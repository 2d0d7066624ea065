"""Generations as data: traces, their replay, their files. numpy and pyarrow only."""

from __future__ import annotations

from anyorder.trace.dataset import from_dataset, to_dataset
from anyorder.trace.events import Event, Ghost, SlotChange, slot_history
from anyorder.trace.history import active_masks, trace_of_slots
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
    "from_dataset",
    "read_jsonl",
    "slot_history",
    "to_dataset",
    "trace_of_slots",
    "write_jsonl",
]
