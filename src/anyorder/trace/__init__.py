"""What happened, as data: traces, their replay, their files. numpy and pyarrow only."""

from __future__ import annotations

from anyorder.trace.candidate import Candidate
from anyorder.trace.card import RunCard
from anyorder.trace.interchange import read_jsonl, write_jsonl
from anyorder.trace.replay import Snapshot
from anyorder.trace.run import Run
from anyorder.trace.snapshots import active_masks
from anyorder.trace.trace import About, Event, Trace

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
