"""`anyorder import`: another library's traces (JSONL) -> a run folder."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from anyorder.files import sha256_of
from anyorder.trace import Run, RunCard
from anyorder.trace.interchange import read_jsonl

PART = 512


def import_traces(path: Path, out: Path, *, command: str) -> tuple[Run, int]:
    """The run and how many samples it has. Nothing is written unless the whole file is right."""
    if not path.is_file():
        raise ValueError(f"{path} is not a file: name a .jsonl file of traces")
    count = sum(1 for _ in read_jsonl(path))
    if count == 0:
        raise ValueError(f"{path} holds no trace: write one JSON object per line")
    card = RunCard(command, {"import": path.name}, data_digest=sha256_of(path))
    run = Run.create(out, card)
    if not run.complete:
        traces = read_jsonl(path)
        for part in range(-(-count // PART)):
            run.append(part, list(islice(traces, PART)))
        run.finish()
    return run, count
