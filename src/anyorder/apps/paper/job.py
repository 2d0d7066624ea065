"""Which published protocol to run on which model: plain, quick to import. The work: protocol.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anyorder.apps.jobs import Count, Name


@dataclass(frozen=True)
class PaperJob:
    """A model, a task and a preset."""

    model: str
    """A hub id, a folder with a published checkpoint, or any other model."""
    preset: str
    """The protocol (docs/presets.md): similarity, dream-coder-order, flexmdm-passk, ..."""
    task: str = "humaneval"
    """A task that it was published for (docs/tasks.md)."""
    data: Name = None
    """The task's file (.jsonl, .json, .gz) or hub dataset; unset: the published dataset."""
    limit: Count = None
    """Only the first problems: a try, whose numbers are not the benchmark's."""
    sweep: bool = False
    """Also the other settings that the source tried, such as every insertion temperature."""
    placement: bool = False
    """Also where the model would have put its tokens, which asks it about the canvases again."""
    batch: Count = None
    """Samples decoded together; unset: 32, or the preset's number."""
    device: str = "cpu"
    """Where to decode: cpu, cuda or cuda:1."""
    workers: Count = None
    """Grading processes; unset: one for each processor."""
    allow_weak_isolation: bool = False
    """Grade even where programs cannot be confined."""
    out: Path = Path("runs/study-published")
    """Below it a run folder for each setting."""

    def __post_init__(self) -> None:
        for name in ("limit", "batch", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name} must be at least 1, not {value}")
